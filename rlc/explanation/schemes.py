"""Formulas of advantages and rewards, generated from their records."""

from __future__ import annotations

import os

from rlc.algo import (
    AdvantageScheme,
    Baseline,
    Clip,
    RunningBaseline,
    Scale,
    Scope,
    WeightedSum,
    sums_components,
    task_scope,
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
from rlc.records import evolve, frozen


@frozen
class Formula:
    """A formula and a remark that says it in words."""

    text: str
    remark: str = ""


def scheme_formulas(scheme: AdvantageScheme) -> list[Formula]:
    """Return a scheme from rewards to advantages, one line a step, in order."""
    k = "k" if sums_components(scheme) else ""  # marks what each component of the reward has
    each = " and k" if k else ""  # a component of the reward
    mark = f"_{k}" if k else ""
    if scheme.returns.unit == "episode":
        symbol = f"R{mark}"
        remark = f"one return for each episode{each}, on all its tokens"
        lines = [Formula(f"{symbol} = Σ_t r_t{k}", remark)]
    else:
        symbol, gamma = f"G{mark}", scheme.returns.gamma
        discount = "" if gamma == 1 else f"{gamma:g} "
        to_go = f"G_t{k} = r_t{k} + {discount}G_(t+1){k}"
        lines = [Formula(to_go, f"one return for each turn{each}, on its tokens")]
    if scheme.constant == "drop":
        what, all_k = f"{task_scope(scheme)}s", " for all k" if k else ""
        dropped = f"drop {what} with max {symbol} = min {symbol}{all_k}"
        lines.append(Formula(dropped, "nothing to compare"))
    current, raw = symbol, set[Scope]()
    for step in scheme.steps:
        if isinstance(step, WeightedSum):
            lines.append(Formula(f"A = Σ_k w_k {current}", "w_k: the weight of component k"))
            current, symbol, mark, raw = "A", symbol.removesuffix("_k"), "", set()
            continue
        if isinstance(step, RunningBaseline):
            kept = f"{step.decay:g}^n"
            average = f"after n returns of a step {kept} b + (1 − {kept}) mean(R)"
            made = Formula(f"A = {current} − b", f"b of its role: 0, and {average}")
        elif isinstance(step, Baseline):
            made = _baseline(step, current)
        elif isinstance(step, Scale):
            made = _scale(step, current, symbol, step.over in raw)
        else:
            made = _clip(step, current)
        lines.append(evolve(made, text=f"A{mark}{made.text.removeprefix('A')}"))
        current = f"A{mark}"
        if isinstance(step, Baseline) and step.singleton == "raw":
            raw.add(step.over)  # a single value is kept as it was
    if not scheme.steps:
        lines.append(Formula(f"A = {symbol}", "no baseline"))
    return lines


_SINGLETONS = {
    "zero": "{} of one gets 0",
    "raw": "{} of one keeps its value",
    "drop": "{} of one is left out",
    "error": "{} of one stops the run",
}
_NOUNS: dict[Scope, str] = {
    "group": "a group",
    "role": "a task's role",
    "env": "an environment",
    "batch_role": "a role of the batch",
    "batch": "a batch",
}


def _baseline(step: Baseline, current: str) -> Formula:
    values = f"({current}, each by its tokens)" if step.weight == "tokens" else f"({current})"
    texts = {
        "mean": f"mean_{step.over}{values}",
        "leave_one_out": f"mean_(others in {step.over}){values}",
        "length_weighted": f"Σ_{step.over} n {current} / Σ_{step.over} n",
        "best_of_others": f"max_(others in {step.over})({current})",
    }
    remark = _SINGLETONS[step.singleton].format(_NOUNS[step.over])
    if step.kind == "length_weighted":
        remark = f"n: action tokens; {remark}"
    return Formula(f"A = {current} − {texts[step.kind]}", remark)


def _scale(step: Scale, current: str, returns: str, raw: bool) -> Formula:
    measured = returns if step.of == "returns" else current
    weighted = ", each by its tokens" if step.weight == "tokens" else ""
    name, over = step.kind, str(step.over)
    if step.kind == "std_of_others":
        name, over = "std", f"(others in {step.over})"
    size = f"{name}_{over}({measured}{weighted})"
    if step.kind == "nonzero_share":
        size = f"share_{step.over}({measured} ≠ 0{weighted})"
    divisor = size
    if step.eps:
        divisor = {
            "outside": f"({size} + {step.eps:g})",
            "inside": f"√({size}² + {step.eps:g})",
            "clamp": f"√max({size}², {step.eps:g})",
        }[step.eps_place]
    remarks = [_ZEROS[step.kind]]
    if step.kind in ("std", "std_of_others", "rms"):
        remarks.insert(0, f"ddof {step.ddof}")
    if step.tolerance:
        remarks.append(f"0 where it is at most {step.tolerance:g}")
    if raw and step.kind in _ALONE:
        remarks.append(_ALONE[step.kind].format(_NOUNS[step.over]))
    return Formula(f"A = {current} / {divisor}", "; ".join(remarks))


_ZEROS = {
    "std": "0 where all are equal",
    "std_of_others": "not divided where the others are equal",
    "rms": "root of the mean square; 0 where all are 0",
    "mean": "0 where the mean is not positive",
    "nonzero_share": "0 where all are 0",
}
_ALONE = {"std": "the deviation of {} of one is 1", "mean": "{} of one is not divided"}


def _clip(step: Clip, current: str) -> Formula:
    ends = [f"{end:g}" for end in (step.low, step.high) if end is not None]
    name = "clip" if len(ends) == 2 else "min" if step.low is None else "max"
    return Formula(f"A = {name}({current}, {', '.join(ends)})" if ends else f"A = {current}")


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
        from rlc.algo import formula  # most rewards are not shaped

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
