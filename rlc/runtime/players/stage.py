"""Who plays the episodes of the stages of a job: this process, or players."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field

from rlc.catalog import busy_players, part_of, share_of, stays, usual_players
from rlc.catalog.packages import lacking
from rlc.envs import PlayableEnv, Responders
from rlc.errors import first_line
from rlc.plan import (
    DeadlinesPlan,
    FailurePlan,
    PlayersPlan,
    SamplingPlan,
    StagePlan,
    TeacherPlan,
    is_evaluation,
)
from rlc.runtime.players.messages import FirstMessage, ReplyLimit, StageSetup
from rlc.runtime.players.pool import PlayerPool, StagePlayers
from rlc.runtime.players.starting import room_here, starter_of
from rlc.runtime.records import RunError
from rlc.runtime.service_guard import ConcurrencyLimiter, ServiceGuard
from rlc.service import RemoteService

HERE = PlayersPlan("here")


@define(eq=False)
class JobPlayers:
    """The players of a job, kept from stage to stage. ``chosen``: who plays all of them, whatever
    the plan says."""

    recipe: str
    guard: ServiceGuard
    note: Callable[[str], None]
    chosen: PlayersPlan | None = None
    _pools: dict[str, PlayerPool] = field(factory=dict, init=False)
    _numbers: Any = field(factory=itertools.count, init=False)
    _said: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.guard.elsewhere, self.guard.owed_elsewhere = self._metrics, self._owed

    async def of(
        self,
        stage: StagePlan,
        envs: Mapping[str, PlayableEnv],
        tokenizer: Any,
        responders: Responders,
        on_error: FailurePlan,
        sampling: SamplingPlan,
        teachers: tuple[TeacherPlan, ...] = (),
        own: int | None = None,
    ) -> StagePlayers | None:
        """Return the players of a stage; None if this process plays it. ``own``: most replies of
        the stage at once, besides the limit of the service. Raise RunError without a player."""
        plan = self.chosen or _planned(stage) or usual_players(stage, room_here())
        if plan.kind == HERE.kind:
            return None
        here = {name: why for name, env in envs.items() if (why := stays(env.plan)) is not None}
        for name, why in here.items():
            self._say(f"`{name}` is played in the process of the run: {why}")
        if len(here) == len(envs):
            return None
        try:
            packed = pickle.dumps(tokenizer, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # whatever one with code of its own raises
            message = f"its tokenizer cannot be sent to players ({first_line(error)})"
            if self.chosen or _planned(stage):
                raise RunError(f"`{stage.name}`: {message}", "`players = here`") from error
            self._say(f"`{stage.name}` is played in the process of the run: {message}")
            return None
        pool, count = await self._pool(plan, stage)
        number = next(self._numbers)
        sent = [env.plan for name, env in envs.items() if name not in here]

        def setup(player: int) -> StageSetup:
            return StageSetup(
                number,
                self.recipe,
                tuple(part_of(env, player, count, room_here()) for env in sent),
                stage.model.renderer,
                packed,
                teachers,
                sampling,
                stage.model.context,
                on_error,
                self._deadlines,
                _limit(self.guard.limiter, player, pool.count),
                None if own is None else share_of(own, player, count),
            )

        players = StagePlayers(pool, number, count, setup, responders, frozenset(here))
        pool.setups[number] = players
        return players

    async def close(self) -> None:
        """End all players."""
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()

    @property
    def _deadlines(self) -> DeadlinesPlan:
        return self.guard.watchdog.limits

    async def _pool(self, plan: PlayersPlan, stage: StagePlan) -> tuple[PlayerPool, int]:
        """Return the pool of some players, and how many of them play a stage."""
        service, key = self.guard.service, repr(evolve(plan, count=None))
        is_asked, is_remote = False, isinstance(service, RemoteService)
        if is_remote:
            from rlc.service import shares_samplers  # which has the SDK with it

            is_asked = shares_samplers(service)
        if (pool := self._pools.get(key)) is None:
            if plan.kind == "ray" and (wrong := lacking("ray")):
                raise RunError(f"players of Ray: {wrong}", "pip install 'rlc[ray]'")
            server = service.server if is_asked else None
            first = FirstMessage(server, server or "", waits=not is_remote)
            self._pools[key] = pool = PlayerPool(starter_of(plan), first, self.note)
        count = busy_players(stage, plan.count or await pool.starter.room())
        pool.grow(count)
        ray = plan.kind == "ray"
        one, many = ("actor of Ray", "actors of Ray") if ray else ("process", "processes")
        who, play, their = (one, "plays", "its") if count == 1 else (many, "play", "their")
        how = "" if is_asked else f"; {their} replies are sampled through the process of the run"
        self._say(f"{count:,} {who} {play} the episodes of `{stage.name}`{how}")
        return pool, count

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.note(text)

    def _metrics(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for pool in self._pools.values():
            for name, value in pool.metrics().items():
                found[name] = found.get(name, 0.0) + value
        return found

    def _owed(self) -> str:
        return next((owed for pool in self._pools.values() if (owed := pool.owed())), "")


def _planned(stage: StagePlan) -> PlayersPlan | None:
    """Return who plays a stage by its plan; None if it does not say so."""
    if is_evaluation(stage):
        return stage.players
    return None if stage.rollouts is None else stage.rollouts.players


def _limit(limiter: ConcurrencyLimiter | None, player: int, count: int) -> ReplyLimit | None:
    """Return a player's part of what a limiter admits."""
    if limiter is None:
        return None
    whole = limiter.concurrency
    cap = share_of(whole.cap, player, count)
    return ReplyLimit(cap, whole.adapts, min(cap, whole.level / count), whole.known / count)
