"""Games of the cookbook that the members of a group play with each other, and of many turns."""

from __future__ import annotations

import asyncio
from typing import Any

import cookbook_builders
import pytest
from chat_support import tokenizer
from cookbook_support import GUESS, WORDS, key, on, play, source, tokens

from rlc.chat.turns import EnvError, Observation
from rlc.envs.cookbook.source import CookbookSource, TokenAction

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unequal", "start from different prompts: .* say `self_play = true`"),
        ("waits", "if its members wait for each other's moves, say `self_play = true`"),
    ],
)
def test_games_of_several_players_must_be_told_of(
    kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlc.envs.cookbook.source._OPENING", 0.05)
    made = source(kind=kind)
    with pytest.raises(EnvError, match=message):
        on(made, made.open(key(0), [0, 1]))
    assert cookbook_builders.cleaned == ["one", "one"]


def table(size: int) -> CookbookSource:
    args = {"kind": "tables"}
    return CookbookSource(WORDS, args, "train", size, tokenizer(), "qwen3_instruct", self_play=True)


async def joined(episode: Any, *replies: str) -> list[Observation]:
    await episode.join()
    return await play(episode, *replies)


def test_members_play_with_each_other_and_join_when_it_is_their_turn() -> None:
    made = table(3)

    async def played() -> Any:
        seats = await made.open(key(0, 3), [0, 1, 2])
        said = [("a", "d"), ("b", "e"), ("c", "e")]
        seen = await asyncio.gather(*(joined(s, *w) for s, w in zip(seats, said, strict=True)))
        for seat in seats:
            await seat.close()
        return seen

    one, two, three = on(made, played())
    assert [seen[0].text.count("heard") for seen in (one, two, three)] == [1, 1, 1]
    assert "heard nothing" in one[0].text
    assert "heard a." in two[0].text
    assert "heard a b." in three[0].text
    assert "heard a b c d." in two[1].text
    assert [[s.reward for s in seen[1:]] for seen in (one, two, three)] == [[0, 1], [1, 1], [1, 0]]
    assert all(seen[-1].done for seen in (one, two, three))
    assert cookbook_builders.cleaned == ["one", "one"]  # the first of them to count its members


@pytest.mark.parametrize("how", ["falls over", "leaves"])
def test_nobody_waits_for_a_member_that_is_gone(how: str) -> None:
    made = table(2)

    async def gone(seat: Any) -> None:
        try:
            await joined(seat, *(["fall over"] if how == "falls over" else ["a"]))
        finally:
            await seat.close()

    async def played() -> Any:
        first, second = await made.open(key(0), [0, 1])
        outcomes = await asyncio.gather(
            gone(first), joined(second, "b", "c"), return_exceptions=True
        )
        await second.close()
        return outcomes

    own, other = on(made, played())
    assert (own is None) == (how == "leaves")
    assert isinstance(other, EnvError)
    assert "another member of the group" in str(other)
    assert cookbook_builders.cleaned == ["one", "one"]


def test_a_game_cannot_be_played_again_by_one_member() -> None:
    made = table(2)
    with pytest.raises(EnvError, match="play with each other, so that none can be played again"):
        on(made, made.open(key(0), [1]))
    assert cookbook_builders.cleaned == ["one", "one"]


def test_the_cookbooks_own_game_of_many_turns() -> None:
    made = source(GUESS, batch_size=8)

    async def found() -> tuple[int, float]:
        (episode, _) = await made.open(key(7), [0, 1])
        seen, low, high, turns = episode.first, 0, 1024, 0
        while not seen.done:
            guess, turns = (low + high) // 2, turns + 1
            reply = tokens(f"Guess: {guess}<|im_end|>")
            seen = await episode.play(TokenAction("", tokens=tuple(reply)))
            answer = seen.text.rpartition("<|im_start|>user")[2]
            low, high = (guess + 1, high) if "Too low" in answer else (low, guess)
        return turns, float(seen.reward or 0)

    turns, reward = on(made, found())
    assert reward == 1.0
    assert 1 <= turns <= 10
