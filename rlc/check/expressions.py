"""Expressions of a recipe's own: losses and shaped rewards, lowered to programs and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.algo import (
    CONDITIONS,
    INPUTS,
    NUMBER,
    OPERATIONS,
    SHARE,
    ExpressionError,
    ExpressionReader,
    Input,
    Kind,
    Operation,
    Program,
    Shape,
    UndefinedPart,
    differentiable,
    direction,
    functions_of,
    is_reward,
    overflows_at,
    ranges,
    scheme_of,
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
from rlc.check.scalars import NUMBERS, WORD, describe
from rlc.check.scope import closest, known_values, rename
from rlc.check.values import UnknownValue, Value, report_unfit, said, settle, unwrap
from rlc.lang import (
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

EXPRESSION_KINDS = ("loss", "advantage")  # declarations that are blocks of expressions
_IN: Mapping[Kind, str] = {
    "loss": "the loss",
    "reward": "a reward",
    "advantage": "the advantage",
}
_A: Mapping[Kind, str] = {"loss": "a loss", "advantage": "an advantage"}
_PLAIN = Param("expression", "float", "a number of an expression")
_EXPRESSION = Param("expression", "expression", "a part of an expression")


class RecipeReader(ExpressionReader):
    """Lowers expressions of a recipe, and reports what cannot be one. ``uses`` has the parts that
    each expression names, with those of ``defining``; ``block`` is the declaration it is in."""

    def __init__(
        self,
        evaluator: EvaluatorLike,
        kind: Kind,
        components: Collection[str] = (),
        block: Span | None = None,
    ) -> None:
        super().__init__(kind, components)
        self.evaluator, self.found, self.block = evaluator, evaluator.found, block
        self.later: dict[str, Span] = {}  # the parts that are not defined yet
        self.defining = ""
        self.uses: dict[str, set[str]] = {}

    def wrong(
        self,
        code: str,
        span: Span,
        message: str,
        advice: str | None = None,
        *labels: Label,
        fix: Fix | None = None,
    ) -> int | None:
        self.found.error(code, span, message, advice, *labels, fix=fix)
        return None

    def noted(self, what: str, span: Span, of: Any = None, **more: Any) -> None:
        if what == "arguments":
            self.found.note_arguments(of, span, more["args"], ())
        else:
            self.found.note(what, span, of)

    def static(self, expr: Expr) -> bool | None:
        """Return whether a condition on words holds. One of them is that of a parameter: it stands
        outside of the block."""
        holds = super().static(expr)
        inside = isinstance(expr, Binary) and self._inside(expr.left) and self._inside(expr.right)
        return None if inside else holds

    def scope(self, expr: Expr) -> str | None:
        return super().scope(_first_choice(expr))

    def word(self, expr: Expr) -> str | None:
        return super().word(_first_choice(expr))

    def _inside(self, expr: Expr) -> bool:
        return (
            self.block is not None
            and expr.span.source is self.block.source
            and (self.block.start <= expr.span.start < self.block.end)
        )

    def is_word(self, name: Name) -> bool:
        return super().is_word(name) and not self.evaluator.scope.knows(name.id)

    def plain(self, expr: Expr) -> int | None:
        """Return the node of a number: written as one, a param, or a field of a model."""
        if isinstance(expr, UnknownValue):
            self.found.note("hole", expr.span, want=_EXPRESSION)
            report_unfit(expr, _PLAIN, self.found)
            return None
        if not isinstance(expr, Number | Quantity | Attribute | Name):
            message = f"{describe(expr)} has no place in an expression"
            known = ", ".join(f"`{name}`" for name in self.functions)
            advice = f"an expression has numbers, names, `+ - * /`, comparisons and {known}"
            return self.wrong("RL0654", expr.span, message, advice)
        if isinstance(expr, Attribute) and isinstance(expr.value, Name):
            decl = self.evaluator.scope.decls.get(expr.value.id)
            if decl is not None and decl.kind.id in EXPRESSION_KINDS:
                message = f"`{decl.name.id}` is another {decl.kind.id}: its parts cannot be read"
                advice = "write the part here too; numbers that both use can be a `param`"
                label = Label(decl.name.span, "declared here")
                return self.wrong("RL0654", expr.span, f"{message} here", advice, label)
        value = self.evaluator.scalars.plain(expr, _PLAIN)
        if value is None:
            return None
        if value.type not in NUMBERS:
            message = f"an expression is made of numbers, and `{expr.span.text}` is not a number"
            labels = [Label(value.span, "its value")] if value.span != expr.span else []
            return self.wrong("RL0654", expr.span, message, None, *labels)
        return self.builder.number(value.data)

    def named(self, name: Name) -> int | None:
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
            labels = [] if own else [Label(self.later[name.id], "defined here")]
            advice = "a part may only use those above it"
            return self.wrong("RL0646", name.span, message, advice, *labels)
        decl = self.evaluator.scope.decls.get(name.id)
        if decl is not None and decl.kind.id == "param":
            return self.plain(name)
        if name.id in self.evaluator.scope.unread:
            return None
        if name.id in self.functions:
            message = f"`{name.id}` is a function and needs its arguments"
            advice = f"write `{self.functions[name.id].usage}`"
            return self.wrong("RL0642", name.span, message, advice)
        params = self.evaluator.scope.of_kind("param")
        known = [*self.parts, *self.builder.names, *params]
        self.evaluator.scope.used.update(closest(name.id, params))
        advice, fix = _suggested(name.span, name.id, known, INPUTS[self.kind])
        message = f"there is no `{name.id}` in {_IN[self.kind]}"
        return self.wrong("RL0640", name.span, message, advice, fix=fix)

    def no_function(self, name: Name) -> None:
        if name.id in self.builder.names or name.id in self.parts:
            message, advice, fix = f"`{name.id}` is a value and takes no arguments", None, None
            advice = f"write `{name.id}`"
        else:
            message = f"there is no function `{name.id}`"
            advice, fix = _suggested(name.span, name.id, list(self.functions), self.functions)
        self.wrong("RL0641", name.span, message, advice, fix=fix)

    def misfit(
        self, error: ExpressionError, operation: Operation, span: Span, args: Sequence[Expr | float]
    ) -> None:
        code, place = "RL0656", span
        advice: str | None = "name parts of it, or take some out"
        if error.argument is not None:
            given = args[error.argument]
            code, advice = "RL0643", error.hint
            place = given.span if isinstance(given, Expr) else span
            if operation.params[min(error.argument, len(operation.params) - 1)] == SHARE:
                code, advice = "RL0659", "0.0002 is one token in 5,000"
        elif error.expected:
            code, advice = "RL0643", error.hint
        self.wrong(code, place, str(error), advice)


def _first_choice(expr: Expr) -> Expr:
    """Return what stands for a parameter without a value, which is one of some words."""
    if isinstance(expr, UnknownValue) and expr.want.type == WORD:
        return Name(expr.span, expr.want.all_choices()[0])
    return expr


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


def report_findings(
    program: Program, reader: RecipeReader, result: Span, found: Diagnostics
) -> None:
    """Report what a loss cannot be trained with, and likely mistakes. ``result`` is where it ends;
    ``reader`` has the text of its nodes."""
    if not differentiable(program)[program.output]:
        _report_no_gradient(program, reader, result, found)
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
        span = reader.span_of(position, result)
        found.error("RL0650", span, f"`{_text(span)}` is too large a number", _TOO_LARGE)
    for undefined in values.undefined:
        report_undefined(undefined, reader, result, found)
    for decided in values.decided:
        span = reader.span_of(decided.node, result)
        message = f"`{_text(span)}` {'always' if decided.holds else 'never'} holds"
        found.warning("RL0652", span, message, "compare something else, or remove it")


def _report_no_gradient(
    program: Program, reader: RecipeReader, result: Span, found: Diagnostics
) -> None:
    labels = []
    message = "the loss does not depend on `logp`, so there is nothing to train"
    advice = "`logp`, or `ratio`, is what the weights change"
    if "logp" in program.inputs:
        message = "no gradient reaches `logp`: the loss would train nothing"
        advice = "`stop(…)`, conditions and a factor of 0 pass none; leave one `logp` outside of "
        advice += "them"
        cuts = [n for n, node in enumerate(program.nodes) if node.op == "stop"]
        labels = [Label(reader.span_of(n, result), "cut here") for n in cuts[:1]]
    found.error("RL0644", result, message, advice, *labels)


def report_undefined(
    undefined: UndefinedPart, reader: RecipeReader, result: Span, found: Diagnostics
) -> None:
    """Report where a part of an expression has no value."""
    span = reader.span_of(undefined.node, result)
    argument, text = reader.span_of(undefined.argument, span), _text(span)
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


# The fields that a declaration can end with, and the shape of each.
_RESULTS: Mapping[str, Mapping[str, Shape]] = {
    "loss": {"token": "token", "sequence": "sequence"},
    "advantage": {"episode": "episode", "turn": "turn"},
}
_ENDS: Mapping[str, str] = {
    "loss": "`token = …`, a loss for each token, or `sequence = …`, one for all",
    "advantage": "`episode = …`, one advantage for each episode, or `turn = …`, one for each turn",
}
_SAID: Mapping[Shape, str] = {
    "number": "the same number everywhere",
    "sequence": "one value for each sequence",
    "token": "one value for each token",
}


def own_formula(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return what a block of expressions declares, or None after a report."""
    return {"loss": own_loss, "advantage": own_advantage}[decl.kind.id](decl, evaluator)


