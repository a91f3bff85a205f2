"""From a plan, or the folder of a run, to a running job, after a look at what the plan needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rlc.catalog import (
    DOTENV,
    WeightsError,
    code_of_data,
    find_weights,
    functions_of,
    is_run_weights,
    located_files,
    provide_keys,
)
from rlc.catalog.packages import described, lacking, name_of, too_new
from rlc.catalog.requirements import Requirement, requirements
from rlc.data import DataError, load_attribute, require_fits, search_beside, signature_of
from rlc.envs import source_problems
from rlc.plan import (
    CHECKPOINTS_FOLDER,
    ModelState,
    Plan,
    StagePlan,
    build_graph,
    difference_lines,
    evaluations_of,
    plan_hash,
)
from rlc.plan.leaves import asked_models, children_of
from rlc.pricing import STATE_PRICES, StageCost, judged_before, stage_costs, unknown_prices
from rlc.runtime.journal.folder import RunFolder, command
from rlc.runtime.journal.runs import NOTHING_LEARNT
from rlc.runtime.records import RunError
from rlc.runtime.reuse.store import find_reuse, require_roots
from rlc.runtime.reuse.take import begin_with, still_known
from rlc.runtime.summary import Observer, Summary
from rlc.service import ServiceClient, connect_service, require_service, require_states


def require_runnable(plan: Plan) -> None:
    """Raise RunError if a need of a plan is missing, before a folder is made or a token is paid.
    The plan itself was checked by the rules, which see its stages: the graph has to be theirs."""
    if plan.graph.edges != build_graph(plan.stages).edges:
        raise RunError(
            "the job graph is not that of the stages: they were changed, or another rlc made it",
            "compile the recipe again; in Python, `build_graph(plan.stages)` of `rlc.plan.graph` "
            "makes it anew",
        )
    if not plan.rehearses:
        for one, judged in judged_before(plan):
            if judged.holds is False:
                raise RunError(
                    f"`expect {judged.text}` fails: {judged.said}",
                    "change the plan, or what is expected of it"
                    if one.quantity.kind == "value"
                    else "`rlc explain` shows what it is made of",
                )
    provide_keys(plan)
    plan = located_files(plan)
    for stage in (one for one in plan.trainings if one.budget.usd is not None):
        counted: list[StagePlan] = [stage, *evaluations_of(stage, plan.stages)]
        require_prices(stage_costs(counted), f"the budget of stage `{stage.name}`")
    needed = requirements(plan)
    files = (one for one in needed if one.kind == "file" and not os.path.isfile(one.name))
    lost = [f"there is no file {one.name}, which `{one.by.strip('`')}` reads" for one in files]
    if lost:
        raise RunError("; ".join(dict.fromkeys(lost)))
    _require_packages(needed)  # without them nothing else can be tried
    envs = [env for stage in plan.stages for env in stage.environments]
    problems = [*_data_code(plan), *_weights(plan), *_missing_keys(needed)]
    if found := list(dict.fromkeys([*problems, *source_problems(envs, plan.recipe)])):
        raise RunError("; ".join(found))


def require_prices(costs: Iterable[StageCost], budget: str) -> None:
    """Raise RunError if a budget in dollars of stages with these costs cannot be kept."""
    if (why := unknown_prices(costs)) is not None:
        raise RunError(f"{budget} cannot be kept: {why}", STATE_PRICES)


def _require_packages(needed: Sequence[Requirement]) -> None:
    """Raise RunError for packages that are not installed, with the command that installs them."""
    absent, extras, others = list[str](), set[str](), dict[str, None]()
    by = dict[str, dict[str, None]]()
    for one in needed:
        if one.kind != "package" or (wrong := lacking(one.name)) is None:
            continue
        absent.append(one.name)
        who = one.by if "`" in one.by else f"`{one.by}`"
        by.setdefault(who, {})[named := described(one.name, wrong)] = None
        if one.extra and named == name_of(one.name):
            extras.add(one.extra)
        else:  # what is too old stays as it is with an extra alone
            others[f"'{one.name}'" if ">=" in one.name else one.name] = None
    if not absent:
        return
    what = "; ".join(f"{who} needs {', '.join(names)}" for who, names in by.items())
    extra = [f"'rlc[{','.join(sorted(extras))}]'"] if extras else []
    install = " ".join([*extra, *others])
    other = dict.fromkeys(filter(None, map(too_new, absent)))
    raise RunError(f"packages are missing: {what}", "; ".join([*other, f"pip install {install}"]))


def _missing_keys(needed: Sequence[Requirement]) -> Iterator[str]:
    """Yield keys that trackers miss; others are tried where their services open."""
    for one in needed:
        is_given = one.instead or os.environ.get(one.name)
        if one.kind == "key" and one.path.endswith(".track") and not is_given:
            yield f"{one.by} needs {one.name} in the environment or in {DOTENV}"


def _data_code(plan: Plan) -> Iterator[str]:
    """Yield problems of Python code that makes the data of stages, or is called by them."""
    search_beside(plan.recipe)
    made = (code for s in plan.stages for code in filter(None, map(code_of_data, s.data)))
    called = (code for s in plan.stages for _, code in functions_of(children_of(s) or {}))
    for code in (*made, *called):
        try:
            require_fits(code, signature_of(load_attribute(code.target)))
        except DataError as error:
            yield str(error)


def _weights(plan: Plan) -> Iterator[str]:
    """Yield problems of weights of other runs: lost ones, and those on another service."""
    for stage in plan.stages:
        states = (ModelState(stage.model, stage.after), *(s for _, s in asked_models(stage)))
        for model in (state.model for state in states if state.after is None):
            if model.weights is None or not is_run_weights(model.weights):
                continue
            try:
                service = find_weights(model.weights).service
            except WeightsError as error:
                yield f"the weights of `{model.name}`: {error}"
                continue
            if service != model.service:
                yield (
                    f"the weights of `{model.name}` are of the service `{service}`, and it is on "
                    f"`{model.service}`"
                )


def run_plan(
    plan: Plan,
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    observer: Observer | None = None,
    fresh: bool = False,
) -> Summary:
    """Run a plan that has no errors; see :func:`rlc.api.run`."""
    folder = None if run_dir is None else Path(run_dir)
    return _require_success(
        _run_to_end(lambda: open_run(plan, folder, base_url, fresh), base_url, False, observer)
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
    """A run that is over, and fails an expectation of its recipe.

    Attributes:
        summary: the :class:`rlc.Summary` of the run, with the failed expectations as ``unmet``.
    """

    def __init__(self, summary: Summary) -> None:
        lines = (f"expected {one.text}: {one.said}" for one in summary.unmet)
        super().__init__("\n".join(lines), f"the run is saved in {summary.folder}")
        self.summary = summary


def _require_success(summary: Summary) -> Summary:
    """Return the summary. Raise RunError if nothing was learnt or an expectation fails."""
    if summary.state == NOTHING_LEARNT:
        look = f"`{command('show', summary.folder)}` prints its episodes"
        raise RunError(f"nothing was learnt: {summary.cause}", look)
    if summary.unmet:
        raise ExpectationError(summary)
    return summary


def open_run(
    plan: Plan,
    run_dir: Path | None = None,
    base_url: str | None = None,
    fresh: bool = False,
    roots: Sequence[Path] = (),
    own: Collection[str] | None = None,
) -> RunFolder:
    """Create a run folder, which begins with what other runs have finished, unless it is ``fresh``.

    Args:
        plan: what to run.
        run_dir: the folder, which must not exist; ``runs/NAME-TIME`` by default.
        base_url: a server in place of the hosted service.
        fresh: whether to take nothing from other runs.
        roots: folders of runs to take from, beside ``runs``.
        own: the stages that may be run; None: all. The others have to be there.

    Raises:
        RunError: the plan cannot be run, a stage that is not its ``own`` is in no other run, or one
            of the ``roots`` is not there.
        ServiceError: its service cannot be used from here.
    """
    require_roots(roots)
    require_runnable(plan)
    require_service(plan, base_url)
    require_states(plan, base_url)
    reuse = find_reuse(plan, roots, base_url, fresh)
    for stage in plan.stages:
        if own is not None and stage.name not in own and not reuse.whole(stage.name):
            named, why = ", ".join(f"`{name}`" for name in own), reuse.found[stage.name].why
            needs = "needs" if len(own) == 1 else "need"
            cause = f"nobody can say what it is: {why}" if why else "no run has finished it exactly"
            if fresh or plan.rehearses:
                cause = f"{'--fresh' if fresh else 'a rehearsal'} takes nothing from other runs"
            raise RunError(
                f"{named} {needs} the weights that `{stage.name}` leaves, and {cause}",
                "leave --fresh out" if fresh else f"run `{stage.name}` too",
            )
    folder = RunFolder.create(run_dir, plan)
    try:
        begin_with(folder, reuse)
    except BaseException:
        folder.close_failed()
        raise
    return folder


def resume_run(run_dir: Path, plan: Plan | None = None) -> RunFolder:
    """Open the folder of an earlier run. Raise RunError if its recipe has another ``plan`` now."""
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
    """Connect to the service of a run, by default the one it began on, or raise ServiceError."""
    provide_keys(folder.plan)
    begun = folder.journal.meta("server") or ""  # a client that knows its address has a name there
    if resumed:
        still_known(folder, base_url)
    base_url = base_url or (begun if "://" in begun else None)
    checkpoints = folder.path / CHECKPOINTS_FOLDER
    if resumed:
        require_service(folder.plan, base_url)
    if resumed and checkpoints.is_dir():  # a process that was killed may have left parts of some
        from rlc.service import CheckpointStore

        CheckpointStore(checkpoints).delete_all_but(folder.journal.saved_paths())
    metadata = {"rlc_run": folder.path.resolve().name, "rlc_plan": plan_hash(folder.recorded)}
    metadata |= {"rlc_id": known} if (known := folder.journal.meta("id")) else {}
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

    def stop() -> None:
        for job in jobs:
            job.stop()

    return _outside_of_loops(work, stop)


def play_few_episodes(
    folder: RunFolder, base_url: str | None, usd: float | None, observer: Observer
) -> None:
    """Play the evaluations in a new or resumed folder, each task as a group, within ``usd`` (None:
    nothing limits them), and close it. What was played is kept if that fails."""
    import rlc.service.engine  # noqa: F401 (before anything imports torch)
    from rlc.runtime.stages.few_episodes import FewEpisodes

    def work() -> None:
        try:
            service = connect_run(folder, base_url, resumed=False)
            asyncio.run(FewEpisodes(folder, service, observer, usd).run())
        except BaseException as error:
            failed = isinstance(error, Exception)
            folder.set_state("failed" if failed else "interrupted", str(error).partition("\n")[0])
            if folder.close_failed():
                error.add_note(f"what was played is kept in {folder.path}: another probe goes on")
            raise
        finally:
            observer.close()
            folder.close()

    _outside_of_loops(work, lambda: None)


_T = TypeVar("_T")


def _outside_of_loops(work: Callable[[], _T], interrupted: Callable[[], None]) -> _T:
    """Return what ``work`` returns, in another thread if this one has a running event loop, where
    an interrupt calls ``interrupted``."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            interrupted()
            return future.result()
