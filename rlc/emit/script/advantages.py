"""An advantage scheme as the function of a script, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlc.algo import AdvantageScheme, Baseline, Clip, Scale
from rlc.emit.script.literals import Call, literal
from rlc.explanation import scheme_formulas

_LABELS = {
    "group": "[(one.env, one.task) for one in episodes]",
    "env": "[one.env for one in episodes]",
    "batch": "[0 for _ in episodes]",
}


def advantages(scheme: AdvantageScheme) -> Iterator[str]:
    """Yield the function of a scheme."""
    yield "def advantages(episodes: list[Episode]) -> list[tuple[Episode, Array]]:"
    yield f'    """The episodes that are kept, each with one value a turn: {scheme.name}.'
    yield ""
    for formula in scheme_formulas(scheme):
        yield f"    {formula.text}"
    yield '    """'
    yield "    rewards = [[turn.reward for turn in one.turns] for one in episodes]"
    by_turn = scheme.returns.unit == "turn"
    if by_turn:
        yield f"    values, owner = turn_returns(rewards, gamma={scheme.returns.gamma!r})"
    else:
        yield "    values, owner = episode_returns(rewards)"
    yield "    keep = np.ones(len(values), dtype=bool)"
    steps = scheme.steps
    baselines = [step for step in steps if isinstance(step, Baseline)]
    scales = [step for step in steps if isinstance(step, Scale)]
    compared: list[Baseline | Scale] = [*baselines, *scales]
    if scheme.constant == "drop":
        yield f"    keep = varied(values, scopes({_LABELS['group']}, owner, keep))"
    for one in sorted({_scope(step) for step in compared}):
        yield f"    of_{one} = scopes({_LABELS[one]}, owner, keep)"
    weighted = {"tokens" if _by_tokens(step) else "one" for step in compared}
    if "one" in weighted:
        yield "    one_each = np.ones(len(values))"
    if "tokens" in weighted:
        sampled = "[len(turn.tokens) for one in episodes for turn in one.turns]"
        if not by_turn:
            sampled = "[sum(len(turn.tokens) for turn in one.turns) for one in episodes]"
        yield f"    tokens = np.array({sampled}, dtype=np.float64)"
    keeps = bool(scales) and any(step.singleton == "raw" for step in baselines)
    if keeps:
        yield "    raw = np.zeros(len(values), dtype=bool)"
    for step in steps:
        yield from _step(step, keeps)
    yield "    return by_episode(episodes, values, owner, keep)"


def _scope(step: Baseline | Scale) -> str:
    """Who is compared: a script plays no environments with roles."""
    return {"role": "group", "batch_role": "batch"}.get(step.over, step.over)


def _by_tokens(step: Baseline | Scale) -> bool:
    return step.weight == "tokens" or step.kind == "length_weighted"


def _step(step: Any, keeps: bool) -> Iterator[str]:
    if isinstance(step, Clip):
        yield f"    values = np.clip(values, {literal(step.low)}, {literal(step.high)})"
        return
    scope = _scope(step)
    arguments = ["values", "tokens" if _by_tokens(step) else "one_each", f"of_{scope}"]
    if isinstance(step, Baseline):
        kind = "less_others" if step.kind == "leave_one_out" else "less_mean"
        arguments += ["raw=True"] if step.singleton == "raw" else []
        yield f"    values = {Call(kind, arguments)}"
        if keeps and step.singleton == "raw":
            yield f"    raw |= singles(len(values), of_{scope})"
    else:
        arguments += [f"ddof={step.ddof}", f"eps={literal(step.eps)}"]
        arguments += ["inside=True"] if step.eps_place == "inside" else []
        arguments += ["raw=raw"] if keeps else []
        yield f"    values = {Call('over_deviation', arguments)}"
