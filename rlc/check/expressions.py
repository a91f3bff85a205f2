"""Expressions of a recipe's own: losses and shaped rewards, lowered to programs and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.algo import (
    INPUTS,
    NUMBER,
    OPERATIONS,
    SHARE,
    Builder,
    ExpressionError,
    Input,
    Kind,
    Operation,
    Program,
    Shape,
    UndefinedPart,
    differentiable,
    direction,
    overflows_at,
    ranges,
)
from rlc.catalog import (
    FORMAT,
    Param,
    finds_answers,
    grader_traits,
    judges_of,
    known_loss,
    with_role,
)
from rlc.check.scalars import NUMBERS, describe
from rlc.check.scope import closest, known_values, rename
from rlc.check.values import UnknownValue, Value, report_unfit, said, settle, unwrap
from rlc.lang import (
    COMPARISONS,
    Attribute,
    Binary,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Field,
    Fix,
    Label,
    Name,
    Negative,
    Node,
    Number,
    Quantity,
    Span,
    replace,
)
from rlc.plan import RECOGNISED, EnvPlan, LossPlan
from rlc.records import evolve, fields, has

if TYPE_CHECKING:
    from rlc.check.scalars import EvaluatorLike

FUNCTIONS = tuple(name for name in OPERATIONS if name.isidentifier() and name != "neg")
_OPERATORS = (*"+-*/", *COMPARISONS)
_PLAIN = Param("expression", "float", "a number of an expression")
_EXPRESSION = Param("expression", "expression", "a part of an expression")


class Lowering:
    """Makes the nodes of one program, and reports what cannot be one.

    ``components`` can be read like inputs. ``parts`` has the node of each named part, None after a
    report; ``uses`` the parts that each expression names, with those of ``defining``."""

    def __init__(
        self, evaluator: EvaluatorLike, kind: Kind, components: Collection[str] = ()
    ) -> None:
        self.evaluator, self.found, self.kind = evaluator, evaluator.found, kind
        self.builder = Builder(kind, components)
        self.parts: dict[str, int | None] = {}
        self.later: dict[str, Span] = {}  # the parts that are not defined yet
        self.defining = ""
        self.uses: dict[str, set[str]] = {}
        self._spans: dict[int, Span] = {}

    def span_of(self, position: int, otherwise: Span) -> Span:
        """Return the first text of a node in the last program."""
        nodes = (node for node, at in self.builder.positions.items() if at == position)
        return next((self._spans[node] for node in nodes if node in self._spans), otherwise)

    def node(self, expr: Expr) -> int | None:
        """Return the node of an expression, or None after a report."""
        before = self.builder.size
        made = self._node(expr)
        for node in range(before, self.builder.size):
            self._spans.setdefault(node, expr.span)
        return made

    def _node(self, expr: Expr) -> int | None:
        match expr:
            case Number() | Quantity() | Attribute():
                return self._plain(expr)
            case Name():
                return self._name(expr)
            case Negative():
                return self._apply("neg", expr.span, [expr.operand], expr.span)
            case Binary(op=op) if op in _OPERATORS:
                return self._apply(op, expr.span, [expr.left, expr.right], expr.span)
            case Call(func=Name()):
                return self._call(expr)
            case UnknownValue():
                self.found.note("hole", expr.span, want=_EXPRESSION)
                report_unfit(expr, _PLAIN, self.found)
                return None
        message = f"{describe(expr)} has no place in an expression"
        known = ", ".join(f"`{name}`" for name in FUNCTIONS)
        advice = f"an expression has numbers, names, `+ - * /`, comparisons and {known}"
        self.found.error("RL0654", expr.span, message, advice)
        return None

    def _plain(self, expr: Expr) -> int | None:
        """Return the node of a number: written as one, a param, or a field of a model."""
        if isinstance(expr, Attribute) and isinstance(expr.value, Name):
            decl = self.evaluator.scope.decls.get(expr.value.id)
            if decl is not None and decl.kind.id == "loss":
                message = f"`{decl.name.id}` is another loss: its parts cannot be read here"
                advice = "write the part here too; numbers that both use can be a `param`"
                label = Label(decl.name.span, "declared here")
                self.found.error("RL0654", expr.span, message, advice, label)
                return None
        value = self.evaluator.scalars.plain(expr, _PLAIN)
        if value is None:
            return None
        if value.type not in NUMBERS:
            message = f"an expression is made of numbers, and `{expr.span.text}` is not a number"
            labels = [Label(value.span, "its value")] if value.span != expr.span else []
            self.found.error("RL0654", expr.span, message, None, *labels)
            return None
        return self.builder.number(value.data)

    def _name(self, name: Name) -> int | None:
        if name.id in self.parts:
            self.found.note("local", name.span)
            self.uses.setdefault(self.defining, set()).add(name.id)
            return self.parts[name.id]
        if name.id in self.builder.names:
            self.found.note("input", name.span, INPUTS[self.kind].get(name.id))
            return self.builder.input(name.id)
        if name.id in self.later:
            own = name.id == self.defining
            message = f"`{name.id}` is {'defined by itself' if own else 'defined further down'}"
            advice = "a part may only use those above it"
            labels = [] if own else [Label(self.later[name.id], "defined here")]
            self.found.error("RL0646", name.span, message, advice, *labels)
            return None
        decl = self.evaluator.scope.decls.get(name.id)
        if decl is not None and decl.kind.id == "param":
            return self._plain(name)
        if name.id in self.evaluator.scope.unread:
            return None
        if name.id in FUNCTIONS:
            message = f"`{name.id}` is a function and needs its arguments"
            advice = f"write `{OPERATIONS[name.id].usage}`"
            self.found.error("RL0642", name.span, message, advice)
            return None
        params = self.evaluator.scope.of_kind("param")
        known = [*self.parts, *self.builder.names, *params]
        where = "a reward" if self.kind == "reward" else "the loss"
        message = f"there is no `{name.id}` in {where}"
        self.evaluator.scope.used.update(closest(name.id, params))
        advice, fix = _suggested(name.span, name.id, known, INPUTS[self.kind])
        self.found.error("RL0640", name.span, message, advice, fix=fix)
        return None

    def _call(self, call: Call) -> int | None:
        assert isinstance(call.func, Name)
        name, span = call.func.id, call.func.span
        if name not in FUNCTIONS:
            if name in self.builder.names or name in self.parts:
                message = f"`{name}` is a value and takes no arguments"
                advice, fix = f"write `{name}`", None
            else:
                message = f"there is no function `{name}`"
                advice, fix = _suggested(span, name, FUNCTIONS, OPERATIONS)
            self.found.error("RL0641", span, message, advice, fix=fix)
            return None
        self.found.note("function", span, OPERATIONS[name])
        self.found.note_arguments(OPERATIONS[name], call.span, call.args, ())
        named = next((argument.name for argument in call.args if argument.name), None)
        if named is not None:
            message = f"the arguments of `{name}` have no names"
            self.found.error("RL0642", named.span, message, f"write `{OPERATIONS[name].usage}`")
            return None
        return self._apply(name, call.span, [argument.value for argument in call.args], span)

    def _apply(self, op: str, span: Span, args: list[Expr], named: Span) -> int | None:
        operation = OPERATIONS[op]
        wanted = len(operation.params)
        if len(args) < wanted or (len(args) > wanted and not operation.variadic):
            least = "at least " if operation.variadic else ""
            takes = f"{least}{wanted} argument{'s' * (wanted != 1)}"
            message = f"`{op}` takes {takes}, found {len(args)}"
            self.found.error("RL0642", named, message, f"write `{operation.usage}`")
            return None
        nodes = [self.node(arg) for arg in args]
        known = [node for node in nodes if node is not None]
        if len(known) < len(nodes):
            return None
        try:
            return self.builder.apply(op, *known)
        except ExpressionError as error:
            code, place = "RL0656", span
            advice: str | None = "name parts of it, or take some out"
            if error.argument is not None:
                code, place, advice = "RL0643", args[error.argument].span, error.hint
                if operation.params[min(error.argument, wanted - 1)] == SHARE:
                    code, advice = "RL0659", "0.0002 is one token in 5,000"
            self.found.error(code, place, str(error), advice)
            return None


def _suggested(
    span: Span,
    word: str,
    known: Sequence[str],
    table: Mapping[str, Input] | Mapping[str, Operation],
) -> tuple[str, Fix | None]:
    """Return the advice on an unknown word and its fix: its name in other tools, or the nearest."""
    from rlc.catalog import EXPRESSIONS  # only needed for a mistake

    for name in table:
        if word in EXPRESSIONS.get(name, "").split() and name in known:
            advice = f"it is called `{name}` here"
            return advice, replace(span, name, f"write `{name}`")
    return known_values(known, word), rename(span, word, known, others=True)


_TOO_LARGE = "it, or its gradient, is infinite where the ratio and the advantage are 1 or near it"
_RULED_OUT = "`where(condition, …, …)` rules them out; `clip`, `max` and `abs` bound what is there"


def report_findings(program: Program, lowering: Lowering, result: Span, found: Diagnostics) -> None:
    """Report what a loss cannot be trained with, and likely mistakes. ``result`` is where it ends;
    ``lowering`` has the text of its nodes."""
    if not differentiable(program)[program.output]:
        _report_no_gradient(program, lowering, result, found)
        return
    if "adv" not in program.inputs:
        message = "the loss does not depend on `adv`: rewards have no effect on training"
        advice = "multiply by the advantage: `-ratio * adv`"
        found.warning("RL0655", result, message, advice)
    elif (moved := direction(program)).still:
        message = (
            "no gradient reaches `logp` where the ratio is near 1: fresh rollouts teach nothing"
        )
        advice = "a clip needs room around a ratio of 1, as in `clip(ratio, 0.8, 1.2)`"
        found.error("RL0644", result, message, advice)
    elif moved.lowers_good:
        message = "this loss makes replies with a positive advantage less likely"
        advice = "a loss is lowered, so what is wanted has a minus: `-ratio * adv`"
        found.error("RL0660", result, message, advice)
    elif moved.raises_bad:
        message = "this loss makes replies with a negative advantage more likely, as good ones"
        advice = "keep the sign of `adv`: even powers and `abs` lose it"
        found.warning("RL0661", result, message, advice)
    values = ranges(program)
    undefined_nodes = {undefined.node for undefined in values.undefined}
    too_large = [
        position
        for position, node in enumerate(program.nodes)
        if node.args and all(program.nodes[arg].op == NUMBER for arg in node.args)
        if position not in undefined_nodes and not OPERATIONS[node.op].condition
    ]  # what is finite has been computed
    if not (too_large or undefined_nodes) and (infinite := overflows_at(program)) is not None:
        too_large = [infinite]
    for position in too_large:
        span = lowering.span_of(position, result)
        found.error("RL0650", span, f"`{_text(span)}` is too large a number", _TOO_LARGE)
    for undefined in values.undefined:
        report_undefined(undefined, lowering, result, found)
    for decided in values.decided:
        span = lowering.span_of(decided.node, result)
        message = f"`{_text(span)}` {'always' if decided.holds else 'never'} holds"
        found.warning("RL0652", span, message, "compare something else, or remove it")


def _report_no_gradient(
    program: Program, lowering: Lowering, result: Span, found: Diagnostics
) -> None:
    labels = []
    message = "the loss does not depend on `logp`, so there is nothing to train"
    advice = "`logp`, or `ratio`, is what the weights change"
    if "logp" in program.inputs:
        message = "no gradient reaches `logp`: the loss would train nothing"
        advice = "`stop(…)`, conditions and a factor of 0 pass none; leave one `logp` outside of "
        advice += "them"
        cuts = [n for n, node in enumerate(program.nodes) if node.op == "stop"]
        labels = [Label(lowering.span_of(n, result), "cut here") for n in cuts[:1]]
    found.error("RL0644", result, message, advice, *labels)


def report_undefined(
    undefined: UndefinedPart, lowering: Lowering, result: Span, found: Diagnostics
) -> None:
    """Report where a part of an expression has no value."""
    span = lowering.span_of(undefined.node, result)
    argument, text = lowering.span_of(undefined.argument, span), _text(span)
    labels = [Label(argument, str(undefined.range))] if argument != span else []
    if undefined.when == "always":
        message = f"`{text}` is never defined: it is {undefined.what}"
        found.error("RL0650", span, message, None, *labels)
    elif undefined.when == "advantage of 0":
        message = f"`{text}` is undefined where the advantage is 0: it is {undefined.what}"
        advice = "groups of equal rewards have such; for example `where(adv == 0, 0, …)`"
        found.error("RL0649", span, message, advice, *labels)
    else:
        message = f"`{text}` can be undefined: it is {undefined.what}"
        found.warning("RL0657", span, message, _RULED_OUT, *labels)


def _text(span: Span) -> str:
    return " ".join(span.text.split())


# The fields that a loss can end with, and what each is.
_RESULTS: Mapping[str, Shape] = {"token": "token", "sequence": "sequence"}
_SAID: Mapping[Shape, str] = {
    "number": "the same number everywhere",
    "sequence": "one value for each sequence",
    "token": "one value for each token",
}


def own_loss(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return the loss of a block, or None after a report."""
    found = evaluator.found
    lowering = Lowering(evaluator, "loss")
    fields = _parts(decl, evaluator)
    if (result := _result(decl, evaluator)) is None:
        return None
    # What an amendment adds stands behind the result, and may be a part of it.
    parts = [field for field in fields if field.name.id not in _RESULTS]
    lowering.later = {field.name.id: field.name.span for field in parts}
    for field in parts:
        name = lowering.defining = field.name.id
        node = lowering.parts[name] = lowering.node(field.value)
        if node is not None:
            lowering.builder.name(node, name)
        del lowering.later[name]
    lowering.defining = result.name.id
    output = lowering.node(result.value)
    if output is None or None in lowering.parts.values() or len(fields) < len(decl.fields):
        return None
    _report_unused(parts, result, lowering)
    if (program := _program(result, output, lowering)) is None:
        return None
    report_findings(program, lowering, result.value.span, found)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    made: Any = Value("loss", program, result.value.span, result.value.span)
    mean: Any = Value("bool", False, place, f"definition of {decl.name.id}")
    return Value("loss", LossPlan(called, {}, made, mean), place, place)


