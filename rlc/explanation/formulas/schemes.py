"""An advantage scheme as formulas, generated from its record."""

from __future__ import annotations

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
from rlc.catalog import Args, Builtin
from rlc.check import Value, settle
from rlc.lang import Source, Span
from rlc.records import evolve, frozen


@frozen
class Formula:
    """A formula and a remark that says it in words."""

    text: str
    remark: str = ""


def scheme_formulas(scheme: AdvantageScheme) -> list[Formula]:
    """The scheme from rewards to advantages, one line a step, in order."""
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
            made = _running(step, current)
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


def _running(step: RunningBaseline, current: str) -> Formula:
    kept = f"{step.decay:g}^n"
    remark = f"b of its role: 0, and after n returns of a step {kept} b + (1 − {kept}) mean(R)"
    return Formula(f"A = {current} − b", remark)


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
    match step:
        case Clip(low=None, high=None):
            return Formula(f"A = {current}")
        case Clip(low=None, high=high):
            return Formula(f"A = min({current}, {high:g})")
        case Clip(low=low, high=None):
            return Formula(f"A = max({current}, {low:g})")
    return Formula(f"A = clip({current}, {step.low:g}, {step.high:g})")


def preset_formulas(builtin: Builtin) -> list[Formula]:
    """The formulas of a preset; none for one that has arguments without a default."""
    if any(param.required for param in builtin.params):
        return []
    span = Span(Source(builtin.name, ""), 0, 0)
    values = {
        param.name: Value(param.type, param.default, span, "default") for param in builtin.params
    }
    return scheme_formulas(settle(builtin.build(Args(values))))
