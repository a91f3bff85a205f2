"""Expressions of a recipe's own: losses and shaped rewards, lowered to programs and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.algo import (
    INPUTS,
    NUMBER,
    OPERATIONS,
    OVER,
    SHARE,
    ExpressionError,
    ExpressionReader,
    Input,
    Kind,
    Operation,
    Program,
    UndefinedPart,
    differentiable,
    direction,
    functions_of,
    overflows_at,
    ranges,
    trained,
)
from rlc.catalog import (
    EXPRESSION_KINDS,
    Param,
)
from rlc.check.scalars import NUMBERS, WORD, describe
from rlc.check.scope import closest, known_values, rename
from rlc.check.values import UnknownValue, Value, report_unfit
from rlc.lang import (
    Attribute,
    Binary,
    Call,
    Diagnostics,
    Expr,
    Fix,
    Label,
    Name,
    Node,
    Number,
    Quantity,
    Span,
    replace,
)
from rlc.records import fields, has

if TYPE_CHECKING:
    from rlc.check.scalars import EvaluatorLike

IN: Mapping[Kind, str] = {
    "loss": "the loss",
    "reward": "a reward",
    "advantage": "the advantage",
    "preference": "the preference loss",
}
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
        message = f"there is no `{name.id}` in {IN[self.kind]}"
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


_TOO_LARGE: Mapping[Kind, str] = {
    "loss": "it, or its gradient, is infinite where the ratio and the advantage are 1 or near it",
    "preference": "it, or its gradient, is infinite where replies are as likely as before, or near",
}
_CUT = "`stop(…)`, conditions and a factor of 0 pass none; leave one `{}` outside of them"
_BETTER = ("chosen", "chosen_token", "chosen_nll", "chat_nll")
_RULED_OUT = "`where(condition, …, …)` rules them out; `clip`, `max` and `abs` bound what is there"


def report_findings(
    program: Program, reader: RecipeReader, result: Span, found: Diagnostics
) -> None:
    """Report what a loss cannot be trained with, and likely mistakes. ``result`` is where it ends;
    ``reader`` has the text of its nodes."""
    if not differentiable(program)[program.output]:
        _report_no_gradient(program, reader, result, found)
        return
    if program.kind == "preference":
        _report_preferences(program, result, found)
    else:
        _report_direction(program, result, found)
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
        message = f"`{_text(span)}` is too large a number"
        found.error("RL0650", span, message, _TOO_LARGE[program.kind])
    for undefined in values.undefined:
        report_undefined(undefined, reader, result, found)
    for decided in values.decided:
        span = reader.span_of(decided.node, result)
        message = f"`{_text(span)}` {'always' if decided.holds else 'never'} holds"
        found.warning("RL0652", span, message, "compare something else, or remove it")


def _report_direction(program: Program, result: Span, found: Diagnostics) -> None:
    """Report a loss of sampled tokens that moves them the wrong way, or not at all."""
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


def _report_preferences(program: Program, result: Span, found: Diagnostics) -> None:
    """Report a preference loss that moves replies the wrong way, or learns nothing of some."""
    better, worse = ("better", "worse") if program.shape == "pair" else ("good", "bad")
    moved = direction(program)
    if program.shape == "reply" and {"good", "rating"}.isdisjoint(program.inputs):
        message = "the loss does not depend on `good`: labels have no effect on training"
        advice = "decide by it: `where(good, softplus(-score), softplus(score))`"
        found.warning("RL0655", result, message, advice)
    elif moved.still:
        message = "no gradient reaches replies that are near the reference: nothing is learnt"
        found.error("RL0644", result, message, "leave room around a margin of 0, or near it")
    elif moved.lowers_good:
        message = f"this loss makes {better} replies less likely beside {worse} replies"
        advice = "a loss is lowered, so what is wanted has a minus: `softplus(-margin)`"
        found.error("RL0660", result, message, advice)
    elif moved.raises_bad:
        message = f"this loss makes {worse} replies more likely, as {better} replies"
        found.warning("RL0661", result, message, "a margin has a minus before the worse reply")
    reached = (name for name in _BETTER if differentiable(program, name)[program.output])
    if program.shape == "pair" and not any(reached):
        message = "no gradient reaches `chosen`: nothing is learnt of the better replies"
        if set(program.inputs).isdisjoint(_BETTER):
            found.warning("RL0655", result, message, "compare with `chosen`, or raise it")
        else:
            found.error("RL0644", result, message, _CUT.format("chosen"))


def _report_no_gradient(
    program: Program, reader: RecipeReader, result: Span, found: Diagnostics
) -> None:
    labels, name, what = list[Label](), "logp", "`logp`, or `ratio`, is"
    if program.kind == "preference":
        name, what = "logp" if program.shape == "reply" else "chosen", "the replies' logprobs are"
    message = f"the loss does not depend on `{name}`, so there is nothing to train"
    advice = f"{what} what the weights change"
    if trained(program):
        message = f"no gradient reaches `{name}`: the loss would train nothing"
        advice = _CUT.format(name)
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
    # What is a statistic where it is called may be a component where it is not.
    called = {word for word, operation in functions_of("reward").items() if not operation.over}
    known = {*_INPUTS, *called, *others, *scope.unread}
    components = [n for n in dict.fromkeys(n.id for n in names_in(expr)) if n not in known]
    reader = RecipeReader(evaluator, "reward", components)
    node = reader.node(expr)
    if node is None:
        return None
    try:
        program = reader.builder.program(node)
    except ExpressionError as error:
        found.error("RL0643", expr.span, str(error), error.hint)
        return None
    before = len(found)
    for undefined in ranges(program).undefined:
        report_undefined(undefined, reader, expr.span, found)
    if not program.inputs:
        message = "this reward is the same for every episode"
        advice = "`total` is the reward so far: for example `total - 0.001 * tokens`"
        found.error("RL0681", expr.span, message, advice)
    failed = any(item.severity == "error" for item in found[before:])
    return None if failed else Value("expression", program, expr.span, expr.span)


def names_in(node: Any) -> Iterator[Name]:
    """Yield the names in an expression that stand for values."""
    if isinstance(node, Name):
        yield node
    elif isinstance(node, Call):
        for argument in node.args:
            if argument.name is None or argument.name.id != OVER:
                yield from names_in(argument.value)
    elif isinstance(node, Node) and has(type(node)):
        for part in fields(type(node)):
            yield from names_in(getattr(node, part.name))
