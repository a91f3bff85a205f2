"""From a compiled recipe, or the folder of a sweep, to a running sweep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.compile import CompileResult, Sweep, find_sweep, load
from rlc.data import Reader
from rlc.plan import Plan
from rlc.pricing import plan_cost
from rlc.runtime import RunError, require_prices, require_roots, require_runnable
from rlc.service import require_service
from rlc.sweeps.folder import SweepFolder, begun_with
from rlc.sweeps.journal import SweepObserver, SweepSummary
from rlc.sweeps.search import optuna

if TYPE_CHECKING:
    from rlc.sweeps.run import SweepRun

_AT_ONCE = 4  # trials on a service, if nothing else is said


def open_sweep(
    base: Plan,
    sweep: Sweep,
    made_from: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    roots: Sequence[Path] = (),
) -> SweepRun:
    """Make the folder of a new sweep of a recipe, whose own plan is ``base``, if it can be run.
    ``made_from`` are the options of its compilation. ``path`` must not exist; it is by default
    ``runs/RECIPE-SWEEP-TIME``. ``jobs`` trials run at once, by default 4 on a service, 1 on this
    machine. A ``fresh`` sweep takes nothing from other runs, another also from those in ``roots``.
    Raise rlc.Error if a package, a key or a file is missing, or the folder cannot be written."""
    if not Path(base.recipe).is_file():
        raise RunError(
            "a sweep goes on from its recipe, and standard input is read once",
            "save the recipe in a file",
        )
    require_roots(roots)
    _prepare(base, sweep, base_url)
    options = {**made_from, "name": sweep.plan.name, "base_url": base_url}
    options |= {"fresh": fresh, "roots": [os.path.abspath(root) for root in roots]}
    folder = SweepFolder.create(None if path is None else Path(path), sweep, base, options)
    return _run_of(sweep, folder, base, base_url, jobs, options)


def compiled_again(path: Path) -> tuple[CompileResult, str]:
    """Compile the recipe of a sweep with the options that the sweep was begun with; return the
    sweep's name too. Raise RunError if there is no sweep in the folder."""
    recipe, options = begun_with(path)
    if not Path(recipe).is_file():
        raise RunError(f"the recipe of {path} is gone: {recipe}", "put it back to go on")
    names = ("overrides", "seed", "rehearse", "service", "folder")
    return load(recipe, **{name: options[name] for name in names}, reader=Reader()), options["name"]


def resume_sweep(
    run_dir: str | os.PathLike[str],
    base_url: str | None = None,
    jobs: int | None = None,
    observer: SweepObserver | None = None,
) -> SweepSummary:
    """Continue the sweep in a folder: trials that were interrupted or failed, and those that were
    not begun.

    Args:
        run_dir: the folder of the sweep.
        base_url: a server to use instead of the one that the sweep began on.
        jobs: trials at once, as in :func:`rlc.sweep`.
        observer: an object whose methods are called as the sweep proceeds.

    Raises:
        rlc.Error: the folder holds no sweep, another process is using it, or its recipe says
            something else by now.

    Example::

        rlc.resume_sweep("runs/learning_rates-rates-20261121-101500")
    """
    path = Path(run_dir)
    compiled, name = compiled_again(path)
    if compiled.plan is None:
        raise RunError(f"the recipe of {path} has errors by now", "`rlc check` shows them")
    sweep = find_sweep(compiled.sweeps, name, compiled.plan.recipe)
    return run_to_end(reopen_sweep(path, compiled.plan, sweep, base_url, jobs), observer)


def run_to_end(made: SweepRun, observer: SweepObserver | None = None) -> SweepSummary:
    """Run a sweep, and close its folder."""
    if observer is not None:
        made.observer = observer
    try:
        return made.run()
    finally:
        made.observer.close()
        made.folder.close()


def reopen_sweep(
    path: Path, base: Plan, sweep: Sweep, base_url: str | None = None, jobs: int | None = None
) -> SweepRun:
    """Open an earlier sweep. Raise RunError if its recipe was changed, budget aside."""
    begun = begun_with(path)[1]
    base_url = base_url or begun.get("base_url")
    _prepare(base, sweep, base_url)
    folder = SweepFolder.resume(path)
    try:
        folder.require_same(sweep, base)
    except RunError:
        folder.close()
        raise
    return _run_of(sweep, folder, base, base_url, jobs, begun)


def _prepare(base: Plan, sweep: Sweep, base_url: str | None) -> None:
    if sweep.plan.search.n is not None or sweep.plan.search.eta is not None:
        optuna()
    require_runnable(base)
    if sweep.plan.budget.usd is not None:
        require_prices(plan_cost(base), "the budget of the sweep")
    require_service(base, base_url)


def _run_of(
    sweep: Sweep,
    folder: SweepFolder,
    base: Plan,
    base_url: str | None,
    jobs: int | None,
    begun: Mapping[str, Any],
) -> SweepRun:
    import rlc.service.engine  # noqa: F401 (before anything imports torch)
    from rlc.sweeps.run import SweepRun

    # On this machine trials would share its cores, and each is fastest alone.
    here = not any(stage.model.hosted for stage in base.stages)
    roots = tuple(map(Path, begun.get("roots", ())))
    reuses = begun.get("fresh", False), roots
    return SweepRun(sweep, folder, base_url, jobs or (1 if here else _AT_ONCE), *reuses)
