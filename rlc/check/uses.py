"""Reuse of declarations: those with parameters, and blocks that amend others.

A use, `digits(size = 5)`, is a copy of the declaration with the arguments put in; an amended block,
`main { steps = 400 }`, one with other fields. It is done on the syntax tree, before anything is
evaluated; what is put in keeps its place, and how it came there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import zip_longest
from typing import Literal, Protocol, TypeVar

from rlc.catalog import DECLARATIONS, KINDS, REQUIRED, WORDS, Param, find_anywhere, how_to_make
from rlc.check.amendments import Amendment, filled, marked, names_in, names_of, nodes_in
from rlc.check.bind import Owner, bind
from rlc.check.scalars import NUMBERS, WORD, Scalars, typed
from rlc.check.scope import NAMEABLE, NamedDecl, Scope, declared_as, is_made, known_values, rename
from rlc.check.values import UnknownValue, Value
from rlc.lang import (
    Amend,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Field,
    Label,
    Name,
    Negative,
    Node,
    Number,
    Parameter,
    Span,
    String,
    ValueDecl,
)
from rlc.records import evolve

MAX_COPIES = 2_000
AnyDecl = TypeVar("AnyDecl", bound=BlockDecl | ValueDecl)


class Uses:
    """The copies that one recipe makes of its declarations with parameters."""

    def __init__(self, evaluator: ReuseContext) -> None:
        self._evaluator = evaluator
        self._found = evaluator.found
        self._made: dict[int, tuple[Call, BlockDecl | ValueDecl | None]] = {}  # calls keep their id
        self._wants: dict[str, tuple[Param, ...]] = {}
        self._defaults: dict[str, dict[str, Expr]] = {}

    def copy(self, call: Call) -> BlockDecl | ValueDecl | None:
        """The declaration that a use stands for, with its arguments put in and no parameters; None
        after a report, and where an argument is not known."""
        if id(call) not in self._made:
            self._made[id(call)] = call, self._copied(call)
        return self._made[id(call)][1]

    def value(self, call: Call, name: Name, want: Param) -> Value | None:
        """The value of a use where it stands, or None after a report."""
        evaluator = self._evaluator
        decl = evaluator.scope.templates[name.id]
        kinds = NAMEABLE.get(want.type, (want.type,))
        if decl.kind.id not in kinds:
            label = Label(decl.name.span, "declared here")
            noun = KINDS[want.type].noun
            message = f"`{name.id}()` is {declared_as(decl)}, where {noun} belongs"
            self._found.error("RL0201", name.span, message, how_to_make(want.type), label)
        elif want.type in NAMEABLE:
            self._report_nameless(call, decl.kind.id)
        elif evaluator.may_use(decl, name) and (made := self.copy(call)) is not None:
            with evaluator.inside(name.id), self.labelled(decl, call):
                whole = self.block(made) if is_made(made) else made
                return None if whole is None else evaluator.made(whole)
        return None

    def amended(self, amend: Amend, want: Param) -> Value | None:
        """The value of a block that is amended where it stands, or None after a report."""
        declared = DECLARATIONS.get(want.type)
        if want.type in NAMEABLE:
            self._report_nameless(amend, want.type)
        elif isinstance(amend.base, Call) and not (declared and declared.is_block):
            message = f"{KINDS[want.type].noun} is no block, so it has no fields to amend"
            advice = "write it whole, or declare it with parameters"
            self._found.error("RL0620", amend.span, message, advice)
        elif (block := block_of(self._evaluator, want.type, amend)) is not None:
            return self._evaluator.made(block)
        return None

    def _report_nameless(self, expr: Expr, kind: str) -> None:
        message = f"what `{expr.span.text.partition('{')[0].strip()}` makes has no name"
        written = " ".join(expr.span.text.split())
        advice = f"declare it, and write its name here: `{kind} name = {written}`"
        self._found.error("RL0622", expr.span, message, advice)

    def block(self, decl: ValueDecl) -> BlockDecl | None:
        """The block that a declaration stands for; None after a report."""
        return made_block(self._evaluator, decl)

    def alone(self, decl: AnyDecl) -> AnyDecl:
        """The declaration with its defaults put in; what has none is not known."""
        return self._filled(decl, {})

    @contextmanager
    def labelled(self, decl: BlockDecl | ValueDecl, call: Call) -> Iterator[None]:
        """Say of what is found in the copy of a declaration where it is used, and of what is wrong
        with an argument there what it was given to."""
        before = len(self._found)
        yield
        label = Label(call.func.span, f"in this use of `{decl.name.id}`")
        _explain(self._found, before, label, decl.span, again=True)
        _explain(self._found, before, Label(decl.name.span, "declared here"), call.span)

    def _copied(self, call: Call) -> BlockDecl | ValueDecl | None:
        assert isinstance(call.func, Name)
        found = self._found
        decl = self._evaluator.scope.templates[call.func.id]
        name, label = decl.name.id, Label(decl.name.span, "declared here")
        self._evaluator.scope.used.add(name)
        if len(self._made) >= MAX_COPIES:
            if len(self._made) == MAX_COPIES:  # said once
                message = f"declarations with parameters are used more than {MAX_COPIES:,} times"
                advice = "each use is a copy; is one used twice in one that is used twice?"
                found.error("RL0628", call.func.span, message, advice, label)
            return None
        places = {parameter.name.id: parameter.name.span for parameter in decl.parameters or ()}
        given: dict[str, Expr] = {}

        def argument(expr: Expr, want: Param) -> Value | None:
            before = len(found)
            value = self._evaluator.value(expr, want)
            _explain(found, before, Label(places[want.name], "the parameter"), expr.span)
            if value is not None:
                given[want.name] = self._marked(expr, value, f"argument of {name}, ")
            return value

        before = len(found)
        found.note("reference", call.func.span, decl)
        found.note_arguments(decl, call.span, call.args, self.wants(decl))
        owner = Owner(name, f"`{name}()`", "argument", call.func.span)
        bound = bind(call.args, self.wants(decl), owner, argument, found)
        _explain(found, before, label, call.span)
        return self._filled(decl, given) if bound.complete else None

    def wants(self, decl: BlockDecl | ValueDecl) -> tuple[Param, ...]:
        """What the parameters of a declaration take. Those with a default have one that is not
        theirs: it is put in as it is written."""
        name = decl.name.id
        if name not in self._wants:
            self._wants[name] = tuple(self._want(name, each) for each in decl.parameters or ())
        return self._wants[name]

    def _want(self, name: str, parameter: Parameter) -> Param:
        default, doc = parameter.default, f"a parameter of `{name}`"
        want = typed(parameter.name.id, parameter.type, doc, self._evaluator.scalars, self._found)
        can_be_none = isinstance(default, Name) and default.id == "none"
        return evolve(want, default=REQUIRED if default is None else None, optional=can_be_none)

    def _marked(self, expr: Expr, value: Value | None, how: str) -> Expr:
        return marked(_converted(expr, value), how, self._evaluator.scope.templates)

    def _filled(self, decl: AnyDecl, given: Mapping[str, Expr]) -> AnyDecl:
        """The declaration without its parameters: what is not given has its default, which may name
        parameters before it."""
        holes: dict[str, Expr] = {}
        for name, default in self._defaults_of(decl).items():
            holes[name] = given.get(name) or filled(default, holes)
        return evolve(filled(decl, holes), parameters=None)

    def _defaults_of(self, decl: BlockDecl | ValueDecl) -> Mapping[str, Expr]:
        """What stands for each parameter that is not given: its default, if that is right."""
        if decl.name.id not in self._defaults:
            defaults: dict[str, Expr] = {}
            for parameter, want in zip(decl.parameters or (), self.wants(decl), strict=True):
                default = parameter.default
                hole: Expr = UnknownValue(parameter.name.span, want)
                if default is not None:
                    value = self._evaluator.value(filled(default, defaults), want)
                    how = f"default of {decl.name.id}, "
                    needs = any(node.id in defaults for node in names_in(default))
                    if value is not None or needs:
                        hole = self._marked(default, value, how)
                defaults[want.name] = hole
            self._defaults[decl.name.id] = defaults
        return self._defaults[decl.name.id]


def _converted(expr: Expr, value: Value | None) -> Expr:
    """The expression, a number or word as its parameter takes it: it may be put where anything
    plain can stand."""
    if value is None:
        return expr
    if value.type in NUMBERS and isinstance(expr, Number | Negative) and value.data is not None:
        return Number(expr.span, value.data)
    if value.type == WORD and isinstance(expr, String):
        return Name(expr.span, value.data)
    return expr


def _explain(
    found: Diagnostics, since: int, label: Label, within: Span, again: bool = False
) -> None:
    """Add a label to what was found in a part of a source, if it has none yet, or ``again``."""
    for index in range(since, len(found)):
        item = found[index]
        span = item.span
        if span is None or span.source is not within.source or span == label.span:
            continue
        inside = within.start <= span.start and span.end <= within.end
        if inside and (again or not item.labels) and label not in item.labels:
            found[index] = evolve(item, labels=(*item.labels, label))


def made_block(evaluator: ReuseContext, decl: ValueDecl) -> BlockDecl | None:
    """The block that ``train longer = main { … }`` stands for; None after a report."""
    made = block_of(evaluator, decl.kind.id, decl.value)
    return made and evolve(made, span=decl.span, name=decl.name, kind=decl.kind)


def block_of(evaluator: ReuseContext, kind: str, expr: Expr) -> BlockDecl | None:
    """The block of a kind that an expression stands for; None after a report."""
    match expr:
        case Amend():
            base = block_of(evaluator, kind, expr.base)
            return base and _amended(evaluator, base, expr)
        case Name():
            return _declared(evaluator, kind, expr)
        case Call(func=Name()):
            return _used(evaluator, kind, expr)
        case UnknownValue():
            return None
    message = f"`{expr.span.text}` is no block that could be amended"
    advice = f"name a declared `{kind}`"
    evaluator.found.error("RL0620", expr.span, message, advice)
    return None


def _declared(evaluator: ReuseContext, kind: str, name: Name) -> BlockDecl | None:
    scope, found = evaluator.scope, evaluator.found
    decl = scope.find(name, (kind,), found)
    if decl is None:
        return None
    label = Label(decl.name.span, "declared here")
    if not DECLARATIONS[decl.kind.id].is_block:
        what = "a param" if decl.kind.id == "param" else KINDS[decl.kind.id].noun
        message = f"`{name.id}` is {what}: it has no fields to amend"
        advice = f"give it parameters: `{decl.kind.id} {name.id}(…) = …`"
        if decl.kind.id == "param":
            advice = "a block is amended, such as a model or a stage"
        found.error("RL0620", name.span, message, advice, label)
        return None
    if decl.kind.id != kind:
        message = f"`{name.id}` is a `{decl.kind.id}`, and no `{kind}` is made of it"
        others = [each for each in scope.of_kind(kind) if isinstance(scope.decls[each], BlockDecl)]
        known = f"declared are {known_values(others)}" if others else None
        found.error("RL0621", name.span, message, known, label)
        return None
    return evaluator.block(decl, name)


def _used(evaluator: ReuseContext, kind: str, call: Call) -> BlockDecl | None:
    assert isinstance(call.func, Name)
    scope, found, name = evaluator.scope, evaluator.found, call.func
    decl = scope.templates.get(name.id)
    if decl is None:
        if name.id in scope.unread:
            return None
        candidates = [each for each, decl in scope.templates.items() if decl.kind.id == kind]
        message, labels = f"there is no `{name.id}()` that makes a `{kind}`", list[Label]()
        advice: str | None = known_values(candidates, name.id) if candidates else None
        if (known := scope.decls.get(name.id)) is not None:
            message = f"`{name.id}` is declared without parameters"
            advice = f"write `{name.id} {{ … }}`, with what is to change"
            labels.append(Label(known.name.span, "declared here"))
        elif (builtin := find_anywhere(name.id)) is not None:
            message = f"`{name.id}()` is {KINDS[builtin.kind].noun}, and no `{kind}`"
            if builtin.kind == kind:
                message = f"`{name.id}()` comes with rlc: it has no fields to amend"
                advice = "write it with other arguments"
        fix = rename(name.span, name.id, candidates)
        code = "RL0208" if labels else "RL0103"
        found.error(code, name.span, message, advice, *labels, fix=fix)
        return None
    if decl.kind.id != kind:
        label = Label(decl.name.span, "declared here")
        message = f"`{name.id}` is a `{decl.kind.id}`, and no `{kind}` is made of it"
        found.error("RL0621", name.span, message, None, label)
        return None
    if not evaluator.may_use(decl, name):
        return None
    made = evaluator.uses.copy(call)
    if not isinstance(made, ValueDecl):
        return made
    with evaluator.inside(name.id), evaluator.uses.labelled(decl, call):
        return made_block(evaluator, made)


def _amended(evaluator: ReuseContext, base: BlockDecl, amend: Amend) -> BlockDecl | None:
    """The block with the fields of an amendment in place of its own."""
    scope, found = evaluator.scope, evaluator.found
    fields, given = base.fields, list[Field]()
    decls = scope.decls | scope.templates

    def stands_for(name: Name) -> Expr | None:
        """What a part of a declared value is changed in: all but what has its name in the plan."""
        decl = scope.decls.get(name.id)
        if not isinstance(decl, ValueDecl) or decl.kind.id not in KINDS:
            return None
        if DECLARATIONS[decl.kind.id].is_block or KINDS[decl.kind.id].named:
            return None
        scope.used.add(name.id)
        return decl.value

    def another(inside: str) -> str:
        name, _, part = inside.partition(".")
        kind = decls[name].kind.id
        if not DECLARATIONS[kind].is_block:
            return f"declare another `{kind}` with its own `{part}`, and name that"
        return f"declare another, and name that: `{kind} other = {name} {{ {part} = … }}`"

    for field in amend.fields:
        first = next((one for one in given if _overlap(one.name.id, field.name.id)), None)
        if first is not None:
            label = Label(first.name.span, "first given here")
            message = f"the field `{first.name.id}` is given twice"
            found.error("RL0110", field.name.span, message, "keep one of them", label)
            continue
        given.append(field)
        change = Amendment(
            (base.name, *names_of(field.name)),
            marked(field.value, "amended at ", scope.templates),
            decls,
            found,
            "RL0623",
            lambda whole: f"write the whole: `{whole.partition('.')[2]} = …`",
            another,
            stands_for,
        )
        fields = change.in_fields(fields, 1)
    return evolve(base, fields=fields)


def _overlap(one: str, other: str) -> bool:
    """Whether one of two dotted names is the other, or a part of it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


