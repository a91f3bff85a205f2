"""Expressions to values: references, calls, pipelines, weighted sums.

An expression is evaluated for a parameter, which says what it may be. Each mistake is reported
once, at its place; the value of what depends on it is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from rlc.catalog import (
    DECLARATIONS,
    KINDS,
    OWN_LOSSES,
    SCALARS,
    Args,
    Builtin,
    Param,
    Signature,
    find_builtin,
    names_of,
    words_of,
)
from rlc.check import pipelines
from rlc.check.bind import Owner, bind
from rlc.check.models import model_value
from rlc.check.pipelines import report_tasks, single
from rlc.check.scalars import NUMBERS, Scalars, article, param_value, report_word
from rlc.check.scope import NAMEABLE, NamedDecl, Scope, declared_as, is_made, known_values, rename
from rlc.check.values import UnknownValue, Value, report_unfit
from rlc.lang import (
    Amend,
    Argument,
    Attribute,
    Binary,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Label,
    ListExpr,
    Name,
    Number,
    Quantity,
    RecordExpr,
    String,
)
from rlc.plan import ModelState
from rlc.records import evolve, field_names

if TYPE_CHECKING:
    from rlc.check.uses import Uses

T = TypeVar("T")

_ANY = Param("param", "any", "a plain value")
STEPS = {kind.step for kind in KINDS.values()} - {None}
MAX_OPEN = 40  # declarations that are evaluated for each other: Python's stack holds them


class Evaluator:
    """Evaluates the declarations of a scope, each once. ``recipe``: the path of the recipe;
    ``values``: what is known of some."""

    def __init__(
        self,
        scope: Scope,
        recipe: str,
        found: Diagnostics,
        values: Mapping[str, Value | None] | None = None,
    ) -> None:
        self.scope, self.recipe, self.found = scope, recipe, found
        self.scalars = Scalars(self._plain_reference, scope, recipe, found)
        self.values = dict(values or {})
        self._open: list[str] = []
        self._models: dict[int, Value | None] = {}  # by the expression: it is asked for twice

    @cached_property
    def uses(self) -> Uses:
        """The uses of declarations with parameters, which most recipes do not have."""
        from rlc.check.uses import Uses

        return Uses(self)

    def declared(self, decl: NamedDecl) -> Value | None:
        """Return the value of a declaration; of a stage, the model that it leaves behind."""
        name = decl.name.id
        if name not in self.values:
            with self.inside(name):
                self.values[name] = self.made(decl)
        return self.values[name]

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Mark a declaration as being evaluated: it cannot be named meanwhile."""
        self._open.append(name)
        yield
        self._open.pop()

    def block(self, decl: NamedDecl, name: Name) -> BlockDecl | None:
        """Return the block that a declaration is or stands for; None after a report. ``name`` is
        where it is named."""
        if isinstance(decl, BlockDecl):
            return decl
        if not self.may_use(decl, name):
            return None
        with self.inside(decl.name.id):
            made = self.uses.block(decl)
        if made is None:
            self.scope.decls.pop(decl.name.id, None)  # a circle has dropped it
            self.scope.unread |= {decl.name.id}
        else:
            self.scope.decls[decl.name.id] = made
        return made

    def value(self, expr: Expr, want: Param) -> Value | None:
        """Return the value of an expression as ``want`` takes it; None after a report, and if it is
        not known."""
        if isinstance(expr, UnknownValue):
            report_unfit(expr, want, self.found)
            return None
        if want.many:
            return self._list(expr, want)
        func = expr.func if want.also and isinstance(expr, Call) else None
        if want.also and isinstance(func, Name) and find_builtin(want.also, func.id):
            want = evolve(want, type=want.also)
        named = isinstance(expr, Name) and expr.id not in self.scope.of_kind("param")
        if want.also and want.type in SCALARS and named and KINDS[want.also].nameable:
            want = evolve(want, type=want.also)
        if want.named:
            return pipelines.named_parts(self, expr, want)
        if want.type == "model":
            if id(expr) not in self._models:
                self._models[id(expr)] = self._one(expr, want)
            return self._models[id(expr)]
        value = self._one(expr, want)
        of_block = value is not None and value.type in OWN_LOSSES  # declared at its name, used here
        return evolve(value, span=expr.span) if value and of_block else value

    def _one(self, expr: Expr, want: Param) -> Value | None:
        if want.type == "expression" and not (isinstance(expr, Name) and expr.id == "none"):
            from rlc.check.expressions import shaped_reward  # most recipes shape no reward

            return shaped_reward(expr, self)
        if want.type in SCALARS or (want.optional and isinstance(expr, Name) and expr.id == "none"):
            return self.scalars.fitting(expr, want)
        func = expr.func if isinstance(expr, Call) else expr
        also = KINDS[want.type].also
        if also and not (isinstance(func, Name) and find_builtin(want.type, func.id)):
            return self.value(expr, evolve(want, type=also))
        is_declared = isinstance(expr, Name) and expr.id in self.scope.of_kind(want.type)
        as_is = None if is_declared else KINDS[want.type].as_is
        if as_is and not isinstance(expr, Call | Number | Quantity):
            return self.scalars.fitting(expr, evolve(want, type=as_is))
        match expr:
            case Name():
                return self._name(expr, want)
            case Call():
                return self.call(expr, want)
            case Amend():
                return self.uses.amended(expr, want)
            case Binary(op="|>") if KINDS[want.type].step:
                return pipelines.pipeline(self, expr, want)
            case Binary(op="|>") if want.type in STEPS:
                return pipelines.part(self, expr, want)
            case Binary(op="+" | "*") if want.type == "env":
                return pipelines.mixture(self, expr, want)
            case String() if expr.value in words_of(want.type):
                return self._name(self.scalars.unquoted(expr), want)
            case Binary(op="*") if KINDS[want.type].weighted:
                return pipelines.weighted_part(self, expr, want)
            case Binary(op="then") if want.type == "failure":
                return pipelines.then(self, expr, want)
            case RecordExpr() if want.type == "price":  # `{ sample = $1 }` for `price(sample = $1)`
                given = tuple(Argument(one.span, one.name, one.value) for one in expr.fields)
                brace = evolve(expr.span, end=expr.span.start + 1)
                return self.call(Call(expr.span, Name(brace, "price"), given), want)
        if KINDS[want.type].plain:
            return self._shorthand(expr, want)
        from rlc.check.scalars import report_misfit  # only needed for a mistake

        report_misfit(expr, want, self.scope, self.found)
        return None

    def _list(self, expr: Expr, want: Param) -> Value | None:
        one = evolve(want, many=False)
        if want.optional and isinstance(expr, Name) and expr.id == "none":
            return self.scalars.fitting(expr, one)
        items = expr.items if isinstance(expr, ListExpr) else (expr,)
        values = [self.value(item, one) for item in items]
        known = tuple(value for value in values if value)
        if len(known) < len(values):
            return None
        return Value(want.type, known, expr.span, expr.span)

    def _shorthand(self, expr: Expr, want: Param) -> Value | None:
        """Evaluate a plain value that is short for a call: ``$60`` for ``limit(usd = $60)``."""
        plain = KINDS[want.type].plain
        value = self.scalars.plain(expr, evolve(_ANY, name=want.name))
        if value is None:
            return None
        if value.type not in plain:
            kind = KINDS[want.type]
            message = f"`{want.name}` takes {kind.noun}, found {SCALARS[value.type]}"
            advice = f"for example `{kind.example}`"
            if value.type in NUMBERS:
                advice = f"write `${value.data:g}`"
            self.found.error("RL0201", expr.span, message, advice)
            return None
        (name,) = names_of(want.type)
        given = Argument(expr.span, Name(expr.span, plain[value.type]), expr)
        made = self.call(Call(expr.span, Name(expr.span, name), (given,)), want)
        return made and evolve(made, origin=expr.span)

    def made(self, decl: NamedDecl) -> Value | None:
        """Return the value of a declaration without parameters; of a stage, the model that it
        leaves behind."""
        if isinstance(decl, BlockDecl):
            if decl.kind.id == "model":
                return model_value(decl, self.value, self.recipe, self.found)
            if DECLARATIONS[decl.kind.id].open:
                from rlc.check.formulas import own_formula  # most recipes have none

                return own_formula(decl, self)
            field = next((field for field in decl.fields if field.name.id == "model"), None)
            start = field and self.value(field.value, Param("model", "model", "a model"))
            if not start:
                return None
            after: Any = Value("string", decl.name.id, decl.name.span, decl.name.span)
            return evolve(start, data=ModelState(start.data.model, after))
        if decl.kind.id == "param":
            return param_value(decl, self.scalars, self.found)
        want = Param(decl.name.id, decl.kind.id, f"what `{decl.name.id}` stands for")
        value = self.value(decl.value, want)
        if value is None or not KINDS[value.type].named:
            return value
        name: Any = Value("string", decl.name.id, decl.name.span, decl.name.span)
        if value.type != "env":
            return evolve(value, data=evolve(value.data, name=name))
        if len(value.data) > 1:  # the parts of a mixture keep their names
            return value
        return evolve(value, data=(evolve(value.data[0], name=name),))

    def _name(self, name: Name, want: Param) -> Value | None:
        builtin = find_builtin(want.type, name.id)
        if builtin is not None and builtin.word:
            self.found.note("builtin", name.span, builtin)
            return Value(want.type, builtin.build(Args({})), name.span, name.span)
        words = words_of(want.type)
        if words and builtin is None and not self.scope.knows(name.id):
            message = f"`{name.id}` is not {KINDS[want.type].noun}"
            fix = rename(name.span, name.id, words, others=True)
            advice = known_values(names_of(want.type), name.id)
            self.found.error("RL0204", name.span, message, advice, fix=fix)
            return None
        decl = self.scope.decls.get(name.id)
        if decl is not None and decl.kind.id == "param" and KINDS[want.type].plain:
            return self._shorthand(name, want)
        value = self._reference(name, NAMEABLE.get(want.type, (want.type,)), want)
        if value is None or want.type != "model":
            return value
        state, span = value.data, name.span
        if state.after is not None:  # the stage whose weights are taken is named here
            state = evolve(state, after=evolve(state.after, span=span, origin=span))
        return evolve(value, data=state, span=span, origin=span)

    def _plain_reference(self, expr: Name | Attribute) -> Value | None:
        """Return a param, or a field of a model: ``learning_rate``, ``policy.base``."""
        if isinstance(expr, Name):
            return self._reference(expr, ("param",), _ANY)
        if isinstance(expr.value, UnknownValue):
            report_unfit(expr.value, Param("model", "model", ""), self.found)
            return None
        if not isinstance(expr.value, Name):
            message = f"`{expr.span.text}` goes too deep"
            self.found.error("RL0102", expr.span, message, "a field of a model: `policy.base`")
            return None
        model = self._reference(expr.value, ("model",), Param("model", "model", ""))
        if model is None:
            return None
        record, name = model.data.model, expr.attr
        kind: Any = type(record)
        names = [one for one in field_names(kind) if one != "price"]  # no plain value
        if name.id not in names:
            message = f"a model has no field `{name.id}`"
            advice, fix = known_values(names, name.id), rename(name.span, name.id, names)
            self.found.error("RL0104", name.span, message, advice, fix=fix)
            return None
        value: Value = getattr(record, name.id)
        return evolve(value, span=expr.span, origin=expr.span)

    def _reference(self, name: Name, kinds: Sequence[str], want: Param) -> Value | None:
        """Return the value of a declared name of one of some kinds, or None after a report."""
        if not self.scope.knows(name.id) and report_word(name, want, self.found):
            return None
        decl = self.scope.find(name, kinds, self.found)
        if decl is None:
            return None
        label = Label(decl.name.span, "declared here")
        if decl.kind.id not in kinds:
            takes = article(want) if want.type in SCALARS else KINDS[want.type].noun
            message = f"`{name.id}` is {declared_as(decl)}, where {takes} belongs"
            candidates = self.scope.of_kind(*kinds)
            advice = f"declared are {known_values(candidates)}" if candidates else None
            self.found.error("RL0201", name.span, message, advice, label)
            return None
        if name.id not in self.values and not self.may_use(decl, name):
            return None
        whole = self.block(decl, name) if is_made(decl, self.scope.templates) else decl
        return None if whole is None else self.declared(whole)

    def may_use(self, decl: NamedDecl, name: Name) -> bool:
        """Return whether a declaration can be evaluated where it is named: not inside of itself."""
        label, span = Label(decl.name.span, "declared here"), name.span
        if name.id in self._open:
            circle = " → ".join([*self._open[self._open.index(name.id) :], name.id])
            message = f"`{name.id}` is declared in terms of itself"
            self.found.error("RL0112", span, message, f"remove the cycle: {circle}", label)
            return False
        if len(self._open) >= MAX_OPEN:
            many = f"more than {MAX_OPEN} declarations"
            message = f"`{name.id}` is needed by {many}, one by the other"
            advice = "put a declaration before those that name it"
            self.found.error("RL0016", span, message, advice, label)
            return False
        return True

    def call(self, call: Call, want: Param) -> Value | None:
        if isinstance(call.func, Name) and call.func.id in self.scope.templates:
            return self.uses.value(call, call.func, want)
        builtin = self._builtin(call, want)
        if builtin is None:
            return None
        owner = Owner(builtin.name, f"`{builtin.name}()`", "argument", call.func.span, builtin.hint)
        params = builtin.params
        self.found.note_arguments(builtin, call.span, call.args, params)
        if builtin.more is not None:
            signature = self._more(call, builtin, owner)
            if signature is None:
                return None
            params += signature.params
            self.found.note_arguments(builtin, call.span, call.args, params)
            owner = evolve(owner, why_no_other=signature.why_no_other)
        bound = bind(self._arguments(call, params), params, owner, self.value, self.found)
        takes_tasks = builtin.kind == "env" and any(param.type == "env" for param in params)
        if not bound.complete or (takes_tasks and not report_tasks(bound.values, self.found)):
            return None
        made, origin = builtin.build(Args(bound.values)), f"definition of {builtin.name}"
        value = Value(builtin.kind, made, call.span, origin)
        return evolve(value, data=single(value)) if builtin.kind == "env" else value

    def _arguments(self, call: Call, params: Sequence[Param]) -> Sequence[Argument]:
        """Return the arguments of a call. An expression may stand first without its name."""
        own = next((param for param in params if param.type == "expression"), None)
        if own is None or not call.args or call.args[0].name is not None:
            return call.args
        from rlc.check.expressions import is_shape  # most recipes shape no reward

        first, *others = call.args
        if not is_shape(first.value, params[0].all_choices()):
            return call.args
        return [*others, evolve(first, name=Name(first.span, own.name))]

    def _more(self, call: Call, builtin: Builtin, owner: Owner) -> Signature | None:
        """Return the parameters that depend on the first argument; None if that is not known."""
        first = builtin.params[0]
        assert builtin.more is not None
        for position, argument in enumerate(call.args):
            name = argument.name.id if argument.name else first.name
            if name == first.name and (argument.name or position == 0):
                value = self.scalars.fitting(argument.value, first)
                return builtin.more(value.data) if value else None
        bind([], [first], owner, self.value, self.found)
        return None

    def _builtin(self, call: Call, want: Param) -> Builtin | None:
        """Return the builtin of the wanted kind that a call names, or None after a report."""
        name = dotted(call.func)
        builtin = find_builtin(want.type, name)
        if builtin is not None and not builtin.word:
            self.found.note("builtin", call.func.span, builtin)
            return builtin
        from rlc.check.scalars import report_call  # only needed for a mistake

        report_call(call.func, name, want, self.scope, self.found)
        return None


def dotted(func: Name | Attribute) -> str:
    """Return ``verl.grpo`` as a name, however it is spaced."""
    if isinstance(func, Name):
        return func.id
    head = dotted(func.value) if isinstance(func.value, Name | Attribute) else "?"
    return f"{head}.{func.attr.id}"
