"""Shaped rewards: an expression over the reward of an episode and what is known of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from attrs import evolve, fields, has

from rlc.algo.expressions.analysis.ranges import ranges
from rlc.algo.expressions.program import ExpressionError, Program
from rlc.algo.expressions.vocabulary import INPUTS
from rlc.catalog.builtins.graders import FORMAT, finds_answers
from rlc.catalog.environments import with_role
from rlc.catalog.index import grader_traits
from rlc.check.expressions.findings import report_undefined
from rlc.check.expressions.lower import FUNCTIONS, Evaluator, Lowering
from rlc.check.suggest import known_values, rename
from rlc.check.values import Value
from rlc.lang.ast import Call, Expr, Name, Node
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.environments import EnvPlan

_INPUTS = INPUTS["reward"]
_NAMING = ("grader", "judge")  # what is declared of these kinds gives a component its name


def is_shape(expr: Expr, words: Collection[str]) -> bool:
    """Whether an expression shapes a reward, and is not one of the ``words`` that reduce one, nor
    meant as such."""
    return expr.id in _INPUTS and expr.id not in words if isinstance(expr, Name) else True


def shaped_reward(expr: Expr, evaluator: Evaluator) -> Value | None:
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
    """The parts of an environment's reward by name; None if they are not known before it runs."""
    if not env.graders or with_role(env, "game") is not None:
        return None
    names = [part.name for part in env.graders] + [FORMAT] * finds_answers(env)
    for part in env.graders:
        if grader_traits(part.grader).code:
            if not part.args["weights"]:
                return None  # a function returns a number, or several by names of its own
            names += part.args["weights"]
    return tuple(names)


def _names(node: Any) -> Iterator[Name]:
    """The names that an expression reads."""
    if isinstance(node, Name):
        yield node
    elif isinstance(node, Call):
        for argument in node.args:
            yield from _names(argument.value)
    elif isinstance(node, Node) and has(type(node)):
        for part in fields(type(node)):
            yield from _names(getattr(node, part.name))
