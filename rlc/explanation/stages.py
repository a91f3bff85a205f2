"""The formulas of a stage, and what it learns from other models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rlc.algo import Program, needs_batch, reads
from rlc.catalog import (
    LIKELIHOOD,
    NO_ADVANTAGE,
    Builtin,
    aggregate_traits,
    find_builtin,
    loss_traits,
    preference_traits,
)
from rlc.explanation.layout import ROOM, Lines, wrapped
from rlc.explanation.schemes import Formula, called, reward_formulas, scheme_formulas
from rlc.lang.render import Paint
from rlc.plan import (
    AdamPlan,
    Evaluation,
    KlPlan,
    Likelihood,
    LossPlan,
    ModelState,
    PolicyGradient,
    PreferenceLoss,
    PreferenceLossPlan,
    Rollouts,
    Samples,
    StagePlan,
    Table,
    TeacherPlan,
    Training,
    is_hosted,
    is_text_file,
    is_training,
    show,
)
from rlc.pricing import rollout_shape, shares
from rlc.records import frozen


def formula_sections(stage: StagePlan, paint: Paint) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield titles and lines, in the order in which things are computed."""
    for env in stage.environments:
        if formulas := reward_formulas(env):
            yield f"reward of {env.name}", _formulas(formulas, paint)
    yield from _SECTIONS[stage](stage, paint)
    if is_training(stage):
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
        yield "KL penalty: reference" if kl.coef else "reference", _penalty(objective, kl, paint)
    for teacher in objective.teacher:
        of = f" of {teacher.name}" if teacher.name else ""
        yield f"teacher{of}: {teacher.kind}", _teacher(objective, teacher, paint)
    yield f"aggregation: {objective.aggregate.kind}", _aggregate(stage, paint)
    yield f"loss: {objective.loss.name}", _loss(stage, paint)
    if objective.observations is not None:
        yield "observations", _observations(objective.observations, paint)


def _policy_gradient_formulas(stage: Training) -> dict[str, list[str]]:
    objective = stage.of(PolicyGradient)
    found = {"advantage": [formula.text for formula in scheme_formulas(objective.advantage)]}
    if objective.kl and objective.kl.coef:
        found["kl"] = list(_formula("kl", "reference"))
    for teacher in objective.teacher:
        title = "teacher" if teacher.name is None else f"teacher of {teacher.name}"
        found[title] = _teacher_formula(objective, teacher)
    found["aggregate"] = list(_formula("aggregate", objective.aggregate.kind))
    if objective.observations is not None:
        found["observations"] = [_OBSERVED]
    return found | {"loss": [*loss_formula(objective.loss), *_derivative(objective.loss)]}


def _evaluation_formulas(stage: Evaluation) -> dict[str, list[str]]:
    names = sorted({metric.name for metric in stage.metrics})
    return {"metrics": [text for name in names for text in _formula("metric", name)]}


_SECTIONS: Table[Callable[[Any, Paint], Iterable[tuple[str, Iterable[str]]]]] = Table(
    {
        PolicyGradient: _policy_gradient_sections,
        Likelihood: lambda stage, _: [(f"loss: {LIKELIHOOD.name}", _likelihood(stage))],
        PreferenceLoss: lambda stage, paint: [
            (f"loss: {stage.objective.loss.name}", _preference_loss(stage, paint))
        ],
        Evaluation: lambda stage, paint: [("metrics", _metrics(stage, paint))],
    }
)
_FORMULAS: Table[Callable[[Any], dict[str, list[str]]]] = Table(
    {
        PolicyGradient: _policy_gradient_formulas,
        Likelihood: lambda stage: {"loss": list(_likelihood(stage))},
        PreferenceLoss: lambda stage: {
            "loss": [
                *_preference_formula(stage.objective.loss),
                *_preference_derivatives(stage.objective.loss),
            ]
        },
        Evaluation: _evaluation_formulas,
    }
)


def _likelihood(stage: Training) -> tuple[str, ...]:
    """Return the formula of the data that is learnt, where it has one of its own."""
    data = stage.data[0]
    own = find_builtin("data", data.word)
    learns_shares = data.soft_targets is not None or not hasattr(data, "top_k")
    usual = ("L = − Σ_t log p_t", "t: the tokens of the replies")
    return own.formulas() if own and own.formula and learns_shares else usual


def _builtin(kind: str, name: str) -> Builtin:
    builtin = find_builtin(kind, name)
    if builtin is None:
        raise ValueError(f"the catalogue has no {kind} {name!r}")
    return builtin


