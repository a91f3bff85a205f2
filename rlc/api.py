"""Recipes and plans from Python; ``rlc`` exports the names, and ``help(rlc)`` has an example."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rlc.errors import Error
from rlc.lang import STDIN, read_source
from rlc.plan import RUNS_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from rlc.compile import CompileResult, Sweep
    from rlc.explanation import Format
    from rlc.lang import Diagnostics
    from rlc.models import TrainedSummary
    from rlc.plan import Plan
    from rlc.pricing import Seen
    from rlc.pricing.critical_path import Latencies
    from rlc.replays import Replay
    from rlc.runtime import Observer, ReusedStage
    from rlc.sweeps import SweepObserver, SweepSummary

# What a name can be set to. A string is written into the recipe as it is: "rloo()", "10".
Setting = str | int | float | bool | None | Sequence["Setting"]


class RecipeError(Error, ValueError):
    """A recipe with errors. The message is what `rlc check` prints.

    Attributes:
        diagnostics: the errors and warnings, in order of their places.
    """

    def __init__(self, diagnostics: Diagnostics) -> None:
        from rlc.lang.render import render_human

        super().__init__(render_human(diagnostics, color=False))
        self.diagnostics = diagnostics


@frozen
class Recipe:
    """A recipe in a file, with values that are set from outside; :func:`rlc.load` makes one. Each
    method reads the file again. A notebook shows the explanation.

    Attributes:
        path: the file, or ``-`` for standard input.
        overrides: what is set, as ``("main.steps=10",)``.
        seed: the seed of every random choice, or None for the default, 1.
        rehearse: whether the job is a small and short one on the tiny model.
        service: ``"local"``, a provider such as ``"tinker"``, or None for the model's own service.
    """

    path: str
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    rehearse: bool = False
    service: str | None = None

    def compile(self, data: bool = True, imports: bool = False) -> CompileResult:
        """Return the plan, which is None if there are errors, with all diagnostics.

        Args:
            data: whether the data that the recipe names is read and checked too, for about a
                second at most.
            imports: whether the Python code that it names is also imported and tried, in processes
                of its own; only with ``data``.

        Raises:
            rlc.compile.variants.ServiceMismatchError: the service does not have the model.
        """
        from rlc.compile import load
        from rlc.data import Reader

        reader = Reader(imports=imports) if data else None
        settings = (self.overrides, self.seed, self.rehearse, self.service)
        return load(self.path, *settings, reader=reader)

    def options(self) -> dict[str, Any]:
        """Return what the recipe is compiled with, to compile it again."""
        names = ("overrides", "seed", "rehearse", "service")
        return {name: getattr(self, name) for name in names} | {"folder": os.getcwd()}

    def check(self, data: bool = True, imports: bool = False) -> Diagnostics:
        """Return all errors and warnings, as `rlc check` prints them; ``data`` and ``imports`` as
        of :meth:`compile`. Each has ``code``, ``severity``, ``message``, ``span`` and ``help``.
        """
        return self.compile(data, imports).diagnostics

    def plan(self) -> Plan:
        """Return the plan: every value decided, ready to be run or saved.

        Raises:
            RecipeError: the recipe has errors.
            rlc.compile.variants.ServiceMismatchError: the service does not have the model.
        """
        compiled = self.compile()
        if compiled.plan is None:
            raise RecipeError(compiled.diagnostics)
        return compiled.plan

    def explain(self) -> Explanation:
        """Return what the recipe does and costs, or its errors if it has any but expectations that
        fail before it runs."""
        found = self.compile()
        plan = found.plan or found.unmet
        given = found.diagnostics, None, found.sweeps
        return Explanation(self.path, plan, *given, reused=reused(plan), seen=seen(plan))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, for `rlc run` and :func:`rlc.load_plan`.

        Raises:
            RecipeError: the recipe has errors.
            rlc.compile.saved.PlanFileError: the file cannot be written.
        """
        from rlc.compile import MadeFrom, save_plan

        origin = MadeFrom(self.path, list(self.overrides), self.seed, self.rehearse, self.service)
        save_plan(path, self.plan(), origin)

    def _repr_html_(self) -> str:
        from rlc.explanation import text_html

        try:
            return self.explain()._repr_html_()
        except Error as error:  # the service does not have the model
            return text_html(str(error))


