"""An advantage scheme as formulas, generated from its record."""

from __future__ import annotations

from attrs import frozen

from rlc.algo.scheme import AdvantageScheme, AdvantageStep, Baseline, Clip, Scale


@frozen
class Formula:
    """A formula and a remark that says it in words."""

    text: str
    remark: str = ""


def scheme_formulas(scheme: AdvantageScheme) -> list[Formula]:
    """The scheme from rewards to advantages, one line a step, in order."""
    lines = [_returns(scheme)]
    symbol = "G" if scheme.returns.unit == "turn" else "R"
    if scheme.constant == "drop":
        lines.append(Formula(f"drop groups with max {symbol} = min {symbol}", "nothing to compare"))
    current = symbol
    for step in scheme.steps:
        lines.append(_step(step, current, symbol))
        current = "A"
    if not scheme.steps:
        lines.append(Formula(f"A = {symbol}", "no baseline"))
    return lines


def _returns(scheme: AdvantageScheme) -> Formula:
    if scheme.returns.unit == "episode":
        return Formula("R = Σ_t r_t", "one return for each episode, on all its tokens")
    discount = "" if scheme.returns.gamma == 1 else f"{scheme.returns.gamma:g} "
    return Formula(f"G_t = r_t + {discount}G_(t+1)", "one return for each turn, on its tokens")


def _step(step: AdvantageStep, current: str, returns: str) -> Formula:
    if isinstance(step, Baseline):
        return _baseline(step, current)
    if isinstance(step, Scale):
        return _scale(step, current, returns)
    return _clip(step, current)


_SINGLETONS = {
    "zero": "a {} of one gets 0",
    "raw": "a {} of one keeps its value",
    "drop": "a {} of one is left out",
    "error": "a {} of one stops the run",
}


def _baseline(step: Baseline, current: str) -> Formula:
    weighted = ", each by its tokens" if step.weight == "tokens" else ""
    texts = {
        "mean": f"mean_{step.over}({current}{weighted})",
        "leave_one_out": f"mean_(others in {step.over})({current}{weighted})",
        "length_weighted": f"Σ_{step.over} n {current} / Σ_{step.over} n",
    }
    remark = _SINGLETONS[step.singleton].format(step.over)
    if step.kind == "length_weighted":
        remark = f"n: action tokens; {remark}"
    return Formula(f"A = {current} − {texts[step.kind]}", remark)


def _scale(step: Scale, current: str, returns: str) -> Formula:
    weighted = ", each by its tokens" if step.weight == "tokens" else ""
    measured = returns if step.kind == "mean" else current
    size = f"{step.kind}_{step.over}({measured}{weighted})"
    divisor = (
        f"({size} + {step.eps:g})" if step.eps_place == "outside" else f"√({size}² + {step.eps:g})"
    )
    if step.eps == 0:
        divisor = size
    remark = f"ddof {step.ddof}; 0 where all are equal"
    if step.kind == "mean":
        remark = "0 where the mean is not positive"
    return Formula(f"A = {current} / {divisor}", remark)


def _clip(step: Clip, current: str) -> Formula:
    return Formula(f"A = clip({current}, {step.low:g}, {step.high:g})")
