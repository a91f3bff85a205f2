"""The reward of a reply as a formula, generated from an environment's graders."""

from __future__ import annotations

from rlc.catalog.builtins.graders import FORMAT, finds_answers
from rlc.catalog.index import find_builtin, grader_traits
from rlc.explanation.formulas.schemes import Formula
from rlc.plan.environments import EnvPlan, GraderPlan
from rlc.plan.units import show


def reward_formulas(env: EnvPlan) -> list[Formula]:
    """The reward of a reply as the sum of its parts, where graders make it, then that of the
    episode, where an expression shapes it."""
    graded = _graded(env)
    found = [Formula(graded), *_parts(env)] if graded else []
    if env.reward.shaped is None:
        return found
    from rlc.algo.expressions.formula import formula  # most rewards are not shaped

    of = _TOTALS.get(env.reward.reduce, f"the {env.reward.reduce} of")
    total = Formula("total", f"{of} the rewards of the turns")
    lines = [Formula(line) for line in formula(env.reward.shaped)]
    limits = (env.reward.low, env.reward.high)
    if limits != (None, None):
        low, high = ("none" if end is None else show(end, "float") for end in limits)
        lines.append(Formula(f"limited to: low {low}, high {high}"))
    return [*found, total, *lines]


_TOTALS = {"sum": "the sum of", "last": "the last of"}


def _graded(env: EnvPlan) -> str:
    terms = [_term(part.weight, part.name) for part in env.graders if part.weight]
    if finds_answers(env) and (coef := env.args["format_coef"]):
        terms.append(_term(coef, f"({FORMAT} − 1)"))
    return _sum(terms) and f"r = {_sum(terms)}"


def _parts(env: EnvPlan) -> list[Formula]:
    parts = [_part(part) for part in env.graders]
    if finds_answers(env):
        parts.append(Formula(FORMAT, "1 if there is an answer in the reply, else 0"))
    return parts


def _part(part: GraderPlan) -> Formula:
    builtin = find_builtin("grader", part.grader)
    assert builtin is not None
    if not grader_traits(part.grader).code:
        return Formula(part.name, f"{part.grader}: {builtin.doc}")
    summed = _sum([_term(weight, name) for name, weight in part.args["weights"].items()])
    name = f"{part.name} = {summed}" if summed else part.name
    return Formula(name, part.args["function"] + ("" if part.weight else ", a metric: it weighs 0"))


def _sum(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ −", "− ")


def _term(weight: float, name: str) -> str:
    """``0.2 brief``; a negative one starts with its minus."""
    if weight == 1:
        return name
    return f"{show(float(weight), 'float')} {name}".replace("-", "−", 1 if weight < 0 else 0)