class Copies(Protocol):
    """What is needed of :class:`rlc.check.uses.Uses`."""

    def copy(self, call: Call) -> NamedDecl | None: ...

    def labelled(self, decl: NamedDecl, call: Call) -> AbstractContextManager[None]: ...


class ReuseContext(Protocol):
    """What is needed of :class:`rlc.check.evaluate.Evaluator`."""

    scope: Scope
    found: Diagnostics
    scalars: Scalars

    @property
    def uses(self) -> Copies: ...

    def value(self, expr: Expr, want: Param) -> Value | None: ...

    def made(self, decl: NamedDecl) -> Value | None: ...

    def block(self, decl: NamedDecl, name: Name) -> BlockDecl | None: ...

    def may_use(self, decl: NamedDecl, name: Name) -> bool: ...

    def inside(self, name: str) -> AbstractContextManager[None]: ...


def check_templates(scope: Scope, found: Diagnostics) -> None:
    """Report declarations whose parameters have names that mean something else already, and those
    that use themselves. Both are dropped."""
    wrong = [decl for decl in scope.templates.values() if not _check_parameters(decl, scope, found)]
    for decl in {id(decl): decl for decl in [*wrong, *_circular(scope, found)]}.values():
        del scope.templates[decl.name.id]
        scope.unread |= {decl.name.id}


