"""A quick look at a model: the plan of one evaluation, without a recipe, and two compared."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from attrs import evolve, frozen

from rlc.catalog import is_run_weights
from rlc.compile import compile_source
from rlc.errors import Error
from rlc.lang import Source
from rlc.lang.render import render_human
from rlc.plan import (
    EnvPlan,
    Evaluation,
    ModelPlan,
    Plan,
    build_graph,
    file_part,
    metric_label,
    rebased,
)
from rlc.records import values_of
from rlc.report import read_plan
from rlc.report.episodes import EpisodeFilter, read_episodes
from rlc.runtime import task_metrics
from rlc.service import SamplingRequest

NAME = "quick"
_SOURCE = "rlc eval"
_EXAMPLE = "--env 'gem(\"game:Sudoku-v0-easy\") |> chat()'"


class EvaluationError(Error):
    """An evaluation with arguments that are wrong."""

    exit_status = 2


def evaluation_plan(
    model: ModelPlan,
    env: str | None,
    tasks: int | None = None,
    samples: int | None = None,
    sampling: SamplingRequest | None = None,
    metrics: Sequence[str] = (),
    seed: int = 1,
) -> Plan:
    """Return the plan of an evaluation of a model as it is. ``env`` is written as in a recipe,
    ``gem("game:Sudoku-v0-easy") |> chat()``, with paths from the working directory, or names an
    evaluation of the model's run, which is repeated, or an environment of it; None: the only
    evaluation of the run. ``tasks`` and ``samples`` are by default those of the evaluation, else 64
    and 1. Without ``sampling`` replies are sampled as in that run, or with 512 tokens. ``metrics``,
    written as in a recipe, are by default those of the evaluation, else the mean reward, and pass@k
    for several samples. Raise EvaluationError if a part cannot be read, or the run lacks it."""
    known, recipe = None, _SOURCE
    if env is None or env.isidentifier():
        known, recipe = _of_run(model, env)
    usual = ["mean_reward()", *([f"pass_at({samples})"] if (samples or 1) > 1 else [])]
    text = f"""\
model m {{ base = "tiny" }}
env shown = {'gem("game:GuessTheNumber-v0-easy") |> chat()' if known else env}
eval {NAME} {{
  model = m  env = shown  tasks = {tasks or 64}  samples = {samples or 1}
  metrics = [{", ".join(metrics or usual)}]
  sampling = sample(max_tokens = 512)
}}
"""
    compiled = compile_source(Source(_SOURCE, text), (), seed)
    if compiled.plan is None:
        raise EvaluationError(render_human(compiled.diagnostics, color=False).rstrip())
    (stage,) = compiled.plan.evaluations
    if isinstance(known, EnvPlan):
        stage = evolve(stage, envs=(evolve(known, weight=1.0),))
    elif known is not None:
        stage = evolve(
            known,
            name=NAME,
            after=None,
            every=None,
            first=False,
            tasks=tasks or known.tasks,
            samples=samples or known.samples,
            metrics=stage.metrics if metrics else known.metrics,
        )
    how = stage.sampling if sampling is None else stage.sampling.sampled(sampling)
    envs = []
    for one in stage.envs:
        own = evolve(one.rollouts, group=stage.samples)
        if sampling is not None:
            own = own.sampled(evolve(sampling, max_tokens=sampling.max_tokens or own.max_tokens))
        envs.append(evolve(one, rollouts=own))
    if len(envs) == 1:
        how = envs[0].rollouts.sampling(how)
    stages = (evolve(stage, envs=tuple(envs), sampling=how),)
    return evaluation_of(evolve(compiled.plan, recipe=recipe, stages=stages, provenance={}), model)


def evaluation_of(plan: Plan, model: ModelPlan) -> Plan:
    """Return the plan of the same evaluation of another model: tasks, seeds and sampling."""
    weights = model.weights
    if weights is not None and is_run_weights(weights):
        weights = rebased(weights, "", plan.recipe)
    named = evolve(model, name="m", weights=weights)
    stages = tuple(evolve(stage, model=named) for stage in plan.stages)
    return evolve(plan, stages=stages, graph=build_graph(stages))


@frozen
class PairedResult:
    """A metric of two models, as means over the tasks that both have, and the mean of the
    differences of a task with its standard error; None of fewer than two tasks."""

    metric: str
    mine: float
    other: float
    tasks: int
    error: float | None

    @property
    def difference(self) -> float:
        return self.mine - self.other

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc eval --json`."""
        values = values_of(self)
        error = values.pop("error")
        return {**values, "difference": self.difference, "standard_error": error}

    def __str__(self) -> str:
        error = "" if self.error is None else f" ± {self.error:.3f}"
        found = f"{self.metric} {self.mine:.3f} against {self.other:.3f}"
        return f"{found}: {self.difference:+.3f}{error}, of {self.tasks:,} tasks"


def paired_results(mine: Path, other: Path) -> list[PairedResult]:
    """Compare the same evaluation of two models, in the folders of their runs, task by task."""
    (stage,) = read_plan(mine).evaluations
    wanted, results = EpisodeFilter(stage=stage.name), list[PairedResult]()
    tasks, others = (task_metrics(stage, read_episodes(run, wanted)) for run in (mine, other))
    for name in map(metric_label, stage.metrics):
        both = [(found, others.get(task, {})) for task, found in tasks.items()]
        pairs = [(one[name], two[name]) for one, two in both if name in one and name in two]
        if pairs:
            mine_T, other_T = zip(*pairs, strict=True)
            differences = [one - two for one, two in pairs]
            error = stdev(differences) / sqrt(len(pairs)) if len(pairs) > 1 else None
            result = PairedResult(name, fmean(mine_T), fmean(other_T), len(pairs), error)
            results.append(result)
    return results


def _of_run(model: ModelPlan, name: str | None) -> tuple[Evaluation | EnvPlan, str]:
    """Return an evaluation or an environment of the run that a model comes from, and the recipe of
    the run; without a name its only evaluation."""
    if model.weights is None or not is_run_weights(model.weights):
        what = "that could be repeated" if name is None else f"that could know `{name}`"
        raise EvaluationError(
            f"{model.name} comes from no run {what}",
            f"write an environment as a recipe does: {_EXAMPLE}",
        )
    plan = read_plan(Path(file_part(model.weights)))
    held = {stage.name: stage for stage in plan.evaluations}
    envs = {env.name: env for stage in plan.stages for env in stage.environments}
    if name is None and len(held) == 1:
        return next(iter(held.values())), plan.recipe
    if name in held or name in envs:
        return held.get(name) or envs[name], plan.recipe
    listed = ", ".join(f"`{known}`" for known in [*held, *envs]) or "none"
    if name is not None:
        message = f"the run has no evaluation and no environment `{name}`"
        raise EvaluationError(message, f"it has {listed}")
    if held or envs:
        number = f"{len(held)} evaluations" if held else "no `eval` stage"
        raise EvaluationError(
            f"the run has {number}, so it is not clear what to play",
            f"name it with --env: {listed}",
        )
    raise EvaluationError(
        "the run has no `eval` stage and no environment", f"write one as a recipe does: {_EXAMPLE}"
    )
