"""A quick look at a model: the plan of one evaluation, without a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from rlc.catalog import is_run_weights
from rlc.compile import compile_source
from rlc.errors import Error
from rlc.lang import Source
from rlc.lang.render import render_human
from rlc.plan import EnvPlan, ModelPlan, Plan, build_graph, file_part, rebased
from rlc.report import read_plan
from rlc.service import SamplingRequest

NAME = "quick"
_SOURCE = "rlc eval"


class EvaluationError(Error):
    """An evaluation with arguments that are wrong."""

    exit_status = 2


def evaluation_plan(
    model: ModelPlan,
    env: str,
    tasks: int,
    samples: int,
    sampling: SamplingRequest | None,
    metrics: Sequence[str] = (),
    seed: int = 1,
) -> Plan:
    """Return the plan of an evaluation of a model as it is. ``env`` is written as in a recipe,
    ``gem("game:Sudoku-v0-easy") |> chat()``, with paths from the working directory, or names an
    environment of the model's run. Without ``sampling`` replies are sampled as in that run, or
    with 512 tokens. ``metrics``, written as in a recipe, are by default the mean reward, and pass@k
    for several samples. Raise EvaluationError if a part cannot be read, or the run lacks it."""
    known, recipe = _of_run(model, env) if env.isidentifier() else (None, _SOURCE)
    metrics = metrics or ["mean_reward()", *([f"pass_at({samples})"] if samples > 1 else [])]
    text = f"""\
model m {{ base = "tiny" }}
env shown = {'gem("game:GuessTheNumber-v0-easy") |> chat()' if known else env}
eval {NAME} {{
  model = m  env = shown  tasks = {tasks}  samples = {samples}  metrics = [{", ".join(metrics)}]
  sampling = sample(max_tokens = 512)
}}
"""
    compiled = compile_source(Source(_SOURCE, text), (), seed)
    if compiled.plan is None:
        raise EvaluationError(render_human(compiled.diagnostics, color=False).rstrip())
    (stage,) = compiled.plan.evaluations
    weights = model.weights
    if weights is not None and is_run_weights(weights):
        weights = rebased(weights, "", recipe)
    stage = evolve(stage, model=evolve(model, name="m", weights=weights))
    envs = stage.envs
    if known is not None:
        envs = (evolve(known, weight=1.0, rollouts=evolve(known.rollouts, group=samples)),)
    (own,) = (env.rollouts for env in envs)
    if sampling is not None:
        own = own.sampled(evolve(sampling, max_tokens=sampling.max_tokens or own.max_tokens))
    how = own.sampling(stage.sampling if sampling is None else stage.sampling.sampled(sampling))
    envs = tuple(evolve(env, rollouts=own) for env in envs)
    stage = evolve(stage, envs=envs, sampling=how)
    stages = (stage,)
    return evolve(
        compiled.plan, recipe=recipe, stages=stages, graph=build_graph(stages), provenance={}
    )


def _of_run(model: ModelPlan, name: str) -> tuple[EnvPlan, str]:
    """Return an environment of the run that a model comes from, and the recipe of the run."""
    if model.weights is None or not is_run_weights(model.weights):
        raise EvaluationError(
            f"{model.name} comes from no run that could know the environment `{name}`",
            "write it as a recipe does: --env 'gem(\"game:Sudoku-v0-easy\") |> chat()'",
        )
    plan = read_plan(Path(file_part(model.weights)))
    envs = {env.name: env for stage in plan.stages for env in stage.environments}
    if name not in envs:
        listed = ", ".join(f"`{known}`" for known in envs) or "none"
        raise EvaluationError(f"the run has no environment `{name}`", f"it has {listed}")
    return envs[name], plan.recipe