def _parts(decl: BlockDecl, evaluator: EvaluatorLike) -> list[Field]:
    known: dict[str, Field] = {}
    for field in decl.fields:
        name = field.name.id
        meant = INPUTS["loss"].get(name) or (OPERATIONS[name] if name in FUNCTIONS else None)
        if (first := known.setdefault(name, field)) is not field:
            label = Label(first.name.span, "first given here")
            message = f"the field `{name}` is given twice"
            evaluator.found.error("RL0110", field.name.span, message, "keep one of them", label)
        elif "." in name or meant:
            message = f"no part of a loss can be called `{name}`"
            advice = f"{name}: {meant.doc if meant else 'a part has a plain name'}"
            evaluator.found.error("RL0653", field.name.span, message, advice)
            del known[name]
    return list(known.values())


def _result(decl: BlockDecl, evaluator: EvaluatorLike) -> Field | None:
    """Return the field that says what is minimised, or None after a report."""
    results = [field for field in decl.fields if field.name.id in _RESULTS]
    if not results and not decl.unread & set(_RESULTS):
        advice = "end with `token = …`, a loss for each token, or `sequence = …`, one for all"
        last = decl.fields[-1].name if decl.fields else None
        fix = rename(last.span, last.id, list(_RESULTS)) if last else None
        if last and fix:
            advice = known_values(list(_RESULTS), last.id)
        message = f"nothing says what the loss `{decl.name.id}` is"
        evaluator.found.error("RL0647", decl.name.span, message, advice, fix=fix)
    if not results:
        return None
    first, *others = results
    for other in others:
        if other.name.id != first.name.id:  # the same one twice is reported as such
            label = Label(first.name.span, f"and here a `{first.name.id}` loss")
            message = f"`{decl.name.id}` is both a loss of each token and one of each sequence"
            evaluator.found.error("RL0647", other.name.span, message, "keep one of them", label)
            return None
    return first


