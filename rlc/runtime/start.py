"""From a plan, or the folder of a run, to a running job: what `rlc run` and Python share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rlc.plan import CHECKPOINTS_FOLDER, Plan, difference_lines, plan_hash
from rlc.runtime.guard.limits import NOTHING_LEARNT
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.locks import command
from rlc.runtime.observer import Observer
from rlc.runtime.preflight import require_runnable
from rlc.runtime.records import RunError
from rlc.runtime.summary import Summary
from rlc.service import ServiceClient, connect_service, require_service


def run_plan(
    plan: Plan,
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Run a plan that the rules have found nothing wrong with; see :func:`rlc.api.run`."""
    folder = None if run_dir is None else Path(run_dir)
    return _require_success(
        _run_to_end(lambda: open_run(plan, folder, base_url), base_url, False, observer)
    )


def resume(
    run_dir: str | os.PathLike[str], base_url: str | None = None, observer: Observer | None = None
) -> Summary:
    """Continue the run in a folder; it ends as an uninterrupted run would.

    Args:
        run_dir: the folder of the run. A run that has finished returns at once.
        base_url: a server to use instead of the one that the run began on.
        observer: an object whose methods are called as the run proceeds.

    Raises:
        rlc.Error: the folder holds no run, another process is using it, its plan was changed, the
            run failed again, or nothing was learnt.
        rlc.ExpectationError: something fails that the recipe expects of the run.

    Example::

        rlc.resume("runs/quickstart-20261121-101500")
    """
    return _require_success(
        _run_to_end(lambda: RunFolder.resume(Path(run_dir)), base_url, True, observer)
    )


class ExpectationError(RunError):
    """A run that is over, and of which an expectation of its recipe fails.

    Attributes:
        summary: the :class:`rlc.Summary` of the run; its ``unmet`` are what does not hold.
    """

    def __init__(self, summary: Summary) -> None:
        lines = (f"expected {one.text}: {one.said}" for one in summary.unmet)
        super().__init__("\n".join(lines), f"the run is saved in {summary.folder}")
        self.summary = summary


def _require_success(summary: Summary) -> Summary:
    """Return the summary of a run. Raise RunError if a stage of it has ended in vain, or an
    expectation does not hold."""
    if summary.state == NOTHING_LEARNT:
        look = f"`{command('show', summary.folder)}` prints its episodes"
        raise RunError(f"nothing was learnt: {summary.cause}", look)
    if summary.unmet:
        raise ExpectationError(summary)
    return summary


def open_run(plan: Plan, run_dir: Path | None = None, base_url: str | None = None) -> RunFolder:
    """Create a run folder, once the plan can be run and its service is known to be usable.

    Raise RunError or ServiceError otherwise.
    """
    require_runnable(plan)
    require_service(plan, base_url)
    return RunFolder.create(run_dir, plan)


def resume_run(run_dir: Path, plan: Plan | None = None) -> RunFolder:
    """Open the folder of an earlier run; ``plan`` is what its recipe says now, if it was given.

    Raise RunError if that differs from the plan of the run, with the differences.
    """
    folder = RunFolder.resume(run_dir)
    if plan is not None and (changes := difference_lines(folder.recorded, plan)):
        folder.close()
        raise RunError(
            f"the recipe says something else than what {run_dir} was begun with\n"
            + "\n".join(changes),
            f"`{command('run --resume', run_dir)}` goes on with the plan that was begun; without "
            "--resume the recipe is a new run",
        )
    return folder


def connect_run(folder: RunFolder, base_url: str | None, resumed: bool) -> ServiceClient:
    """Connect to the service of a run; a resumed run returns to the server that it began on.

    Raise ServiceError if the service cannot be used.
    """
    base_url = base_url or folder.journal.meta("server")
    checkpoints = folder.path / CHECKPOINTS_FOLDER
    if resumed:
        require_service(folder.plan, base_url)
    if resumed and checkpoints.is_dir():  # a process that was killed may have left parts of some
        from rlc.service import CheckpointStore

        CheckpointStore(checkpoints).delete_all_but(folder.journal.saved_paths())
    metadata = {"rlc_run": folder.path.resolve().name, "rlc_plan": plan_hash(folder.recorded)}
    return connect_service(folder.plan, checkpoints, base_url, metadata)


def _run_to_end(
    open_folder: Callable[[], RunFolder],
    base_url: str | None,
    resumed: bool,
    observer: Observer | None,
) -> Summary:
    """Run the job of a folder, in another thread if this one has a running event loop."""
    import rlc.service.engine  # noqa: F401 (before anything imports torch)
    from rlc.runtime.job import Job

    jobs: list[Job] = []

    def work() -> Summary:
        folder, to = open_folder(), observer or Observer()
        try:
            jobs.append(Job(folder, connect_run(folder, base_url, resumed), to))
            return asyncio.run(jobs[0].run())
        except Exception as error:
            if folder.close_failed():
                kept = str(folder.path)
                error.add_note(f"what was done is kept: `rlc.resume({kept!r})` continues the run")
            raise
        finally:
            to.close()
            folder.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            for job in jobs:
                job.stop()
            return future.result()
