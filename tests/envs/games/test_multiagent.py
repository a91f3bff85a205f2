"""GEM's environments of several agents, played as games."""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gem.envs", reason="gem-llm is not installed (rlc[gem])")

from rlc.chat.turns import ContractError
from rlc.envs.games import GameEpisode, GameSource, Move, is_multiagent, own_game

GAME = """
import random

from gem.multiagent import AgentSelector, MultiAgentEnv


class HighCard(MultiAgentEnv):
    def __init__(self, mode, rounds):
        super().__init__()
        self.possible_agents = ["north", "south"]
        self.agent_selector = AgentSelector(self.possible_agents, mode)
        self.rounds = rounds

    def reset(self, seed=None):
        self.said, self.card = [], random.randrange(1_000)  # as GEM's own games draw
        self.drawn = None
        return super().reset(seed)

    def observe(self, agent):
        return f"{agent}: card {self.card}, said {self.said}"

    def _process_actions(self, actions):
        self.said += sorted(actions.items())
        rewards = {agent: float(len(text)) for agent, text in actions.items()}
        over = len(self.said) >= 2 * self.rounds
        for agent in self.possible_agents:
            self.terminations[agent] = over
        return {}, rewards, self.terminations, self.truncations, {}


def make(seed, mode="sequential", rounds=1):
    return HighCard(mode, rounds)
"""


@pytest.fixture
def source(tmp_path: Path) -> Any:
    path = tmp_path / "high_card.py"
    path.write_text(GAME, encoding="utf-8")
    target = f"{path}:make"
    return lambda seats=2, **args: GameSource(target, seats, partial(own_game, target, args))


def played(source: GameSource, seed: int, *actions: str) -> tuple[list[str], list[Move]]:
    (episode,) = source.group(seed, 1)
    assert isinstance(episode, GameEpisode)
    assert is_multiagent(episode.game._env)  # type: ignore[attr-defined]
    moves = [episode.first, *(episode.step(action) for action in actions)]
    assert all(isinstance(move, Move) for move in moves)
    return [move.text for move in moves], moves  # type: ignore[return-value]


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_its_agents_are_seats(mode: str, source: Any) -> None:
    texts, moves = played(source(mode=mode, rounds=2), 7, "a", "bbb", "cc", "d")
    assert [move.seat for move in moves[:-1]] == [0, 1, 0, 1]
    assert [move.done for move in moves] == [False] * 4 + [True]
    seen = "[]" if mode == "parallel" else "[('north', 'a')]"
    assert texts[1].endswith(f"said {seen}")  # who acts at once has not seen the other act
    assert [end.reward for end in moves[-1].ends] == [3.0, 4.0]
    assert [end.metrics["win"] for end in moves[-1].ends] == [0.0, 1.0]


def test_a_seed_begins_the_same_game_whatever_others_draw(source: Any) -> None:
    first, _ = played(source(), 7, "a", "b")
    random.seed(0)
    assert played(source(), 7, "a", "b")[0] == first
    assert played(source(), 8, "a", "b")[0] != first


def test_it_needs_a_seat_for_each_agent(source: Any) -> None:
    with pytest.raises(ContractError, match="has 3 seats, and its `rewards` are 2"):
        played(source(seats=3), 7, "a", "b")


def test_nothing_is_one_where_gem_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gem.multiagent", raising=False)
    assert not is_multiagent(object())
