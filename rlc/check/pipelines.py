"""Pipelines, weighted sums, ``… then …`` and records of parts: expressions that put other values
together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from rlc.catalog import (
    AS_THEY_COME,
    FORMAT,
    KINDS,
    UNDECIDED,
    Param,
    find_builtin,
    finds_answers,
    grader_traits,
    how_to_make,
    judges_of,
    retry_then,
    with_role,
)
from rlc.check.scalars import LARGEST, describe
from rlc.check.scope import known_values, rename
from rlc.check.values import UnknownValue, Value, said, settle, unwrap
from rlc.lang import Binary, Call, Diagnostics, Expr, Label, Name, Number, RecordExpr
from rlc.plan import EnvPlan, JudgingPlan, PlayPlan, RewardPlan, RolloutsPlan
from rlc.plan.leaves import children_of
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.algo import AdvantageScheme, Program
    from rlc.check.scalars import EvaluatorLike

Mixture = tuple[EnvPlan, ...]


def single(env: Value) -> Mixture:
    """Return a mixture of one, whose leaves have origins of their own: others may be added."""
    record = env.data
    leaves = {
        name: evolve(env, type="any", data=part)
        for name, part in (children_of(record) or {}).items()
        if isinstance(part, str | int | float | None)
    }
    leaves["weight"] = evolve(leaves["weight"], origin="default")
    return (evolve(record, **leaves),)


def report_tasks(given: Mapping[str, Value], found: Diagnostics) -> bool:
    """Return whether the tasks of an agent are one environment, and its graders are given once;
    report if not."""
    tasks, graders = given["tasks"], given["grader"]
    if tasks.data is None:
        message = "nothing says what the agent works on"
        found.error("RL0205", tasks.span, message, 'for example `tasks = rows("shop.jsonl")`')
        return False
    parts: Mixture = tasks.data
    if len(parts) > 1 or unwrap(parts[0].weight) != 1.0:
        message = "the tasks of an agent are those of one environment, without a weight"
        advice = "give each its own agent, and mix these: `3 * agent(…) + agent(…)`"
        found.error("RL0800", tasks.span, message, advice)
        return False
    own: Any = parts[0].graders
    if graders.data and isinstance(own, Value) and not said(own.origin).startswith("default of "):
        label = Label(own.span, "and here")
        message = "what rewards the agent is given twice, with it and with its tasks"
        found.error("RL0803", graders.span, message, "keep one of them", label)
        return False
    return True


def _added(left: Mixture, right: Mixture) -> Mixture:
    """Return the sum of two mixtures. An environment in both is one part: its leaves are the same
    objects wherever its name stands. Equal ones stay apart until :func:`merged`."""
    parts = {_identity(env): env for env in left}
    for env in right:
        earlier = parts.get(_identity(env))
        parts[_identity(env)] = env if earlier is None else _heavier(earlier, env)
    return tuple(parts.values())


def _identity(env: EnvPlan) -> tuple[int, ...]:
    return tuple(id(leaf) for name, leaf in (children_of(env) or {}).items() if name != "weight")


def _heavier(env: EnvPlan, by: EnvPlan) -> EnvPlan:
    weight: Any = env.weight
    return evolve(env, weight=evolve(weight, data=weight.data + unwrap(by.weight)))


def merged(envs: Mixture) -> Mixture:
    """Return each environment once, with all its weight; different ones have different names."""
    parts: list[EnvPlan] = []
    known: defaultdict[str, list[tuple[int, EnvPlan]]] = defaultdict(list)
    taken: set[str] = set()
    for env in envs:
        facts = settle(evolve(env, weight=0.0))  # all but its weight and where it was written
        alike = known[facts.name]
        same = next((index for index, one in alike if one == facts), None)
        if same is None:
            alike.append((len(parts), facts))
            own, name = env.name, str(facts.name)
            if name in taken:
                name = next(n for i in count(2) if (n := f"{facts.name}_{i}") not in taken)
                own = evolve(own, data=name) if isinstance(own, Value) else name
            parts.append(evolve(env, name=own))
            taken.add(name)
        else:
            parts[same] = _heavier(parts[same], env)
    return tuple(parts)


MAX_PARTS = 1_000  # of a mixture
# The settings of an environment: field of its record, and its default value.
_SETTINGS: dict[type, tuple[str, Any]] = {
    RolloutsPlan: ("rollouts", UNDECIDED),
    RewardPlan: ("reward", AS_THEY_COME),
    PlayPlan: ("play", None),
}
_WEIGHT = Param("weight", "float", "share of the tasks, relative to the others", above=0)


def pipeline(evaluator: EvaluatorLike, expr: Binary, want: Param) -> Value | None:
    """Evaluate ``head |> stage``: the head is of the wanted kind, the stage one of its steps."""
    head = evaluator.value(expr.left, want)
    kind = KINDS[want.type].step
    assert kind is not None
    stages = _stages(evaluator, expr.right, Param("a pipeline stage", kind, KINDS[kind].noun))
    if stages is None:
        return None
    for stage in stages:
        head = head and _followed(evaluator, head, stage, expr)
    return head


def part(evaluator: EvaluatorLike, expr: Binary, want: Param) -> Value | None:
    """Evaluate stages that follow each other, with a name of their own: ``wrapper polite = …``."""
    left, right = evaluator.value(expr.left, want), _stages(evaluator, expr.right, want)
    if left is None or right is None:
        return None
    return Value(want.type, (*stages_of(left), *right), expr.span, expr.span)


def stages_of(value: Value) -> tuple[Value, ...]:
    """Return the stages that a value stands for: itself, or those of a part of a pipeline."""
    return value.data if isinstance(value.data, tuple) else (value,)


def _followed(evaluator: EvaluatorLike, head: Value, stage: Value, expr: Binary) -> Value | None:
    if stage.type == "step":
        scheme: Any = head.data
        text = f"{unwrap(scheme.name)} |> {said(stage.origin).removeprefix('definition of ')}"
        own = scheme.name if isinstance(scheme.name, Value) else head
        name: Any = Value("string", text, own.span, own.origin)
        steps: Any = (*scheme.steps, stage)
        followed = _with_step(evaluator, settle(scheme), stage, expr)
        if followed is None:
            return None
        scheme = evolve(followed, name=name, args=scheme.args, steps=steps)
        return evolve(head, data=scheme, span=expr.span)
    if isinstance(stage.data, tuple(_SETTINGS)):
        return _with_setting(evaluator, head, stage, expr)
    if isinstance(stage.data, JudgingPlan):
        envs = tuple(evolve(env, judging=(*env.judging, stage)) for env in head.data)
        return evolve(head, data=envs, span=expr.span)
    if not _may_follow(evaluator, head, stage, expr.right):
        return None
    envs = tuple(evolve(env, wrappers=(*env.wrappers, stage)) for env in head.data)
    return evolve(head, data=envs, span=expr.span)


def _with_step(
    evaluator: EvaluatorLike, scheme: AdvantageScheme, stage: Value, expr: Binary
) -> AdvantageScheme | None:
    """Return a scheme with one more step, or None after a report."""
    from rlc.algo import ExpressionError, WeightedSum, reads, with_step  # most schemes have none

    step = settle(stage)
    try:
        return with_step(scheme, step)
    except ExpressionError as error:
        code, message, advice = "RL0643", str(error), error.hint
        if isinstance(step, WeightedSum) and reads(scheme, "parts"):
            code, advice = "RL0774", "remove it: one `weighted_sum()` is enough"
        elif isinstance(step, WeightedSum) and scheme.function is None:
            code = "RL0789"
            message = "a moving average is one of returns, and components of a reward are added up"
            advice = "take out `weighted_sum()`, or compare the components within groups: `gdpo()`"
        evaluator.found.error(code, expr.right.span, message, advice)
        return None


def _stages(evaluator: EvaluatorLike, expr: Expr, want: Param) -> tuple[Value, ...] | None:
    if isinstance(expr, Name) and find_builtin(want.type, expr.id):
        message = f"`{expr.id}` is a builtin and needs its parentheses"
        evaluator.found.error("RL0208", expr.span, message, f"write `{expr.id}()`")
        return None
    if not (isinstance(expr, Call | UnknownValue) or _is_declared(evaluator, expr)):
        message = f"a stage after `|>` is a call, found {describe(expr)}"
        evaluator.found.error("RL0201", expr.span, message, how_to_make(want.type))
        return None
    value = evaluator.value(expr, want)
    return None if value is None else stages_of(value)


def _is_declared(evaluator: EvaluatorLike, expr: Expr) -> bool:
    return isinstance(expr, Name) and evaluator.scope.knows(expr.id)


def _with_setting(
    evaluator: EvaluatorLike, head: Value, stage: Value, expr: Binary
) -> Value | None:
    """Return the environments with rollout settings, a reduction of rewards, or players."""
    name, unset = _SETTINGS[type(stage.data)]
    for env in head.data:
        earlier = getattr(env, name)
        if unwrap(earlier) != unset:
            label = Label(earlier.span, f"`{name}()` is here")
            message = f"`{name}()` is given twice for one environment"
            evaluator.found.error("RL0305", expr.right.span, message, "keep one of them", label)
            return None
    if name == "reward" and (program := unwrap(stage.data.shaped)) is not None:
        parts = map(settle, head.data)
        if not _report_components(expr.right, program, parts, evaluator.found):
            return None
    envs = tuple(evolve(env, **{name: stage}) for env in head.data)
    return evolve(head, data=envs, span=expr.span)


def _report_components(
    expr: Expr, program: Program, envs: Iterable[EnvPlan], found: Diagnostics
) -> bool:
    """Report components that an environment does not have; return whether it may have all of them.
    Where its components are not known, what is nearly the name of something else is likely that."""
    from rlc.algo import INPUTS, functions_of
    from rlc.check.expressions import names_in  # most recipes shape no reward

    inputs, functions = INPUTS["reward"], functions_of("reward")
    spans = {name.id: name.span for name in names_in(expr)}
    components = [name for name in program.inputs if name not in inputs]
    for env in envs if components else ():
        known = components_of(env)
        names = [*inputs, *(known or ())]
        for name in components:
            span = spans.get(name, expr.span)
            advice, fix = known_values(names, name), rename(span, name, names)
            if known is not None and name not in known:
                message = f"the reward of `{env.name}` has no component `{name}`"
                if name in functions:
                    advice = f"the function needs its arguments: `{functions[name].usage}`"
                found.error("RL0680", span, message, advice, fix=fix)
                return False
            if known is None and fix is not None:
                message = f"`{name}` is taken for a component of the reward of `{env.name}`"
                found.warning("RL0682", span, message, advice, fix=evolve(fix, safe=False))
    return True


def components_of(env: EnvPlan) -> tuple[str, ...] | None:
    """Return the components of an environment's reward; None if only a run can tell."""
    if not env.graders or with_role(env, "game") is not None:
        return None
    names = [part.name for part in env.graders] + [FORMAT] * finds_answers(env)
    (first, *others) = env.graders
    if not others and grader_traits(first.grader).code:
        if not first.args["weights"]:
            return None  # a function returns a number, or several by names of its own
        names = [*first.args["weights"]]
    return (*names, *(judge.name for _, _, judge in judges_of(env)))


