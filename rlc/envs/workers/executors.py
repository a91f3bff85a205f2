"""Calls made by an executor of the user's own: of ``concurrent.futures``, Ray's or Dask's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor
from typing import Any

from attrs import define, field

from rlc.chat import EnvError
from rlc.envs.deadlines import place, waiting
from rlc.envs.workers.processes import WorkerDiedError


@define(eq=False)
class ExecutorWorkers:
    """One executor, made with the first call, and made again when it breaks.

    All calls of an executor fail when it breaks, and it does not say which of them broke it. So
    each is made again, with no other beside it: only the call that breaks the next executor has
    failed. ``most`` limits the concurrent calls; None leaves that to the executor.
    """

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
        executor = self._executor
        if executor is None:
            executor = self.make()
            if not callable(getattr(executor, "submit", None)):
                kind = type(executor).__name__
                raise EnvError(f"the executor of `workers()` has no `submit`: it is of type {kind}")
            self._executor = executor
        future = None
        try:
            future = executor.submit(function, *args)
            return await asyncio.wrap_future(future)
        except BrokenExecutor:
            self._abandon(executor)
            raise
        except asyncio.CancelledError:
            if future is not None and not future.cancelled():
                self._abandon(executor)  # its worker may never come back
            raise

    def _abandon(self, executor: Executor | None) -> None:
        """Let the executor finish its calls; the next call makes another executor."""
        if executor is not None and self._executor is executor:
            self._executor = None
            executor.shutdown(wait=False)  # Dask's takes no other argument