def _formula(kind: str, name: str) -> tuple[str, ...]:
    builtin = _builtin(kind, name)
    return builtin.formulas() or (builtin.doc,)


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
    """Yield formulas, the remark of each beside it, or below it where there is no room."""
    told = [formula for formula in formulas if formula.remark]
    width = max((len(formula.text) for formula in told), default=0)
    beside = width + 3 + max((len(formula.remark) for formula in told), default=0) <= ROOM
    for formula in formulas:
        if beside and formula.remark:
            yield f"{formula.text:{width}}   {paint.dim(formula.remark)}"
            continue
        yield from wrapped(formula.text, hang=2)
        if formula.remark:
            yield f"  {paint.dim(formula.remark)}"


def loss_formula(loss: LossPlan) -> tuple[str, ...]:
    """Return the formula of a loss, with the parts that it names."""
    if loss.program is None:
        return _formula("loss", loss.name)
    from rlc.algo import formula

    return formula(loss.program)


def _derivative(loss: LossPlan) -> tuple[str, ...]:
    """Return the derivative of a loss."""
    from rlc.algo import LOSSES, derivative_formula

    return derivative_formula(loss.program or LOSSES[loss.name].program)


def _loss(stage: Training, paint: Paint) -> Lines:
    loss, traits = stage.of(PolicyGradient).loss, loss_traits(stage.of(PolicyGradient).loss)
    for line in (*loss_formula(loss), *_derivative(loss)):
        yield from wrapped(line, hang=2)
    if loss.program is not None:
        yield from map(paint.dim, _of_own_loss(loss, loss.program, stage.model.service))
        return
    if loss.mean:
        yield "L_i = L / n_i, one number for each sequence"
    yield paint.dim(_builtin("loss", loss.name).doc)
    if not traits.published:
        yield paint.dim("Tinker computes a definition of its own, which is not published:")
        yield paint.dim("this is the one of the embedded engine and of `rlc serve`")
    if traits.reaches_prompt:
        yield paint.dim("the service pulls the tokens that were not sampled too: these get the")
        yield paint.dim("trainer's log p_t as their log q_t, by a forward pass before a gradient")
    for name, value in loss.config.items():
        yield f"{name} = {show(value, 'float')}"
    if traits.usual_pull is not None and traits.pull not in loss.config:
        yield paint.dim(f"{traits.pull}: the service's own; {traits.usual_pull:g} on these two")


_OBSERVED = "L = L − observations Σ_o log p_o"


def _observations(weight: float, paint: Paint) -> Lines:
    """Yield how what comes between replies is learnt."""
    yield _OBSERVED
    yield f"observations = {show(weight, 'float')}"
    yield paint.dim("o: the tokens between two replies of a sequence, those of the template too,")
    yield paint.dim(
        "whatever the advantage; they add up as the tokens of replies do, and are learnt"
    )
    yield paint.dim("by a gradient of their own in the same update")


def _preference_loss(stage: Training, paint: Paint) -> Lines:
    objective = stage.of(PreferenceLoss)
    loss = objective.loss
    for line in (*_preference_formula(loss), *_preference_derivatives(loss)):
        yield from wrapped(line, hang=2)
    if loss.program is None:
        yield paint.dim(_builtin("preference_loss", loss.name).doc)
    for name, value in loss.config.items():
        yield f"{name} = {show(value, 'float')}"
    traits = preference_traits(loss)
    yield paint.dim("the mean over a step's " + ("replies" if traits.labelled else "pairs"))
    if objective.reference is not None:
        asked, after = objective.reference.model, objective.reference.after
        whose = f"{after}, as it ends" if after else f"{asked.name} ({asked.base}), as it is"
        yield f"p_ref: {whose}; each reply is read once, and kept in the run folder"
    yield paint.dim("the gradient is that of a log-likelihood whose tokens are weighted by the")
    yield paint.dim("derivative, after a forward pass that the weights follow from")


def _preference_formula(loss: PreferenceLossPlan) -> tuple[str, ...]:
    """Return the formula of a preference loss, with what its symbols are."""
    if loss.program is None:
        return _formula("preference_loss", loss.name)
    from rlc.algo import preference_lines

    return preference_lines(loss.program)


def _preference_derivatives(loss: PreferenceLossPlan) -> tuple[str, ...]:
    """Return the derivatives of a preference loss by the logprobs that it reads."""
    from rlc.algo import preference_candidates, preference_derivatives

    return preference_derivatives(loss.program or preference_candidates()[loss.name])


