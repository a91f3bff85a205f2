"""The formulas of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rlc.algo import needs_batch
from rlc.catalog import (
    LIKELIHOOD,
    NO_ADVANTAGE,
    Builtin,
    aggregate_traits,
    find_builtin,
    loss_traits,
    preference_traits,
)
from rlc.explanation.formulas.distillation import reference_name, teacher_formula, teacher_sections
from rlc.explanation.formulas.rewards import reward_formulas
from rlc.explanation.formulas.schemes import Formula, scheme_formulas
from rlc.explanation.layout import Lines, wrapped
from rlc.lang.render import Paint
from rlc.plan import (
    LOCAL,
    AdamPlan,
    Evaluation,
    KlPlan,
    Likelihood,
    LossPlan,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    StagePlan,
    Table,
    Training,
    is_training,
    show,
)
from rlc.pricing import rollout_shape, shares
from rlc.records import frozen

SFT_LOSS = ("L = − Σ_t log p_t", "t: the tokens of the replies")


def formula_sections(stage: StagePlan, paint: Paint) -> Iterator[tuple[str, Lines]]:
    """Titles and lines, in the order in which things are computed."""
    for env in stage.environments:
        if formulas := reward_formulas(env):
            yield f"reward of {env.name}", _formulas(formulas, paint)
    yield from _SECTIONS[stage](stage, paint)
    if not is_training(stage):
        return
    schedule = stage.optimizer.schedule
    if schedule.kind != "constant" or schedule.warmup:
        yield f"learning rate: {schedule.kind}", _schedule(stage.optimizer, paint)


def stage_formulas(stage: StagePlan) -> dict[str, list[str]]:
    """Return the formulas as data, by the part of the stage that they belong to."""
    rewards = {
        f"reward of {env.name}": [formula.text for formula in formulas]
        for env in stage.environments
        if (formulas := reward_formulas(env))
    }
    found = rewards | _FORMULAS[stage](stage)
    if is_training(stage):
        found["schedule"] = list(_formula("schedule", stage.optimizer.schedule.kind))
    return found


def _policy_gradient_sections(stage: Training, paint: Paint) -> Iterator[tuple[str, Lines]]:
    objective = stage.of(PolicyGradient)
    yield f"advantage: {objective.advantage.name}", _advantage(objective, paint)
    if (kl := objective.kl) is not None:
        yield "KL penalty: reference" if kl.coef else "reference", _penalty(kl, paint)
    yield from teacher_sections(objective, paint)
    yield f"aggregation: {objective.aggregate.kind}", _aggregate(stage, paint)
    yield f"loss: {objective.loss.name}", _loss(stage, paint)


def _policy_gradient_formulas(stage: Training) -> dict[str, list[str]]:
    objective, penalty = stage.of(PolicyGradient), dict[str, list[str]]()
    if objective.kl and objective.kl.coef:
        penalty["kl"] = list(_formula("kl", "reference"))
    for teacher in objective.teacher:
        title = "teacher" if teacher.name is None else f"teacher of {teacher.name}"
        penalty[title] = teacher_formula(teacher)
    return {
        "advantage": [formula.text for formula in scheme_formulas(objective.advantage)],
        **penalty,
        "aggregate": list(_formula("aggregate", objective.aggregate.kind)),
        "loss": [*loss_formula(objective.loss), *_derivative(objective.loss)],
    }


def _likelihood_sections(stage: Training, paint: Paint) -> Iterator[tuple[str, Lines]]:  # noqa: ARG001
    yield f"loss: {LIKELIHOOD.name}", iter(_likelihood(stage))


def _preference_sections(stage: Training, paint: Paint) -> Iterator[tuple[str, Lines]]:
    yield f"loss: {stage.of(PreferenceLoss).loss.name}", _preference_loss(stage, paint)


def _preference_formulas(stage: Training) -> dict[str, list[str]]:
    return {"loss": list(_formula("preference_loss", stage.of(PreferenceLoss).loss.name))}


def _evaluation_sections(stage: Evaluation, paint: Paint) -> Iterator[tuple[str, Lines]]:
    yield "metrics", _metrics(stage, paint)


def _evaluation_formulas(stage: Evaluation) -> dict[str, list[str]]:
    names = sorted({metric.name for metric in stage.metrics})
    return {"metrics": [text for name in names for text in _formula("metric", name)]}


_SECTIONS: Table[Callable[[Any, Paint], Iterator[tuple[str, Lines]]]] = Table(
    {
        PolicyGradient: _policy_gradient_sections,
        Likelihood: _likelihood_sections,
        PreferenceLoss: _preference_sections,
        Evaluation: _evaluation_sections,
    }
)
_FORMULAS: Table[Callable[[Any], dict[str, list[str]]]] = Table(
    {
        PolicyGradient: _policy_gradient_formulas,
        Likelihood: lambda stage: {"loss": list(_likelihood(stage))},
        PreferenceLoss: _preference_formulas,
        Evaluation: _evaluation_formulas,
    }
)


def _likelihood(stage: Training) -> tuple[str, ...]:
    """The log-likelihood, as the data has it where that says so itself."""
    data = stage.data[0]
    own = find_builtin("data", data.word)
    learns_shares = data.soft_targets is not None or not hasattr(data, "top_k")
    return own.formula if own and own.formula and learns_shares else SFT_LOSS


def _builtin(kind: str, name: str) -> Builtin:
    builtin = find_builtin(kind, name)
    if builtin is None:
        raise ValueError(f"the catalogue has no {kind} {name!r}")
    return builtin


def _formula(kind: str, name: str) -> tuple[str, ...]:
    builtin = _builtin(kind, name)
    return builtin.formula or (builtin.doc,)


def _advantage(objective: PolicyGradient, paint: Paint) -> Lines:
    if objective.advantage == NO_ADVANTAGE:
        yield "A = 0"
        yield paint.dim("rewards are measured, and not trained on")
        return
    yield from _formulas(scheme_formulas(objective.advantage), paint)
    if (preset := find_builtin("advantage", objective.advantage.name)) is not None:
        # It names the paper, or the library and its version.
        yield from map(paint.dim, wrapped(preset.doc))


def _formulas(formulas: Sequence[Formula], paint: Paint) -> Lines:
    width = max((len(formula.text) for formula in formulas if formula.remark), default=0)
    for formula in formulas:
        yield f"{formula.text:{width}}   {paint.dim(formula.remark)}".rstrip()


def loss_formula(loss: LossPlan) -> tuple[str, ...]:
    """The formula of a loss, with the parts that it names."""
    if loss.program is None:
        return _formula("loss", loss.name)
    from rlc.algo import formula

    return formula(loss.program)


def _derivative(loss: LossPlan) -> tuple[str, ...]:
    """The derivative of a recipe's own loss; empty for the service's, whose formulas say enough."""
    if loss.program is None:
        return ()
    from rlc.algo import derivative_formula

    return derivative_formula(loss.program)


def _loss(stage: Training, paint: Paint) -> Lines:
    loss = stage.of(PolicyGradient).loss
    if loss.program is not None:
        for line in (*loss_formula(loss), *_derivative(loss)):
            yield from wrapped(line, hang=2)
        yield from map(paint.dim, _of_own_loss(stage))
        return
    yield from loss_formula(loss)
    if loss.mean:
        yield "L_i = L / n_i, one number for each sequence"
    yield paint.dim(_builtin("loss", loss.name).doc)
    if not loss_traits(loss).published:
        yield paint.dim("Tinker computes a definition of its own, which is not published:")
        yield paint.dim("this is the one of the embedded engine and of `rlc serve`")
    for name, value in loss.config.items():
        yield f"{name} = {show(value, 'float')}"


def _preference_loss(stage: Training, paint: Paint) -> Lines:
    objective = stage.of(PreferenceLoss)
    loss = objective.loss
    yield from _formula("preference_loss", loss.name)
    yield paint.dim(_builtin("preference_loss", loss.name).doc)
    for name, value in loss.config.items():
        yield f"{name} = {show(value, 'float')}"
    traits = preference_traits(loss.name)
    yield paint.dim("the mean over a step's " + ("replies" if traits.labelled else "pairs"))
    if objective.reference is not None:
        asked, after = objective.reference.model, objective.reference.after
        whose = f"{after}, as it ends" if after else f"{asked.name} ({asked.base}), as it is"
        yield f"p_ref: {whose}; each reply is read once, and kept in the run folder"
    yield paint.dim("dL/dlog p of a token is a weight for its reply, so the gradient is that of a")
    yield paint.dim("weighted log-likelihood, after a forward pass that the weights follow from")


def _of_own_loss(stage: Training) -> Iterator[str]:
    """What follows from the expression of a recipe's own loss."""
    loss = stage.of(PolicyGradient).loss
    if loss.program is not None and needs_batch(loss.program):
        whose = "trainer's, after a forward pass" if loss_traits(loss).forward else "sampler's"
        yield "`batch_…` is taken over all sampled tokens of a step, before its first gradient, of"
        yield f"the advantages as they are; logprobs there are the {whose}"
        yield "the weight of a sequence multiplies its loss"
    elif loss_traits(loss).weighted:
        yield "not of degree 1 in A: the weight of a sequence multiplies its loss"
    else:
        yield "of degree 1 in A: the weight of a sequence is folded into its advantages"
    if loss.by_sequence:
        yield "one number for each sequence, which counts like the loss of one token"
    if stage.model.service != LOCAL:
        yield "a custom loss of the service; where it has none, the SDK computes it here, after a"
        yield "forward pass of its own: 1.5 times the training work"


