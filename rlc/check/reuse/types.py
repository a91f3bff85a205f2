"""What a parameter or a `param` is declared as: ``int(1, 9)``, ``word(a, b)``, ``model``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlc.catalog import DECLARATIONS, KINDS, PARAM_TYPES, Param
from rlc.check.bind import Owner, bind
from rlc.check.scalars import bounds
from rlc.check.scope import known_values, rename
from rlc.lang import Call, Diagnostics, Expr, Name, ValueDecl
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.check.scalars import Scalars
    from rlc.check.values import Value

WORD = "word"
NUMERIC = ("int", "float")
RANGED = (*NUMERIC, "money", "duration")
UNTYPED = "any"


def typed(name: str, written: Expr | None, doc: str, scalars: Scalars, found: Diagnostics) -> Param:
    """What is declared under a name, as a parameter; after a report of an unknown type, one
    that takes anything plain."""
    anything = Param(name, UNTYPED, doc)
    if written is not None:
        found.note("type", written.func.span if isinstance(written, Call) else written.span)
    match written:
        case None:
            return anything
        case Name(id=kind) if kind in PARAM_TYPES or (kind in KINDS and kind in DECLARATIONS):
            return Param(name, kind, doc)
        case Call(func=Name(id="word")):
            return evolve(anything, type=WORD, choices=_choices(written, found))
        case Call(func=Name(id=kind)) if kind in RANGED:
            ends = [
                Param(end, kind, f"{what} allowed value", None, optional=True)
                for end, what in (("low", "least"), ("high", "greatest"))
            ] + [
                Param(end, kind, f"allowed values are {what}", None, optional=True)
                for end, what in (("above", "more"), ("below", "less"))
            ]
            owner = Owner(kind, f"the type `{kind}()`", "argument", written.func.span)
            found.note_arguments(None, written.span, written.args, ends)
            bound = bind(written.args, ends, owner, scalars.fitting, found)
            limits: Any = {end: value.data for end, value in bound.values.items()}
            ranged = evolve(anything, type=kind, **limits)
            if bound.complete and _is_empty(ranged):
                message = f"no value is {bounds(ranged)}"
                found.error("RL0629", written.span, message, "give the smaller number first")
                return anything
            return ranged
        case Name(id="word") | Call(func=Name(id="word")):
            advice = "list its words: `word(mean, none)`"
            found.error("RL0209", written.span, "`word` is no type without its words", advice)
        case Call(func=Name(id=kind)) if kind in PARAM_TYPES or kind in KINDS:
            message = f"`{kind}` is a type without a range"
            found.error("RL0209", written.span, message, f"write `{kind}`")
        case _:
            text = written.func.span.text if isinstance(written, Call) else written.span.text
            message, known = f"`{text}` is not a type", (*PARAM_TYPES, WORD)
            kinds = [kind for kind in KINDS if kind in DECLARATIONS]
            fix = rename(written.span, text, (*known, *kinds))
            advice = known_values((*known, *kinds) if fix else known, text)
            found.error("RL0209", written.span, message, advice, fix=fix)
    return anything


def _choices(written: Call, found: Diagnostics) -> tuple[str, ...]:
    words = []
    for argument in written.args:
        if isinstance(argument.value, Name) and argument.name is None:
            words.append(argument.value.id)
        else:
            message = "the type `word()` lists words"
            found.error("RL0209", argument.span, message, "for example `word(mean, none)`")
    if not written.args:
        advice = "for example `word(mean, none)`"
        found.error("RL0209", written.span, "the type `word()` lists no words", advice)
    return tuple(words)


def _is_empty(ranged: Param) -> bool:
    lows, highs = (ranged.low, ranged.above), (ranged.high, ranged.below)
    low = max((end for end in lows if end is not None), default=None)
    high = min((end for end in highs if end is not None), default=None)
    if low is None or high is None:
        return False
    return low > high or (low == high and (ranged.above == low or ranged.below == high))


def param_value(decl: ValueDecl, scalars: Scalars, found: Diagnostics) -> Value | None:
    """The value of a ``param``, or None after a report."""
    if decl.type is None:
        return scalars.plain(decl.value, Param(decl.name.id, UNTYPED, "a plain value"))
    doc = f"declared as {decl.type.span.text}"
    want = typed(decl.name.id, decl.type, doc, scalars, found)
    if want.type in KINDS:
        message = f"a `param` is a plain value, and not {KINDS[want.type].noun}"
        advice = f"write `{want.type} {decl.name.id} = …`"
        found.error("RL0209", decl.type.span, message, advice)
        return None
    if want.type == UNTYPED:  # what is no type is reported
        return scalars.plain(decl.value, want)
    return scalars.fitting(decl.value, want)
