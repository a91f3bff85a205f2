"""One trial of a sweep: its job in a thread, the stages that it shares with others, and its metric.

Shared stages are run once, and copied with their journal and checkpoints. A trial's folder then
looks as if it had run these stages itself, and its plan is complete: it can be resumed and reported
like any other run. What they cost stays where they ran.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from rlc.errors import Error
from rlc.plan import CHECKPOINTS_FOLDER, JOURNAL_FILE, LOCAL, MeasurePlan, Plan, build_graph
from rlc.runtime import (
    FAILURES_FILE,
    ROLLOUTS_FILE,
    TIMELINE_FILE,
    TOKENS_FILE,
    Job,
    Journal,
    Observer,
    RunFolder,
    Summary,
    connect_run,
    window_mean,
)
from rlc.service import RemoteService


class JobStoppedError(Error):
    """A job was stopped at once, in the middle of a step."""


@define(eq=False)
class StoppableJob:
    """Runs a job, which other threads can stop, even before it runs."""

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
        """End the job now; its newest checkpoint can be resumed."""
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


def shared_part(plan: Plan, of: str) -> Plan | None:
    """Return the plan of the stages before ``of``, which is tried; None if there are none. What is
    expected is expected of the whole trial."""
    stages = tuple(s for s in plan.trainings if s.name != of)
    if not stages:
        return None
    names = tuple(f"stages.{stage.name}." for stage in stages)
    origins = {k: v for k, v in plan.provenance.items() if k == "seed" or k.startswith(names)}
    graph = build_graph(stages)
    return evolve(plan, stages=stages, graph=graph, provenance=origins, expectations=())


def create(path: Path, plan: Plan, shared: Path | None, names: Sequence[str] = ()) -> None:
    """Make the run folder of a trial, complete or not at all; its stages ``names`` are done, as in
    the finished run in ``shared``, if there is one."""
    partial = path.with_name(f".{path.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    with closing(RunFolder.create(partial, plan)) as folder:
        if shared is not None:
            folder.journal.take(shared / JOURNAL_FILE, names)
            for name in (ROLLOUTS_FILE, TOKENS_FILE, TIMELINE_FILE, FAILURES_FILE):
                if (shared / name).exists():
                    shutil.copyfile(shared / name, partial / name)
            if plan.stages[0].model.service == LOCAL:  # a service keeps its own checkpoints
                shutil.copytree(shared / CHECKPOINTS_FOLDER, partial / CHECKPOINTS_FOLDER)
    partial.rename(path)


def own_stages(plan: Plan, of: str) -> Sequence[str]:
    """Return the names of the stages that a trial runs itself."""
    return [s.name for s in plan.stages if s.name == of or not s.trains]


def values_on_the_way(journal: Journal, metric: MeasurePlan) -> list[tuple[int, float]]:
    """Return the metric after each step that has it."""
    return [
        (stored.step, float(stored.metrics[metric.key]))
        for stored in journal.steps(metric.stage)
        if metric.key in stored.metrics
    ]


def value_of(journal: Journal, metric: MeasurePlan, plan: Plan, of: str) -> float | None:
    """Return the value of a finished trial: of the evaluation after its last step, or the mean of
    its own measure over its last steps (:func:`rlc.runtime.summary.window_size`); None if it was
    not measured."""
    found = values_on_the_way(journal, metric)
    if metric.stage == of:
        return window_mean([value for _, value in found], last=True)
    (steps,) = (s.steps for s in plan.trainings if s.name == of)
    return dict(found).get(steps)
