"""What each word of a recipe means, and what is wanted where: noted while it is checked.

The check calls :meth:`rlc.lang.diagnostics.Diagnostics.note` wherever it finds out what a word
stands for, which does nothing. :class:`Notes` are the diagnostics that remember it, for editors; an
:class:`Annotator` checks single declarations with them, also in a recipe with mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rlc.algo import Input, Operation
from rlc.catalog import (
    AT,
    CLAIM,
    CONFIGURATION,
    DECLARATIONS,
    EPISODE_VALUES,
    KINDS,
    SWEEP,
    TEST,
    Builtin,
    Declaration,
    Param,
    builtins_of,
    find_anywhere,
)
from rlc.check.amendments import names_in, names_of, nodes_in
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator, dotted
from rlc.check.scope import NamedDecl, collect, is_made
from rlc.check.uses import check_templates
from rlc.check.values import UnknownValue, Value
from rlc.lang import (
    Amend,
    Argument,
    Attribute,
    Binary,
    BlockDecl,
    Bool,
    Call,
    Decl,
    Diagnostics,
    Expectation,
    Expr,
    Field,
    ImportDecl,
    ListExpr,
    Name,
    Number,
    Quantity,
    Recipe,
    RecordExpr,
    Source,
    Span,
    String,
    ValueDecl,
)
from rlc.records import define, evolve, frozen

Role = Literal[
    "kind",
    "declares",
    "type",
    "field",
    "argument",
    "key",
    "builtin",
    "word",
    "reference",
    "parameter",
    "local",
    "input",
    "function",
    "attribute",
    "literal",
    "path",
    "hole",
]
What = Declaration | Param | Builtin | NamedDecl | Operation | Input

# Types of the fields of sweeps, claims and tests, and of expressions.
STAGE_OF_SWEEP, AXIS, MEASURE, EXPRESSION = "stage", "axis", "measure", "expression"
SWEEP_OF_CLAIM, COMPARISON = "sweep", "comparison"
EXPECTATION, TASK = "expectation", "task"
_ENVS = ".envs", ".env"  # in a path, what comes before the name of an environment
KEYS_ARE_NAMES = (AXIS, "teacher")  # the keys of a record for one of these are names of the recipe
_ANY = Param("value", "any", "a value")


class Note(NamedTuple):
    """The meaning of the word from ``start`` to ``end``: ``what`` it stands for, the parameter
    ``want`` of which it is a value, and the ``owner`` of the field or argument that it names. A
    "hole" stands for a value that is not known."""

    role: Role
    start: int
    end: int
    what: What | None = None
    want: Param | None = None
    owner: str | None = None


@frozen
class WrittenDefault:
    """A default as it is written in a recipe."""

    text: str


@frozen(eq=False)
class Arguments:
    """The arguments of a call or a block of ``owner``, which has the ``params``, at its span,
    ``by`` further on. ``owner`` is None for a type."""

    owner: Builtin | Declaration | NamedDecl | Operation | None
    span: Span
    items: tuple[Argument | Field, ...]
    params: tuple[Param, ...]
    by: int = 0

    @property
    def start(self) -> int:
        return self.span.start + self.by

    @property
    def end(self) -> int:
        return self.span.end + self.by

    @property
    def is_call(self) -> bool:
        """Whether they stand in parentheses."""
        return not isinstance(self.owner, Declaration)


@define(eq=False)
class Annotations:
    """The notes of one source, by the places of the words."""

    words: dict[tuple[int, int], Note]
    arguments: list[Arguments]


class Notes(Diagnostics):
    """Diagnostics that note the meaning of words, by their source. Of two notes on one word the
    first counts: the later ones are of copies."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: defaultdict[Source, Annotations] = defaultdict(lambda: Annotations({}, []))

    def note(
        self, role: Any, span: Span, what: Any = None, want: Any = None, owner: str | None = None
    ) -> None:
        if role == "argument":
            owner = f"{owner}()"
        if role == "local" and what is None:
            what = Param(span.text, EXPRESSION, "a part of the expression")
        note = Note(role, span.start, span.end, what, want, owner)
        self.sources[span.source].words.setdefault((span.start, span.end), note)

    def note_arguments(
        self, owner: Any, span: Span, items: Sequence[Any], params: Sequence[Any]
    ) -> None:
        if items and items[0].span is span:
            return  # not written: `$60` for `limit(usd = $60)`
        if isinstance(owner, Operation):
            params = [Param(name, EXPRESSION, owner.doc) for name in owner.params]
        elif isinstance(owner, NamedDecl):
            params = as_written(owner, params)
        given = Arguments(owner, span, tuple(items), tuple(params))
        self.sources[span.source].arguments.append(given)

    def has(self, node: Expr) -> bool:
        """Return whether there is a note on an expression."""
        return (node.span.start, node.span.end) in self.sources[node.span.source].words