@frozen
class Explanation:
    """What a recipe or a plan does and costs; ``print`` shows a summary, as `rlc explain` does, a
    notebook shows tables.

    Attributes:
        recipe: the path of the recipe.
        plan: the plan, or None if the recipe has errors.
        diagnostics: errors and warnings.
        latencies: seconds of each node by stage, to predict the time of a step, or None.
        sweeps: the sweeps that the recipe declares.
        reused: what a run of the plan would take from the runs in ``runs``; see
            :meth:`rlc.runtime.ReusedStage.as_data`.
        seen: what probes and earlier runs have shown of its episodes, by stage and environment.
    """

    recipe: str
    plan: Plan | None
    diagnostics: Diagnostics
    latencies: Latencies | None = None
    sweeps: tuple[Sweep, ...] = ()
    reused: tuple[ReusedStage, ...] = ()
    seen: Mapping[str, Seen] = field(factory=dict, repr=False)

    def __str__(self) -> str:
        return self.text()

    def text(self, color: bool = False, full: bool = False) -> str:
        """Return the text of `rlc explain`, with ``full`` that of `rlc explain --full`; the errors
        if there is no plan."""
        if self.plan is None:
            from rlc.lang.render import render_human

            return render_human(self.diagnostics, color)
        from rlc.explanation import explain_text, summary_text

        write = explain_text if full else summary_text
        taken = [f"{one.text} (`rlc run --fresh` takes nothing)" for one in self.reused]
        given = self.latencies, self.sweeps, taken, self.seen
        return write(self.plan, self.diagnostics, color, *given)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc explain --json`."""
        from rlc.catalog import audited, environments_of
        from rlc.explanation import explain_dict

        given = self.diagnostics, self.latencies, self.sweeps, self.seen
        taken = [one.as_data() for one in self.reused]
        data = explain_dict(self.plan, self.recipe, *given) | ({"reused": taken} if taken else {})
        plan = self.plan
        return data | ({"audit": audited(environments_of(plan), plan.recipe)} if plan else {})

    def graph(self, format: Format = "mermaid") -> str:
        """Return the job graph as text, in the ``"mermaid"`` or ``"dot"`` language.

        Raises:
            RecipeError: the recipe has errors.
        """
        from rlc.explanation import render_graph

        if self.plan is None:
            raise RecipeError(self.diagnostics)
        return render_graph(self.plan, format)

    def _repr_html_(self) -> str:
        from rlc.explanation import explain_html, text_html

        if self.plan is None:
            return text_html(self.text())
        return explain_html(self.plan, self.text(full=True))

    def _repr_markdown_(self) -> str:
        if self.plan is None:
            return f"```\n{self.text()}```\n"
        from rlc.explanation import explain_markdown

        return explain_markdown(self.plan, self.text(full=True))


def load(
    path: str | os.PathLike[str],
    set: Mapping[str, Setting] | Sequence[str] = (),
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
) -> Recipe:
    """Return the recipe in a file, which can be checked, explained and run.

    Args:
        path: the file, or ``-`` for standard input.
        set: values of params and fields by name, or as the command line takes them
            (``["main.steps=10"]``).
        seed: the seed of every random choice; 1 by default.
        rehearse: make it a small and short job on the tiny model, which needs no key.
        service: ``"local"`` for the embedded engine, or a provider such as ``"tinker"``; by default
            the service that has the model.

    Raises:
        RecipeError: there is no such file, or it is not the text of a recipe.
        TypeError: a value in ``set`` that a recipe cannot hold.

    Example::

        recipe = rlc.load("recipes/sudoku.rl", set={"main.steps": 10, "main.advantage": "rloo()"})
        print(recipe.explain())
    """
    settings = set
    if isinstance(settings, Mapping):
        settings = [f"{name}={written(value)}" for name, value in settings.items()]
    recipe = Recipe(os.fspath(path), tuple(settings), seed, rehearse, service)
    if recipe.path != STDIN:  # which can be read once only
        source, found = read_source(recipe.path)
        if source is None:
            raise RecipeError(found)
    return recipe


def written(value: Setting) -> str:
    """Return a value as it is written in a recipe. Raise TypeError if a recipe cannot hold it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(int(value) if isinstance(value, int) else float(value))
    if isinstance(value, Sequence):
        return f"[{', '.join(map(written, value))}]"
    raise TypeError(f"a recipe cannot hold {value!r}")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Return the plan that :meth:`Recipe.save` or `rlc explain --out` wrote to a file.

    Raises:
        rlc.compile.saved.PlanFileError: the file cannot be read, was edited, or is stale because
            its recipe now compiles to another plan.

    Example::

        rlc.load("recipes/quickstart.rl").save("plan.json")
        rlc.run(rlc.load_plan("plan.json"))
    """
    from rlc.compile import load_plan as load_saved

    return load_saved(path)


def explain(plan: Plan) -> Explanation:
    """Return what a plan does and costs.

    Example::

        explanation = rlc.explain(rlc.load_plan("plan.json"))
        explanation.to_dict()["cost"]["total"]
    """
    from rlc.lang import Diagnostics

    return Explanation(plan.recipe, plan, Diagnostics(), reused=reused(plan), seen=seen(plan))


def reused(plan: Plan | None, roots: Sequence[Path] = ()) -> tuple[ReusedStage, ...]:
    """Return what a run of a plan would take from others; nothing without a folder of runs. Raise
    RunError if one of the ``roots`` is not there, and Error if a ``.env`` is unreadable."""
    if plan is None or not (
        os.path.isdir(RUNS_FOLDER) or os.environ.get("RLC_REUSE_FROM") or roots
    ):
        return ()
    from rlc.catalog import provide_keys
    from rlc.runtime import find_reuse, require_roots

    require_roots(roots)
    provide_keys(plan)  # as a run does: code may read them
    return find_reuse(plan, roots).parts


def seen(plan: Plan | None) -> Mapping[str, Seen]:
    """Return what the runs in the folder ``runs`` have shown of the episodes of a plan."""
    if plan is None or not os.path.isdir(RUNS_FOLDER):
        return {}
    from rlc.proof import episodes_seen

    return episodes_seen(plan)


def run(
    job: Plan | Recipe | str | os.PathLike[str],
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    observer: Observer | None = None,
    *,
    set: Mapping[str, Setting] | Sequence[str] = (),
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
    fresh: bool = False,
) -> TrainedSummary:
    """Run a job to its end or to its budget, as `rlc run` does, and return its summary.

    In a notebook the job runs in a thread of its own, and an interrupt stops it after the current
    step, with a checkpoint.

    Args:
        job: a recipe, a plan, or the path of either.
        run_dir: the folder of the run, which must not exist; ``runs/NAME-TIME`` by default.
        base_url: the address of a Tinker server to use instead of the hosted service.
        observer: an :class:`rlc.Observer`, whose methods are called as the run proceeds; without
            one nothing is printed.
        set: as in :func:`rlc.load`; this and the following are for the path of a recipe only.
        seed: the seed of every random choice; 1 by default.
        rehearse: make it a small and short job on the tiny model, which needs no key.
        service: ``"local"``, or a provider; by default the service that has the model.
        fresh: take nothing from earlier runs. Otherwise what the runs in ``runs`` have finished is
            not computed again.

    Raises:
        TypeError: a recipe or a plan that is decided already is given with options of a path.
        rlc.RecipeError: the recipe has errors, or the plan, if it was changed in Python.
        rlc.Error: the job cannot be run, or failed, or no step of a training stage changed its
            weights, because all rollouts failed or had equal rewards. What was done is kept in the
            folder, and :func:`rlc.resume` continues it.
        rlc.ExpectationError: the run is over and saved, but an expectation of the recipe does not
            hold. Its ``summary`` is the summary of the run.

    Example::

        summary = rlc.run("recipes/quickstart.rl", set={"main.steps": 10})
        print(summary.state, summary.model().chat("2 + 3 = ?"))

        class Printed(rlc.Observer):
            def step(self, step, metrics):
                print(step, metrics.get("reward/mean"))

        rlc.run("recipes/quickstart.rl", observer=Printed())
    """
    from rlc.check import check_plan
    from rlc.models import run_plan

    if isinstance(job, str | os.PathLike) and not is_saved_plan(job):
        job = load(job, set, seed, rehearse, service)
    elif set or seed is not None or rehearse or service:
        raise TypeError("set, seed, rehearse and service decide what the path of a recipe means")
    if isinstance(job, str | os.PathLike):
        plan = load_plan(job)
    elif isinstance(job, Recipe):
        plan = job.plan()
    elif (found := check_plan(job)).has_errors:
        raise RecipeError(found)
    else:
        plan = job
    return run_plan(plan, run_dir, base_url, observer, fresh)


def sweep(
    job: Recipe | str | os.PathLike[str],
    name: str | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    jobs: int | None = None,
    observer: SweepObserver | None = None,
    *,
    set: Mapping[str, Setting] | Sequence[str] = (),
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
    fresh: bool = False,
) -> SweepSummary:
    """Run the trials of a sweep of a recipe, as `rlc sweep` does, and return its summary.

    Args:
        job: a recipe, or its path.
        name: the sweep, if the recipe declares several.
        run_dir: the folder of the sweep, which must not exist; ``runs/RECIPE-SWEEP-TIME`` by
            default.
        base_url: the address of a Tinker server to use instead of the hosted service.
        jobs: trials at once; by default 4 on a service, 1 on this machine.
        observer: an object whose methods are called as the sweep proceeds.
        set: as in :func:`rlc.load`; this and the following are for the path of a recipe only.
        seed: the first seed; 1 by default.
        rehearse: a few small trials on the tiny model, which need no key.
        service: ``"local"``, or a provider; by default the service that has the model.
        fresh: take nothing from earlier runs.

    Raises:
        TypeError: a recipe that is decided already is given with options of a path.
        rlc.RecipeError: the recipe has errors.
        rlc.Error: the recipe has no such sweep, or it cannot be run. A trial that fails raises
            nothing: the summary has it in ``failed``, and :func:`rlc.resume_sweep` tries it again.

    Example::

        summary = rlc.sweep("recipes/learning_rates.rl")
        print(summary.best.configuration, summary.best.mean)
    """
    from rlc.compile import find_sweep
    from rlc.sweeps import open_sweep, run_to_end

    if not isinstance(job, Recipe):
        job = load(job, set, seed, rehearse, service)
    elif set or seed is not None or rehearse or service:
        raise TypeError("set, seed, rehearse and service decide what the path of a recipe means")
    compiled = job.compile()
    if compiled.plan is None:
        raise RecipeError(compiled.diagnostics)
    found = find_sweep(compiled.sweeps, name, compiled.plan.recipe)
    made = open_sweep(compiled.plan, found, job.options(), run_dir, base_url, jobs, fresh)
    return run_to_end(made, observer)


def plan_of(job: Plan | Recipe | str | os.PathLike[str]) -> Plan:
    """Return the plan of a job. Raise RecipeError if its recipe has errors."""
    if isinstance(job, str | os.PathLike):
        job = load_plan(job) if is_saved_plan(job) else load(job)
    return tried_plan(job) if isinstance(job, Recipe) else job


def tried_plan(recipe: Recipe) -> Plan:
    """Return the plan of a recipe, also if it fails an expectation that is known before it runs.
    Raise RecipeError if it has other errors."""
    compiled = recipe.compile()
    plan = compiled.plan or compiled.unmet
    if plan is None:
        raise RecipeError(compiled.diagnostics)
    return plan


def replay(
    run: str | os.PathLike[str],
    step: int | None = None,
    set: Mapping[str, Setting] | Sequence[str] = (),
    stage: str | None = None,
    gradient: bool = False,
    bisect: str | None = None,
) -> Replay:
    """Return what the episodes of a step have taught, and what they would have under another
    objective, as `rlc replay` does; nothing is sampled.

    Args:
        run: the folder of the run, which may still go on.
        step: one of its finished steps; the last one by default.
        set: what is to be another, as in :func:`load`: advantage, loss, aggregation, KL penalty, or
            what is left out of the batch.
        stage: the stage, if several learn from rollouts; by default the last that has begun.
        gradient: whether to take the gradients themselves too, and a step, with the weights that
            the step began with, on the embedded engine.
        bisect: an expression of metrics, as ``"kl > 0.1"``: the first step at which it holds is
            replayed, in place of ``step``.

    Raises:
        TypeError: a value in ``set`` that a recipe cannot hold.
        rlc.Error: there is no such run or step, or it cannot be replayed so.

    Example::

        found = rlc.replay("runs/quickstart-1", step=12, set={"main.advantage": "rloo()"})
        print(found.before.loss, found.after.loss, len(found.changing))
    """
    from pathlib import Path

    try:
        from rlc.replays import replay_step
    except ModuleNotFoundError as error:
        what = f"a replay computes with a package that is not here: {error.name or 'numpy'}"
        raise Error(what, "pip install 'rlc[local]'") from error
    settings = set
    if isinstance(settings, Mapping):
        settings = [f"{name}={written(value)}" for name, value in settings.items()]
    return replay_step(Path(run), step, tuple(settings), stage, gradient, bisect)


def is_saved_plan(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names a saved plan, by its suffix."""
    return os.fspath(path).endswith(".json")