def _may_follow(evaluator: EvaluatorLike, head: Value, stage: Value, expr: Expr) -> bool:
    name = unwrap(stage.data.name)
    builtin = find_builtin("wrapper", name)
    assert builtin is not None
    for env in head.data:
        for before in env.wrappers:
            earlier = unwrap(before.data.name)
            if reason := builtin.not_after.get(earlier):
                label = Label(before.span, f"`{earlier}()` is here")
                message = f"`{name}()` cannot come after `{earlier}()`"
                evaluator.found.error("RL0305", expr.span, message, reason, label)
                return False
    return True


def mixture(evaluator: EvaluatorLike, expr: Binary, want: Param) -> Value | None:
    """Evaluate ``3 * a + 1 * b``; ``3 * (2 * a + b)`` is ``6 * a + 3 * b``."""
    if expr.op == "+":
        left, right = evaluator.value(expr.left, want), evaluator.value(expr.right, want)
    else:
        left, right = _weight_and_rest(evaluator, expr, want, _WEIGHT)
    if left is None or right is None:
        return None
    parts: Mixture
    if expr.op == "+":
        parts = _added(left.data, right.data)
    else:
        weights: Any = (evolve(left, data=float(left.data * unwrap(e.weight))) for e in right.data)
        parts = tuple(evolve(e, weight=w) for e, w in zip(right.data, weights, strict=True))
    if len(parts) > MAX_PARTS:
        message = f"this mixture has {len(parts):,} parts, more than {MAX_PARTS:,}"
        advice = "each part is one environment with its wrappers; is a sum repeated in sums?"
        evaluator.found.error("RL0211", expr.span, message, advice)
        return None
    if not all(1 / LARGEST <= unwrap(part.weight) <= LARGEST for part in parts):
        message = "a weight here is too large or too small to compute with"
        evaluator.found.error("RL0203", expr.span, message, "weights are relative to each other")
        return None
    return Value("env", parts, expr.span, expr.span)


