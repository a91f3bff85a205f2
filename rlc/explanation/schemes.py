"""Formulas of advantages and rewards, generated from their records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlc.algo import (
    AdvantageScheme,
    formula,
)
from rlc.catalog import (
    FORMAT,
    Args,
    Builtin,
    find_builtin,
    finds_answers,
    grader_traits,
    judges_of,
    source_traits,
)
from rlc.check import Value, settle
from rlc.lang import Source, Span
from rlc.plan import (
    AnyJudge,
    ComparerPlan,
    EndpointPlan,
    EnvPlan,
    GraderPlan,
    JudgingPlan,
    ModelState,
    RewardModelPlan,
    is_text_file,
    show,
)
from rlc.records import frozen


@frozen
class Formula:
    """A formula and a remark that says it in words."""

    text: str
    remark: str = ""


_OF = {
    "episode": "one advantage for each episode, on all its tokens",
    "turn": "one advantage for each turn, on its tokens",
    "turn_token": "one advantage for each sampled token",
    "number": "the same advantage for all tokens",
}


def scheme_formulas(scheme: AdvantageScheme) -> list[Formula]:
    """Return a scheme from rewards to advantages: the parts that its formula names, what decides
    which episodes have an advantage, then the advantage."""
    if scheme.function is not None:
        return [Formula(f"A = {called(scheme.function, scheme.args)}", _OWN)]
    *parts, result = formula(scheme.result)
    lines = dict.fromkeys(parts)
    conditions = []
    for what, program in (("drop where", scheme.keep), ("stop where", scheme.require)):
        if program is not None:
            *more, last = formula(program)
            lines |= dict.fromkeys(more)
            conditions.append(Formula(f"{what} {last.partition(' = ')[2]} = 0", _WHY[what]))
    found = [Formula(line) for line in lines]
    return [*found, *conditions, Formula(result, _OF[scheme.result.shape])]


_OWN = "a function of your own, of the whole batch"


def called(function: str, args: Mapping[str, Any]) -> str:
    """Return a call of a function of the user's own, with its arguments."""
    given = (f", {name} = {show(value, 'any')}" for name, value in args.items())
    return f"{function}(…{''.join(given)})"


_WHY = {"drop where": "nothing to compare", "stop where": "there is no advantage"}


def preset_formulas(builtin: Builtin) -> list[Formula]:
    """Return the formulas of a preset; none for one that has arguments without a default."""
    if any(param.required for param in builtin.params):
        return []
    span = Span(Source(builtin.name, ""), 0, 0)
    values = {
        param.name: Value(param.type, param.default, span, "default") for param in builtin.params
    }
    return scheme_formulas(settle(builtin.build(Args(values))))


def reward_formulas(env: EnvPlan) -> list[Formula]:
    """Return the reward of a reply as the sum of its parts, if graders or judges give it, then that
    of the episode, if an expression shapes it."""
    reward = _sum(_reward_terms(env))
    found = [Formula(f"r = {reward}"), *_parts(env)] if reward else []
    if env.reward.shaped is not None:
        found.append(Formula("total", f"the {env.reward.reduce} of the rewards of the turns"))
        found += map(Formula, formula(env.reward.shaped))
        limits = (env.reward.low, env.reward.high)
        if limits != (None, None):
            low, high = ("none" if end is None else show(end, "float") for end in limits)
            found.append(Formula(f"limited to: low {low}, high {high}"))
    return found


_AGENT = "r_agent"


def _reward_terms(env: EnvPlan) -> list[str]:
    terms = [_term(part.weight, part.name) for part in env.graders if part.weight]
    judges = [judge for _, _, judge in judges_of(env)]
    if judges and not source_traits(env.source).graded:
        terms.append("r_env")
    if env.agent is not None and not (env.graders or judges):
        terms.append(_AGENT)
    terms += [_term(judge.weight, judge.name) for judge in judges if judge.weight]
    if finds_answers(env) and (coef := env.args["format_coef"]):
        terms.append(_term(coef, f"({FORMAT} − 1)"))
    return terms


def _parts(env: EnvPlan) -> list[Formula]:
    parts = [_part(part) for part in env.graders]
    if env.agent is not None and not (env.graders or env.judging):
        by_status = "1 for the exit status 0, 0 for 1; any other is a failure"
        gives = "returns" if env.agent.command is None else "writes"
        result = f"what {env.agent.called} {gives}"
        parts.append(Formula(_AGENT, result if env.agent.reward == "result" else by_status))
    if finds_answers(env):
        parts.append(Formula(FORMAT, "1 if there is an answer in the reply, else 0"))
    if env.judging and not source_traits(env.source).graded:
        parts.append(Formula("r_env", "what the environment itself rewards"))
    return parts + [_judged(judging, judge) for _, judging, judge in judges_of(env)]


def _judged(judging: JudgingPlan, judge: AnyJudge) -> Formula:
    whole = "the whole conversation" if judging.whole else "the last reply"
    if isinstance(judge, RewardModelPlan):
        assert judge.reference is not None
        assert judge.beta is not None
        replies = "all replies" if judging.whole else whole
        mean = ", over its number of tokens" if judge.mean else ""
        reward = f"{show(judge.beta, 'float')} (log p − log p_ref) of {replies}{mean}"
        if judging.by != "score":
            reward = f"the share of the group that it is above by {reward}"
        of = f"p: {_state(judge.model)}, p_ref: {_state(judge.reference)}"
        return Formula(judge.name, f"{reward}; {of}")
    if isinstance(judge, ComparerPlan):
        beats = "the share of the group that it beats in both orders, a tie counting half"
        return Formula(judge.name, f"{beats}; {judge.function}")
    asked = judge.model
    who = f"{asked.model} at {asked.url}" if isinstance(asked, EndpointPlan) else _state(asked)
    rubric = os.path.basename(judge.rubric) if is_text_file(judge.rubric) else "a rubric"
    if judging.by == "score":
        span = f"(score − {show(judge.low, 'float')}) / {show(judge.high - judge.low, 'float')}"
        return Formula(judge.name, f"{span.replace('- ', '− ')}, {who} by {rubric}, of {whole}")
    counts = {
        "ranking": "from 1 for the first of the group to 0 for the last",
        "pairwise": "the share of the group that it beats, asked both ways round",
    }
    return Formula(judge.name, f"{counts[judging.by]}; {who} by {rubric}")


def _state(state: ModelState) -> str:
    return state.model.name if state.after is None else f"{state.model.name} after {state.after}"


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
    """Return ``0.2 brief``; a negative term starts with its minus."""
    if weight == 1:
        return name
    return f"{show(float(weight), 'float')} {name}".replace("-", "−", 1 if weight < 0 else 0)
