"""The reward of a reply as a formula, generated from an environment's graders."""

from __future__ import annotations

from rlc.catalog.builtins.graders import FORMAT, finds_answers
from rlc.catalog.index import find_builtin, grader_traits
from rlc.explanation.formulas import Formula
from rlc.plan.environments import EnvPlan, GraderPlan
from rlc.plan.units import show


def reward_formula(env: EnvPlan) -> str:
    """The reward of a reply as the sum of its parts; empty where no grader makes it."""
    terms = [_term(part.weight, part.name) for part in env.graders if part.weight]
    if finds_answers(env) and (coef := env.args["format_coef"]):
        terms.append(_term(coef, f"({FORMAT} − 1)"))
    return _sum(terms) and f"r = {_sum(terms)}"


def reward_parts(env: EnvPlan) -> list[Formula]:
    """What each part of the reward is."""
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