def _weight_and_rest(
    evaluator: EvaluatorLike, expr: Binary, want: Param, weight: Param
) -> tuple[Value | None, Value | None]:
    if isinstance(expr.right, Number):
        message = f"a weight comes before its {KINDS[want.type].noun.partition(' ')[2]}"
        advice = f"write `{expr.right.span.text} * {expr.left.span.text}`"
        evaluator.found.error("RL0201", expr.span, message, advice)
        return None, None
    return evaluator.scalars.fitting(expr.left, weight), evaluator.value(expr.right, want)


def then(evaluator: EvaluatorLike, expr: Binary, want: Param) -> Value | None:
    """Evaluate ``retry(n) then …``."""
    if not (isinstance(expr.left, Call | UnknownValue) or _is_declared(evaluator, expr.left)):
        message = f"`then` comes after a number of retries, found {describe(expr.left)}"
        example = f"for example `{KINDS[want.type].example}`"
        evaluator.found.error("RL0201", expr.left.span, message, example)
        return None
    before = KINDS[want.type].before_then
    retry = evaluator.value(expr.left, evolve(want, type=before)) if before else None
    after = evaluator.value(expr.right, want)
    if retry is None or after is None:
        return None
    return Value("failure", retry_then(retry.data, after.data), expr.span, expr.span)


