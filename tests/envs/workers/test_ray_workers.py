"""``workers(ray)`` on a real cluster of two nodes on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import run_support
import worker_games
from run_support import (
    TINY,
    compiled,
    rollouts,
    run_new,
    train,
    undisturbed,
)
from worker_games import AddingSource

from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import TaskKey
from rlc.envs.deadlines import Deadline, OverdueError
from rlc.envs.workers.async_adapter import make_async
from rlc.envs.workers.processes import RayWorkers
from rlc.plan.parts import PlayersPlan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout, failure_of
from rlc.runtime.summary import Observer

pytestmark = [pytest.mark.server, pytest.mark.kill, pytest.mark.slow]

T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each; the second has something of its own."""
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.syspath_prepend(str(Path(worker_games.__file__).parent))
        store = {"object_store_memory": 100_000_000, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **store})
        made.add_node(num_cpus=1, resources={"boards": 2}, object_store_memory=100_000_000)
        made.wait_for_nodes()
        try:
            yield made
        finally:
            made.shutdown()


def settings(cluster: Any, **given: Any) -> dict[str, Any]:
    return {
        "kind": "ray",
        "count": None,
        "executor": None,
        "cpus": 1.0,
        "resources": {},
        "address": cluster.address,
        **given,
    }


def workers(cluster: Any, most: int | None = None, cpus: float = 1.0, **resources: float) -> Any:
    return RayWorkers(most, cpus, resources, cluster.address)


async def start(source: Any, size: int, seed: int = 0) -> list[Any]:
    return list(await source.open(TaskKey(0, 0, seed, size), range(size)))


async def say(episode: Any, *actions: str) -> list[Observation]:
    return [await episode.play(Action(action)) for action in actions]


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(120):  # never reached, unless something hangs
            return await test()

    return asyncio.run(bounded())


def test_episodes_are_those_of_threads(cluster: Any) -> None:
    async def test(given: dict[str, Any] | None) -> list[list[Observation]]:
        source = make_async(AddingSource(), given)
        members = await start(source, 3, seed=10)
        played = await asyncio.gather(*[say(member, "1", "2", "3") for member in members])
        await source.close()
        return played

    away, here = run(lambda: test(settings(cluster))), run(lambda: test(None))
    values = [[(seen.text, seen.reward, seen.done) for seen in one] for one in away]
    assert values == [[(seen.text, seen.reward, seen.done) for seen in one] for one in here]
    assert os.getpid() not in {seen.metrics["pid"] for one in away for seen in one}


def test_what_goes_wrong_in_an_actor_is_that_episodes_affair(cluster: Any) -> None:
    async def test() -> list[str]:
        source = make_async(AddingSource(), settings(cluster))
        told = []
        for word, seconds in (("die", None), ("hang", 0.05), ("leave", None), ("stubborn", None)):
            broken, fine = await start(source, 2)
            with pytest.raises(EnvError) as caught:
                async with Deadline(seconds, "a step"):
                    await broken.play(Action(word))
            told.append(f"{caught.type.__name__}: {caught.value}")
            assert (await say(fine, "5"))[0].text == "5"
        await source.close()
        return told

    assert run(test) == [
        "WorkerDiedError: the actor of the environment died, and so did another one",
        "OverdueError: a step took longer than 50 ms",
        "EnvError: the environment raised SystemExit",
        "EnvError: StubbornError: one and two",
    ]
    assert OverdueError.cause == "timeout"


def test_a_call_that_is_lost_with_its_actor_is_made_again(cluster: Any, tmp_path: Path) -> None:
    async def test() -> tuple[Any, bool]:
        some = workers(cluster)
        told = await some.call(worker_games.die_once, str(tmp_path / "mark"))
        pid = await some.call(os.getpid)
        os.kill(pid, signal.SIGKILL)  # while it does nothing
        others = [await some.call(os.getpid) for _ in range(3)]
        await some.close()
        return told, pid in others

    assert run(test) == ("played", False)


def test_an_error_keeps_its_type_and_its_traceback(cluster: Any) -> None:
    async def test() -> None:
        some = workers(cluster, 1)
        try:
            await some.call(json.loads, "{")
        finally:
            await some.close()

    with pytest.raises(json.JSONDecodeError) as caught:
        run(test)
    assert "decoder.py" in failure_of(caught.value).traceback


def test_actors_reserve_what_they_need(cluster: Any) -> None:
    async def test() -> tuple[str, int | None]:
        some = workers(cluster, None, 0.5, boards=1)
        found = {await some.call(worker_games.node) for _ in range(4)}
        most = some.most
        await some.close()
        (only,) = found
        return only, most

    second = next(iter(cluster.worker_nodes))
    assert run(test) == (second.node_id, 2)

    async def ask(some: RayWorkers) -> None:
        await some.call(os.getpid)

    with pytest.raises(EnvError, match="no node of the Ray cluster has 64 CPU, 1 boards"):
        run(lambda: ask(workers(cluster, 1, 64.0, boards=1)))
    with pytest.raises(EnvError, match=r"there is no Ray cluster at 127\.0\.0\.1:9"):
        run(lambda: ask(RayWorkers(1, 1.0, {}, "127.0.0.1:9")))


@pytest.mark.engine
def test_a_run_has_the_rewards_of_a_run_in_threads(cluster: Any, tmp_path: Path) -> None:
    def rewards(kind: str) -> list[Any]:
        spell = TINY.replace(
            'gem("rg:spell_backward")', f'gem("rg:spell_backward") |> workers({kind})'
        )
        job = compiled(spell + train(env="spell", steps="1"))
        folder = tmp_path / kind[:3]
        run_new(folder, job)
        return [(row["step"], row["reward"]) for row in rollouts(folder)]

    away = rewards(f'ray, address = "{cluster.address}"')
    assert len(away) == 12
    assert away == rewards("threads")


@pytest.mark.engine
def test_players_on_a_cluster_play_the_same_run(cluster: Any, tmp_path: Path) -> None:
    """Whole episodes are played by actors; one whose process is killed loses nothing."""
    seen = Killer()
    job = compiled(TINY + train(env="spell", batch="groups(6, group_size = 2)", steps="1"))
    folder = RunFolder.create(tmp_path / "run", job)
    folder.players = PlayersPlan("ray", 2, cpus=0.5, address=cluster.address)
    run_support.run(folder, observer=seen)
    assert rollouts(tmp_path / "run") == rollouts(undisturbed(job))
    assert len(seen.killed) == 2
    assert seen.notes[0].startswith("2 actors of Ray play the episodes of `main`")


class Killer(Observer):
    """Kills a player as soon as the first group is played."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.killed: list[int] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def played(self, members: Sequence[Rollout]) -> None:
        if not self.killed:
            names = {
                p: Path(f"/proc/{p}/cmdline")
                for p in map(int, filter(str.isdigit, os.listdir("/proc")))
            }
            self.killed = [p for p, name in names.items() if b"ray::PlayerActor" in read(name)]
            os.kill(self.killed[0], signal.SIGKILL)


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has just ended
        return b""


def test_a_dead_node_costs_no_episode(cluster: Any) -> None:
    """Last: the second node does not come back."""

    async def test() -> tuple[list[str], set[str]]:
        source: Any = make_async(AddingSource(), settings(cluster))
        members = await start(source, 4, seed=1)
        await asyncio.gather(*[say(member, "1") for member in members])
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)
        played = await asyncio.gather(*[say(member, "2") for member in members])
        found = {await source.workers.call(worker_games.node) for _ in range(2)}
        await source.close()
        return [one[0].text for one in played], found

    assert run(test) == (["4"] * 4, {cluster.head_node.node_id})