def report_unused_parameters(scope: Scope, found: Diagnostics) -> None:
    """Warn of parameters that nothing uses."""
    for decl in scope.templates.values():
        defaults = [each.default for each in decl.parameters or () if each.default is not None]
        used = {name.id for part in (decl, *defaults) for name in names_in(part)}
        for parameter in decl.parameters or ():
            name = parameter.name
            if name.id not in used:
                message = f"nothing in `{decl.name.id}` uses the parameter `{name.id}`"
                found.warning("RL0626", name.span, message, "use it, or take it out")


def _check_parameters(decl: NamedDecl, scope: Scope, found: Diagnostics) -> bool:
    """Whether the name of each parameter means one thing."""
    before = len(found)
    as_words = {name.id: name for name in _read_as_words(decl)}
    seen: dict[str, Name] = {}
    parts: dict[str, Name] = {}
    if isinstance(decl, BlockDecl) and _has_parts(decl.kind.id):
        parts = {field.name.id: field.name for field in decl.fields}
    for parameter in decl.parameters or ():
        name = parameter.name
        other = scope.declaration(name.id)
        # Whoever imports a file may use the names of its parameters.
        is_here = other is not None and other.span.source is decl.span.source
        if name.id in seen:
            label = Label(seen[name.id].span, "first given here")
            message = f"`{decl.name.id}` has two parameters `{name.id}`"
            found.error("RL0625", name.span, message, "give one another name", label)
        elif other is not None and is_here:
            label = Label(other.name.span, "declared here")
            message = f"the parameter `{name.id}` has the name of a declaration"
            found.error("RL0625", name.span, message, "give it another name", label)
        elif name.id in ("none", *WORDS) or getattr(find_anywhere(name.id), "word", False):
            message = f"the parameter `{name.id}` has the name of one of the language's words"
            found.error("RL0625", name.span, message, "give it another name")
        elif (word := as_words.get(name.id)) is not None:
            label = Label(word.span, f"the word `{name.id}`, or the parameter?")
            message = f"the parameter `{name.id}` has the name of a word that can stand here"
            found.error("RL0625", name.span, message, "give it another name", label)
        elif (part := parts.get(name.id)) is not None:
            label = Label(part.span, "the part")
            message = f"the parameter `{name.id}` has the name of a part of `{decl.name.id}`"
            found.error("RL0625", name.span, message, "give it another name", label)
        seen.setdefault(name.id, name)
    return len(found) == before


