"""Tasks that are games: a match for each member of the group, a rollout for each seat of it that is
trained.

All matches of a group begin in the same state. If a seat fails, its match is played again as a
whole, as often as the plan allows; if it has failed for good, all its seats have.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlc.catalog import seats_of, trained_seats
from rlc.envs import begins
from rlc.plan import FailurePlan, Sampling
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.matches import MatchSource, ModelOpponent, Opponent, ScriptedOpponent
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.seeds import derive_seed

_AGAIN = FailurePlan(retries=0, then="drop", penalty=None)  # of a match that may be played again


async def play_game(player: Player, task: Task) -> list[Rollout]:
    """Return the rollouts of all seats that are trained, match by match; see
    :meth:`rlc.runtime.rollouts.player.Player.play`."""
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
        played = [one if one.error else _left_alone(one, failed) for one in played]
    return [
        evolve(rollout, member=member, role=roles[seat], retried=tuple(errors))
        for seat, rollout in zip(seats, played, strict=True)
    ]


def _opponents(player: Player, task: Task, seats: Sequence[int], seed: int) -> dict[int, Opponent]:
    """The opponents of a match, by their seats."""
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


def _left_alone(rollout: Rollout, failed: Rollout) -> Rollout:
    """The rollout of a seat whose match ended because another seat failed."""
    error = f"another seat failed: {failed.error}"
    return evolve(
        rollout, turns=(), ended="failed", credit=(), raw=None, error=error, cause=failed.cause
    )
