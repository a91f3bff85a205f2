"""Formulas that a recipe declares: its own losses, advantages and preference losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlc.algo import (
    CONDITIONS,
    INPUTS,
    ExpressionError,
    Kind,
    Program,
    functions_of,
    is_reward,
    ranges,
    scheme_of,
)
from rlc.catalog import (
    EXPRESSION_KINDS,
    known_loss,
    known_preference,
)
from rlc.check.expressions import IN, RecipeReader, report_findings, report_undefined
from rlc.check.scope import known_values, rename
from rlc.check.values import Value, said, settle, unwrap
from rlc.lang import (
    BlockDecl,
    Field,
    Label,
)
from rlc.plan import RECOGNISED, LossPlan, PreferenceLossPlan
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.check.scalars import EvaluatorLike

_NOUN: Mapping[Kind, str] = {"loss": "loss", "advantage": "advantage", "preference": "loss"}
_A: Mapping[Kind, str] = {
    "loss": "a loss",
    "advantage": "an advantage",
    "preference": "a loss",
}

# The fields that a declaration can end with; of losses each is called as the shape that it has.
_RESULTS: Mapping[Kind, tuple[str, ...]] = {
    "loss": ("token", "sequence"),
    "advantage": ("episode", "turn", "token"),
    "preference": ("pair", "reply"),
}
_ENDS: Mapping[Kind, str] = {
    "loss": "`token = …`, a loss for each token, or `sequence = …`, one for all",
    "advantage": "`episode = …`, one advantage for each episode, `turn = …`, one for each turn, or "
    "`token = …`, one for each sampled token",
    "preference": "`pair = …`, a loss for each pair of replies, or `reply = …`, one for each "
    "labelled reply",
}
_SAID: Mapping[str, str] = {
    "number": "the same number everywhere",
    "sequence": "one value for each sequence",
    "token": "one value for each token",
    "pair": "one value for each pair",
    "chosen_token": "one value for each token of the better reply",
    "rejected_token": "one value for each token of the worse reply",
    "reply": "one value for each reply",
    "reply_token": "one value for each token of the reply",
}


def own_formula(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return what a block of expressions declares, or None after a report."""
    own = own_advantage if decl.kind.id == "advantage" else own_loss
    return own(decl, evaluator)