def _program(result: Field, output: int, lowering: Lowering) -> Program | None:
    builder, kind = lowering.builder, result.name.id
    span, shape = result.value.span, builder.shape(output)
    if not builder.is_condition(output) and shape not in ("number", _RESULTS[kind]):
        message = f"`{kind}` is {_SAID[_RESULTS[kind]]}, and this is {_SAID[shape]}"
        advice, fix = "`mean(…)` or `sum(…)` makes one value of those of the tokens", None
        if kind == "token":
            advice, fix = "write `sequence = …`", rename(result.name.span, kind, ["sequence"])
        lowering.found.error("RL0643", span, message, advice, fix=fix)
        return None
    try:
        return builder.program(output)
    except ExpressionError as error:
        code = "RL0643" if builder.is_condition(output) else "RL0644"
        lowering.found.error(code, span, str(error), error.hint)
        return None


def _report_unused(parts: list[Field], result: Field, lowering: Lowering) -> None:
    used, waiting = set[str](), [result.name.id]
    while waiting:
        if (name := waiting.pop()) not in used:
            used.add(name)
            waiting += lowering.uses.get(name, ())
    for field in parts:
        if field.name.id not in used:
            message = f"the loss is not made of `{field.name.id}`"
            lowering.found.warning("RL0645", field.name.span, message, "use it, or remove it")


