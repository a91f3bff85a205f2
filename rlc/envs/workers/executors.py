"""Calls made by an executor of one's own: any of ``concurrent.futures``, Ray's or Dask's too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import BrokenExecutor, Executor
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from rlc.envs.base import EnvError
from rlc.envs.deadlines import waiting
from rlc.envs.workers.processes import WorkerDiedError


@define(eq=False)
class ExecutorWorkers:
    """One executor, made with the first call, and anew where it broke.

    When an executor breaks, so do all its calls, and it does not say which of them is to blame.
    So each is made again, with no other beside it: only the one that breaks the next executor has
    failed. ``most`` limits the calls at a time; None: the executor sees to that.
    """

    make: Callable[[], Any]
    most: int | None = None
    _executor: Executor | None = field(default=None, init=False)
    _places: asyncio.Semaphore | None = field(default=None, init=False)
    _suspects: int = field(default=0, init=False)
    _alone: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _cleared: asyncio.Event = field(factory=asyncio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._cleared.set()
        self._places = None if self.most is None else asyncio.Semaphore(self.most)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function gives, or raises. Raises WorkerDiedError if its worker dies. A call
        that is cancelled while it runs is left behind with its executor."""
        async with self._place():
            try:
                return await self._made(function, args)
            except BrokenExecutor:
                return await self._again(function, args)

    async def close(self) -> None:
        """Let go of the executor."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)  # Dask's can be asked for no more

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        with waiting():
            if self._places is not None:
                await self._places.acquire()
            await self._cleared.wait()
        try:
            yield
        finally:
            if self._places is not None:
                self._places.release()

    async def _again(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._suspects += 1
        self._cleared.clear()
        try:
            with waiting():
                await self._alone.acquire()
            try:
                return await self._made(function, args)
            finally:
                self._alone.release()
        except BrokenExecutor as error:
            raise WorkerDiedError("the worker of the environment died") from error
        finally:
            self._suspects -= 1
            if not self._suspects:
                self._cleared.set()

    async def _made(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        executor = self._current()
        future = None
        try:
            future = executor.submit(function, *args)
            return await asyncio.wrap_future(future)
        except BrokenExecutor:
            self._leave(executor)
            raise
        except asyncio.CancelledError:
            if future is not None and not future.cancelled():
                self._leave(executor)  # its worker may never come back
            raise

    def _current(self) -> Executor:
        if self._executor is None:
            made = self.make()
            if not callable(getattr(made, "submit", None)):
                kind = type(made).__name__
                raise EnvError(f"the executor of `workers()` has no `submit`: it is of type {kind}")
            self._executor = made
        return self._executor

    def _leave(self, executor: Executor) -> None:
        """The next call gets a new one; what this one still does, it may finish."""
        if self._executor is executor:
            self._executor = None
            executor.shutdown(wait=False)