def own_loss(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return the loss of a block, or None after a report."""
    if (read := _read(decl, evaluator, "loss")) is None:
        return None
    reader, result, output = read
    if (program := _program(result, output, reader)) is None:
        return None
    report_findings(program, reader, result.value.span, evaluator.found)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    made: Any = Value("loss", program, result.value.span, result.value.span)
    mean: Any = Value("bool", False, place, f"definition of {decl.name.id}")
    return Value("loss", LossPlan(called, {}, made, mean), place, place)


def own_advantage(decl: BlockDecl, evaluator: EvaluatorLike) -> Value | None:
    """Return the advantage of a block, or None after a report."""
    if (read := _read(decl, evaluator, "advantage")) is None:
        return None
    reader, result, output = read
    try:
        scheme = scheme_of(decl.name.id, reader.builder, {**reader.parts, result.name.id: output})
    except ExpressionError as error:
        span = next((f.value.span for f in decl.fields if f"`{f.name.id}`" in str(error)), None)
        evaluator.found.error("RL0643", span or result.value.span, str(error), error.hint)
        return None
    for program in scheme.programs:
        for undefined in ranges(program).undefined:
            report_undefined(undefined, reader, result.value.span, evaluator.found)
    if not any(map(is_reward, scheme.result.inputs)):
        message = "the advantage does not depend on the reward: nothing is learnt from it"
        advice = "`sum(reward)` is the return of an episode"
        evaluator.found.warning("RL0655", result.value.span, message, advice)
    place = decl.name.span
    called: Any = Value("string", decl.name.id, place, place)
    return Value("advantage", evolve(scheme, name=called), place, place)


def _read(
    decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind
) -> tuple[RecipeReader, Field, int] | None:
    """Return what has read the parts of a block, its result and the node of that; None after a
    report."""
    reader = RecipeReader(evaluator, kind, block=decl.span)
    fields = _parts(decl, evaluator, kind)
    if (result := _result(decl, evaluator, kind)) is None:
        return None
    # What an amendment adds stands behind the result, and may be a part of it.
    parts = [field for field in fields if field.name.id not in _RESULTS[kind]]
    reader.later = {field.name.id: field.name.span for field in parts}
    for field in parts:
        reader.defining = field.name.id
        reader.define(field)
        del reader.later[field.name.id]
    reader.defining = result.name.id
    output = reader.node(result.value)
    if output is None or None in reader.parts.values() or len(fields) < len(decl.fields):
        return None
    _report_unused(parts, result, reader)
    return reader, result, output


def _parts(decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind) -> list[Field]:
    known: dict[str, Field] = {}
    for field in decl.fields:
        name = field.name.id
        meant = INPUTS[kind].get(name) or functions_of(kind).get(name)
        if (first := known.setdefault(name, field)) is not field:
            label = Label(first.name.span, "first given here")
            message = f"the field `{name}` is given twice"
            evaluator.found.error("RL0110", field.name.span, message, "keep one of them", label)
        elif "." in name or meant:
            message = f"no part of {_A[kind]} can be called `{name}`"
            advice = f"{name}: {meant.doc if meant else 'a part has a plain name'}"
            evaluator.found.error("RL0653", field.name.span, message, advice)
            del known[name]
    return list(known.values())


def _result(decl: BlockDecl, evaluator: EvaluatorLike, kind: Kind) -> Field | None:
    """Return the field that says what the whole is, or None after a report."""
    known = _RESULTS[kind]
    results = [field for field in decl.fields if field.name.id in known]
    if not results and not decl.unread & set(known):
        advice = f"end with {_ENDS[kind]}"
        last = decl.fields[-1].name if decl.fields else None
        fix = rename(last.span, last.id, list(known)) if last else None
        if last and fix:
            advice = known_values(list(known), last.id)
        message = f"nothing says what the {kind} `{decl.name.id}` is"
        evaluator.found.error("RL0647", decl.name.span, message, advice, fix=fix)
    if not results:
        return None
    first, *others = results
    for other in others:
        if other.name.id != first.name.id:  # the same one twice is reported as such
            label = Label(first.name.span, f"and here a `{first.name.id}` {kind}")
            message = (
                f"`{decl.name.id}` is both {_A[kind]} of each {' and one of each '.join(known)}"
            )
            evaluator.found.error("RL0647", other.name.span, message, "keep one of them", label)
            return None
    return first


def _program(result: Field, output: int, reader: RecipeReader) -> Program | None:
    builder, kind = reader.builder, result.name.id
    span, shape = result.value.span, builder.shape(output)
    wanted = _RESULTS["loss"][kind]
    if not builder.is_condition(output) and shape not in ("number", wanted):
        message = f"`{kind}` is {_SAID[wanted]}, and this is {_SAID[shape]}"
        advice, fix = "`mean(…)` or `sum(…)` makes one value of those of the tokens", None
        if kind == "token":
            advice, fix = "write `sequence = …`", rename(result.name.span, kind, ["sequence"])
        reader.found.error("RL0643", span, message, advice, fix=fix)
        return None
    try:
        return builder.program(output)
    except ExpressionError as error:
        code = "RL0643" if builder.is_condition(output) else "RL0644"
        reader.found.error(code, span, str(error), error.hint)
        return None


def _report_unused(parts: list[Field], result: Field, reader: RecipeReader) -> None:
    used, waiting = set[str](), [result.name.id, *CONDITIONS]
    while waiting:
        if (name := waiting.pop()) not in used:
            used.add(name)
            waiting += reader.uses.get(name, ())
    for field in parts:
        if field.name.id not in used:
            message = f"{_IN[reader.kind]} is not made of `{field.name.id}`"
            reader.found.warning("RL0645", field.name.span, message, "use it, or remove it")


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
    return not settle(stage["advantage"]).by_turn and (kl is None or not kl.coef)


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
    components = [n for n in names if n not in {*_INPUTS, *functions_of("reward"), *declared}]
    reader = RecipeReader(evaluator, "reward", components)
    node = reader.node(expr)
    if node is None:
        return None
    try:
        program = reader.builder.program(node)
    except ExpressionError as error:
        found.error("RL0643", expr.span, str(error), error.hint)
        return None
    known = len(found)
    for undefined in ranges(program).undefined:
        report_undefined(undefined, reader, expr.span, found)
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
        known = components_of(env)
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


def components_of(env: EnvPlan) -> tuple[str, ...] | None:
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
