"""What is refused of games that the cases of the codes do not show."""

from __future__ import annotations

import pytest

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

TABLE = 'textarena("TicTacToe-v0")'


def found(env: str, advantage: str = "grpo(scope = role)", group: int = 8) -> list[tuple[str, str]]:
    text = f"""
model policy {{ base = "tiny" }}
env table = {env}
train main {{
  model = policy  env = table  batch = groups(4, group_size = {group})  sampling = sample(8)
  advantage = {advantage}  loss = importance_sampling()  optimizer = adam(1e-3)  steps = 4
}}
"""
    return [(item.code, item.message) for item in compile_source(Source("t.rl", text)).diagnostics]


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ('python_game("nim:Nim", seats = []) |> play(against = self)', "RL0782"),
        ('python_game("nim:Nim", seats = ["one"]) |> play(against = self)', "RL0782"),
        ('python_game("nim:Nim", seats = ["a", "any"]) |> play(against = self)', "RL0782"),
        ('python_game("nim:Nim", seats = ["a", 2]) |> play(against = self)', "RL0782"),
        (
            'python_game("nim:Nim", seats = ["a", "a"]) |> play(against = policy, seat = "a")',
            "RL0783",
        ),
        (f"{TABLE} |> play(against = main)", "RL0112"),  # its own last weights
        (f"{TABLE} |> play(against = slef)", "RL0102"),
        (f"{TABLE} |> play(against = policy) |> play(against = self)", "RL0305"),
    ],
)
def test_a_game_that_cannot_be_played_is_an_error(env: str, code: str) -> None:
    assert [each for each, _ in found(env)] == [code]


@pytest.mark.parametrize(
    ("against", "advantage", "group", "codes"),
    [
        ("self", "grpo(scope = role)", 1, ["RL0787"]),
        ("self", "rae()", 1, []),
        ("policy", "grpo(scope = role)", 4, []),
        ("policy", "grpo(scope = role)", 3, ["RL0787"]),
        ('policy, seat = "player_1"', "grpo(scope = role)", 3, []),
        ("policy", "grpo()", 4, ["RL0425"]),
        ('policy, seat = "player_1"', "grpo()", 4, []),
        ("past(every = 2)", "center(scope = role, singleton = raw)", 1, []),
    ],
)
def test_what_has_no_peers_is_found(
    against: str, advantage: str, group: int, codes: list[str]
) -> None:
    seen = found(f"{TABLE} |> play(against = {against})", advantage, group)
    assert [code for code, _ in seen] == codes


def test_a_policy_against_itself_in_a_mixture_is_a_game_of_its_own() -> None:
    both = f"({TABLE} |> play(against = self)) + ({TABLE} |> play(against = past(every = 5)))"
    assert found(both) == []
