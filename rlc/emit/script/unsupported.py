"""What of a plan one script cannot do, each with its place in the recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

from rlc.algo import INPUTS, needs_batch, unwritten
from rlc.catalog import (
    CATALOGUE,
    DEFAULT_DEADLINES,
    DEFAULT_GIVE_UP,
    TEMPLATES,
    aggregate_traits,
    builtins_of,
    code_of,
    code_of_data,
    ends_with_text,
    goes_on,
    is_chat,
    loss_traits,
    max_turns,
    model_price,
    provider,
    source_traits,
    tracker_traits,
    with_role,
    wrapper_traits,
)
from rlc.data import OWN, Code, DataError, OwnFunction, search_beside
from rlc.emit.script.environments import has_grade, is_known_set, parameters_of
from rlc.emit.script.learnt import EXAMPLES
from rlc.emit.script.values import limits_of
from rlc.lang import Diagnostic, Severity, Span, read_source
from rlc.plan import (
    MAX_TURNS,
    STEP_TIMEOUT,
    EnvPlan,
    Evaluation,
    ExpectationPlan,
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
MEASURED = ("loss/mean", "accuracy", "heldout/loss", "heldout/accuracy")
STAGES, ENVIRONMENT, VALUE, WATCHED = "RL0820", "RL0821", "RL0822", "RL0823"


@frozen
class Misfit:
    """``path`` is that of what does not fit, in the plan of its stage."""

    code: str
    path: str
    message: str


def misfits(plan: Plan) -> list[Diagnostic]:
    """Return an error for each thing in a plan that a script cannot do."""
    search_beside(plan.recipe)  # for code of one's own
    stage = plan.stages[0]
    if len(plan.stages) > 1:
        second = plan.stages[1]
        message = f"a script is one stage, and this job goes on with `{second.name}`"
        return [_placed(plan, second, Misfit(STAGES, "", message))]
    found = [_placed(plan, stage, one) for one in _of_stage(stage)]
    for expectation in plan.expectations:
        if expectation.after and not _is_judged(expectation, stage):
            message = f"`expect {expectation.text}`: a script judges what it measures last"
            place = plan.provenance.get(f"expect {expectation.compared}", "")
            found.append(_at(plan, place, Misfit(WATCHED, "", message)))
    return found


def _of_stage(stage: StagePlan) -> Iterator[Misfit]:
    yield from _BY_KIND[stage](stage)
    there = provider(stage.model.service)
    if there.hosted and there.models != CATALOGUE:
        yield Misfit(VALUE, "model.service", f"a script talks to Tinker, and not to `{there.name}`")
    if is_training(stage):
        for track in stage.track:
            if not tracker_traits(track.name).scripted:
                what = f"`{track.name}()`: a script writes metrics to a file, and to W&B"
                yield Misfit(WATCHED, "track", what)
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
        for message in _environment(env, stage.model.renderer):
            yield Misfit(ENVIRONMENT, f"envs.{env.name}", f"`{env.name}`: {message}")
    watched = {
        "kl_guard": source.kl_guard is not None,
        "give_up": source.give_up not in (None, DEFAULT_GIVE_UP),
        "sampling": source.sampling.concurrency is not None,
        "heldout": stage.heldout is not None,
    }
    for name, asked in watched.items():
        if asked:
            yield Misfit(WATCHED, name, f"`{name}`: a script watches nothing of the kind")
    if source.players is not None and source.players.kind != "here":
        yield Misfit(WATCHED, "players", "`players`: a script plays all episodes in one process")
    if source.on_error.then == "stop" and source.batch.kind == "turns":
        yield Misfit(WATCHED, "on_error", "`stop`: with `turns()` failed rollouts are left out")
    if source.on_error.then == "penalise":
        yield Misfit(WATCHED, "on_error", "`penalise()`: a script leaves failed rollouts out")
    for path, message in _values(stage):
        yield Misfit(VALUE, path, message)


def _is_judged(one: ExpectationPlan, stage: StagePlan) -> bool:
    """Return whether a script judges an expectation: of what its last step measures."""
    known = one.quantity.key in MEASURED and one.quantity.stage == stage.name
    whole = is_training(stage) and not limits_of(stage)
    return known and whole and one.quantity.over == "last" and not one.terms


def _none_for(does: str) -> Callable[[Any], Iterator[Misfit]]:
    def refused(stage: StagePlan) -> Iterator[Misfit]:
        yield Misfit(STAGES, "", f"`{stage.name}` {does}, which a script does not")

    return refused


def _environment(env: EnvPlan, renderer: str) -> Iterator[str]:
    known = [one.name for one in builtins_of("env") if source_traits(one.name).scripted]
    if env.source not in known or env.agent is not None:
        listed = ", ".join(f"`{name}()`" for name in known)
        yield f"a script plays {listed}, not {'agents' if env.agent else f'`{env.source}()`'}"
        return
    for wrapper in env.wrappers:
        if not wrapper_traits(wrapper.name).scripted:
            yield f"`{wrapper.name}()` is not written by a script"
    chooser = with_role(env, "curriculum")
    if chooser is not None and ("by" in chooser.args or not source_traits(env.source).graded):
        yield "`curriculum()`: a script chooses among rows, by how well they were solved"
    for judging in env.judging:
        yield f"a script asks no judge, and this is `{judging.name}()`"
    template = with_role(env, "template")
    if template is not None and template.args["name"] not in TEMPLATES:
        yield "a template from a file is not written by a script"
    own, shaped = env.rollouts, env.reward.shaped
    limits = (own.max_failures, own.timeout, own.turn_timeout, own.step_timeout, own.max_turns)
    if limits != (None, None, None, STEP_TIMEOUT, MAX_TURNS):
        yield "`rollouts()` limits failures, time or turns, which a script does not"
    if is_chat(env) and max_turns(env) != 1 and not goes_on(env, renderer):
        yield "`history = template` writes earlier turns anew, which a script does not"
    elif is_chat(env) and max_turns(env) != 1 and ends_with_text(renderer):
        yield f"the renderer `{renderer}` ends turns with text, which a script does not"
    for name in () if shaped is None else set(shaped.inputs) - {*INPUTS["reward"]}:
        yield f"`reward()`: a script knows no component `{name}` of the reward"
    if shaped is not None and chooser is not None:
        yield "`reward()`: a script has no curriculum by rewards before they are shaped"
    yield from _graded(env) if source_traits(env.source).graded else _coded(env)


def _graded(env: EnvPlan) -> Iterator[str]:
    """What a script cannot do of an environment of rows with graders."""
    files = [env.args[name] for name in ("few_shot",) if env.args.get(name)]
    for path in (*files, *([] if is_known_set(env.id) else [env.id])):
        if (told := _unread(path)) is not None:
            yield told
    for grader in env.graders:
        if grader.grader == OWN:
            try:
                own = OwnFunction(grader.args["function"], grader.args["weights"])
            except DataError as error:
                yield str(error)
                continue
            if own.whole or own.awaited:
                what = "the conversation" if own.whole else "an `async` function"
                yield f"`{own.target}`: a script grades by the reply, not with {what}"
        elif not has_grade(grader.grader):
            yield f"`{grader.grader}` is not a grader of a script"


def _coded(env: EnvPlan) -> Iterator[str]:
    """What a script cannot do of an environment that Python code makes."""
    if env.args.get("self_play") or env.args.get("rows"):
        what = "self_play" if env.args.get("self_play") else "rows"
        yield f"`{what}`: a script plays the groups of a builder, each member alone"
    for _, code in code_of(env):
        yield from _unknown(code)


def _unknown(code: Code) -> Iterator[str]:
    """Why it is not known what code takes, if it is not."""
    try:
        parameters_of(code.target)
    except DataError as error:
        yield f"what `{code.target}` takes is found out by importing it: {error}"


def _unread(path: str) -> str | None:
    if hub_dataset(path) is not None or path.endswith((".jsonl", ".ndjson")):
        return None
    return f"a script reads files of JSON lines and data sets of the hub, not {path}"


def _values(stage: Training) -> Iterator[tuple[str, str]]:
    source, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    loss, weighs = loss_traits(objective.loss), aggregate_traits(objective.aggregate.kind).over
    if source.overlap.overlaps:
        yield "overlap", f"`{source.overlap.kind}()`: a script samples, then trains"
    if (function := objective.advantage.function) is not None:
        yield "advantage", f"`{function}`: a script calls no function of one's own"
    if objective.observations is not None:
        yield "observations", "`observations`: a script learns from replies alone"
    for teacher in objective.teacher:
        if teacher.system or teacher.demonstration or teacher.top_k:
            yield "teacher", f"`{teacher.kind}()`: a script asks for logprobs of the same tokens"
        known = [limit for limit in (teacher.model.model.context, stage.model.context) if limit]
        if known[:1] != [max(known, default=None)]:
            yield "teacher", "`teacher`: its context is shorter than that of the model it teaches"
    if stage.budget.usd is not None and (objective.kl or objective.teacher):
        yield "budget", "`budget` in dollars: a script does not count what other models cost"
    if source.sampling.stop or any(env.rollouts.stop for env in source.envs):
        yield "sampling", "`stop`: in a script the renderer alone ends replies"
    name = objective.loss.name
    if objective.loss.program is not None and needs_batch(objective.loss.program):
        yield "loss", f"`{name}`: a script computes nothing over a batch beforehand"
    elif loss.forward:
        yield "loss", f"`{name}`: a script computes no logprobs of the trainer beforehand"
    if loss.pull is not None and weighs is not None:
        yield "aggregate", f"`{name}()` is written with `token_sum()` only"
    for part in dict.fromkeys(unwritten(objective.advantage)):
        name = objective.advantage.name
        yield "advantage", f"`{name}` reads `{part}`, which a script does not compute"


def _sft(stage: Training) -> Iterator[Misfit]:
    for name, data in zip(("data", "heldout"), stage.data, strict=False):
        code = code_of_data(data)
        if type(data) not in EXAMPLES:
            what = f"`{data.word}()`: a script imitates rows, and builders of the cookbook"
            yield Misfit(STAGES, name, what)
        elif code is not None:
            yield from (Misfit(VALUE, name, told) for told in _unknown(code))
        elif (told := _unread(str(data.file))) is not None:
            yield Misfit(VALUE, name, told)


def _preference(stage: Training) -> Iterator[Misfit]:
    for name, data in zip(("data", "heldout"), stage.data, strict=False):
        names = ("prompt", "chosen", "rejected", "reply", "label")
        if type(data) not in EXAMPLES or any(getattr(data, one, None) for one in names):
            what = f"`{data.word}()`: a script reads rows of files with the usual names of fields"
            yield Misfit(VALUE, name, what)
        elif (told := _unread(str(data.file))) is not None:
            yield Misfit(VALUE, name, told)
    if stage.budget.usd is not None and stage.of(PreferenceLoss).reference is not None:
        what = "`budget` in dollars: a script does not count what other models cost"
        yield Misfit(WATCHED, "budget", what)


_BY_KIND: Table[Callable[[Any], Iterator[Misfit]]] = Table(
    {
        PolicyGradient: _train,
        Likelihood: _sft,
        PreferenceLoss: _preference,
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
