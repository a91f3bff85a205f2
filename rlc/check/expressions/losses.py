"""Losses of a recipe's own: a block of named parts, the last of which is what is minimised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from rlc.algo.expressions.program import ExpressionError, Program, Shape
from rlc.catalog.index import known_loss
from rlc.check.expressions.findings import report_findings
from rlc.check.expressions.lower import Evaluator, Lowering, taken
from rlc.check.settle import settle
from rlc.check.suggest import known_values, rename
from rlc.check.values import Value, said, unwrap
from rlc.lang.ast import BlockDecl, Field
from rlc.lang.diagnostics import Label
from rlc.plan.parts import LossPlan

# The fields that a loss can end with, and what each is.
_RESULTS: Mapping[str, Shape] = {"token": "token", "sequence": "sequence"}
_SAID: Mapping[Shape, str] = {
    "number": "the same number everywhere",
    "sequence": "one value for each sequence",
    "token": "one value for each token",
}


def own_loss(decl: BlockDecl, evaluator: Evaluator) -> Value | None:
    """Return the loss of a block, or None after a report."""
    found = evaluator.found
    lowering = Lowering(evaluator, "loss")
    fields = _parts(decl, evaluator)
    if (result := _result(decl, evaluator)) is None:
        return None
    # What an amendment adds stands behind the result, and may be a part of it.
    parts = [field for field in fields if field.name.id not in _RESULTS]
    lowering.later = {field.name.id: field.name.span for field in parts}
    for field in parts:
        name = lowering.defining = field.name.id
        node = lowering.parts[name] = lowering.node(field.value)
        if node is not None:
            lowering.builder.name(node, name)
        del lowering.later[name]
    lowering.defining = result.name.id
    output = lowering.node(result.value)
    if output is None or None in lowering.parts.values() or len(fields) < len(decl.fields):
        return None
    _report_unused(parts, result, lowering)
    if (program := _program(result, output, lowering)) is None:
        return None
    report_findings(program, lowering, result.value.span, found)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    made: Any = Value("loss", program, result.value.span, result.value.span)
    mean: Any = Value("bool", False, place, f"definition of {decl.name.id}")
    return Value("loss", LossPlan(called, {}, made, mean), place, place)


def _parts(decl: BlockDecl, evaluator: Evaluator) -> list[Field]:
    """The fields that can be parts, each once."""
    known: dict[str, Field] = {}
    for field in decl.fields:
        name = field.name.id
        if (first := known.setdefault(name, field)) is not field:
            label = Label(first.name.span, "first given here")
            message = f"the field `{name}` is given twice"
            evaluator.found.error("RL0110", field.name.span, message, "keep one of them", label)
        elif "." in name or taken("loss", name):
            meaning = taken("loss", name) or "a part has a plain name"
            message = f"no part of a loss can be called `{name}`"
            evaluator.found.error("RL0653", field.name.span, message, f"{name}: {meaning}")
            del known[name]
    return list(known.values())


def _result(decl: BlockDecl, evaluator: Evaluator) -> Field | None:
    """The field that says what is minimised, or None after a report."""
    results = [field for field in decl.fields if field.name.id in _RESULTS]
    if not results:
        if not decl.unread & set(_RESULTS):
            advice = "end with `token = …`, a loss for each token, or `sequence = …`, one for all"
            fix = None
            if decl.fields:
                last = decl.fields[-1].name
                fix = rename(last.span, last.id, list(_RESULTS))
                advice = known_values(list(_RESULTS), last.id) if fix else advice
            message = f"nothing says what the loss `{decl.name.id}` is"
            evaluator.found.error("RL0647", decl.name.span, message, advice, fix=fix)
        return None
    first, *others = results
    for other in others:
        if other.name.id != first.name.id:  # the same one twice is reported as such
            label = Label(first.name.span, f"and here a `{first.name.id}` loss")
            message = f"`{decl.name.id}` is both a loss of each token and one of each sequence"
            evaluator.found.error("RL0647", other.name.span, message, "keep one of them", label)
            return None
    return first


def _program(result: Field, output: int, lowering: Lowering) -> Program | None:
    """The program of the result, if it is what its field says."""
    builder, kind = lowering.builder, result.name.id
    span, shape = result.value.span, builder.shape(output)
    if not builder.is_condition(output) and shape not in ("number", _RESULTS[kind]):
        message = f"`{kind}` is {_SAID[_RESULTS[kind]]}, and this is {_SAID[shape]}"
        advice = "`mean(…)` or `sum(…)` makes one value of those of the tokens"
        fix = None
        if kind == "token":
            advice = "write `sequence = …`"
            fix = rename(result.name.span, kind, ["sequence"])
        lowering.found.error("RL0643", span, message, advice, fix=fix)
        return None
    try:
        return builder.program(output)
    except ExpressionError as error:
        code = "RL0643" if builder.is_condition(output) else "RL0644"
        lowering.found.error(code, span, str(error), error.hint)
        return None


def _report_unused(parts: list[Field], result: Field, lowering: Lowering) -> None:
    """Warn of parts that the result is not made of."""
    used, waiting = set[str](), [result.name.id]
    while waiting:
        if (name := waiting.pop()) not in used:
            used.add(name)
            waiting += lowering.uses.get(name, ())
    for field in parts:
        if field.name.id not in used:
            message = f"the loss is not made of `{field.name.id}`"
            lowering.found.warning("RL0645", field.name.span, message, "use it, or take it out")


def as_served(loss: Value, stage: Mapping[str, Value]) -> Value:
    """Return a recipe's own loss as the service's, where it is one of those by another name;
    otherwise as it is. ``stage`` has the other parts of the stage that it is for."""
    program = unwrap(loss.data.program)
    if program is None:
        return loss
    known = known_loss(program)
    if known is None or (known.one_advantage and not _has_one_advantage(stage)):
        return loss
    own = loss.data.name
    origin = f"`{own.data}`, {said(own.origin)}, which is this one"
    name: Any = evolve(own, data=known.name, origin=origin)
    config: Any = {
        key: Value("float", value, own.span, origin) for key, value in known.config.items()
    }
    none: Any = Value("loss", None, own.span, f"definition of {known.name}")
    mean: Any = Value("bool", known.mean, own.span, origin if known.mean else none.origin)
    return evolve(loss, data=LossPlan(name, config, none, mean))


def _has_one_advantage(stage: Mapping[str, Value]) -> bool:
    """Whether all tokens of a sequence have the same advantage."""
    if "advantage" not in stage or "kl" not in stage:
        return False
    kl = settle(stage["kl"])
    return settle(stage["advantage"]).returns.unit == "episode" and (kl is None or not kl.coef)
