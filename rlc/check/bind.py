"""Arguments to parameters, and fields to what a declaration has: one set of rules for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define, field, frozen

from rlc.catalog.records import Param
from rlc.check.suggest import closest, known_values, rename
from rlc.check.values import Value
from rlc.lang.ast import Argument, Expr, Field, Name
from rlc.lang.diagnostics import Diagnostics, Label, replace
from rlc.lang.source import Span

# Evaluates an expression for a parameter; returns None after a report.
Evaluate = Callable[[Expr, Param], Value | None]


@frozen(eq=False, repr=False)
class Owner:
    """What the arguments are for, as messages and provenance name it."""

    name: str  # "adam", "train"
    title: str  # "`adam()`", "a `train` stage"
    slot: str  # "argument" or "field"
    span: Span  # where missing arguments are reported
    why_no_other: str | None = None
    unread: frozenset[str] = frozenset()


@define(eq=False, repr=False)
class Bound:
    """The values of the parameters. ``complete`` unless one was missing or wrong."""

    values: dict[str, Value] = field(factory=dict)
    complete: bool = True
    unknown: list[str] = field(factory=list)  # what misplaced arguments meant; "*": anything


def bind(
    items: Sequence[Argument | Field],
    params: Sequence[Param],
    owner: Owner,
    evaluate: Evaluate,
    found: Diagnostics,
) -> Bound:
    """Match names and positions, evaluate, and fill in defaults."""
    bound = Bound()
    slots = _match(items, params, owner, bound, found)
    for param in params:
        item = slots.get(param.name)
        value = evaluate(item.value, param) if item else _absent(param, owner, bound)
        if value is None:
            bound.complete = False
        else:
            bound.values[param.name] = value
    if not bound.complete:
        _report_missing(params, slots, owner, bound, found)
    _report_without_effect(params, slots, bound, found)
    return bound


def _report_without_effect(
    params: Sequence[Param],
    slots: Mapping[str, Argument | Field],
    bound: Bound,
    found: Diagnostics,
) -> None:
    """An argument that another one switches off would be dropped without a word."""
    for param in params:
        if param.only_if is None or param.name not in slots:
            continue
        other, allowed = param.only_if
        value = bound.values.get(other)
        if value is None:
            continue
        given = "none" if value.data is None else str(value.data)
        if given not in allowed:
            choices = " or ".join(f"`{word}`" for word in allowed)
            message = f"`{param.name}` counts with `{other}` = {choices}; here it is `{given}`"
            item = slots[param.name]
            span = item.name.span if item.name else item.span
            found.error("RL0312", span, message, f"take `{param.name}` out, or change `{other}`")
            bound.complete = False


def _match(
    items: Sequence[Argument | Field],
    params: Sequence[Param],
    owner: Owner,
    bound: Bound,
    found: Diagnostics,
) -> dict[str, Argument | Field]:
    """What was written for each parameter."""
    by_name = {param.name: param for param in params}
    slots: dict[str, Argument | Field] = {}
    named = False
    for position, item in enumerate(items):
        if item.name is None:
            param = _positional(item.span, position, params, named, owner, found)
            bound.unknown += ["*"] * (param is None)
        else:
            named = True
            param = _named(item.name, items, by_name, owner, bound, found)
        if param is None:
            bound.complete = False
        elif param.name in slots:
            _report_twice(param, item, slots[param.name], owner, found)
        else:
            slots[param.name] = item
    return slots


def _positional(
    span: Span,
    position: int,
    params: Sequence[Param],
    named: bool,
    owner: Owner,
    found: Diagnostics,
) -> Param | None:
    if named:
        message = "an argument without a name comes after one with a name"
        found.error("RL0207", span, message, "give it its name, or put it first")
        return None
    if position >= len(params):
        count = len(params)
        takes = (
            f"{count} argument{'s' * (count != 1)}, this is one more" if count else "no arguments"
        )
        names = ", ".join(f"`{param.name}`" for param in params)
        advice = owner.why_no_other or (f"they are {names}" if names else "leave it out")
        found.error("RL0206", span, f"{owner.title} takes {takes}", advice)
        return None
    return params[position]


def _named(
    name: Name,
    items: Sequence[Argument | Field],
    by_name: Mapping[str, Param],
    owner: Owner,
    bound: Bound,
    found: Diagnostics,
) -> Param | None:
    param = by_name.get(name.id)
    if param is None and (param := _renamed(name, by_name.values(), found)) is None:
        likely = closest(name.id, list(by_name))
        bound.unknown += likely or ["*"]
        code = "RL0105" if owner.slot == "argument" else "RL0104"
        advice = known_values(list(by_name), name.id) if by_name else "it takes none"
        if owner.why_no_other:
            advice = f"{owner.why_no_other}; {advice}"
        given = {item.name.id for item in items if item.name}
        fix = rename(name.span, name.id, [other for other in by_name if other not in given])
        message = f"{owner.title} has no {owner.slot} `{name.id}`"
        found.error(code, name.span, message, advice, fix=fix)
    return param


def _renamed(name: Name, params: Iterable[Param], found: Diagnostics) -> Param | None:
    """The parameter that had this name, after a warning."""
    param = next((param for param in params if name.id in param.formerly), None)
    if param is not None:
        advice = f"write `{param.name}`"
        fix = replace(name.span, param.name, advice, True)
        message = f"`{name.id}` is called `{param.name}` now"
        found.warning("RL0116", name.span, message, advice, fix=fix)
    return param


def _report_twice(
    param: Param, item: Argument | Field, first: Argument | Field, owner: Owner, found: Diagnostics
) -> None:
    code = "RL0111" if owner.slot == "argument" else "RL0110"
    span, where = (part.name.span if part.name else part.span for part in (item, first))
    message = f"the {owner.slot} `{param.name}` is given twice"
    found.error(code, span, message, "keep one of them", Label(where, "first given here"))


def _absent(param: Param, owner: Owner, bound: Bound) -> Value | None:
    """The default, or None for a required one."""
    if param.required or param.name in owner.unread:
        bound.complete = False
        return None
    return Value(
        param.type, param.default, owner.span, f"default of {param.default_of or owner.name}"
    )


def _report_missing(
    params: Iterable[Param],
    slots: Mapping[str, Argument | Field],
    owner: Owner,
    bound: Bound,
    found: Diagnostics,
) -> None:
    """Say what is missing, except what a misspelt name may have been meant for."""
    missing = [
        param
        for param in params
        if param.required and param.name not in slots and param.name not in owner.unread
    ]
    missing = [param for param in missing if param.name not in bound.unknown]
    if not missing or "*" in bound.unknown:
        return
    code = "RL0205" if owner.slot == "argument" else "RL0302"
    names = ", ".join(f"`{param.name}`" for param in missing)
    message = f"{owner.title} needs {names}"
    few = missing if len(missing) <= 2 else []
    found.error(code, owner.span, message, "; ".join(f"{p.name}: {p.doc}" for p in few) or None)
