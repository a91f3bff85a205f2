"""Which tasks the rounds of a step get, where several steps play at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rlc.envs.build import PlayableEnv
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan
from rlc.runtime.rollouts.tasks import BEGUN, TaskRounds, TaskStream, new_cursor

_POLICY = RolloutsPlan(1, 1.0, 8, None, None)
_REWARD = RewardPlan("turns", None, None, None)
_ENV = EnvPlan("a", 2.0, "gem", "a", {}, (), 1, _POLICY, _REWARD)
ENVS: dict[str, PlayableEnv] = {
    env.name: PlayableEnv(env, None, None)  # type: ignore[arg-type]
    for env in (_ENV, evolve(_ENV, name="b", weight=1.0))
}
Played = dict[int, list[tuple[str, int]]]


def played(
    needed: Sequence[int], ahead: int, moments: Random, cursors: Sequence[Mapping[str, Any]] = ()
) -> tuple[Played, list[Mapping[str, Any]]]:
    """The tasks of steps that need so many further rounds each, after those of these cursors, and
    the cursors of all. A step begins when the one ``ahead`` + 1 before it is done."""
    stream = TaskStream.resumed(ENVS, 1, ("task",), cursors) if cursors else new_stream()
    rounds = TaskRounds.resumed(stream, 3, ahead, cursors)
    found: Played = {}
    done = {step: asyncio.Event() for step in range(len(needed) + 1)}
    for step in range(len(cursors) + 1):
        done[step].set()
    after = list(cursors)

    async def play(step: int) -> None:
        await done[max(step - 1 - ahead, 0)].wait()
        tasks = list(rounds.first(step))
        for _ in range(needed[step - 1]):
            await pause()
            tasks += await rounds.more(step)
        rounds.end(step)
        await pause()
        await done[step - 1].wait()  # steps are done in order
        found[step] = [(task.env.plan.name, task.number) for task in tasks]
        assert [(t.env.plan.name, t.number) for t in stream.sampled[step]] == found[step]
        after.append(stream.finish(step, []))
        done[step].set()

    async def pause() -> None:
        for _ in range(moments.randrange(12)):
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(play, range(len(cursors) + 1, len(needed) + 1)))

    asyncio.run(main())
    return found, after


def new_stream() -> TaskStream:
    return TaskStream(ENVS, new_cursor(list(ENVS)), 1, ("task",))


@given(
    needed=st.lists(st.sampled_from([0, 0, 1, 2]), min_size=1, max_size=7),
    ahead=st.integers(0, 3),
    seeds=st.tuples(st.integers(), st.integers()),
    data=st.data(),
)
def test_no_moment_decides_whose_a_task_is_and_a_resumed_run_gives_the_same(
    needed: list[int], ahead: int, seeds: tuple[int, int], data: st.DataObject
) -> None:
    whole, cursors = played(needed, ahead, Random(seeds[0]))
    assert played(needed, ahead, Random(seeds[1])) == (whole, cursors)
    tasks = [task for step in whole for task in whole[step]]
    assert len(set(tasks)) == len(tasks)
    done = data.draw(st.integers(1, len(needed)))
    again, rest = played(needed, ahead, Random(seeds[1]), cursors[:done])
    assert again == {step: whole[step] for step in range(done + 1, len(needed) + 1)}
    assert rest == cursors


def test_what_is_in_play_is_bounded_and_written_down() -> None:
    _, cursors = played([0, 1, 0, 0], 2, Random(1))
    assert [len(cursor[BEGUN]) for cursor in cursors] == [2, 2, 2, 2]
    assert cursors[0][BEGUN] == [{"a": 2, "b": 1}, {"a": 4, "b": 2}]  # before steps 2 and 3
    _, cursors = played([0, 1], 0, Random(1))
    assert cursors == [{"a": 2, "b": 1}, {"a": 6, "b": 3}]


def test_without_further_rounds_each_step_gets_what_it_gets_without_overlap() -> None:
    assert played([0] * 5, 2, Random(1))[0] == played([0] * 5, 0, Random(1))[0]
