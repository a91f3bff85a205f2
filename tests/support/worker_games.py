"""Games that block, for tests of workers; importable in worker processes."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from attrs import define, field

from rlc.chat.turns import Observation
from rlc.envs.base import Episode


class StubbornError(Exception):
    """Cannot be copied."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@define
class Adding:
    """Adds up the numbers that are played; words make it misbehave."""

    total: int
    first: Observation = field(factory=lambda: Observation("add"))
    turns: list[int] = field(factory=list)

    def step(self, action: str) -> Observation:
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "hang":
            time.sleep(600)
        if action == "leave":
            raise SystemExit(3)
        if action == "stubborn":
            raise StubbornError("one", "two")
        if action == "lock":
            self.turns.append(threading.Lock())  # type: ignore[arg-type]
            return Observation("locked")
        self.total += int(action)
        self.turns.append(int(action))
        pid = {"pid": float(os.getpid())}
        return Observation(str(self.total), float(self.total), len(self.turns) == 3, pid)


@define
class AddingSource:
    """Each task starts at its seed."""

    def group(self, seed: int, size: int) -> list[Episode]:
        return [Adding(seed) for _ in range(size)]


@define
class LockedSource(AddingSource):
    """Cannot be sent anywhere."""

    lock: Any = field(factory=threading.Lock)


@define
class LockedStateSource(AddingSource):
    """Its episodes cannot be sent anywhere."""

    def group(self, seed: int, size: int) -> list[Episode]:
        return [Adding(seed, turns=[threading.Lock()]) for _ in range(size)]  # type: ignore[list-item]


MADE: list[Executor] = []


def make_processes() -> Executor:
    MADE.append(ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")))
    return MADE[-1]


def make_threads() -> Executor:
    return ThreadPoolExecutor(2)


def make_dask() -> Any:
    """An executor on a cluster of Dask's, in this process."""
    distributed: Any = importlib.import_module("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    DASK.append(distributed.Client(cluster))
    return DASK[-1].get_executor()


DASK: list[Any] = []


def make_nothing() -> object:
    return object()


def die_once(mark: str) -> str:
    """Kill the process that is the first to call this."""
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "played"
    os.kill(os.getpid(), signal.SIGKILL)
    return "dead"


def node() -> str:
    """The node of a Ray cluster on which this is called."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