def _has_parts(kind: str) -> bool:
    """Whether the fields of a block are expressions, which may name each other."""
    return any(field.type == "expression" for field in DECLARATIONS[kind].fields)


def _read_as_words(decl: NamedDecl) -> Iterator[Name]:
    """The names in a declaration that stand where a word of that name may stand."""
    for node in nodes_in(decl):
        pairs: Iterable[tuple[Param, Expr]] = ()
        if isinstance(node, BlockDecl):
            fields = {param.name: param for param in DECLARATIONS[decl.kind.id].fields}
            pairs = [(fields[f.name.id], f.value) for f in node.fields if f.name.id in fields]
        elif isinstance(node, Call) and isinstance(node.func, Name):
            params = getattr(find_anywhere(node.func.id), "params", ())
            named = {param.name: param for param in params}
            given = [
                (named.get(arg.name.id) if arg.name else param, arg.value)
                for arg, param in zip_longest(node.args, params)
                if arg is not None
            ]
            pairs = [(param, value) for param, value in given if param is not None]
            if any(param.type == "expression" for param in params):
                yield from _inputs(node, "reward")
        if isinstance(node, BlockDecl) and _has_parts(decl.kind.id):
            yield from _inputs(node, "loss")
        for param, value in pairs:
            if isinstance(value, Name) and value.id in param.all_choices():
                yield value


