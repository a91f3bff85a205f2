"""Records of things by their names: ``{ correct = math  brief = 0.2 * grade_with("r.py:brief") }``.

Each is a part of what the record stands for, by its name and, where it has one, its weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from rlc.catalog.records import Param
from rlc.check.pipelines import weight_and_rest
from rlc.check.values import Value, unwrap
from rlc.lang.ast import Binary, Expr, RecordExpr

if TYPE_CHECKING:
    from rlc.check.pipelines import Evaluator


def named(evaluator: Evaluator, expr: Expr, want: Param) -> Value | None:
    """Evaluate a record of parts; a single part needs no record, and keeps its own name."""
    one = evolve(want, named=False)
    if not isinstance(expr, RecordExpr):
        part = evaluator.value(expr, one)
        return part and evolve(part, data=(_with_origins(part),))
    parts: dict[str, Value] = {}
    complete = True
    for field in expr.fields:
        name, part = field.name, evaluator.value(field.value, one)
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


def weighted(evaluator: Evaluator, expr: Binary, want: Param) -> Value | None:
    """``0.2 * part``."""
    weight, part = weight_and_rest(evaluator, expr, want, Param("weight", "float", "its share"))
    if weight is None or part is None:
        return None
    product: Any = evolve(weight, data=weight.data * unwrap(part.data.weight))
    return evolve(part, data=evolve(part.data, weight=product), span=expr.span)


def _with_origins(part: Value) -> Value:
    """The part, whose name was written before it, and whose weight may have been left out."""
    record, said = part.data, f"definition of {part.type}"
    leaves: dict[str, Any] = {"name": evolve(part, type="string", data=record.name, origin=said)}
    if not isinstance(getattr(record, "weight", part), Value):
        leaves["weight"] = evolve(part, type="float", data=record.weight, origin="default")
    return evolve(part, data=evolve(record, **leaves))
