"""The formulas behind an advantage preset with its defaults."""

from __future__ import annotations

from rlc.catalog.records import Args, Builtin
from rlc.check.settle import settle
from rlc.check.values import Value
from rlc.explanation.formulas import Formula, scheme_formulas
from rlc.lang.source import Source, Span


def preset_formulas(builtin: Builtin) -> list[Formula]:
    """The formulas of a preset; none for one that has arguments without a default."""
    if any(param.required for param in builtin.params):
        return []
    span = Span(Source(builtin.name, ""), 0, 0)
    values = {
        param.name: Value(param.type, param.default, span, "default") for param in builtin.params
    }
    return scheme_formulas(settle(builtin.build(Args(values))))
