"""What jobs cost, from Python: before they run, after, and after a change of their recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.api import Recipe, RecipeError, is_saved_plan, plan_of, seen
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.explanation import RecipeChange
    from rlc.plan import Plan
    from rlc.proof import ProbeResult
    from rlc.report import RunBill
    from rlc.runtime import Observer


def probe(
    job: Plan | Recipe | str | os.PathLike[str],
    groups: int | None = None,
    budget: float | None = None,
    base_url: str | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
) -> ProbeResult:
    """Run a few episodes of each environment of a job with its real model, and train nothing.

    What was seen is kept in the folder ``runs``, and :meth:`Recipe.explain` prices the job from it.
    A second probe of the same plays nothing; one that was interrupted goes on.

    Args:
        job: a recipe, a plan, or the path of either.
        groups: how many groups of each environment are played, at most; 16 by default.
        budget: what it may spend in USD; by default the smaller of 1 % of the job's expected cost
            and $1. What is billed for nothing has no budget.
        base_url: the address of a Tinker server to use instead of the hosted service.
        fresh: play, even if that was played before.
        observer: an object whose methods are called as episodes are played.

    Raises:
        rlc.RecipeError: the recipe has errors.
        rlc.Error: no stage plays episodes; a price is unknown; there is no key; the service failed,
            or the budget has no room for one group. What was played is kept.

    Example::

        result = rlc.probe("recipes/quickstart.rl", groups=4)
        for finding in result.findings:
            print(finding)
        if not result.stops:
            rlc.run("recipes/quickstart.rl")
    """
    from rlc.proof import GROUPS, run_probe

    if groups is not None and groups < 1:
        raise Error("a probe plays at least one group of each environment")
    return run_probe(plan_of(job), groups or GROUPS, budget, base_url, fresh, observer)


def bill(
    *runs: str | os.PathLike[str],
    base_url: str | None = None,
    usage: str | os.PathLike[str] | None = None,
    ask: bool = True,
) -> list[RunBill]:
    """Return what runs were expected to cost, what they have metered, and what is billed of them.

    Args:
        runs: folders of runs, or of sweeps.
        base_url: the address of the Tinker server, if it is another than the runs noted.
        usage: a file with answers of Tinker's API about usage, instead of asking it.
        ask: whether the service is asked; nothing is billed without.

    Raises:
        rlc.Error: there is no such run, or the file cannot be read. A service that cannot say what
            it has billed is no error: ``unbilled`` of a bill says why.

    Example::

        (bill,) = rlc.bill("runs/sudoku-20261121-093000")
        print(bill.predicted_usd["expected"], bill.metered_usd, bill.billed_usd, bill.discarded)
    """
    from rlc.report import bill_of_run, folders_of

    file = None if usage is None else Path(usage)
    folders = folders_of([Path(run) for run in runs])
    return [bill_of_run(folder, base_url, file, ask) for folder in folders]


def change_since(recipe: Recipe, base: str | os.PathLike[str]) -> RecipeChange:
    """Return what differs from an earlier version of a recipe, compiled with the same settings.

    Args:
        recipe: the recipe as it is.
        base: a commit, branch or tag of its repository, another recipe, a saved plan, or a run.

    Raises:
        RecipeError: the other recipe has errors.
        rlc.Error: there is no such version.

    Example::

        print(rlc.change_since(rlc.load("recipes/sudoku.rl"), "main").to_dict())
    """
    from contextlib import nullcontext

    from rlc.catalog import paths_in
    from rlc.compile import CompileResult, read_plan, recipe_at
    from rlc.explanation import recipe_change
    from rlc.lang import Diagnostics
    from rlc.plan import located
    from rlc.report import read_plan as read_run_plan

    name, now = os.fspath(base), recipe.compile()
    if os.path.isdir(name) or (os.path.isfile(name) and is_saved_plan(name)):
        saved = read_run_plan(Path(name)) if os.path.isdir(name) else read_plan(name).plan
        before = CompileResult(saved, Diagnostics())
        audits = _audits(saved, saved.recipe, recipe.path), _audits(now.plan, recipe.path)
        return recipe_change(recipe.path, name, before, now, None, seen, audits)
    plan = now.plan or now.unmet
    also = [located(path, recipe.path) for path in paths_in(plan)] if plan else []
    is_file = os.path.isfile(name)
    with nullcontext(name) if is_file else recipe_at(recipe.path, name, also) as path:
        earlier = evolve(recipe, path=path).compile() if path is not None else None
        made = None if earlier is None else earlier.plan or earlier.unmet
        audited = _audits(made, path or "", recipe.path)
        if earlier is not None and earlier.plan is not None and not is_file:
            earlier = evolve(earlier, plan=_placed_at(earlier.plan, recipe.path, name))
        if is_file and earlier is not None and earlier.plan is None:
            raise RecipeError(earlier.diagnostics)
        sweeps = None if earlier is None else (earlier.sweeps, now.sweeps)
        audits = audited, _audits(plan, recipe.path)
        return recipe_change(recipe.path, name, earlier, now, sweeps, seen, audits)


def _audits(plan: Plan | None, recipe: str, beside: str | None = None) -> Mapping[str, int | None]:
    """Return how many findings the audits of a plan's environments have."""
    from rlc.catalog import audited, environments_of

    return {} if plan is None else audited(environments_of(plan), recipe, beside)


def _placed_at(plan: Plan, recipe: str, revision: str) -> Plan:
    """Return the plan of a copy of a recipe, whose values come from a revision of its own files."""
    copy, own = (os.path.join(os.path.dirname(path), "") for path in (plan.recipe, recipe))
    found = plan.provenance.items()
    places = {path: at.replace(copy, f"{revision}:{own}") for path, at in found}
    return evolve(plan, provenance=places)