def as_served(loss: Value, stage: Mapping[str, Value]) -> Value:
    """Return a recipe's own loss as the service's of the same formula, if there is one. ``stage``
    has the other parts of its stage."""
    program = unwrap(loss.data.program)
    if program is None:
        return loss
    known = known_loss(program)
    if known is None or (known.one_advantage and not _has_one_advantage(stage)):
        return loss
    own = loss.data.name
    origin = f"`{own.data}`, {said(own.origin)}{RECOGNISED}"
    name: Any = evolve(own, data=known.name, origin=origin)
    config: Any = {k: Value("float", v, own.span, origin) for k, v in known.config.items()}
    none: Any = Value("loss", None, own.span, f"definition of {known.name}")
    mean: Any = Value("bool", known.mean, own.span, origin if known.mean else none.origin)
    return evolve(loss, data=LossPlan(name, config, none, mean))


def _has_one_advantage(stage: Mapping[str, Value]) -> bool:
    """Return whether all tokens of a sequence have the same advantage."""
    if "advantage" not in stage or "kl" not in stage or "teacher" not in stage:
        return False
    if settle(stage["teacher"]):  # it scores each token by itself
        return False
    kl = settle(stage["kl"])
    return settle(stage["advantage"]).returns.unit == "episode" and (kl is None or not kl.coef)