def _penalty(kl: KlPlan, paint: Paint) -> Lines:
    if kl.coef:
        yield from _formula("kl", "reference")
    else:
        yield "log p_ref,t is read by the loss, and nothing is taken off the advantages"
    discount = f", discount = {kl.discount:g}" if kl.discount else ""
    yield f"reference = {reference_name(kl.reference)}, coef = {kl.coef:g}{discount}"
    yield paint.dim("the reference reads every sequence of a batch once")


def _schedule(optimizer: AdamPlan, paint: Paint) -> Lines:
    schedule = optimizer.schedule
    yield from _formula("schedule", schedule.kind)
    floor = f", floor = {schedule.floor:g}" if schedule.kind != "constant" else ""
    yield f"lr = {optimizer.learning_rate:g}, warmup = {schedule.warmup:,}{floor}"
    if schedule.warmup:
        yield paint.dim("in the first `warmup` steps the rate rises to lr in a straight line")


def _metrics(stage: Evaluation, paint: Paint) -> Lines:
    for metric in stage.metrics:
        builtin = _builtin("metric", metric.name)
        name = metric.name if metric.k is None else f"{metric.name}({metric.k})"
        yield f"{name}: {' '.join(builtin.formula) or builtin.doc}"
        if builtin.formula:
            yield paint.dim(f"  {builtin.doc}")