def named_parts(evaluator: EvaluatorLike, expr: Expr, want: Param) -> Value | None:
    """Evaluate a record of parts: ``{ right = math  brief = 0.2 * grade_with("r.py:brief") }``. A
    single part needs no record, and keeps its own name."""
    one = evolve(want, named=False)
    if not isinstance(expr, RecordExpr):
        part = evaluator.value(expr, one)
        return part and evolve(part, data=(_with_origins(part),))
    parts: dict[str, Value] = {}
    complete = True
    for field in expr.fields:
        name, part = field.name, evaluator.value(field.value, one)
        evaluator.found.note("key", name.span, want=want)
        if name.id in parts:
            message = f"the field `{name.id}` is given twice"
            evaluator.found.error("RL0110", name.span, message, "keep one of them")
        if part is None:
            complete = False
        else:
            parts[name.id] = _with_origins(evolve(part, data=evolve(part.data, name=name.id)))
    if not complete:
        return None
    return Value(want.type, tuple(parts.values()), expr.span, expr.span)


def weighted_part(evaluator: EvaluatorLike, expr: Binary, want: Param) -> Value | None:
    """Evaluate ``0.2 * part``."""
    weight, part = _weight_and_rest(evaluator, expr, want, Param("weight", "float", "its share"))
    if weight is None or part is None:
        return None
    product: Any = evolve(weight, data=weight.data * unwrap(part.data.weight))
    return evolve(part, data=evolve(part.data, weight=product), span=expr.span)


def _with_origins(part: Value) -> Value:
    """Return the part with origins of its name, which stands before it, and of its weight."""
    record, origin = part.data, f"definition of {part.type}"
    leaves: dict[str, Any] = {"name": evolve(part, type="string", data=record.name, origin=origin)}
    if not isinstance(getattr(record, "weight", part), Value):
        leaves["weight"] = evolve(part, type="float", data=record.weight, origin="default")
    return evolve(part, data=evolve(record, **leaves))
