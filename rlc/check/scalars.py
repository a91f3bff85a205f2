"""Plain values: literals, params with their types, arithmetic, and whether they fit a parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any

from rlc.catalog import DECLARATIONS, KINDS, PARAM_TYPES, SCALARS, Param
from rlc.check.bind import Owner, bind
from rlc.check.scope import Scope, known_values, rename
from rlc.check.values import UnknownValue, Value, is_command_line, report_unfit, said
from rlc.lang import (
    Attribute,
    Binary,
    Bool,
    Call,
    Diagnostics,
    Expr,
    Label,
    ListExpr,
    Name,
    Negative,
    Number,
    Quantity,
    RecordExpr,
    Span,
    String,
    ValueDecl,
    replace,
)
from rlc.plan import SECONDS, hub_dataset, rebased, show
from rlc.records import evolve

NUMBERS = ("int", "float")
_AMOUNTS = ("money", "duration")
WORD = "word"
_UNTYPED = "any"
MAX_PARTS = 100_000  # values in a list or record
MAX_DEPTH = 50  # of lists and records in each other
LARGEST_INT = 2**53  # a float, and JSON's readers, still hold it exactly
LARGEST = 1e300  # keeps every later conversion to a float finite

if TYPE_CHECKING:
    from typing import Protocol

    class EvaluatorLike(Protocol):
        """The part of :class:`rlc.check.evaluate.Evaluator` that modules below it need."""

        scope: Scope
        found: Diagnostics
        scalars: Scalars

        def value(self, expr: Expr, want: Param) -> Value | None: ...


class Scalars:
    """Evaluates expressions to plain values. ``lookup`` evaluates a name, or a field of a
    declaration; it returns None after a report."""

    def __init__(
        self,
        lookup: Callable[[Name | Attribute], Value | None],
        scope: Scope,
        recipe: str,
        found: Diagnostics,
    ) -> None:
        self._lookup, self._scope, self._recipe, self._found = lookup, scope, recipe, found
        # Lists and records by their ids, with how many values they hold and how deep they nest.
        self._extents: dict[int, tuple[Any, int, int]] = {}

    def fitting(self, expr: Expr, want: Param) -> Value | None:
        """Return the value of ``expr`` as ``want`` takes it, or None after a report."""
        if isinstance(expr, UnknownValue):
            report_unfit(expr, want, self._found)
            return None
        if isinstance(expr, Name):
            is_none = want.optional and expr.id == "none"
            if is_none or expr.id in want.all_choices():
                self._found.note("word", expr.span, want, want)
                return Value(want.type, None if is_none else expr.id, expr.span, expr.span)
            is_known = self._scope.knows(expr.id)
            if not is_known and report_word(expr, want, self._found):
                return None
            if not is_known and (want.type == WORD or (want.type == "string" and want.choices)):
                _report_choice(expr.id, want, expr.span, self._found)
                return None
            if not is_known and want.type == "string":
                message = f"`{want.name}` takes a string, found the name `{expr.id}`"
                self._found.error("RL0201", expr.span, message, f'in quotes: `"{expr.id}"`')
                return None
        elif want.type == "string" and _is_unquoted(expr, self._scope):
            message = f"`{want.name}` takes a string, found `{expr.span.text}` without its quotes"
            advice = f'in quotes: `"{expr.span.text}"`'
            self._found.error("RL0201", expr.span, message, advice)
            return None
        if isinstance(expr, String) and want.is_word(expr.value):
            return Value(want.type, self.unquoted(expr).id, expr.span, expr.span)
        value = self.plain(expr, want)
        fitted = fit(value, want, expr.span, self._found) if value else None
        if value is None or fitted is None or not want.names_file(fitted.data):
            return fitted
        if value.type == "path":  # of another declaration, such as `policy.base`
            return value
        path = rebased(fitted.data, value.span.source.folder, self._recipe)
        return Value("path", path, value.span, value.origin)

    def unquoted(self, expr: String) -> Name:
        """Return a word that is written as a string, after a warning."""
        fix = replace(expr.span, expr.value, f"write `{expr.value}`")
        message = f"`{expr.value}` is a word of the language here and needs no quotes"
        self._found.warning("RL0116", expr.span, message, fix.title, fix=fix)
        return Name(expr.span, expr.value)

    def plain(self, expr: Expr, want: Param) -> Value | None:
        """Return the value of ``expr`` as its own type; ``want`` is only for messages."""
        span = expr.span
        if isinstance(expr, String | Number | Quantity | Bool):
            self._found.note("literal", span, None, want)
        match expr:
            case Number():
                kind = "int" if isinstance(expr.value, int) else "float"
                return Value(kind, expr.value, span, span)
            case Quantity():
                return Value(*_quantity(expr), span, span)
            case String():
                _warn_of_placeholders(expr, want, self._scope, self._found)
                return Value("string", expr.value, span, span)
            case Bool():
                return Value("bool", expr.value, span, span)
            case Name() | Attribute():
                return self._lookup(expr)
            case UnknownValue():  # perhaps only a part of what is wanted
                report_unfit(expr, evolve(want, type="any"), self._found)
                return None
            case Negative():
                return self._arithmetic("-", expr, [expr.operand], want)
            case Binary(op="+" | "-" | "*" | "/"):
                return self._arithmetic(expr.op, expr, [expr.left, expr.right], want)
            case ListExpr():
                return self._list(expr, want)
            case RecordExpr():
                return self._record(expr, want)
        message = f"`{want.name}` takes {article(want)}, found {describe(expr)}"
        self._found.error("RL0201", span, message)
        return None

    def _plain_parts(self, parts: Sequence[Expr], want: Param) -> list[Value] | None:
        values = [self.plain(part, want) for part in parts]
        known = [value for value in values if value]
        return known if len(known) == len(values) else None

    def _list(self, expr: ListExpr, want: Param) -> Value | None:
        if (items := self._plain_parts(expr.items, want)) is None:
            return None
        data = [item.data for item in items]
        return self._of_parts("list", data, data, expr, combined(expr.span, items))

    def _record(self, expr: RecordExpr, want: Param) -> Value | None:
        items: dict[str, Value] = {}
        for field in expr.fields:
            value = self.plain(field.value, want)
            if field.name.id in items:
                message = f"the field `{field.name.id}` is given twice"
                self._found.error("RL0110", field.name.span, message, "keep one of them")
            elif value is not None:
                items[field.name.id] = value
        if len(items) < len(expr.fields):
            return None
        origin = combined(expr.span, items.values())
        data = {name: item.data for name, item in items.items()}
        record = self._of_parts("record", data, [*data.values()], expr, origin)
        keys = {field.name.id: field.name.span for field in expr.fields}
        return record and evolve(record, keys=keys)

    def _of_parts(
        self, kind: str, data: Any, parts: list[Any], expr: Expr, origin: str | Span
    ) -> Value | None:
        """Return a list or record, or None after a report if it is too large or too deep."""
        extents = [self._extents.get(id(part), (part, 1, 0)) for part in parts]
        size = sum(size for _, size, _ in extents)
        depth = 1 + max((depth for _, _, depth in extents), default=0)
        if size > MAX_PARTS or depth > MAX_DEPTH:
            what = f"holds {size:,} values" if size > MAX_PARTS else f"is nested {depth} deep"
            message = f"this {kind} {what} with those that it names"
            advice = f"at most {MAX_PARTS:,} values, {MAX_DEPTH} deep"
            self._found.error("RL0016", expr.span, message, advice)
            return None
        self._extents[id(data)] = data, size, depth
        return Value(kind, data, expr.span, origin)

    def _arithmetic(self, op: str, expr: Expr, parts: list[Expr], want: Param) -> Value | None:
        if (operands := self._plain_parts(parts, want)) is None:
            return None
        try:
            kind, data = _compute(op, operands)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            reasons: dict[type[Exception], str] = {
                ZeroDivisionError: "this divides by zero",
                OverflowError: "this number is too large to compute with",
            }
            names = " and ".join(_NOUNS[operand.type] for operand in operands)
            message = reasons.get(type(error), f"cannot apply `{op}` to {names}")
            self._found.error("RL0203", expr.span, message)
            return None
        return Value(kind, data, expr.span, combined(expr.span, operands))


def fit(value: Value, want: Param, span: Span, found: Diagnostics) -> Value | None:
    """Return ``value`` as the type of ``want``, within its bounds; None after a report."""
    labels = [Label(value.span, "its value")] if value.span != span else []
    data = _convert(value, want.type)
    if data is _MISFIT:
        what = _NOUNS[value.type]
        if want.type == "int" and value.type in NUMBERS:
            what = show(value.data, "float")
        message = f"`{want.name}` takes {article(want)}, found {what}"
        found.error("RL0201", span, message, _conversion_help(value, want), *labels)
        return None
    if type(data) is int and abs(data) > LARGEST_INT:
        message = f"`{want.name}` is too large a number"
        found.error("RL0202", span, message, f"{want.name}: {want.doc}", *labels)
        return None
    if not _in_bounds(data, want):
        shown = show(data, want.type)
        message = f"`{want.name}` must be {bounds(want)}; this is {shown}"
        found.error("RL0202", span, message, want.instead or f"{want.name}: {want.doc}", *labels)
        return None
    is_chosen = bool(want.choices) and data in want.all_choices()
    has_form = want.form is not None and re.fullmatch(want.form[0], data) is not None
    if (want.choices or want.form) and not (is_chosen or has_form):
        _report_choice(data, want, span, found)
        return None
    if want.type == value.type:
        return value
    return Value(want.type, data, value.span, value.origin)


def bounds(want: Param) -> str:
    """Return the bounds of a parameter: ``at least 1``, ``more than 0 and at most 1``."""
    ends = want.low, want.above, want.high, want.below
    parts = zip(ends, ("at least", "more than", "at most", "less than"), strict=True)
    return " and ".join(f"{how} {show(b, want.type)}" for b, how in parts if b is not None)


def article(want: Param) -> str:
    """Return what a parameter takes, as a message names it."""
    if want.type == WORD:
        return f"one of the words {known_values(want.all_choices())}"
    return SCALARS[want.type]


def describe(expr: Expr) -> str:
    """Return what an expression is, as a message names it."""
    if isinstance(expr, Name):
        return f"`{expr.id}`"
    if isinstance(expr, Binary):
        return {"|>": "a pipeline", "then": "`… then …`"}.get(expr.op, "arithmetic")
    names = {"Call": "a call", "ListExpr": "a list", "RecordExpr": "a record", "Number": "a number"}
    names |= {"String": "a string", "Bool": "a truth value", "Quantity": "an amount"}
    names |= {"Attribute": f"`{expr.span.text}`", "Negative": "a number"}
    names |= {"Amend": "an amended block", "Unknown": "a parameter"}
    return names[type(expr).__name__]


def combined(span: Span, operands: Iterable[Value]) -> str | Span:
    """Return the origin of an expression: its place, and what the command line put into it."""
    given = [said(operand.origin) for operand in operands if is_command_line(operand.origin)]
    return ", ".join(dict.fromkeys([said(span), *given])) if given else span


_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_MISFIT = object()
_NOUNS = {
    **SCALARS,
    "bool": "a truth value",
    "money": "an amount of money",
    "duration": "a duration",
}


def _convert(value: Value, kind: str) -> Any:
    data = value.data
    if kind in (value.type, "any") or (kind, value.type) == ("string", "path"):
        return data
    if kind == "float" and value.type == "int":
        return float(data)
    if kind == "int" and value.type == "float" and data.is_integer():
        return int(data)
    return _MISFIT


def _conversion_help(value: Value, want: Param) -> str | None:
    if want.type == "money" and value.type in NUMBERS:
        return f"write `${value.data:g}`"
    if want.type == "duration" and value.type in NUMBERS:
        return f"give a unit: `{value.data:g}s`, `{value.data:g}h` or `{value.data:g}d`"
    if want.type == "string" and value.type in NUMBERS:
        return f'write it in quotes: `"{value.data}"`'
    return f"{want.name}: {want.doc}"


def _in_bounds(data: Any, want: Param) -> bool:
    return not isinstance(data, (int, float)) or (
        (want.low is None or data >= want.low)
        and (want.high is None or data <= want.high)
        and (want.above is None or data > want.above)
        and (want.below is None or data < want.below)
    )


def _report_choice(data: Any, want: Param, span: Span, found: Diagnostics) -> None:
    choices = want.all_choices()
    shown = f'"{data}"' if want.type == "string" and span.text != data else f"`{data}`"
    on_hub, also = "hub:org/name" if str(data).startswith("hub:") else f"hub:{data}", ""
    if want.form and hub_dataset(on_hub) and re.fullmatch(want.form[0], on_hub):
        also = f'; a data set of the Hugging Face hub is "{on_hub}"'
    if not choices and want.form:
        message = f"`{want.name}` cannot be {shown}"
        example = f'{want.name}: {want.doc}, for example "{want.form[1]}"'
        found.error("RL0210", span, message, example + also)
        return
    message = f"there is no {want.noun} {shown}"
    if want.noun == "value":
        message = f"`{want.name}` cannot be {shown}"
    fix, advice = rename(span, str(data), choices), known_values(choices, str(data)) + also
    if want.instead is not None and fix is None:
        advice += f"; {want.instead}"
    found.error("RL0204", span, message, advice, fix=fix)


def _quantity(expr: Quantity) -> tuple[str, Any]:
    if expr.unit == "$":
        return "money", float(expr.value)
    if expr.unit == "%":
        return "float", expr.value / 100
    seconds = expr.value * SECONDS[expr.unit]
    return "duration", int(seconds) if float(seconds).is_integer() else seconds


def _compute(op: str, operands: list[Value]) -> tuple[str, Any]:
    """Return the type and value of an operation. Raise TypeError if the types do not fit."""
    left, right = operands[0].type, operands[-1].type
    if len(operands) == 1 and left not in NUMBERS:
        raise TypeError
    if len(operands) == 1:
        return left, -operands[0].data
    if left in NUMBERS and right in NUMBERS:
        kind = "float"
    elif left in _AMOUNTS and (op in "+-" if left == right else right in NUMBERS and op in "*/"):
        kind = left
    elif left in NUMBERS and right in _AMOUNTS and op == "*":
        kind = right
    else:
        raise TypeError
    data = _OPERATIONS[op](operands[0].data, operands[1].data)
    if abs(data) > LARGEST:
        raise OverflowError
    return "int" if kind == "float" and isinstance(data, int) else kind, data


# `${name}` in a string, and a folder that a variable of the environment names.
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_FOLDER = re.compile(r"\$\{[A-Z][A-Z0-9_]*\}(?:/|$)")


def report_word(name: Name, want: Param, found: Diagnostics) -> bool:
    """Report ``True``, ``null`` and the like of other languages; return whether it is one."""
    from rlc.catalog import WORDS  # only needed for a mistake

    meant = WORDS.get(name.id, name.id)
    if meant not in ("true", "false", "none"):
        return False
    if meant == "none" and not want.optional:
        advice = None if want.required else "leave it out for its default"
        message = f"`{want.name}` takes no `{name.id}`"
        found.error("RL0201", name.span, message, advice)
    else:
        message, advice = f"`{name.id}` is written `{meant}` here", f"write `{meant}`"
        found.error("RL0115", name.span, message, advice, fix=replace(name.span, meant, advice))
    return True


def _is_unquoted(expr: Expr, scope: Scope) -> bool:
    """Return whether it is one word of undeclared names, such as a path or dotted name."""
    parts, names = [expr], list[str]()
    while parts:
        match parts.pop():
            case Name() as name:
                names.append(name.id)
            case Attribute() as path:
                parts.append(path.value)
            case Binary(op="/" | "-") as operation:
                parts += operation.left, operation.right
            case Number():
                pass
            case _:
                return False
    is_word = not any(map(str.isspace, expr.span.text))
    return is_word and bool(names) and not any(map(scope.knows, names))


def _warn_of_placeholders(text: String, want: Param, scope: Scope, found: Diagnostics) -> None:
    """Warn of ``${name}``: nothing is filled in. Text for a model may have it, so there it must
    name something of this recipe, or stand for a folder."""
    for match in _PLACEHOLDER.finditer(text.span.text):
        name, start = match[1], text.span.start
        is_free = not (want.choices or want.form or want.file)
        if is_free and not scope.knows(name) and not _FOLDER.match(text.value):
            continue
        place = Span(text.span.source, start + match.start(), start + match.end())
        message = f"`{match[0]}` is not replaced: strings are taken as they are written"
        advice = "declare the whole text as a `param`, which `--set` can change"
        if scope.knows(name) and text.value == match[0]:
            advice = f"write `{name}` without quotes"
        scope.used.add(name)  # by mistake, which is said once
        found.warning("RL0117", place, message, advice)


# The limits of a type with a range: `int(low = 1)`.
_ENDS = {
    "low": "least allowed value",
    "high": "greatest allowed value",
    "above": "allowed values are more",
    "below": "allowed values are less",
}


def typed(name: str, written: Expr | None, doc: str, scalars: Scalars, found: Diagnostics) -> Param:
    """Return a parameter of the type that is ``written``; one that takes anything plain if there is
    none, and after a report."""
    anything = Param(name, _UNTYPED, doc)
    if written is not None:
        found.note("type", written.func.span if isinstance(written, Call) else written.span)
    match written:
        case None:
            return anything
        case Name(id=kind) if kind in PARAM_TYPES or (kind in KINDS and kind in DECLARATIONS):
            return Param(name, kind, doc)
        case Call(func=Name(id="word")):
            return evolve(anything, type=WORD, choices=_choices(written, found))
        case Call(func=Name(id=kind)) if kind in (*NUMBERS, *_AMOUNTS):
            ends = [Param(end, kind, text, None, optional=True) for end, text in _ENDS.items()]
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
    words, advice = list[str](), "for example `word(mean, none)`"
    for argument in written.args:
        if isinstance(argument.value, Name) and argument.name is None:
            words.append(argument.value.id)
        else:
            found.error("RL0209", argument.span, "the type `word()` lists words", advice)
    if not written.args:
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
    """Return the value of a ``param``, or None after a report."""
    doc = f"declared as {decl.type.span.text}" if decl.type else "a plain value"
    want = typed(decl.name.id, decl.type, doc, scalars, found)
    if decl.type is not None and want.type in KINDS:
        message = f"a `param` is a plain value, and not {KINDS[want.type].noun}"
        advice = f"write `{want.type} {decl.name.id} = …`"
        found.error("RL0209", decl.type.span, message, advice)
        return None
    evaluate = scalars.plain if want.type == _UNTYPED else scalars.fitting
    return evaluate(decl.value, want)


def report_misfit(expr: Expr, want: Param, scope: Scope, found: Diagnostics) -> None:
    """Report an expression that makes nothing of the wanted kind."""
    noun, example = KINDS[want.type].noun, KINDS[want.type].example
    message = f"`{want.name}` takes {noun}, found {describe(expr)}"
    if isinstance(expr, Binary) and expr.op in "+-*/":
        message = f"cannot apply `{expr.op}` to {noun}"
    if isinstance(expr, Binary | ListExpr):
        example = KINDS[want.type].several or example
    candidates = scope.of_kind(want.type)
    advice = f"for example `{example}`"
    if want.type == "model" and candidates:
        advice = f"declared are {known_values(candidates)}"
    found.error("RL0201", expr.span, message, advice)


def report_call(
    func: Name | Attribute, name: str, want: Param, scope: Scope, found: Diagnostics
) -> None:
    """Report a call of what makes nothing of the wanted kind."""
    from rlc.catalog import UNSUPPORTED, alias_of, builtins_of, find_anywhere, how_to_make, names_of

    span, kind = func.span, KINDS[want.type]
    other = find_anywhere(name)
    if other is not None and other.word:
        message = f"`{name}` is a word and has no parentheses"
        found.error("RL0208", span, message, f"write `{name}`")
    elif other is not None:
        message = f"`{name}()` is {KINDS[other.kind].noun}, where {kind.noun} belongs"
        advice = how_to_make(want.type)
        if other.kind == kind.step:
            advice = f"it comes after one: `{kind.start} |> {name}(…)`"
        found.error("RL0201", span, message, advice)
    elif name in UNSUPPORTED:
        message = f"`{name}` cannot be expressed here"
        found.error("RL0115", span, message, UNSUPPORTED[name])
    elif name in scope.decls:
        scope.used.add(name)
        label = Label(scope.decls[name].name.span, "declared here")
        message = f"`{name}` is a name of this recipe and has no parentheses"
        found.error("RL0208", span, message, f"write `{name}`", label)
    elif name not in scope.unread:
        message = f"there is no `{name}()` that makes {kind.noun}"
        own = [each for each, decl in scope.templates.items() if decl.kind.id == want.type]
        known = [*names_of(want.type), *own]
        advice, fix = known_values(known, name), rename(span, name, known, others=True)
        if (alias := alias_of(name, builtins_of(want.type))) is not None:
            advice = f"it is called `{alias.name}()` here"
            fix = replace(span, alias.name, f"write `{alias.name}`", safe=False)  # other defaults
        found.error("RL0103", span, message, advice, fix=fix)