def _of_own_loss(loss: LossPlan, program: Program, service: str) -> Iterator[str]:
    """Yield what follows from the expression of a recipe's own loss."""
    if needs_batch(program):
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
    if is_hosted(service):
        yield "a custom loss of the service; where it has none, the SDK computes it here, after a"
        yield "forward pass of its own: 1.5 times the training work"


def _read_by(objective: PolicyGradient, scored: str, name: str) -> str:
    """Return what reads the logprobs of a model whose ``coef`` is 0, the advantage as ``name``."""
    reader = "advantage" if reads(objective.advantage, name) else "loss"
    return f"{scored} is read by the {reader}, and nothing is taken off the advantages"


def _penalty(objective: PolicyGradient, kl: KlPlan, paint: Paint) -> Lines:
    if kl.coef:
        yield from _formula("kl", "reference")
    else:
        yield _read_by(objective, "log p_ref,t", "ref")
    discount = f", discount = {kl.discount:g}" if kl.discount else ""
    coef = f"{kl.coef:g}"
    if kl.final is not None:
        coef += f", in even steps to {kl.final:g} in the last"
    yield f"reference = {reference_name(kl.reference)}, coef = {coef}{discount}"
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
        yield f"{name}: {' '.join(builtin.formulas()) or builtin.doc}"
        if builtin.formula:
            yield paint.dim(f"  {builtin.doc}")


def _aggregate(stage: Training, paint: Paint) -> Lines:
    """Yield the formula, and the weight of one token in the gradient."""
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
    where = "as an input of the loss" if loss_traits(loss).weighted else "folded into its advantage"
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
    """Return the effective scale of a stage's loss (weights: :mod:`rlc.algo.aggregate`)."""
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


def whose(state: ModelState) -> str:
    """Return a model with what its weights are from: ``Qwen/Qwen3-32B from main``."""
    weights = state.after or state.model.weights
    return state.model.base if weights is None else f"{state.model.base} from {weights}"


def reference_name(state: ModelState) -> str:
    """Return a reference as a recipe names it: a stage, saved weights or a base model."""
    return state.after or f'"{state.model.weights or state.model.base}"'


def teaching(teacher: TeacherPlan) -> str:
    """Return a teacher in a few words."""
    of = f" in {teacher.name}" if teacher.name else ""
    return f"{teacher.coef:g} × {teacher.kind} from {whose(teacher.model)}{of}"


def sampled(samples: Samples) -> Iterator[str]:
    """Yield what is sampled to be imitated, and how much of it is kept."""
    keep, env, count = samples.keep, samples.env, samples.count
    kept = {"all": "", "solved": " that solve it", "best": ", the best of a task"}.get(
        keep.kind, f" with a reward of at least {keep.reward or 0:g}"
    )
    if keep.function is not None:
        kept = f" that {called(keep.function, keep.args or {})} chooses, a function of your own"
    yield f"{count:,} episodes of {env.name}{kept}, played by {whose(samples.model)}"
    most = f", of which at most {samples.per_task:,} are kept" if samples.per_task else ""
    each = "once" if samples.size == 1 else f"{samples.size:,} times"
    yield f"each task played {each}{most}, at most {count * samples.tries:,} episodes in all"
    if samples.without is not None:
        yield f"learnt without the {samples.without} message that they are played with"
    if samples.top_k is not None:
        yield f"of each token the {samples.top_k:,} that it finds most likely in its place are kept"


def _teacher_formula(objective: PolicyGradient, teacher: TeacherPlan) -> list[str]:
    """Return the formula of a teacher, with the discount if it has one."""
    if not teacher.coef:
        return [_read_by(objective, "log p_teacher,t", "teacher")]
    lines = list(_formula("teacher", teacher.kind))
    if teacher.discount:
        lines[-1:] = ["P_t = − coef d_t + discount P_t+1", "A_t = A_t + P_t"]
    return lines


def _teacher(objective: PolicyGradient, teacher: TeacherPlan, paint: Paint) -> Lines:
    yield from _teacher_formula(objective, teacher)
    more = f", discount = {teacher.discount:g}" if teacher.discount else ""
    more += "" if teacher.top_k is None else f", top_k = {teacher.top_k:,}"
    yield f"teacher = {whose(teacher.model)}, coef = {teacher.coef:g}{more}"
    if teacher.system is not None:
        shown = f'"{teacher.system}"' if teacher.system else "none"
        if is_text_file(teacher.system):
            shown = f"the text of {os.path.basename(teacher.system)}"
        yield from wrapped(f"the system message that it reads: {shown}", hang=2)
    if teacher.demonstration is not None:
        yield f"it is shown the field `{teacher.demonstration}` of the row, after the question"
    yield paint.dim("it reads every sequence once, as soon as that is played")
