"""What is wrong with a loss that can be computed: it would train nothing, or is undefined."""

from __future__ import annotations

from rlc.algo.expressions.analysis.growth import overflows_at
from rlc.algo.expressions.analysis.ranges import Undefined, ranges
from rlc.algo.expressions.analysis.reach import differentiable
from rlc.algo.expressions.program import NUMBER, Program
from rlc.algo.expressions.vocabulary import OPERATIONS
from rlc.check.expressions.lower import Lowering
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.source import Span

_TOO_LARGE = "it, or its gradient, is infinite where the ratio and the advantage are 1 or near it"
_RULED_OUT = "`where(condition, …, …)` rules them out; `clip`, `max` and `abs` bound what is there"


def report_findings(program: Program, lowering: Lowering, result: Span, found: Diagnostics) -> None:
    """Report what a loss cannot be trained with, and what is likely a mistake. ``result`` is where
    it ends; ``lowering`` made it, and knows the text of its nodes."""
    if not differentiable(program)[program.output]:
        _report_no_gradient(program, lowering, result, found)
        return
    if "adv" not in program.inputs:
        message = "the loss does not depend on `adv`: it trains the same whatever the rewards"
        advice = "multiply by the advantage: `-ratio * adv`"
        found.warning("RL0655", result, message, advice)
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
        found.warning("RL0652", span, message, "compare something else, or take it out")


def _report_no_gradient(
    program: Program, lowering: Lowering, result: Span, found: Diagnostics
) -> None:
    labels = []
    if "logp" not in program.inputs:
        message = "the loss does not depend on `logp`, so there is nothing to train"
        advice = "`logp`, or `ratio`, is what the weights change"
    else:
        message = "no gradient reaches `logp`: the loss would train nothing"
        advice = (
            "`stop(…)`, conditions and a factor of 0 pass none; leave one `logp` outside of them"
        )
        cuts = [n for n, node in enumerate(program.nodes) if node.op == "stop"]
        labels = [Label(lowering.span_of(n, result), "cut here") for n in cuts[:1]]
    found.error("RL0644", result, message, advice, *labels)


def report_undefined(
    undefined: Undefined, lowering: Lowering, result: Span, found: Diagnostics
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
    """What stands there, on one line."""
    return " ".join(span.text.split())