def _inputs(node: Node, of: Literal["loss", "reward"]) -> Iterator[Name]:
    """The names in expressions that have a meaning of their own there."""
    from rlc.algo import INPUTS

    return (name for name in names_in(node) if name.id in INPUTS[of])


def _circular(scope: Scope, found: Diagnostics) -> list[NamedDecl]:
    """The declarations that use themselves, after a report of each circle."""
    circular, done = list[NamedDecl](), set[str]()

    def visit(name: str, way: tuple[str, ...]) -> None:
        decl = scope.templates[name]
        calls = (node.func for node in nodes_in(decl) if isinstance(node, Call))
        for call in (func for func in calls if isinstance(func, Name)):
            if call.id in way or call.id == name:
                circle = (*way, name)[(*way, name).index(call.id) :]
                shown = " → ".join([*circle, call.id])
                message = f"`{call.id}` uses itself, without end"
                label = Label(scope.templates[call.id].name.span, "declared here")
                found.error("RL0624", call.span, message, f"break the circle: {shown}", label)
                circular.extend(scope.templates[each] for each in circle)
            elif call.id in scope.templates and call.id not in done:
                visit(call.id, (*way, name))
        done.add(name)

    for name in scope.templates:
        if name not in done:
            visit(name, ())
    return [decl for decl in scope.templates.values() if any(decl is each for each in circular)]