def _aggregate(stage: Training, paint: Paint) -> Lines:
    """The formula, and what one token then weighs in the gradient."""
    objective = stage.of(PolicyGradient)
    aggregate, loss = objective.aggregate, objective.loss
    yield from _formula("aggregate", aggregate.kind)
    if aggregate.length is not None:
        yield f"length = {aggregate.length:,}"
    scale = loss_scale(stage)
    what = f"about {scale.sequences:,.0f} sequences with {scale.tokens:,.0f} sampled tokens"
    yield f"an update sums over {what}"
    one = "sequence" if loss.by_sequence else "token"
    if aggregate_traits(aggregate.kind).over is None:
        yield paint.dim(f"each {one} weighs 1, so the gradient grows with the batch")
        return
    pulls = loss_traits(loss).weighted
    where = "as an input of the loss" if pulls else "folded into its advantage"
    yield f"each {one} weighs about {scale.weight:.3g}, {where}"
    yield paint.dim("Adam undoes a constant factor, except in eps and grad_clip_norm")


@frozen
class LossScale:
    """The expected size of one optimiser update: its sequences, the tokens sampled in them, and the
    weight of one such token in the gradient (its mean, where sequences differ)."""

    sequences: float
    tokens: float
    weight: float


def loss_scale(stage: Training) -> LossScale:
    """The effective scale of a stage's loss (weights: :mod:`rlc.algo.aggregate`)."""
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    batch, part, sequences, tokens = source.batch, shares(source.envs), 0.0, 0.0
    for env in source.envs:
        shape = rollout_shape(env, stage.model, source.sampling, "expected")
        rollouts = batch.count * env.rollouts.group * part[env.name]
        if batch.kind == "turns":
            turns = sum(e.copies * e.turns for e in shape)
            rollouts = batch.count / turns * part[env.name]
        sequences += rollouts * sum(e.copies * (1 if e.one_datum else e.turns) for e in shape)
        tokens += rollouts * sum(e.copies * e.sampled() for e in shape)
    sequences, tokens = sequences / batch.updates, tokens / batch.updates
    weight = aggregate_traits(objective.aggregate.kind).token_weight
    counted = sequences if objective.loss.by_sequence else tokens
    return LossScale(sequences, tokens, weight(sequences, counted, objective.aggregate.length))
