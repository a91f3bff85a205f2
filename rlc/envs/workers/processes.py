"""Worker processes, executors of the user's own, and actors of Ray clusters (https://docs.ray.io).

No worker has a state that matters: it is sent the state of an episode with each call. So a call
whose actor of Ray dies, with its node or alone, is made again by another one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

from attrs import define, field, frozen

from rlc.chat import EnvError
from rlc.envs.deadlines import place, waiting


class WorkerDiedError(EnvError):
    """The process in which an environment was played has died."""

    cause = "died"


@frozen(eq=False)
class _Process:
    executor: Executor
    pid: int

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has died by itself
            os.kill(self.pid, signal.SIGKILL)
        self.executor.shutdown(wait=False)


@define(eq=False)
class ProcessWorkers:
    """Up to ``count`` processes, started as needed and never forked, since the program has threads.
    Each has an executor of its own, so that a call that kills its process fails alone, and one that
    hangs is ended. ``warm_up``: a first call, with its arguments, which counts as waiting."""

    count: int
    warm_up: tuple[Any, ...] = ()
    _idle: list[_Process] = field(factory=list, init=False)
    _places: asyncio.Semaphore = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.count)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result, or raise the error. Raise WorkerDiedError if the process dies. A call
        that is cancelled ends with its process, which is then replaced."""
        async with place(self._places):
            process = self._idle.pop() if self._idle else None
            if process is None:
                with waiting():
                    process = await self._started()
            try:
                outcome = await _result(process.executor, function, *args)
            except BrokenExecutor as error:
                process.executor.shutdown(wait=False)
                raise WorkerDiedError("the process of the environment died") from error
            except asyncio.CancelledError:
                process.kill()
                raise
            except Exception:
                self._idle.append(process)  # the environment has failed, not the process
                raise
            self._idle.append(process)
            return outcome

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().kill()

    async def _started(self) -> _Process:
        """Return a new process. Raise WorkerDiedError if it does not start."""
        executor = ProcessPoolExecutor(max_workers=1, mp_context=_Context(), initializer=_begin)
        try:
            process = _Process(executor, await _result(executor, os.getpid))
        except BrokenExecutor as error:
            raise WorkerDiedError("a worker process does not start") from error
        try:
            if self.warm_up:
                await _result(executor, *self.warm_up)
        except BaseException as error:
            process.kill()
            if isinstance(error, BrokenExecutor):
                raise WorkerDiedError("the process of the environment died") from error
            raise
        return process


class _SpawnedProcess(SpawnProcess):
    """A process that does not import the program's main script: a script that runs a recipe without
    a ``__main__`` guard would run it again."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802, as multiprocessing calls it
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _SpawnedProcess


def _begin() -> None:
    """In a new process: ignore Ctrl-C, and end when the program ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


