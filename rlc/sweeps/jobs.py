"""One job in a thread of its own, which others can stop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from attrs import define, field

from rlc.errors import Error
from rlc.runtime import Job, Observer, RunFolder, Summary, connect_run
from rlc.service import RemoteService


class JobStoppedError(Error):
    """A job was stopped at once, in the middle of a step."""


@define(eq=False)
class StoppableJob:
    """Runs a job, or none if it was stopped before."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _stopping: bool = field(default=False, init=False)
    _job: Job | None = field(default=None, init=False)
    _running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = field(
        default=None, init=False
    )

    def stop(self) -> None:
        """End the job with a checkpoint after the running step."""
        with self._lock:
            self._stopping = True
            if self._job is not None:
                self._job.stop()

    def cancel(self) -> None:
        """End the job now; it can be gone on with from its newest checkpoint."""
        self.stop()
        with self._lock:
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    def run(self, folder: RunFolder, base_url: str | None, observer: Observer) -> Summary:
        """Run what is left of the job of a folder. Raise JobStoppedError if it was cancelled."""
        service = connect_run(folder, base_url, resumed=True)
        try:
            job = Job(folder, service, observer)
            with self._lock:
                self._job = job
                if self._stopping:
                    job.stop()
            return asyncio.run(self._run(job))
        except asyncio.CancelledError as error:
            raise JobStoppedError("it was stopped at once") from error
        finally:
            with self._lock:
                self._job = self._running = None
            if not isinstance(service, RemoteService):  # the job closes that
                close: Any = getattr(service, "close", None)
                close()

    async def _run(self, job: Job) -> Summary:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._running = asyncio.get_running_loop(), task
        return await job.run()
