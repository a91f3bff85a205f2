"""Waiting for the service, without blocking the event loop and not forever."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import define, field

from rlc.plan.units import elapsed
from rlc.service.errors import ServiceError, ServiceLostError
from rlc.service.hosted.refusals import translate

if TYPE_CHECKING:
    from tinker import APIFuture

# The SDK waits an hour for an account that is paused for its billing; its own message about that
# should come first.
PATIENCE_SECONDS = 75 * 60.0

T = TypeVar("T")


@define(eq=False)
class Patience:
    """How long a service may be silent, over all requests, before a run stops waiting.

    A service with a full queue accepts requests and answers none. ``last_word`` is its message
    about the queue. ``pause`` returns until when the SDK holds samples back, after one was refused
    as too many; ``pressed`` is called when that has happened again.
    """

    where: str
    seconds: float = PATIENCE_SECONDS
    last_word: str = ""
    pause: Callable[[], float | None] = lambda: None
    pressed: Callable[[], None] = lambda: None
    _paused: float | None = field(default=None, init=False)
    _heard: float = field(factory=time.monotonic)

    def heard(self) -> None:
        """The service has answered something."""
        self._heard = time.monotonic()
        if (paused := self.pause()) != self._paused:
            self._paused = paused
            self.pressed()

    def left(self, asked: float) -> float:
        """Seconds until a request made at ``asked`` (monotonic) is abandoned."""
        return max(self._heard, asked) + self.seconds - time.monotonic()

    def lost(self) -> ServiceLostError:
        why = self.last_word or "its queue may be full"
        return ServiceLostError(
            f"{self.where} has answered nothing for {elapsed(self.seconds)}: {why}",
            "the run can be resumed later",
        )


@define(eq=False)
class Reply(Generic[T]):
    """The answer to a request that is already on its way; awaiting it raises ServiceError."""

    _future: APIFuture[T]
    _patience: Patience
    _translate: Callable[[BaseException, str], ServiceError] = translate
    _asked: float = field(factory=time.monotonic)

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        task = asyncio.ensure_future(self._future.result_async())
        try:
            while not task.done():
                left = self._patience.left(self._asked)
                if left <= 0:
                    raise self._patience.lost()
                await asyncio.wait([task], timeout=left)
            answer = task.result()
        except Exception as error:
            raise self._translate(error, self._patience.where) from error
        finally:
            task.cancel()
        self._patience.heard()
        return answer


def submit(
    ask: Callable[[], APIFuture[T]],
    patience: Patience,
    explain: Callable[[BaseException, str], ServiceError] = translate,
) -> Reply[T]:
    """Make a request now; ``explain`` what the SDK raises instead of an answer. Raise ServiceError
    if the SDK does not even send it."""
    try:
        return Reply(ask(), patience, explain)
    except Exception as error:
        raise translate(error, patience.where) from error


def start_thread(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Run blocking work in a daemon thread, which does not keep the program from ending."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # it has begun, so it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="rlc-tinker", daemon=True).start()
    return future


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread of its own, and return its result."""
    return await asyncio.wrap_future(start_thread(work))
