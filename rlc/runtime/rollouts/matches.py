"""Matches of a game: each seat that is trained has an episode of its own, the others an opponent.

The seats move in the order of the game. One that has moved waits until it is its turn again or the
game is over; whether another episode or an opponent moves in between makes no difference to it. If
a seat leaves before the end, because its rollout failed or reached a limit, the game is cut off
there for the others, so that nobody waits for moves that never come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import define, evolve, field, frozen

from rlc.chat import Action, Observation
from rlc.envs import (
    AsyncEpisode,
    AsyncSource,
    GameView,
    JoiningEpisode,
    ModelRequest,
    Move,
    OpponentProgram,
    Responder,
    TaskKey,
    validated,
    waiting,
)
from rlc.plan import Sampling
from rlc.seeds import derive_seed
from rlc.service import pending_call

_CUT_OFF = Observation("", done=True, truncated=True)


class Opponent(Protocol):
    """Who plays a seat of a match that is not trained; it has made so many ``moves``."""

    moves: int

    async def reply(self, seen: Move) -> Action:
        """Return what the seat replies. Raise what its model or its program raises."""


@define(eq=False)
class ModelOpponent:
    """An opponent that is a model. ``key`` names the streams of its replies, and ``messages`` are
    those that come before the first."""

    responder: Responder
    sampling: Sampling
    key: tuple[str | int, ...]
    instruction: str
    messages: list[Mapping[str, str]]
    moves: int = 0

    async def reply(self, seen: Move) -> Action:
        text = seen.text
        if not self.moves and self.instruction:
            text = f"{text}\n\n{self.instruction}"
        self.messages.append({"role": "user", "content": text})
        with waiting():
            question = ModelRequest(self.messages, self.sampling, (*self.key, self.moves))
            reply = await self.responder.reply(question)
        self.moves += 1
        self.messages.append({"role": "assistant", "content": reply.text})
        return Action(reply.text)


@define(eq=False)
class ScriptedOpponent:
    """An opponent that is a program. Its draws follow from ``seed``."""

    program: OpponentProgram
    seed: int
    history: list[tuple[str, str]] = field(factory=list)
    moves: int = 0

    async def reply(self, seen: Move) -> Action:
        seed = derive_seed(self.seed, "move", self.moves)
        known = GameView(seen.text, seen.legal_moves, seed, seen.seat, tuple(self.history))
        with pending_call():
            text = await self.program.move(known)
        self.moves += 1
        self.history.append((seen.text, text))
        return Action(text)


@define(eq=False)
class Match:
    """A game that is played: ``game`` is an episode whose turns are the moves of all seats, and
    ``seats`` are those that are trained. An opponent may make at most ``max_turns`` moves."""

    game: AsyncEpisode
    seats: Sequence[int]
    opponents: Mapping[int, Opponent]
    max_turns: int
    _inboxes: dict[int, asyncio.Queue[Observation]] = field(init=False)
    _seated: set[int] = field(init=False)
    _over: bool = field(default=False, init=False)
    _moves: int = field(default=0, init=False)
    _others: list[tuple[int, int, str]] = field(factory=list, init=False)  # not handed on yet

    def __attrs_post_init__(self) -> None:
        self._inboxes = {seat: asyncio.Queue() for seat in self.seats}
        self._seated = set(self.seats)

    async def join(self, seat: int) -> Observation:
        """Return what a seat sees first. The first seat that is trained lets the game begin."""
        if seat == self.seats[0]:
            first = self.game.first
            assert isinstance(first, Move)
            await self._hand_on(first)
        return await self._next(seat)

    async def move(self, seat: int, action: Action) -> Observation:
        """Make a move; return what the seat sees when it is its turn again, or at the end."""
        if not self._over:
            await self._hand_on(await self._play(action))
        return await self._next(seat)

    async def leave(self, seat: int) -> None:
        """Cut the game off, unless it is over. The last seat that leaves closes it."""
        if not self._over:
            self._cut_off()
        self._seated.discard(seat)
        if not self._seated:
            await self.game.close()

    async def _play(self, action: Action) -> Move:
        with pending_call():
            seen = validated(await self.game.play(action))
        self._moves += 1
        assert isinstance(seen, Move)
        return seen

    async def _hand_on(self, seen: Move) -> None:
        """Let opponents move until it is the turn of a seat that is trained."""
        while not seen.done and (opponent := self.opponents.get(seen.seat)) is not None:
            if self._over or opponent.moves == self.max_turns:
                break
            reply = await opponent.reply(seen)
            self._others.append((self._moves, seen.seat, reply.text))
            seen = await self._play(reply)
        if self._over:
            return
        if seen.done:
            self._over = True
            self._end({seat: seen.ends[seat] for seat in self._inboxes})
        elif seen.seat in self._inboxes:
            others, self._others = tuple(self._others), []
            self._inboxes[seen.seat].put_nowait(evolve(seen, move=self._moves, others=others))
        else:
            self._cut_off()

    def _cut_off(self) -> None:
        self._over = True
        self._end(dict.fromkeys(self._inboxes, _CUT_OFF))

    def _end(self, ends: Mapping[int, Observation]) -> None:
        """Tell each seat how the match has ended; the first also what opponents said last."""
        for seat, inbox in self._inboxes.items():
            others = tuple(self._others) if seat == self.seats[0] else ()
            inbox.put_nowait(evolve(ends[seat], others=others))

    async def _next(self, seat: int) -> Observation:
        with waiting():
            return await self._inboxes[seat].get()


@define(eq=False)
class SeatEpisode(JoiningEpisode):
    """The part of one seat in a match."""

    match: Match
    seat: int
    _first: Observation | None = field(default=None, init=False)
    _left: bool = field(default=False, init=False)

    @property
    def first(self) -> Observation:
        assert self._first is not None, "this seat has not joined the game yet"
        return self._first

    async def join(self) -> Observation:
        self._first = await self.match.join(self.seat)
        return self._first

    async def play(self, action: Action) -> Observation:
        return await self.match.move(self.seat, action)

    async def close(self) -> None:
        if not self._left:
            self._left = True
            await self.match.leave(self.seat)


@frozen(eq=False)
class MatchSource:
    """One match of a task as a group of episodes, a member for each seat that is trained."""

    games: AsyncSource
    key: TaskKey
    seats: Sequence[int]
    opponents: Mapping[int, Opponent]
    max_turns: int

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:  # noqa: ARG002
        (game,) = await self.games.open(evolve(self.key, size=1), [0])
        match = Match(game, self.seats, self.opponents, self.max_turns)
        return [SeatEpisode(match, self.seats[member]) for member in members]

    async def close(self) -> None:
        """Do nothing: the games are closed with the environment that they belong to."""
