"""Reuse of declarations: those with parameters, and blocks that amend others.

A use, `digits(size = 5)`, is a copy of the declaration with the arguments put in; an amended block,
`main { steps = 400 }`, one with other fields. It is done on the syntax tree, before anything is
evaluated; what is put in keeps its place, and how it came there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from rlc.catalog import (
    DECLARATIONS,
    EXPRESSION_KINDS,
    KINDS,
    REQUIRED,
    WORDS,
    Param,
    find_anywhere,
    how_to_make,
)
from rlc.check.amendments import Amendment, filled, marked, names_in, names_of, nodes_in
from rlc.check.bind import Owner, bind
from rlc.check.scalars import NUMBERS, WORD, typed
from rlc.check.scope import NAMEABLE, NamedDecl, declared_as, is_made, known_values, rename
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
    Number,
    Parameter,
    Span,
    String,
    ValueDecl,
)
from rlc.records import evolve

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    from rlc.check.scalars import EvaluatorLike
    from rlc.check.scope import Scope

    class ReuseContext(EvaluatorLike, Protocol):
        """The part of :class:`rlc.check.evaluate.Evaluator` that is needed here."""

        def made(self, decl: NamedDecl) -> Value | None: ...

        def block(self, decl: NamedDecl, name: Name) -> BlockDecl | None: ...

        def may_use(self, decl: NamedDecl, name: Name) -> bool: ...

        def inside(self, name: str) -> AbstractContextManager[None]: ...


MAX_COPIES = 2_000
AnyDecl = TypeVar("AnyDecl", bound=BlockDecl | ValueDecl)


class Uses:
    """The copies that one recipe makes of its declarations with parameters."""

    def __init__(self, evaluator: ReuseContext) -> None:
        self._evaluator = evaluator
        self._scope, self._found = evaluator.scope, evaluator.found
        self._made: dict[int, tuple[Call, BlockDecl | ValueDecl | None]] = {}  # calls keep their id
        # By the place of the name, which two declarations may have.
        self._wants: dict[Span, tuple[Param, ...]] = {}
        self._defaults: dict[Span, dict[str, Expr]] = {}

    def copy(self, call: Call) -> BlockDecl | ValueDecl | None:
        """Return the declaration that a use stands for, with its arguments in place of parameters;
        None after a report, and if an argument is not known."""
        if id(call) not in self._made:
            self._made[id(call)] = call, self._copied(call)
        return self._made[id(call)][1]

    def value(self, call: Call, name: Name, want: Param) -> Value | None:
        """Return the value of a use where it stands, or None after a report."""
        evaluator = self._evaluator
        decl = evaluator.scope.templates[name.id]
        kinds = NAMEABLE.get(want.type, (want.type,))
        if decl.kind.id not in kinds:
            label, noun = Label(decl.name.span, "declared here"), KINDS[want.type].noun
            message = f"`{name.id}()` is {declared_as(decl)}, where {noun} belongs"
            self._found.error("RL0201", name.span, message, how_to_make(want.type), label)
        elif want.type in NAMEABLE:
            self._report_nameless(call, decl.kind.id)
        elif evaluator.may_use(decl, name) and (made := self.copy(call)) is not None:
            with evaluator.inside(name.id), self.labelled(decl, call):
                whole = self.block(made) if is_made(made, evaluator.scope.templates) else made
                return None if whole is None else evaluator.made(whole)
        return None

    def amended(self, amend: Amend, want: Param) -> Value | None:
        """Return the value of a block that is amended where it stands, or None after a report."""
        declared = DECLARATIONS.get(want.type)
        if want.type in NAMEABLE:
            self._report_nameless(amend, want.type)
        elif isinstance(amend.base, Call) and not (
            declared and (declared.is_block or declared.open)
        ):
            message = f"{KINDS[want.type].noun} is no block, so it has no fields to amend"
            advice = "write it whole, or declare it with parameters"
            self._found.error("RL0620", amend.span, message, advice)
        elif (block := self._block_of(want.type, amend)) is not None:
            return self._evaluator.made(block)
        return None

    def _report_nameless(self, expr: Expr, kind: str) -> None:
        message = f"what `{expr.span.text.partition('{')[0].strip()}` makes has no name"
        written = " ".join(expr.span.text.split())
        advice = f"declare it, and write its name here: `{kind} name = {written}`"
        self._found.error("RL0622", expr.span, message, advice)

    def block(self, decl: ValueDecl) -> BlockDecl | None:
        """Return the block that ``train longer = main { … }`` stands for; None after a report."""
        made = self._block_of(decl.kind.id, decl.value)
        return made and evolve(made, span=decl.span, name=decl.name, kind=decl.kind)

    def alone(self, decl: AnyDecl) -> AnyDecl:
        """Return the declaration with its defaults put in; what has none is not known."""
        return self._filled(decl, {})

    @contextmanager
    def labelled(self, decl: BlockDecl | ValueDecl, call: Call) -> Iterator[None]:
        """Label the findings in a copy with its use, those in arguments with the declaration."""
        before = len(self._found)
        yield
        label = Label(call.func.span, f"in this use of `{decl.name.id}`")
        _explain(self._found, before, label, decl.span, again=True)
        _explain(self._found, before, Label(decl.name.span, "declared here"), call.span)

    def _copied(self, call: Call) -> BlockDecl | ValueDecl | None:
        assert isinstance(call.func, Name)
        found = self._found
        decl = self._scope.templates[call.func.id]
        name, label = decl.name.id, Label(decl.name.span, "declared here")
        self._scope.used.add(name)
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
        """Return what the parameters of a declaration take. Their defaults are put in as they are
        written, so that None stands for each."""
        name, place = decl.name.id, decl.name.span
        if place not in self._wants:
            self._wants[place] = tuple(self._want(name, each) for each in decl.parameters or ())
        return self._wants[place]

    def _want(self, name: str, parameter: Parameter) -> Param:
        default, doc = parameter.default, f"a parameter of `{name}`"
        want = typed(parameter.name.id, parameter.type, doc, self._evaluator.scalars, self._found)
        can_be_none = isinstance(default, Name) and default.id == "none"
        return evolve(want, default=REQUIRED if default is None else None, optional=can_be_none)

    def _marked(self, expr: Expr, value: Value | None, how: str) -> Expr:
        """Return an argument with marks, as its parameter takes it: it may be put anywhere."""
        is_number = value is not None and value.type in NUMBERS and value.data is not None
        if value is not None and is_number and isinstance(expr, Number | Negative):
            expr = Number(expr.span, value.data)
        elif value is not None and value.type == WORD and isinstance(expr, String):
            expr = Name(expr.span, value.data)
        return marked(expr, how, self._scope.templates)

    def _filled(self, decl: AnyDecl, given: Mapping[str, Expr]) -> AnyDecl:
        """Return the declaration without its parameters. A default may name those before it."""
        holes: dict[str, Expr] = {}
        for name, default in self._defaults_of(decl).items():
            holes[name] = given.get(name) or filled(default, holes)
        return evolve(filled(decl, holes), parameters=None)

    def _defaults_of(self, decl: BlockDecl | ValueDecl) -> Mapping[str, Expr]:
        """Return what stands for each parameter that is not given: its default, if it is valid."""
        if decl.name.span not in self._defaults:
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
            self._defaults[decl.name.span] = defaults
        return self._defaults[decl.name.span]

    def _block_of(self, kind: str, expr: Expr) -> BlockDecl | None:
        match expr:
            case Amend():
                base = self._block_of(kind, expr.base)
                return base and self._amended(base, expr)
            case Name():
                return self._declared(kind, expr)
            case Call(func=Name()):
                return self._used(kind, expr)
            case UnknownValue():
                return None
        message = f"`{expr.span.text}` is no block that could be amended"
        advice = f"name a declared `{kind}`"
        self._found.error("RL0620", expr.span, message, advice)
        return None

    def _declared(self, kind: str, name: Name) -> BlockDecl | None:
        scope, found = self._scope, self._found
        decl = scope.find(name, (kind,), found)
        if decl is None:
            return None
        label = Label(decl.name.span, "declared here")
        if not (isinstance(decl, BlockDecl) or DECLARATIONS[decl.kind.id].is_block):
            what, advice = "a param", "a block is amended, such as a model or a stage"
            if decl.kind.id != "param":
                what = KINDS[decl.kind.id].noun
                advice = f"give it parameters: `{decl.kind.id} {name.id}(…) = …`"
            message = f"`{name.id}` is {what}: it has no fields to amend"
            found.error("RL0620", name.span, message, advice, label)
            return None
        if decl.kind.id != kind:
            others = [n for n in scope.of_kind(kind) if isinstance(scope.decls.get(n), BlockDecl)]
            message = f"`{name.id}` is a `{decl.kind.id}`, and no `{kind}` is made of it"
            known = f"declared are {known_values(others)}" if others else None
            found.error("RL0621", name.span, message, known, label)
            return None
        return self._evaluator.block(decl, name)

    def _used(self, kind: str, call: Call) -> BlockDecl | None:
        assert isinstance(call.func, Name)
        scope, found, name = self._scope, self._found, call.func
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
        if not self._evaluator.may_use(decl, name):
            return None
        made = self.copy(call)
        if not isinstance(made, ValueDecl):
            return made
        with self._evaluator.inside(name.id), self.labelled(decl, call):
            return self.block(made)

    def _amended(self, base: BlockDecl, amend: Amend) -> BlockDecl | None:
        scope, found = self._scope, self._found
        fields, given = base.fields, list[Field]()
        decls = scope.decls | scope.templates

        def stands_for(name: Name) -> Expr | None:
            """Return the expression of a declared value; None if the plan has it by its name."""
            decl = scope.decls.get(name.id)
            if not isinstance(decl, ValueDecl) or is_made(decl, scope.templates):
                return None
            if decl.kind.id not in KINDS or KINDS[decl.kind.id].named:
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
            path = f"{field.name.id}."
            ways = ((one, f"{one.name.id}.") for one in given)
            first = next(
                (o for o, way in ways if way.startswith(path) or path.startswith(way)), None
            )
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


def check_templates(scope: Scope, found: Diagnostics) -> None:
    """Report and drop declarations whose parameters have names with another meaning, and circular
    ones."""
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
                found.warning("RL0626", name.span, message, "use it, or remove it")


def _check_parameters(decl: NamedDecl, scope: Scope, found: Diagnostics) -> bool:
    before = len(found)
    as_words = {name.id: name for name in _read_as_words(decl)}
    seen: dict[str, Name] = {}
    parts: dict[str, Name] = {}
    if isinstance(decl, BlockDecl) and _has_parts(decl.kind.id):
        parts = {field.name.id: field.name for field in decl.fields}
    for name in (parameter.name for parameter in decl.parameters or ()):
        other = scope.declaration(name.id)
        # Whoever imports a file may use the names of its parameters.
        is_here = other is not None and other.span.source is decl.span.source
        message, advice = f"the parameter `{name.id}` has the name of", "give it another name"
        if name.id in seen:
            labels = [Label(seen[name.id].span, "first given here")]
            message = f"`{decl.name.id}` has two parameters `{name.id}`"
            advice = "give one another name"
        elif other is not None and is_here:
            labels = [Label(other.name.span, "declared here")]
            message += " a declaration"
        elif name.id in ("none", *WORDS) or getattr(find_anywhere(name.id), "word", False):
            labels = []
            message += " one of the language's words"
        elif (word := as_words.get(name.id)) is not None:
            labels = [Label(word.span, f"the word `{name.id}`, or the parameter?")]
            message += " a word that can stand here"
        elif (part := parts.get(name.id)) is not None:
            labels = [Label(part.span, "the part")]
            message += f" a part of `{decl.name.id}`"
        else:
            seen[name.id] = name
            continue
        seen.setdefault(name.id, name)
        found.error("RL0625", name.span, message, advice, *labels)
    return len(found) == before


def _has_parts(kind: str) -> bool:
    """Return whether the fields of a block are expressions, which may name each other."""
    return any(field.type == "expression" for field in DECLARATIONS[kind].fields)


def _read_as_words(decl: NamedDecl) -> Iterator[Name]:
    """Yield the names that stand where a word or input of an expression of that name may stand."""
    from rlc.algo import INPUTS

    for node in nodes_in(decl):
        pairs: Iterable[tuple[Param, Expr]] = ()
        if isinstance(node, BlockDecl):
            fields = {param.name: param for param in DECLARATIONS[decl.kind.id].fields}
            pairs = [(fields[f.name.id], f.value) for f in node.fields if f.name.id in fields]
        elif isinstance(node, Call) and isinstance(node.func, Name):
            params = getattr(find_anywhere(node.func.id), "params", ())
            named = {param.name: param for param in params}
            given = (
                (named.get(arg.name.id) if arg.name else param, arg.value)
                for arg, param in zip_longest(node.args, params)
                if arg is not None
            )
            pairs = [(param, value) for param, value in given if param is not None]
            if any(param.type == "expression" for param in params):
                yield from (name for name in names_in(node) if name.id in INPUTS["reward"])
        if isinstance(node, BlockDecl) and _has_parts(decl.kind.id):
            inputs = INPUTS[EXPRESSION_KINDS[decl.kind.id]]
            yield from (name for name in names_in(node) if name.id in inputs)
        for param, value in pairs:
            if isinstance(value, Name) and value.id in param.all_choices():
                yield value


def _circular(scope: Scope, found: Diagnostics) -> list[NamedDecl]:
    """Return the declarations that use themselves, after a report of each circle."""
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
                found.error("RL0624", call.span, message, f"remove the cycle: {shown}", label)
                circular.extend(scope.templates[each] for each in circle)
            elif call.id in scope.templates and call.id not in done:
                visit(call.id, (*way, name))
        done.add(name)

    for name in scope.templates:
        if name not in done:
            visit(name, ())
    return [decl for decl in scope.templates.values() if any(decl is each for each in circular)]