def own_loss(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return the loss of a block, or None after a report."""
    kind = EXPRESSION_KINDS[decl.kind.id]
    if (read := _read(decl, evaluator, kind)) is None:
        return None
    reader, result, output = read
    if (program := _program(result, output, reader)) is None:
        return None
    report_findings(program, reader, result.value.span, evaluator.found)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    made: Any = Value(decl.kind.id, program, result.value.span, result.value.span)
    if kind == "preference":
        return Value(decl.kind.id, PreferenceLossPlan(called, {}, made), place, place)
    mean: Any = Value("bool", False, place, f"definition of {decl.name.id}")
    return Value("loss", LossPlan(called, {}, made, mean), place, place)


def own_advantage(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return the advantage of a block, or None after a report."""
    if (read := _read(decl, evaluator, "advantage")) is None:
        return None
    reader, result, output = read
    try:
        scheme = scheme_of(decl.name.id, reader.builder, {**reader.parts, result.name.id: output})
    except ExpressionError as error:
        span = next((f.value.span for f in decl.fields if f"`{f.name.id}`" in str(error)), None)
        evaluator.found.error("RL0643", span or result.value.span, str(error), error.hint)
        return None
    for program in scheme.programs:
        for undefined in ranges(program).undefined:
            report_undefined(undefined, reader, result.value.span, evaluator.found)
    if not any(is_reward(name) or name == "teacher" for name in scheme.result.inputs):
        message = "the advantage does not depend on the reward: nothing is learnt from it"
        advice = "`sum(reward)` is the return of an episode"
        evaluator.found.warning("RL0655", result.value.span, message, advice)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    return Value("advantage", evolve(scheme, name=called), place, place)


def _read(
    decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind
) -> tuple[RecipeReader, Field, int] | None:
    """Return what has read the parts of a block, its result and the node of that; None after a
    report."""
    reader = RecipeReader(evaluator, kind, block=decl.span)
    fields = _parts(decl, evaluator, kind)
    if (result := _result(decl, evaluator, kind)) is None:
        return None
    # What an amendment adds stands behind the result, and may be a part of it.
    parts = [field for field in fields if field.name.id not in _RESULTS[kind]]
    reader.later = {field.name.id: field.name.span for field in parts}
    for field in parts:
        reader.defining = field.name.id
        reader.define(field)
        del reader.later[field.name.id]
    reader.defining = result.name.id
    output = reader.node(result.value)
    if output is None or None in reader.parts.values() or len(fields) < len(decl.fields):
        return None
    _report_unused(parts, result, reader)
    return reader, result, output


def _parts(decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind) -> list[Field]:
    known: dict[str, Field] = {}
    for field in decl.fields:
        name = field.name.id
        meant = INPUTS[kind].get(name) or functions_of(kind).get(name)
        if (first := known.setdefault(name, field)) is not field:
            label = Label(first.name.span, "first given here")
            message = f"the field `{name}` is given twice"
            evaluator.found.error("RL0110", field.name.span, message, "keep one of them", label)
        elif "." in name or meant:
            message = f"no part of {_A[kind]} can be called `{name}`"
            advice = f"{name}: {meant.doc if meant else 'a part has a plain name'}"
            evaluator.found.error("RL0653", field.name.span, message, advice)
            del known[name]
    return list(known.values())


def _result(decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind) -> Field | None:
    """Return the field that says what the whole is, or None after a report."""
    known = list[str](_RESULTS[kind])
    results = [field for field in decl.fields if field.name.id in known]
    if not results and not decl.unread & set(known):
        advice = f"end with {_ENDS[kind]}"
        last = decl.fields[-1].name if decl.fields else None
        fix = rename(last.span, last.id, known) if last else None
        if last and fix:
            advice = known_values(known, last.id)
        message = f"nothing says what the {_NOUN[kind]} `{decl.name.id}` is"
        evaluator.found.error("RL0647", decl.name.span, message, advice, fix=fix)
    if not results:
        return None
    first, *others = results
    for other in others:
        if other.name.id != first.name.id:  # the same one twice is reported as such
            label = Label(first.name.span, f"and here a `{first.name.id}` {_NOUN[kind]}")
            both = sorted((first.name.id, other.name.id), key=known.index)
            of_each = " and one of each ".join(both)
            message = f"`{decl.name.id}` is both {_A[kind]} of each {of_each}"
            evaluator.found.error("RL0647", other.name.span, message, "keep one of them", label)
            return None
    return first


def _program(result: Field, output: int, reader: RecipeReader) -> Program | None:
    builder, kind = reader.builder, result.name.id
    span, shape = result.value.span, builder.shape(output)
    if not builder.is_condition(output) and shape not in ("number", kind):
        message = f"`{kind}` is {_SAID[kind]}, and this is {_SAID[shape]}"
        advice, fix = "`mean(…)` or `sum(…)` makes one value of those of the tokens", None
        if shape in _RESULTS[reader.kind] and kind != "sequence":
            advice, fix = f"write `{shape} = …`", rename(result.name.span, kind, [shape])
        reader.found.error("RL0643", span, message, advice, fix=fix)
        return None
    try:
        return builder.program(output)
    except ExpressionError as error:
        code = "RL0643" if builder.is_condition(output) else "RL0644"
        reader.found.error(code, span, str(error), error.hint)
        return None


def _report_unused(parts: list[Field], result: Field, reader: RecipeReader) -> None:
    used, waiting = set[str](), [result.name.id, *CONDITIONS]
    while waiting:
        if (name := waiting.pop()) not in used:
            used.add(name)
            waiting += reader.uses.get(name, ())
    for field in parts:
        if field.name.id not in used:
            message = f"{IN[reader.kind]} is not made of `{field.name.id}`"
            reader.found.warning("RL0645", field.name.span, message, "use it, or remove it")


def as_known(loss: Value, stage: Mapping[str, Value]) -> Value:
    """Return a recipe's own loss as the one of the same formula that the service or rlc has, if
    there is one. ``stage`` has the other parts of its stage."""
    program = unwrap(loss.data.program)
    if program is None:
        return loss
    known = known_preference(program) if program.kind == "preference" else known_loss(program)
    if known is None or (known.one_advantage and not _has_one_advantage(stage)):
        return loss
    own = loss.data.name
    origin = f"`{own.data}`, {said(own.origin)}{RECOGNISED}"
    name: Any = evolve(own, data=known.name, origin=origin)
    config: Any = {k: Value("float", v, own.span, origin) for k, v in known.config.items()}
    none: Any = Value("loss", None, own.span, f"definition of {known.name}")
    if program.kind == "preference":
        return evolve(loss, data=PreferenceLossPlan(name, config, none))
    mean: Any = Value("bool", known.mean, own.span, origin if known.mean else none.origin)
    return evolve(loss, data=LossPlan(name, config, none, mean))


def _has_one_advantage(stage: Mapping[str, Value]) -> bool:
    """Return whether all tokens of a sequence have the same advantage."""
    if "advantage" not in stage or "kl" not in stage or "teacher" not in stage:
        return False
    if settle(stage["teacher"]):  # it scores each token by itself
        return False
    kl = settle(stage["kl"])
    return not settle(stage["advantage"]).by_turn and (kl is None or not kl.coef)
