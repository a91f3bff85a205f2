"""Expressions to values: references, calls, pipelines, weighted sums.

An expression is evaluated for a parameter, which says what may stand there. Whatever is wrong is
reported where it stands, once; what depends on it is then left alone (None).
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rlc.catalog.declarations import PARAM_TYPES
from rlc.catalog.index import KINDS, find_anywhere, find_builtin, names_of, words_of
from rlc.catalog.records import SCALARS, Args, Builtin, Param, Signature
from rlc.catalog.training import retry_then
from rlc.check.bind import Bound, Owner, bind
from rlc.check.mixtures import name_single, single, weighted
from rlc.check.models import model_value
from rlc.check.scalars import Scalars, article, describe
from rlc.check.scope import NamedDecl, Scope
from rlc.check.suggest import known_values
from rlc.check.values import Value, place, unwrap
from rlc.lang.ast import Attribute, Binary, BlockDecl, Call, Expr, Name, Number, ValueDecl
from rlc.lang.diagnostics import Diagnostics, Label

_ANY = Param("param", "any", "a plain value")
_WEIGHT = Param("weight", "float", "share of the tasks, relative to the others", above=0)


class Evaluator:
    """Evaluates the declarations of a scope, each once."""

    def __init__(self, scope: Scope, found: Diagnostics) -> None:
        self._scope = scope
        self._found = found
        self._scalars = Scalars(
            lambda name: self._reference(name, "param", _ANY), scope.knows, found
        )
        self._done: dict[str, Value | None] = {}
        self._open: list[str] = []

    def declared(self, decl: NamedDecl) -> Value | None:
        """The value of a declaration other than a stage."""
        name = decl.name.id
        if name not in self._done:
            self._open.append(name)
            self._done[name] = self._declaration(decl)
            self._open.pop()
        return self._done[name]

    def value(self, expr: Expr, want: Param) -> Value | None:
        """The value of an expression as ``want`` takes it, or None after a report."""
        if want.type in SCALARS or (want.optional and isinstance(expr, Name) and expr.id == "none"):
            return self._scalars.fitting(expr, want)
        match expr:
            case Name():
                return self._name(expr, want)
            case Call():
                return self._call(expr, want)
            case Binary(op="|>") if KINDS[want.type].step:
                return self._pipeline(expr, want)
            case Binary(op="+" | "*") if want.type == "env":
                return self._mixture(expr, want)
            case Binary(op="then") if want.type == "failure":
                return self._then(expr, want)
        self._report_misfit(expr, want)
        return None

    def _declaration(self, decl: NamedDecl) -> Value | None:
        if isinstance(decl, BlockDecl):
            return model_value(decl, self.value, self._found)
        if decl.kind.id == "param":
            return self._param(decl)
        want = Param(decl.name.id, decl.kind.id, f"what `{decl.name.id}` stands for")
        value = self.value(decl.value, want)
        return value and _named_after(decl, value)

    def _param(self, decl: ValueDecl) -> Value | None:
        if decl.type is None:
            return self._scalars.plain(decl.value, evolve(_ANY, name=decl.name.id))
        if decl.type.id not in PARAM_TYPES:
            advice = known_values(PARAM_TYPES, decl.type.id)
            message = f"`{decl.type.id}` is not a type"
            self._found.error("RL0209", decl.type.span, message, advice)
            return self._scalars.plain(decl.value, evolve(_ANY, name=decl.name.id))
        want = Param(decl.name.id, decl.type.id, f"declared as {decl.type.id}")
        return self._scalars.fitting(decl.value, want)

    def _name(self, name: Name, want: Param) -> Value | None:
        builtin = find_builtin(want.type, name.id)
        if builtin is not None and builtin.word:
            record = builtin.build(Args({}))
            return Value(want.type, record, name.span, place(name.span))
        words = words_of(want.type)
        if words and not self._scope.knows(name.id):
            message = f"`{name.id}` is not {KINDS[want.type].noun}"
            self._found.error("RL0204", name.span, message, known_values(words, name.id))
            return None
        return self._reference(name, want.type, want)

    def _reference(self, name: Name, kind: str, want: Param) -> Value | None:
        """The value of a declared name, which must be of a certain kind."""
        decl = self._scope.find(name, [kind], self._found)
        if decl is None:
            return None
        label = Label(decl.name.span, "declared here")
        if decl.kind.id != kind:
            takes = article(want) if want.type in SCALARS else KINDS[want.type].noun
            what = _declared_as(decl)
            message = f"`{name.id}` is {what}, where {takes} belongs"
            candidates = self._scope.of_kind(kind)
            advice = f"declared are {known_values(candidates)}" if candidates else None
            self._found.error("RL0201", name.span, message, advice, label)
            return None
        if name.id in self._open:
            circle = " → ".join([*self._open[self._open.index(name.id) :], name.id])
            message = f"`{name.id}` is declared by itself"
            self._found.error("RL0112", name.span, message, f"break the circle: {circle}", label)
            return None
        return self.declared(decl)

    def _call(self, call: Call, want: Param) -> Value | None:
        builtin = self._builtin(call, want)
        if builtin is None:
            return None
        owner = Owner(builtin.name, f"`{builtin.name}()`", "argument", call.func.span)
        bound = self._bound(call, builtin, owner)
        if bound is None:
            return None
        value = Value(
            builtin.kind,
            builtin.build(Args(bound.values)),
            call.span,
            f"definition of {builtin.name}",
        )
        return evolve(value, data=single(value)) if builtin.kind == "env" else value

    def _bound(self, call: Call, builtin: Builtin, owner: Owner) -> Bound | None:
        params, reason = list(builtin.params), None
        if builtin.more is not None:
            signature = self._more(call, builtin, owner)
            if signature is None:
                return None
            params += signature.params
            reason = signature.why_no_other
        owner = evolve(owner, why_no_other=reason)
        bound = bind(call.args, params, owner, self.value, self._found)
        return bound if bound.complete else None

    def _more(self, call: Call, builtin: Builtin, owner: Owner) -> Signature | None:
        """The parameters that depend on the first argument; None if that is wrong or missing."""
        first = builtin.params[0]
        assert builtin.more is not None
        for position, argument in enumerate(call.args):
            name = argument.name.id if argument.name else first.name
            if name == first.name and (argument.name or position == 0):
                value = self._scalars.fitting(argument.value, first)
                return builtin.more(value.data) if value else None
        bind([], [first], owner, self.value, self._found)
        return None

    def _builtin(self, call: Call, want: Param) -> Builtin | None:
        """The builtin that a call names, of the kind that belongs here."""
        name = call.func.span.text if isinstance(call.func, Attribute) else call.func.id
        builtin = find_builtin(want.type, name)
        if builtin is not None and not builtin.word:
            return builtin
        span, kind = call.func.span, KINDS[want.type]
        other = builtin or find_anywhere(name)
        if other is not None and other.word:
            message = f"`{name}` is a word and has no parentheses"
            self._found.error("RL0208", span, message, f"write `{name}`")
        elif other is not None:
            message = f"`{name}()` is {KINDS[other.kind].noun}, where {kind.noun} belongs"
            advice = _choose(want.type)
            if other.kind == kind.step:
                advice = f"it comes after one: `{kind.start} |> {name}(…)`"
            self._found.error("RL0201", span, message, advice)
        elif name in self._scope.decls:
            self._scope.used.add(name)
            label = Label(self._scope.decls[name].name.span, "declared here")
            message = f"`{name}` is a name of this recipe and has no parentheses"
            self._found.error("RL0208", span, message, f"write `{name}`", label)
        elif name not in self._scope.unread:
            message = f"there is no `{name}()` that makes {kind.noun}"
            self._found.error("RL0103", span, message, known_values(names_of(want.type), name))
        return None

    def _pipeline(self, expr: Binary, want: Param) -> Value | None:
        """``head |> stage``: the head is of the same kind, the stage one of its steps."""
        head = self.value(expr.left, want)
        kind = KINDS[want.type].step
        assert kind is not None
        stage = self._stage(expr.right, Param("a pipeline stage", kind, KINDS[kind].noun))
        if head is None or stage is None:
            return None
        if kind == "step":
            return evolve(head, data=_with_step(head, stage), span=expr.span)
        if not self._may_follow(head, stage, expr.right):
            return None
        envs = tuple(evolve(env, wrappers=(*env.wrappers, stage)) for env in head.data)
        return evolve(head, data=envs, span=expr.span)

    def _stage(self, expr: Expr, want: Param) -> Value | None:
        if isinstance(expr, Name) and find_builtin(want.type, expr.id):
            message = f"`{expr.id}` is a builtin and needs its parentheses"
            self._found.error("RL0208", expr.span, message, f"write `{expr.id}()`")
            return None
        if not isinstance(expr, Call):
            message = f"a stage after `|>` is a call, found {describe(expr)}"
            self._found.error("RL0201", expr.span, message, _choose(want.type))
            return None
        return self._call(expr, want)

    def _may_follow(self, head: Value, stage: Value, expr: Expr) -> bool:
        """Whether a wrapper can come after those before it."""
        name = unwrap(stage.data.name)
        builtin = find_builtin("wrapper", name)
        assert builtin is not None
        for env in head.data:
            for before in env.wrappers:
                reason = builtin.not_after.get(unwrap(before.data.name))
                if reason:
                    earlier = unwrap(before.data.name)
                    label = Label(before.span, f"`{earlier}()` is here")
                    message = f"`{name}()` cannot come after `{earlier}()`"
                    self._found.error("RL0305", expr.span, message, reason, label)
                    return False
        return True

    def _mixture(self, expr: Binary, want: Param) -> Value | None:
        if expr.op == "+":
            left, right = self.value(expr.left, want), self.value(expr.right, want)
            if left is None or right is None:
                return None
            return Value("env", left.data + right.data, expr.span, place(expr.span))
        if isinstance(expr.right, Number):
            message = "a weight comes before its environment"
            advice = f"write `{expr.right.span.text} * {expr.left.span.text}`"
            self._found.error("RL0201", expr.span, message, advice)
            return None
        weight = self._scalars.fitting(expr.left, _WEIGHT)
        env = self.value(expr.right, want)
        if weight is None or env is None:
            return None
        return Value("env", weighted(weight, env.data), expr.span, place(expr.span))

    def _then(self, expr: Binary, want: Param) -> Value | None:
        if not isinstance(expr.left, Call):
            message = f"`then` comes after a number of retries, found {describe(expr.left)}"
            example = f"for example `{KINDS[want.type].example}`"
            self._found.error("RL0201", expr.left.span, message, example)
            return None
        retry = self.value(expr.left, Param(want.name, "retry", want.doc))
        then = self.value(expr.right, want)
        if retry is None or then is None:
            return None
        return Value("failure", retry_then(retry.data, then.data), expr.span, place(expr.span))

    def _report_misfit(self, expr: Expr, want: Param) -> None:
        noun, example = KINDS[want.type].noun, KINDS[want.type].example
        message = f"`{want.name}` takes {noun}, found {describe(expr)}"
        if isinstance(expr, Binary) and expr.op in "+-*/":
            message = f"`{expr.op}` does not work on {noun}"
        if want.type == "env" and isinstance(expr, Binary):
            example = "3 * whodunit + 1 * gsm8k"
        candidates = self._scope.of_kind(want.type)
        advice = f"for example `{example}`"
        if want.type == "model" and candidates:
            advice = f"declared are {known_values(candidates)}"
        self._found.error("RL0201", expr.span, message, advice)


def _choose(kind: str) -> str:
    names = ", ".join(f"`{name}()`" for name in names_of(kind))
    if not names or words_of(kind):
        return f"for example `{KINDS[kind].example}`"
    return f"{KINDS[kind].noun} is made by {names}"


def _declared_as(decl: NamedDecl) -> str:
    nouns = {"train": "a training stage", "param": "a param"}
    return nouns.get(decl.kind.id) or KINDS[decl.kind.id].noun


def _with_step(head: Value, stage: Value) -> Any:
    scheme: Any = head.data
    origin = scheme.name if isinstance(scheme.name, Value) else head
    name = f"{unwrap(scheme.name)} |> {stage.origin.removeprefix('definition of ')}"
    return evolve(
        scheme,
        name=Value("string", name, origin.span, origin.origin),
        steps=(*scheme.steps, stage),
    )


def _named_after(decl: ValueDecl, value: Value) -> Value:
    """The value under the name it was declared with."""
    name: Any = Value("string", decl.name.id, decl.name.span, place(decl.name.span))
    if value.type == "env":
        return evolve(value, data=name_single(name, value.data))
    return evolve(value, data=evolve(value.data, name=name))