async def _result(executor: Executor, function: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.wrap_future(executor.submit(function, *args))


@define(eq=False)
class ExecutorWorkers:
    """One executor, made with the first call, and again when it breaks. It does not say which call
    broke it, so each is made again, with no other beside it: only the call that breaks the next
    executor has failed. ``most`` limits the concurrent calls; None leaves that to the executor."""

    make: Callable[[], Any]
    most: int | None = None
    _executor: Executor | None = field(default=None, init=False)
    _places: asyncio.Semaphore = field(init=False)
    _suspects: int = field(default=0, init=False)
    _alone: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _cleared: asyncio.Event = field(factory=asyncio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._cleared.set()
        self._places = asyncio.Semaphore(self.most or sys.maxsize)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function returns, or raise what it raises. Raise WorkerDiedError if its
        worker dies. A call that is cancelled while it runs is abandoned with its executor."""
        async with place(self._places):
            with waiting():
                await self._cleared.wait()
            try:
                return await self._submit(function, args)
            except BrokenExecutor:
                return await self._submit_alone(function, args)

    async def close(self) -> None:
        self._abandon(self._executor)

    async def _submit_alone(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._suspects += 1
        self._cleared.clear()
        try:
            async with place(self._alone):
                return await self._submit(function, args)
        except BrokenExecutor as error:
            raise WorkerDiedError("the worker of the environment died") from error
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._cleared.set()

    async def _submit(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if (executor := self._executor) is None:
            executor = self.make()
            if not callable(getattr(executor, "submit", None)):
                kind = type(executor).__name__
                raise EnvError(f"the executor of `workers()` has no `submit`: it is of type {kind}")
            self._executor = executor
        future = None
        try:
            future = executor.submit(function, *args)
            return await asyncio.wrap_future(future)
        except (BrokenExecutor, asyncio.CancelledError) as error:
            ended = isinstance(error, BrokenExecutor)
            if ended or (future is not None and not future.cancelled()):
                self._abandon(executor)  # the worker of a cancelled call may never come back
            raise

    def _abandon(self, executor: Executor | None) -> None:
        if executor is not None and self._executor is executor:
            self._executor = None
            executor.shutdown(wait=False)  # Dask's takes no other argument


_TRIES = 2  # of a call: an environment that ends its actor twice has done it, not the cluster
_START_SECONDS = 600.0  # until a cluster has room for a first actor
_REACH_SECONDS = 10.0
_ADDRESS = re.compile(r"(?:ray://)?(?P<host>[^:/]+):(?P<port>\d+)")
_STORE_BYTES = 100_000_000  # of a cluster on this machine: states of episodes are small


class _Caller:
    """The actor, in a process of the cluster: it finds modules where this program does."""

    def __init__(self, paths: Sequence[str]) -> None:
        sys.path.extend(path for path in paths if path not in sys.path)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


@define(eq=False)
class RayWorkers:
    """Up to ``most`` actors (None: as many as fit), started as needed and as there is room. Each
    reserves ``cpus`` and ``resources`` of a node. ``address`` is that of a cluster; None: that of
    this program or of RAY_ADDRESS, or else one on this machine until the last worker is closed."""

    most: int | None
    cpus: float
    resources: Mapping[str, float]
    address: str | None = None
    warm_up: tuple[Any, ...] = ()  # a function and its arguments, which each actor calls first
    _idle: asyncio.Queue[Any] = field(factory=asyncio.Queue, init=False)
    _started: int = field(default=0, init=False)
    _starting: set[asyncio.Task[None]] = field(factory=set, init=False)
    _actors: set[Any] = field(factory=set, init=False)
    _connecting: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _connected: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        if find_spec("ray") is None:
            raise EnvError("`workers(ray)` needs the package ray: pip install 'rlc[ray]'")

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function returns, or raise what it raises. Raise WorkerDiedError if two
        actors in turn die over it. A call that is cancelled ends with its actor."""
        for attempt in range(_TRIES):
            with waiting():
                actor = await (self._alive() if attempt else self._free())
            try:
                outcome = await _outcome(actor, function, *args)
            except asyncio.CancelledError:
                self._end(actor)
                raise
            except _LostError:
                self._end(actor)
                continue
            except BaseException:
                self._idle.put_nowait(actor)  # the environment has failed, not the actor
                raise
            self._idle.put_nowait(actor)
            return outcome
        raise WorkerDiedError("the actor of the environment died, and so did another one")

    async def close(self) -> None:
        """End the actors, and the cluster if it was started here and nobody else uses it."""
        for task in self._starting:
            task.cancel()
        for actor in list(self._actors):
            self._end(actor)
        if self._connected:
            self._connected = False
            await asyncio.to_thread(CLUSTER.leave)

    async def _free(self) -> Any:
        """Return an idle actor; another one is started if all are busy."""
        async with self._connecting:
            if not self._connected:
                demand = {"CPU": self.cpus, **self.resources}
                room = await asyncio.to_thread(CLUSTER.join, self.address, demand)
                self._connected, self.most = True, self.most or room
        if self._idle.empty() and self._started < (self.most or 1):
            self._started += 1
            task = asyncio.ensure_future(self._start())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
        found = await self._idle.get()
        if isinstance(found, BaseException):
            raise found
        return found

    async def _alive(self) -> Any:
        """Return an idle actor that is alive: others may have died with a node, unnoticed."""
        while True:
            actor = await self._free()
            try:
                await _outcome(actor, os.getpid)
            except _LostError:
                self._end(actor)
            else:
                return actor

    async def _start(self) -> None:
        """Start an actor. It may wait for room in the cluster; the others take the calls then."""
        import ray

        # One that dies is replaced here, where its calls are known.
        made = (
            ray.remote(_Caller)
            .options(max_restarts=0, num_cpus=self.cpus, resources=dict(self.resources))
            .remote(sys.path)
        )
        self._actors.add(made)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _outcome(made, *(self.warm_up or (os.getpid,)))
        except Exception as error:
            self._end(made)
            if isinstance(error, TimeoutError) and self._actors:
                return  # there are others, and no room for this one
            died = isinstance(error, _LostError | TimeoutError)
            self._idle.put_nowait(WorkerDiedError("no actor starts") if died else error)
        else:
            self._idle.put_nowait(made)

    def _end(self, actor: Any) -> None:
        import ray

        if actor in self._actors:
            self._actors.discard(actor)
            self._started -= 1
            ray.kill(actor)


async def _outcome(actor: Any, function: Callable[..., Any], *args: Any) -> Any:
    from ray.exceptions import RayActorError, RayError, RayTaskError

    try:
        return await asyncio.wrap_future(actor.call.remote(function, *args).future())
    except RayTaskError as error:  # whose message is a traceback
        raise error.cause from RemoteError(str(error))
    except RayActorError as error:
        raise _LostError from error
    except RayError as error:
        raise EnvError(f"the Ray cluster failed: {type(error).__name__}") from error


class _LostError(Exception):
    """An actor has died, with its node or alone."""


class RemoteError(EnvError):
    """The traceback of an error in an actor, as the cause of that error here."""


@define(eq=False)
class RayCluster:
    """The connection of this process, which all its users share: Ray has one for a process."""

    _users: int = 0
    _ours: bool = False  # whether it was made here
    _lock: threading.Lock = field(factory=threading.Lock)

    def join(self, address: str | None, demand: Mapping[str, float]) -> int:
        """Connect, and return how often the cluster has the demand. Raise EnvError if never."""
        import ray

        with self._lock:
            if not ray.is_initialized():
                _init(address)
                self._ours = True
            self._users += 1
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            rooms = [
                min(int(node.get(name, 0.0) / much) for name, much in demand.items() if much)
                if any(demand.values())
                else int(node.get("CPU", 1))
                for node in nodes
            ]
        if not sum(rooms):
            self.leave()
            wanted = ", ".join(f"{much:g} {name}" for name, much in demand.items())
            raise EnvError(f"no node of the Ray cluster has {wanted}")
        return sum(rooms)

    def leave(self) -> None:
        import ray

        with self._lock:
            self._users -= 1
            if not self._users and self._ours:
                self._ours = False
                ray.shutdown()


def _init(address: str | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if (match := _ADDRESS.fullmatch(address or "")) is not None:
            # Where nothing listens, Ray would try for minutes.
            socket.create_connection((match["host"], int(match["port"])), _REACH_SECONDS).close()
        if address is not None or os.environ.get("RAY_ADDRESS"):
            ray.init(address=address or "auto", **quiet)
            return
        # Ray reports the use of clusters that it starts, unless it is told not to.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        where = f"at {address}" if address else "on this machine"
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvError(f"there is no Ray cluster {where}: {reason}") from error


CLUSTER = RayCluster()