class Annotator:
    """Checks declarations one by one, with all that are declared in scope."""

    def __init__(self, decls: Iterable[Decl], source: Source) -> None:
        self.notes = Notes()
        recipe = Recipe(Span(source, 0, len(source.text)), tuple(decls))
        scope = collect(recipe, self.notes)
        self.declared: Mapping[str, NamedDecl] = {**scope.templates, **scope.decls}
        if scope.templates:
            check_templates(scope, self.notes)
        self.evaluator = Evaluator(scope, source.name, self.notes)

    def annotate(self, decl: Decl) -> None:
        """Note what the words of a declaration mean."""
        note, kind = self.notes.note, decl.kind
        note("kind", kind.span, DECLARATIONS.get(kind.id))
        if isinstance(decl, ImportDecl):
            note("path", decl.path.span)
            return
        if isinstance(decl, Expectation):
            want = Param(kind.id, MEASURE, "what is expected")
            self._measure(decl.comparison.left, want)
            self._measure(decl.comparison.right, want)
        else:
            note("declares", decl.name.span, decl)
            meant = self.declared.get(decl.name.id, decl)
            if meant.span == decl.span:
                decl, kind = meant, meant.kind  # that is misspelt
            known = DECLARATIONS.get(kind.id)
            if known is not None and known.form is None:
                with self.evaluator.inside(decl.name.id):
                    self._check(decl)
        self._rest(decl)

    def parameters(self, decl: NamedDecl) -> tuple[Param, ...]:
        """Return what the parameters of a declaration take."""
        return as_written(decl, self.evaluator.uses.wants(decl)) if decl.parameters else ()

    def _check(self, decl: NamedDecl) -> None:
        uses = self.evaluator.uses
        if decl.parameters is not None:
            wants = {param.name: param for param in self.parameters(decl)}
            for parameter in decl.parameters:
                self.notes.note("parameter", parameter.name.span, wants[parameter.name.id])
            defaults = [each.default for each in decl.parameters if each.default is not None]
            for name in (name for part in (*defaults, decl) for name in names_in(part)):
                if name.id in wants:
                    self.notes.note("parameter", name.span, wants[name.id])
            decl = uses.alone(decl)
        known = DECLARATIONS[decl.kind.id]
        if isinstance(decl, ValueDecl):
            if known.is_block and isinstance(decl.value, UnknownValue):
                want = Param(decl.name.id, known.kind, f"what `{decl.name.id}` stands for")
                self.notes.note("hole", decl.value.span, want=want)
                return
            if not known.is_block or not is_made(decl, self.evaluator.scope.templates):
                self.evaluator.made(decl)
                return
            if (made := uses.block(decl)) is None:
                return
            decl = made
        if not isinstance(decl, BlockDecl):
            return
        self.notes.note_arguments(known, decl.span, decl.fields, known.fields)
        if known.open:
            self._expressions(decl, known)
            return
        owner = Owner(known.kind, "", "field", decl.name.span, unread=decl.unread)
        value = self._looked_up if known.kind in (SWEEP, CLAIM, TEST) else self.evaluator.value
        bind(decl.fields, known.fields, owner, value, self.notes)

    def _expressions(self, decl: Any, known: Declaration) -> None:
        """Note the parts of a loss, and its result; a hole while that is not written."""
        fields = {param.name: param for param in known.fields}
        for field in decl.fields:
            param, place = fields.get(field.name.id), field.name.span
            if param is not None:
                self.notes.note("field", place, param, owner=known.kind)
            else:
                self.notes.note("local", place)
        if not fields.keys() & {field.name.id for field in decl.fields}:
            span, name = decl.name.span, next(iter(fields))
            result = Field(span, Name(span, name), UnknownValue(span, fields[name]))
            decl = evolve(decl, fields=(*decl.fields, result))
        self.evaluator.made(decl)

    def _looked_up(self, expr: Expr, want: Param) -> Value | None:
        """Note a field of a sweep or a test, most of which name something."""
        if isinstance(expr, UnknownValue):
            self.notes.note("hole", expr.span, want=want)
        elif want.type == AXIS:
            for field in expr.fields if isinstance(expr, RecordExpr) else ():
                self._axis(field, want)
        elif want.type == MEASURE:
            self._measure(expr, want)
        elif want.type in (STAGE_OF_SWEEP, SWEEP_OF_CLAIM):
            self._refer(expr)
        elif want.type == EXPECTATION:
            one = evolve(want, many=False)
            for item in expr.items if isinstance(expr, ListExpr) else (expr,):
                self._expected(item, one)
        elif want.type == TASK:
            self.evaluator.scalars.plain(expr, want)
        elif want.type == COMPARISON:
            self._compared(expr, want)
        else:
            return self.evaluator.value(expr, want)
        return None

    def _axis(self, field: Field, want: Param) -> None:
        head, *rest = names_of(field.name)
        decl = self.declared.get(head.id)
        if decl is None:
            self.notes.note("key", head.span, want=want)
            return
        self.notes.note("reference", head.span, decl)
        known = DECLARATIONS[decl.kind.id]
        doc = f"what `{decl.name.id}` stands for"
        param: Param | None = Param(decl.name.id, known.value or "any", doc)
        for number, part in enumerate(rest):
            param = field_of(known.fields if number == 0 and known.is_block else param, part.id)
            self.notes.note("attribute", part.span, param)
        if param is None or param.type == "param":
            param = _ANY
        value = field.value
        if isinstance(value, Call):
            self.evaluator.call(value, evolve(want, named=False))
        for item in value.items if isinstance(value, ListExpr) else (value,):
            if isinstance(item, UnknownValue) or not isinstance(value, Call):
                self.evaluator.value(item, evolve(param, many=param.many and item is value))

    def _compared(self, expr: Expr, want: Param) -> None:
        """Note the paths and values of the configurations in a claim."""
        for node in nodes_in(expr):
            if isinstance(node, UnknownValue):
                self.notes.note("hole", node.span, want=want)
            if not (isinstance(node, Call) and isinstance(node.func, Name) and node.func.id == AT):
                continue
            self.notes.note("function", node.func.span, CONFIGURATION)
            for argument in node.args:
                match argument.value:
                    case Binary(op="==", left=Name() | Attribute() as path) as condition:
                        name = Name(path.span, path.span.text)
                        field = Field(argument.span, name, condition.right)
                        self._axis(field, want)

    def _measure(self, expr: Expr, want: Param) -> None:
        if isinstance(expr, UnknownValue):
            self.notes.note("hole", expr.span, want=want)
        self._refer(expr)
        if isinstance(expr, Attribute) and expr.value.span.text.endswith(_ENVS):
            self._refer(expr.attr)
        for name in ("left", "right", "operand", *(["value"] * isinstance(expr, Attribute))):
            if (part := getattr(expr, name, None)) is not None:
                self._measure(part, want)

    def _expected(self, expr: Expr, want: Param) -> None:
        """Note an expectation of a test: `reward.format("4") == 1`, `main.cost.high < $20`."""
        if isinstance(expr, Binary):
            self._expected(expr.left, want)
            self._expected(expr.right, want)
            return
        func = expr.func if isinstance(expr, Call) else expr
        head = func.value if isinstance(func, Attribute) else func
        param = field_of(EPISODE_VALUES, head.id) if isinstance(head, Name) else None
        if param is not None and not self._is_declared(head):
            self.notes.note("input", head.span, param, want)
        elif not isinstance(expr, Call):
            self._measure(expr, want)
        for argument in expr.args if isinstance(expr, Call) else ():
            self._expected(argument.value, want)

    def _is_declared(self, expr: Expr) -> bool:
        return isinstance(expr, Name) and expr.id in self.declared

    def _refer(self, expr: Expr) -> None:
        if isinstance(expr, Name) and self._is_declared(expr) and not self.notes.has(expr):
            self.notes.note("reference", expr.span, self.declared[expr.id])

    def _rest(self, decl: Decl) -> None:
        """Note what the check did not reach because of a mistake."""
        kind = DECLARATIONS.get(decl.kind.id)
        for node in nodes_in(decl):
            match node:
                case Amend() if kind is not None and kind.is_block:
                    self._amended(node, kind)
                case Amend(base=Name(id=name)) if name in self.declared:
                    self._amended(node, DECLARATIONS[self.declared[name].kind.id])
                case Call():
                    self._call(node)
                case Attribute() if not self.notes.has(node):
                    fields: Sequence[Param] = ()
                    if isinstance(node.value, Name) and node.value.id in self.declared:
                        known = DECLARATIONS[self.declared[node.value.id].kind.id]
                        fields = known.fields if known.is_block else ()
                    self.notes.note("attribute", node.attr.span, field_of(fields, node.attr.id))
                case Name():
                    self._refer(node)
                case Bool() | Number() | Quantity() | String() if not self.notes.has(node):
                    self.notes.note("literal", node.span)
                case RecordExpr():
                    for field in node.fields:
                        self._key(field)

    def _call(self, call: Call) -> None:
        """Note a call of a builtin that is not of the wanted kind."""
        self._refer(call.func)
        noted = self.notes.sources[call.span.source].arguments
        builtin = find_anywhere(dotted(call.func))
        if builtin is None or any(each.span == call.span for each in noted):
            return
        self.notes.note("builtin", call.func.span, builtin)
        self.notes.note_arguments(builtin, call.span, call.args, builtin.params)
        for argument in call.args:
            if (name := argument.name) is not None:
                param = field_of(builtin.params, name.id)
                self.notes.note("argument", name.span, param, owner=builtin.name)

    def _amended(self, amend: Amend, known: Declaration) -> None:
        self.notes.note_arguments(known, amend.span, amend.fields, known.fields)
        for field in amend.fields:
            head, *rest = names_of(field.name)
            within = field_of(known.fields, head.id)
            self.notes.note("field", head.span, within, owner=known.kind)
            for name in rest:
                within = field_of(within, name.id)
                self.notes.note("attribute", name.span, within)

    def _key(self, field: Field) -> None:
        name = field.name
        words = self.notes.sources[name.span.source].words
        at = name.span.start, name.span.end
        want = words[at].want if at in words else None
        if want is not None and want.type in KEYS_ARE_NAMES and name.id in self.declared:
            words[at] = Note("reference", *at, self.declared[name.id])
        elif "." not in name.id:
            self.notes.note("key", name.span)


def as_written(decl: NamedDecl, params: Iterable[Param]) -> tuple[Param, ...]:
    """Return the parameters of a declaration, each default as it is written."""
    defaults = (parameter.default for parameter in decl.parameters or ())
    return tuple(
        param if default is None else evolve(param, default=WrittenDefault(default.span.text))
        for param, default in zip(params, defaults, strict=True)
    )


def fields_of(param: Param | None) -> tuple[Param, ...]:
    """Return the parameters of all builtins that make a value for a parameter: they may follow the
    dot in `optimizer.learning_rate`."""
    if param is None or param.type not in KINDS:
        return ()
    every = (each for builtin in builtins_of(param.type) for each in builtin.params)
    return tuple({each.name: each for each in every}.values())


def field_of(within: Param | Sequence[Param] | None, name: str) -> Param | None:
    """Return the field of a name among some fields, or after the dot of one; None if unknown."""
    fields = fields_of(within) if isinstance(within, Param) else within or ()
    return next((each for each in fields if each.name == name), None)
