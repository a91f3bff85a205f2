"""Worker processes, and executors of the user's own: of ``concurrent.futures``, Ray's or Dask's."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import suppress
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
        """Return what the function returns, or raise what it raises. Raise WorkerDiedError if its
        process dies. A call that is cancelled ends with its process, which is then replaced."""
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
