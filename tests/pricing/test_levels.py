"""Low is at most expected, and expected at most high, of recipes of every kind."""

from __future__ import annotations

import re
from math import isnan

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from priced_recipes import (
    BATCHES,
    ELSEWHERE,
    JUDGES,
    SHAPE,
    STAGES,
    WORLDS,
    plan_of,
    text_of,
)

from rlc.catalog.index import builtins_of
from rlc.pricing.cost import plan_cost
from rlc.pricing.shapes import LEVELS

Parts = tuple[str, str, str, str]
LIMITS = ("", ", max_episode_tokens = 3_000", ", max_prompt_tokens = 900")
TURNS = ("max_turns = 1_000", "max_turns = 1", "max_turns = 7", "max_turns = 400")
PARTS = {
    "env": {*re.findall(r"(\w+)\(", " ".join((WORLDS | ELSEWHERE).values()))},
    "opponent": {*re.findall(r"against = (\w+)", " ".join(WORLDS.values()))},
    "judge": {*re.findall(r"(\w+)\(", f"{JUDGES} {SHAPE}")},
    "teacher": {*re.findall(r"teacher = (\w+)", " ".join(STAGES.values()))},
    "data": {*re.findall(r"data = (\w+)", " ".join(STAGES.values())), "cookbook"},
    "preferences": {*re.findall(r"data = (\w+)", " ".join(STAGES.values())), "labelled"},
    "preference_loss": {*re.findall(r"loss = (\w+)", " ".join(STAGES.values()))},
}


@pytest.mark.parametrize("kind", PARTS)
def test_every_builtin_that_costs_something_is_in_the_property(kind: str) -> None:
    """Those that are added to the catalogue, too; what is missing here has no file to read."""
    assert {builtin.name for builtin in builtins_of(kind)} <= PARTS[kind]


@settings(suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(
    st.tuples(
        *map(st.sampled_from, (sorted(WORLDS | ELSEWHERE), [*JUDGES], [*STAGES], [*BATCHES]))
    ),
    st.sampled_from(["tiny", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B"]),
    st.sampled_from(LIMITS),
    st.sampled_from(TURNS),
    st.sampled_from([16, 256]),
)
def test_low_is_at_most_expected_and_expected_at_most_high(
    parts: Parts, base: str, limit: str, turns: str, most: int
) -> None:
    """Of tokens and of dollars, of every stage and in sum."""
    plan = plan_of(text_of(*parts, base, turns, f"sampling = sample({most}{limit})"))
    assume(plan is not None)
    assert plan is not None
    for cost in plan_cost(plan):
        usd = [cost.total(level).usd for level in LEVELS]
        used = [cost.tokens(level) for level in LEVELS]
        assert usd == sorted(usd)
        assert used == sorted(used)
        assert not any(map(isnan, (*usd, *used)))
