"""Arguments to parameters, and fields to what a declaration has: one set of rules for both."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlc.catalog import REQUIRED, Declaration, Param
from rlc.check.scope import closest, known_values, rename
from rlc.check.values import Value
from rlc.lang import (
    Argument,
    Binary,
    Call,
    Diagnostics,
    Expr,
    Field,
    Fix,
    Label,
    Name,
    Span,
    replace,
)
from rlc.records import define, evolve, field, frozen

# Evaluates an expression for a parameter; returns None after a report.
Evaluate = Callable[[Expr, Param], Value | None]


@frozen(eq=False)
class Owner:
    """The builtin or declaration that the arguments are for, as messages name it."""

    name: str  # "adam", "train"
    title: str  # "`adam()`", "a `train` stage"
    slot: str  # "argument" or "field"
    span: Span  # where missing arguments are reported
    why_no_other: str | None = None
    unread: frozenset[str] = frozenset()


@define(eq=False)
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
    binder = _Binder(items, params, owner, found)
    bound = binder.match()
    for param in params:
        item = binder.slots.get(param.name)
        value = evaluate(item.value, param) if item else binder.absent(param)
        if value is None:
            bound.complete = False
        else:
            bound.values[param.name] = value
    if not bound.complete:
        binder.report_missing()
    binder.report_without_effect()
    return bound


@define(eq=False)
class _Binder:
    """``slots`` has the item of each parameter."""

    items: Sequence[Argument | Field]
    params: Sequence[Param]
    owner: Owner
    found: Diagnostics
    bound: Bound = field(factory=Bound)
    slots: dict[str, Argument | Field] = field(factory=dict)

    def match(self) -> Bound:
        """Find the parameter of each item."""
        self._unfold()
        named = False
        for position, item in enumerate(map(self._meant, self.items)):
            if item.name is None:
                param = self._positional(item.span, position, named)
                self.bound.unknown += ["*"] * (param is None)
            else:
                named = True
                param = self._named(item.name)
                if item.name.span is not item.span:  # it is written
                    self.found.note(self.owner.slot, item.name.span, param, owner=self.owner.name)
            if param is None:
                self.bound.complete = False
            elif (first := self.slots.setdefault(param.name, item)) is not item:
                code = "RL0111" if self.owner.slot == "argument" else "RL0110"
                span, where = (part.name.span if part.name else part.span for part in (item, first))
                label = Label(where, "first given here")
                message = f"the {self.owner.slot} `{param.name}` is given twice"
                self.found.error(code, span, message, "keep one of them", label)
        return self.bound

    def _meant(self, item: Argument | Field) -> Argument | Field:
        """Return the item, ``name == value`` as ``name = value`` after a report."""
        match item:
            case Argument(name=None, value=Binary(op="==", left=Name() as name) as given):
                if any(name.id == param.name for param in self.params):
                    from rlc.lang import report_comparison  # only for a mistake

                    report_comparison(given, self.found)
                    return Argument(item.span, name, given.right)
        return item

    def _unfold(self) -> None:
        """Read ``grader = regex, pattern = "x"`` as ``grader = regex("x")``, with a warning."""
        for param in self.params:
            if not param.folded:
                continue
            given = {item.name.id: item for item in self.items if item.name}
            item = given.get(param.name)
            word = item.value if item else None
            old = str(word.id if isinstance(word, Name) else getattr(word, "value", None))
            name, builtin = param.folded.get(old, ("", ""))
            moved = given.get(name)
            if word is None or moved is None:
                continue
            inner = Argument(moved.value.span, None, moved.value)
            call = Call(word.span, Name(word.span, builtin), (inner,))
            new = f"{builtin}({moved.value.span.text})"
            advice = f"write `{param.name} = {new}`"
            message = f"`{name}` is what `{builtin}()` takes now"
            edits = ((word.span, new), (_with_comma(moved.span), ""))
            self.found.warning("RL0116", moved.span, message, advice, fix=Fix(advice, edits))
            kept = (other for other in self.items if other is not moved)
            self.items = [evolve(i, value=call) if i is item else i for i in kept]

    def _positional(self, span: Span, position: int, named: bool) -> Param | None:
        if named:
            message = "an argument without a name comes after one with a name"
            self.found.error("RL0207", span, message, "give it its name, or put it first")
            return None
        if position < len(self.params):
            return self.params[position]
        takes, advice, count = "no arguments", "leave it out", len(self.params)
        if count:
            takes = f"{count} argument{'s' * (count != 1)} at most"
            advice = f"they are {', '.join(f'`{param.name}`' for param in self.params)}"
        advice = self.owner.why_no_other or advice
        self.found.error("RL0206", span, f"{self.owner.title} takes {takes}", advice)
        return None

    def _named(self, name: Name) -> Param | None:
        names = [param.name for param in self.params]
        if name.id in names:
            return self.params[names.index(name.id)]
        if (param := next((p for p in self.params if name.id in p.formerly), None)) is not None:
            fix = replace(name.span, param.name, f"write `{param.name}`")
            message = f"`{name.id}` is called `{param.name}` now"
            self.found.warning("RL0116", name.span, message, fix.title, fix=fix)
            return param
        from rlc.catalog import DECLARATIONS, advice_for, alias_of  # only needed for a mistake

        owner, given = self.owner, {item.name.id for item in self.items if item.name}
        code, fixed = "RL0105" if owner.slot == "argument" else "RL0104", None
        alone = DECLARATIONS.get(name.id) if owner.slot == "field" else None
        near = closest(name.id, names)
        if (alias := alias_of(name.id, self.params)) is not None:
            self.bound.unknown.append(alias.name)
            advice = f"it is called `{alias.name}` here"
            if alias.name not in given:
                fixed = replace(name.span, alias.name, f"write `{alias.name}`")
        elif alone is not None and alone.form and not near:
            self.bound.unknown.append("*")
            advice = _beside(alone)
        elif not owner.why_no_other and (known := advice_for(name.id, self.params)):
            advice = known
            self.bound.unknown += near
        else:
            self.bound.unknown += near or ["*"]
            advice = known_values(names, name.id) if names else "it takes none"
            if alone is not None and alone.is_block and not near:
                advice = _beside(alone)
            fixed = None if given & {*near} else rename(name.span, name.id, names)
        if owner.why_no_other:
            advice = f"{owner.why_no_other}; {advice}"
        message = f"{owner.title} has no {owner.slot} `{name.id}`"
        self.found.error(code, name.span, message, advice, fix=fixed)
        return None

    def absent(self, param: Param) -> Value | None:
        """Return the default, or None for a required parameter."""
        owner, default, given = self.owner, param.default, ""
        if param.implied is not None and param.implied[0] in self.slots:
            given, default = f" with `{param.implied[0]}`", param.implied[1]
        if default is REQUIRED or param.name in owner.unread:
            return None
        origin = f"default of {param.default_of or owner.name}{given}"
        return Value(param.type, default, owner.span, origin)

    def report_missing(self) -> None:
        """Report what is missing, except what a misspelt name may stand for."""
        owner, unknown = self.owner, self.bound.unknown
        there = {*self.slots, *self.bound.values, *owner.unread, *unknown}
        missing = [param for param in self.params if param.required and param.name not in there]
        if not missing or "*" in unknown:
            return
        code = "RL0205" if owner.slot == "argument" else "RL0302"
        message = f"{owner.title} needs {', '.join(f'`{param.name}`' for param in missing)}"
        docs = (f"{param.name}: {param.doc}" for param in missing)
        advice = "; ".join(docs) if len(missing) <= 2 else None
        self.found.error(code, owner.span, message, advice)

    def report_without_effect(self) -> None:
        """Report arguments that another one switches off: they would be dropped silently."""
        for param in self.params:
            item = self.slots.get(param.name)
            if param.only_if is None or item is None:
                continue
            other, allowed = param.only_if
            value = self.bound.values.get(other)
            given = "none" if value is None or value.data is None else str(value.data)
            if value is not None and given not in allowed:
                choices = " or ".join(f"`{word}`" for word in allowed)
                message = f"`{param.name}` counts with `{other}` = {choices}; here it is `{given}`"
                span = item.name.span if item.name else item.span
                advice = f"remove `{param.name}`, or change `{other}`"
                self.found.error("RL0312", span, message, advice)
                self.bound.complete = False


def _with_comma(span: Span) -> Span:
    """Return the span of an argument with the comma to the left of it, or else to the right."""
    text, start, end = span.source.text, span.start, span.end
    before, after = text[:start].rstrip(), re.match(r"\s*,\s*", text[end:])
    if before.endswith(","):
        return Span(span.source, len(before) - 1, end)
    return Span(span.source, start, end + (after.end() if after else 0))


def _beside(declaration: Declaration) -> str:
    return f"it is a declaration of its own, beside this one: `{declaration.written()}`"
