"""What is refused of games that the cases of the codes do not show."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.compile.recipe import compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source

TABLE = 'textarena("TicTacToe-v0")'


def found(
    env: str,
    advantage: str = "grpo(scope = role)",
    group: int = 8,
    reader: Reader | None = None,
) -> list[tuple[str, str]]:
    text = f"""
model policy {{ base = "tiny" }}
env table = {env}
train main {{
  model = policy  env = table  batch = groups(4, group_size = {group})  sampling = sample(8)
  advantage = {advantage}  loss = importance_sampling()  optimizer = adam(1e-3)  steps = 4
}}
"""
    compiled = compile_source(Source("t.rl", text), reader=reader)
    return [(item.code, item.message) for item in compiled.diagnostics]


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ('python_game("nim:Nim", seats = []) |> play(against = self)', "RL0782"),
        (f"{TABLE} |> play(against = random(), temperature = 0.5)", "RL0783"),
        (f"{TABLE} |> play(against = perfect(), max_tokens = 5)", "RL0783"),
        ('textarena("Othello-v0-hard") |> play(against = random())', "RL0808"),
        ('python_game("nim:Nim") |> play(against = perfect())', "RL0808"),
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


SILENT = "class Nim:\n    def __init__(self, seed): self.seat = 0\n"
NIM = f"""{SILENT}    legal_moves = ["1", "2"]
def best(observation, depth): return "1"
def seeded(seed): return "1"
def printed(observation): print(observation)
"""


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("random()", ""),
        ('scripted("nim.py:seeded")', ""),
        ('scripted("nim.py:best", args = { depth = 2 })', ""),
        ('scripted("nim.py:best")', "`nim.py:best` needs `depth`"),
        ('scripted("nim.py:best", args = { depth = 2, deep = 1 })', "does not take `deep`"),
        ('scripted("nim.py:best", args = { depth = 2, seed = 1 })', "leave `seed` out"),
        ('scripted("nim.py:bets")', "has no `bets`"),
        ('scripted("mim.py:best")', "there is no file"),
        ('scripted("nim.py:printed")', "returns nothing, and a move is a text"),
    ],
)
def test_a_program_is_read_before_it_is_run(
    against: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nim.py").write_text(NIM, encoding="utf-8")
    env = f'python_game("nim.py:Nim") |> play(against = {against})'
    messages = [message for _, message in found(env, reader=Reader())]
    assert len(messages) == bool(said)
    assert said in "".join(messages)


def test_a_legal_move_is_drawn_of_games_that_say_which_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nim.py").write_text(SILENT, encoding="utf-8")
    env = 'python_game("nim.py:Nim") |> play(against = random())'
    ((code, message),) = found(env, reader=Reader())
    assert code == "RL0808"
    assert "`nim.py:Nim` does not say which moves are legal" in message
