"""What is not known while a declaration with parameters is checked alone."""

from __future__ import annotations

from attrs import frozen

from rlc.catalog.index import KINDS
from rlc.catalog.records import SCALARS, Param
from rlc.lang.ast import Expr
from rlc.lang.diagnostics import Diagnostics

_ALIKE = ({"int", "float"}, {"string", "word", "path"})


@frozen(eq=False, repr=False)
class Unknown(Expr):
    """A parameter that has no value, while its declaration is checked alone. It may be whatever
    ``want`` says; what depends on it is not known either."""

    want: Param


def report_unfit(unknown: Unknown, want: Param, found: Diagnostics) -> None:
    """Report a parameter whose type never fits where it stands. Its value is None: not known."""
    have, need = unknown.want.type, want.type
    kind = KINDS.get(need)
    fits = (
        have == need
        or any({have, need} <= types for types in _ALIKE)
        or (need == "any" and have in SCALARS)
        or (kind is not None and (have in kind.plain or have == kind.as_is))
        or (have == "any" and (kind is None or bool(kind.plain) or kind.as_is is not None))
    )
    if not fits:
        takes = KINDS[need].noun if need in KINDS else SCALARS[need]
        is_a = KINDS[have].noun if have in KINDS else SCALARS[have]
        message = f"`{want.name}` takes {takes}, and the parameter `{unknown.want.name}` is {is_a}"
        advice = "change its type, or use another"
        if have == "any":  # it was given no type
            advice = f"say what it is: `{unknown.want.name}: {need}`"
        found.error("RL0201", unknown.span, message, advice)
