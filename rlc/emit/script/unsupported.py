"""What of a plan one script cannot do, each with its place in the recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from rlc.algo import AdvantageScheme, needs_batch
from rlc.catalog import (
    CATALOGUE,
    DEFAULT_DEADLINES,
    DEFAULT_GIVE_UP,
    TEMPLATES,
    aggregate_traits,
    loss_traits,
    model_price,
    provider,
    source_traits,
    with_role,
    wrapper_traits,
)
from rlc.lang import Diagnostic, Severity, Span, read_source
from rlc.plan import (
    MAX_TURNS,
    STEP_TIMEOUT,
    Chats,
    EnvPlan,
    Evaluation,
    Likelihood,
    Plan,
    PolicyGradient,
    PreferenceLoss,
    Rollouts,
    StagePlan,
    Table,
    Training,
    hub_dataset,
    is_training,
)
from rlc.records import values_of

ADVICE = "`--target job` writes any plan"
STAGES, ENVIRONMENT, VALUE, WATCHED = "RL0820", "RL0821", "RL0822", "RL0823"


@frozen
class Misfit:
    """``path`` is that of what does not fit, in the plan of its stage."""

    code: str
    path: str
    message: str


def misfits(plan: Plan) -> list[Diagnostic]:
    """Return an error for each thing in a plan that a script cannot do."""
    stage = plan.stages[0]
    if len(plan.stages) > 1:
        second = plan.stages[1]
        message = f"a script is one stage, and this job goes on with `{second.name}`"
        return [_placed(plan, second, Misfit(STAGES, "", message))]
    found = [_placed(plan, stage, one) for one in _of_stage(stage)]
    for expectation in plan.expectations:
        if expectation.after:
            message = f"`expect {expectation.text}`: a script judges nothing at its end"
            place = plan.provenance.get(f"expect {expectation.compared}", "")
            found.append(_at(plan, place, Misfit(WATCHED, "", message)))
    return found


def _of_stage(stage: StagePlan) -> Iterator[Misfit]:
    yield from _BY_KIND[stage](stage)
    there = provider(stage.model.service)
    if there.hosted and there.models != CATALOGUE:
        yield Misfit(VALUE, "model.service", f"a script talks to Tinker, and not to `{there.name}`")
    if is_training(stage):
        if stage.track:
            name = stage.track[0].name
            yield Misfit(WATCHED, "track", f"`{name}()`: a script writes metrics to a file only")
        if stage.save.best:
            yield Misfit(WATCHED, "save", "`best`: a script keeps the newest checkpoints only")
        if stage.deadlines != DEFAULT_DEADLINES:
            yield Misfit(WATCHED, "deadlines", "`deadlines`: a script has none")
        price = model_price(stage.model)
        unknown = price is None or None in values_of(price).values()
        if stage.budget.usd is not None and unknown:
            what = f"`budget` in dollars: not all prices of `{stage.model.base}` are known"
            yield Misfit(WATCHED, "budget", what)


def _train(stage: Training) -> Iterator[Misfit]:
    source = stage.of(Rollouts)
    for env in source.envs:
        for message in _environment(env):
            yield Misfit(ENVIRONMENT, f"envs.{env.name}", f"`{env.name}`: {message}")
    watched = {
        "kl_guard": source.kl_guard is not None,
        "give_up": source.give_up not in (None, DEFAULT_GIVE_UP),
        "sampling": source.sampling.concurrency is not None,
    }
    for name, asked in watched.items():
        if asked:
            yield Misfit(WATCHED, name, f"`{name}`: a script watches nothing of the kind")
    if source.on_error.then == "penalise":
        yield Misfit(WATCHED, "on_error", "`penalise()`: a script leaves failed rollouts out")
    for path, message in _values(stage):
        yield Misfit(VALUE, path, message)


def _none_for(does: str) -> Callable[[Any], Iterator[Misfit]]:
    def refused(stage: StagePlan) -> Iterator[Misfit]:
        yield Misfit(STAGES, "", f"`{stage.name}` {does}, which a script does not")

    return refused


def _environment(env: EnvPlan) -> Iterator[str]:
    if not source_traits(env.source).scripted:
        yield f"a script plays environments of GEM, not of `{env.source}()`"
    for wrapper in env.wrappers:
        if not wrapper_traits(wrapper.name).scripted:
            yield f"`{wrapper.name}()` is not written by a script"
    for judging in env.judging:
        yield f"a script asks no judge, and this is `{judging.name}()`"
    chat, template = with_role(env, "chat"), with_role(env, "template")
    if chat is not None and chat.args.get("system"):
        yield "`system` is not written by a script"
    if template is not None and template.args["name"] not in TEMPLATES:
        yield "a template from a file is not written by a script"
    own, reward = env.rollouts, env.reward
    limits = (own.max_failures, own.timeout, own.turn_timeout, own.step_timeout, own.max_turns)
    if limits != (None, None, None, STEP_TIMEOUT, MAX_TURNS):
        yield "`rollouts()` limits failures, time or turns, which a script does not"
    plain = reward.reduce in ("turns", "sum") and reward.nonterminal is None
    if not plain or reward.shaped is not None or (reward.low, reward.high) != (None, None):
        yield "`reward()`: a script adds up the rewards of the turns"


def _values(stage: Training) -> Iterator[tuple[str, str]]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, weighs = (
        loss_traits(objective.loss),
        aggregate_traits(objective.aggregate.kind).over,
    )
    if source.overlap.kind != "synchronous":
        yield "overlap", f"`{source.overlap.kind}()`: a script samples, then trains"
    if (function := objective.advantage.function) is not None:
        yield "advantage", f"`{function}`: a script calls no function of one's own"
    if objective.kl is not None:
        yield "kl", "`kl`: a script has no reference model"
    if objective.teacher:
        yield "teacher", "`teacher`: a script asks no other model"
    if source.batch.updates > 1:
        yield "batch", "`updates`: a script makes one update of each batch"
    if source.batch.resample:
        yield "batch", "`resample`: a script replaces no groups"
    if source.sampling.max_prompt_tokens or source.sampling.max_episode_tokens:
        yield "sampling", "`sample()`: a script limits replies, not prompts or episodes"
    if source.sampling.stop or any(env.rollouts.stop for env in source.envs):
        yield "sampling", "`stop`: in a script the renderer alone ends replies"
    if loss.per_sequence:
        yield (
            "loss",
            f"`{objective.loss.name}()`: its sequence mask is not written by a script",
        )
    if objective.loss.program is not None and needs_batch(objective.loss.program):
        yield (
            "loss",
            f"`{objective.loss.name}`: a script computes nothing over a batch beforehand",
        )
    if loss.reference or loss.forward:
        yield (
            "loss",
            f"`{objective.loss.name}`: a script computes no other logprobs beforehand",
        )
    if weighs == "task":
        yield (
            "aggregate",
            f"`{objective.aggregate.kind}()` is not written by a script",
        )
    if loss.pull is not None and weighs is not None:
        yield (
            "aggregate",
            f"`{objective.loss.name}()` is written with `token_sum()` only",
        )
    if not _computes(objective.advantage):
        yield (
            "advantage",
            f"`{objective.advantage.name}` has a step that a script does not compute",
        )


def imitated(stage: Training) -> Chats | None:
    """Return the chats that a stage imitates; None if it imitates something else."""
    return next((data for data in stage.data[:1] if isinstance(data, Chats)), None)


def _computes(scheme: AdvantageScheme) -> bool:
    """Whether the pieces have all steps of a scheme."""
    return not scheme.name


def _sft(stage: Training) -> Iterator[Misfit]:
    data = imitated(stage)
    if stage.heldout is not None:
        yield Misfit(WATCHED, "heldout", "`heldout`: a script scores nothing but what it learns")
    if data is None:
        yield Misfit(STAGES, "data", "a script imitates the chats of a file, and nothing else")
        return
    if hub_dataset(data.path) is not None or not data.path.endswith((".jsonl", ".ndjson")):
        yield Misfit(VALUE, "data", f"a script reads files of JSON lines, not {data.path}")
    elif data.split not in (None, "train"):
        yield Misfit(VALUE, "data", "`split`: a script reads all rows of its file")
    if data.too_long == "drop" or data.max_tokens is not None:
        yield Misfit(VALUE, "data", "a script takes chats of any length")


_BY_KIND: Table[Callable[[Any], Iterator[Misfit]]] = Table(
    {
        PolicyGradient: _train,
        Likelihood: _sft,
        PreferenceLoss: _none_for("learns from preferences"),
        Evaluation: _none_for("evaluates"),
    }
)


def _placed(plan: Plan, stage: StagePlan, found: Misfit) -> Diagnostic:
    """A misfit at the place of the recipe that decided it, or else that of its field or stage."""
    start = f"stages.{stage.name}."
    told = (v for k, v in plan.provenance.items() if k.startswith(f"{start}{found.path}."))
    place = next((one for one in told if re.search(r":\d+", one)), None) if found.path else None
    if place is not None:
        return _at(plan, place, found)
    return _at(plan, plan.provenance.get(f"{start}name", ""), found)


def _at(plan: Plan, place: str, found: Misfit) -> Diagnostic:
    """A misfit in a line of the recipe; behind that of the stage its field is looked for."""
    named = re.search(r"(\S+?):(\d+)", place)
    source, span = None if named is None else read_source(named[1])[0], None
    if source is not None and named is not None:
        line = source.line_starts[min(int(named[2]), len(source.line_starts)) - 1]
        field = re.compile(rf"\b{found.path}\s*=") if found.path.isidentifier() else None
        if at := field and field.search(source.text, line):
            line = source.line_starts[source.position(at.start())[0] - 1]
        text = re.compile(r"[^\S\n]*(.*?)[^\S\n]*(#.*)?$", re.MULTILINE).match(source.text, line)
        span = None if text is None else Span(source, text.start(1), max(text.end(1), line + 1))
    file = named[1] if named else plan.recipe
    return Diagnostic(found.code, Severity.ERROR, found.message, span, ADVICE, file=file)