_INPUTS = INPUTS["reward"]
_NAMING = ("grader", "judge")  # declarations of these kinds name components


def is_shape(expr: Expr, words: Collection[str]) -> bool:
    """Return whether an expression shapes a reward, and is none of the ``words`` that reduce one,
    nor meant as such."""
    return expr.id in _INPUTS and expr.id not in words if isinstance(expr, Name) else True


def shaped_reward(expr: Expr, evaluator: EvaluatorLike) -> Value | None:
    """Return the program of a shaped reward, or None after a report."""
    scope, found = evaluator.scope, evaluator.found
    others = (name for name, decl in scope.decls.items() if decl.kind.id not in _NAMING)
    declared = {*others, *scope.unread}
    names = dict.fromkeys(name.id for name in _names(expr))
    components = [n for n in names if n not in {*_INPUTS, *FUNCTIONS, *declared}]
    lowering = Lowering(evaluator, "reward", components)
    node = lowering.node(expr)
    if node is None:
        return None
    try:
        program = lowering.builder.program(node)
    except ExpressionError as error:
        found.error("RL0643", expr.span, str(error), error.hint)
        return None
    known = len(found)
    for undefined in ranges(program).undefined:
        report_undefined(undefined, lowering, expr.span, found)
    if not program.inputs:
        message = "this reward is the same for every episode"
        advice = "`total` is the reward so far: for example `total - 0.001 * tokens`"
        found.error("RL0681", expr.span, message, advice)
    failed = any(item.severity == "error" for item in found[known:])
    return None if failed else Value("expression", program, expr.span, expr.span)


def report_components(
    expr: Expr, program: Program, envs: Iterable[EnvPlan], found: Diagnostics
) -> bool:
    """Report components that an environment does not have; return whether it may have all of them.
    Where its components are not known, what is nearly the name of something else is likely that."""
    spans = {name.id: name.span for name in _names(expr)}
    components = [name for name in program.inputs if name not in _INPUTS]
    for env in envs if components else ():
        known = _components(env)
        names = [*_INPUTS, *(known or ())]
        for name in components:
            span = spans.get(name, expr.span)
            advice, fix = known_values(names, name), rename(span, name, names)
            if known is not None and name not in known:
                message = f"the reward of `{env.name}` has no component `{name}`"
                found.error("RL0680", span, message, advice, fix=fix)
                return False
            if known is None and fix is not None:
                message = f"`{name}` is taken for a component of the reward of `{env.name}`"
                found.warning("RL0682", span, message, advice, fix=evolve(fix, safe=False))
    return True


def _components(env: EnvPlan) -> tuple[str, ...] | None:
    """Return the components of an environment's reward; None if only a run can tell."""
    if not env.graders or with_role(env, "game") is not None:
        return None
    names = [part.name for part in env.graders] + [FORMAT] * finds_answers(env)
    (first, *others) = env.graders
    if not others and grader_traits(first.grader).code:
        if not first.args["weights"]:
            return None  # a function returns a number, or several by names of its own
        names = [*first.args["weights"]]
    return (*names, *(judge.name for _, _, judge in judges_of(env)))


def _names(node: Any) -> Iterator[Name]:
    if isinstance(node, Name):
        yield node
    elif isinstance(node, Call):
        for argument in node.args:
            yield from _names(argument.value)
    elif isinstance(node, Node) and has(type(node)):
        for part in fields(type(node)):
            yield from _names(getattr(node, part.name))
