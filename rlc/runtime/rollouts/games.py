"""Tasks that are games: a match for each member of the group, a rollout for each trained seat.

Each trained seat has its own episode, the others an opponent. A seat that has moved waits until it
is its turn again or the game is over. If a seat leaves before the end, because its rollout failed
or reached a limit, the game is cut off for the others, so that none waits for ever.

All matches of a group begin in the same state. If a seat fails, its match is played again as a
whole, as often as the plan allows; if it has failed for good, so have all its seats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from attrs import define, evolve, field, frozen

from rlc.catalog import seats_of, trained_seats
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
    all_of,
    begins,
    validated,
    waiting,
)
from rlc.plan import FailurePlan, Sampling
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.seeds import derive_seed
from rlc.service import pending_call

_CUT_OFF = Observation("", done=True, truncated=True)


class Opponent(Protocol):
    """The player of a seat that is not trained; it has made so many ``moves``."""

    moves: int

    async def reply(self, seen: Move) -> Action:
        """Return the seat's action. Raise what its model or its program raises."""


@define(eq=False)
class ModelOpponent:
    """A model; ``key`` names the random streams of its replies, ``messages`` are those so far."""

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
    """An opponent that is a program; its random choices follow from ``seed``."""

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
    """A game in progress. The turns of ``game``, an episode, are the moves of all seats; ``seats``
    are those that are trained. An opponent may make at most ``max_turns`` moves."""

    game: AsyncEpisode
    seats: Sequence[int]
    opponents: Mapping[int, Opponent]
    max_turns: int
    _inboxes: dict[int, asyncio.Queue[Observation]] = field(init=False)
    _seated: set[int] = field(init=False)
    _over: bool = field(default=False, init=False)
    _moves: int = field(default=0, init=False)
    _others: list[tuple[int, int, str]] = field(factory=list, init=False)  # not passed on yet

    def __attrs_post_init__(self) -> None:
        self._inboxes = {seat: asyncio.Queue() for seat in self.seats}
        self._seated = set(self.seats)

    async def join(self, seat: int) -> Observation:
        """Return a seat's first observation. The first trained seat lets the game begin."""
        if seat == self.seats[0]:
            first = self.game.first
            assert isinstance(first, Move)
            await self._pass_on(first)
        return await self._next(seat)

    async def move(self, seat: int, action: Action) -> Observation:
        """Make a move; return the seat's observation at its next turn, or at the end."""
        if not self._over:
            await self._pass_on(await self._play(action))
        return await self._next(seat)

    async def leave(self, seat: int) -> None:
        """Cut the game off, unless it is over. The last seat that leaves closes it."""
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

    async def _pass_on(self, seen: Move) -> None:
        """Let opponents move until it is the turn of a trained seat."""
        while not seen.done and (opponent := self.opponents.get(seen.seat)) is not None:
            if self._over or opponent.moves == self.max_turns:
                break
            reply = await opponent.reply(seen)
            self._others.append((self._moves, seen.seat, reply.text))
            seen = await self._play(reply)
        if self._over:
            return
        if seen.done:
            self._end(seen.ends)
        elif seen.seat in self._inboxes:
            others, self._others = tuple(self._others), []
            self._inboxes[seen.seat].put_nowait(evolve(seen, move=self._moves, others=others))
        else:
            self._cut_off()

    def _cut_off(self) -> None:
        if not self._over:
            self._end(dict.fromkeys(self._inboxes, _CUT_OFF))

    def _end(self, ends: Mapping[int, Observation] | Sequence[Observation]) -> None:
        """Pass each seat its end of the match, the first also the last moves of opponents."""
        self._over = True
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
    """One match of a task as a group of episodes, a member for each trained seat."""

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
        """Do nothing: the games are closed with their environment."""


_AGAIN = FailurePlan(retries=0, then="drop", penalty=None)  # of a match that may be played again


async def play_game(player: Player, task: Task) -> list[Rollout]:
    """Return the rollouts of all trained seats, match by match; see :meth:`Player.play`."""
    matches = await all_of(_match(player, task, member) for member in range(task.size))
    return [rollout for match in matches for rollout in match]


async def _match(player: Player, task: Task, member: int) -> list[Rollout]:
    plan, retries = task.env.plan, player.on_error.retries
    seats, roles = trained_seats(plan, task.number + member), seats_of(plan)
    played, errors = list[Rollout](), list[str]()
    for attempt in range(retries + 1):
        last = evolve(player.on_error, retries=0)
        policy = last if attempt == retries else _AGAIN
        again = ("attempt", attempt) if attempt else ()
        seed = derive_seed(task.seed, "match", member, *again)
        source = MatchSource(
            task.env.source,
            task.key,
            seats,
            _opponents(player, task, seats, seed),
            plan.rollouts.max_turns,
        )
        env = evolve(task.env, source=source)
        match = evolve(task, env=env, size=len(seats), seed=seed)
        played = await evolve(player, on_error=policy).play(match)
        if (failed := next((one for one in played if one.error is not None), None)) is None:
            break
        if attempt < retries:
            errors.append(str(failed.error))
    else:
        assert failed is not None
        error, cause = f"another seat failed: {failed.error}", failed.cause  # ending the match
        lost = partial(evolve, turns=(), ended="failed", credit=(), raw=None)
        played = [one if one.error else lost(one, error=error, cause=cause) for one in played]
    return [
        evolve(rollout, member=member, role=roles[seat], retried=tuple(errors))
        for seat, rollout in zip(seats, played, strict=True)
    ]


def _opponents(player: Player, task: Task, seats: Sequence[int], seed: int) -> dict[int, Opponent]:
    plan, play = task.env.plan, task.env.plan.play
    assert play is not None
    if play.is_self_play:
        return {}
    theirs = [seat for seat in range(len(seats_of(plan))) if seat not in seats]
    if (program := task.env.program) is not None:
        return {
            seat: ScriptedOpponent(program, derive_seed(seed, "opponent", seat)) for seat in theirs
        }
    if play.past is not None:
        responder = player.pasts[play.past.every]
    else:
        assert play.opponent is not None
        responder = task.env.responders(play.opponent)
    chat, policy = begins(plan), plan.rollouts
    most, temperature = play.max_tokens or policy.max_tokens, play.temperature or policy.temperature
    sampling = Sampling(most, temperature, stop=policy.stop)
    return {
        seat: ModelOpponent(
            responder,
            sampling,
            ("opponent", seed, seat),
            chat.get("instruction", ""),
            [{"role": "system", "content": chat["system"]}] if chat.get("system") else [],
        )
        for seat in theirs
    }
