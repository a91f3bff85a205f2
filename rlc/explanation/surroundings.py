"""What a job writes, and what it needs: keys, services, packages, files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlc.catalog.builtins.sources import PROBLEM_SETS, needs
from rlc.plan.records import (
    LOCAL,
    EnvPlan,
    EvalPlan,
    Plan,
    SftPlan,
    StagePlan,
    TrackPlan,
    TrainPlan,
    environments_of,
)
from rlc.plan.units import show

_LIBRARIES = {"gem": "gem-llm", "openreward": "openreward", "cookbook": "tinker-cookbook"}
_GEM_NEEDS = {
    "hub": "a data set from the Hugging Face hub, downloaded when the run starts",
    "nltk": "the word list of nltk, downloaded when the run starts",
}
_TRACKER_PACKAGES = {"wandb": "wandb", "trackio": "trackio", "tensorboard": "tensorboardX"}
_OPENREWARD_KEY = "OPENREWARD_API_KEY in the environment: for OpenReward's servers"


def written(plan: Plan) -> Iterator[str]:
    """What is written where."""
    yield (
        "a run folder (--run-dir, by default runs/NAME-TIME) with plan.json, journal.sqlite, "
        "metrics.jsonl (an object a step), rollouts.jsonl (an object a rollout)"
    )
    for stage in plan.stages:
        if not isinstance(stage, EvalPlan):
            yield f"{stage.name}: {_checkpoints(stage)}"
            yield from (f"{stage.name}: {_sent(tracker, stage)}" for tracker in stage.track)


def _checkpoints(stage: TrainPlan | SftPlan) -> str:
    save = stage.save
    where = "in the run folder" if stage.model.service == LOCAL else "on the service"
    when = f"every {save.every:,} steps and at the end" if save.every else "at the end"
    parts = [f"checkpoints {where} {when}"]
    if save.every:
        parts.append(f"the newest {save.keep:,} kept" + (", and the best" if save.best else ""))
    if save.rolling is not None:
        newest = "that of the newest step" if save.rolling == 1 else f"{save.rolling:,} newest"
        parts.append(f"and the state after each step, {newest} kept")
    if save.ttl_seconds is not None:
        parts.append(f"deleted after {show(save.ttl_seconds, 'duration')}")
    return ", ".join(parts)


def _sent(tracker: TrackPlan, stage: StagePlan) -> str:
    """Where a tracker puts what it is told."""
    if tracker.name == "tensorboard":
        return f"event files in the run folder, tensorboard/{stage.name}"
    if tracker.name == "openreward_rollouts":
        return f"episodes to OpenReward, run {tracker.args['run']}"
    run = f", run {tracker.args['run']}" if tracker.args.get("run") else ""
    return f"metrics to {tracker.name}, project {tracker.args['project']}{run}"


def needed(plan: Plan) -> list[str]:
    """What has to be there before the job can run, each thing once."""
    return list(dict.fromkeys(_needed(plan)))


def _needed(plan: Plan) -> Iterator[str]:
    for service in dict.fromkeys(stage.model.service for stage in plan.stages):
        yield from _service(service)
    for stage in plan.stages:
        for env in environments_of(stage):
            yield from _environment(env)
        if isinstance(stage, SftPlan) and stage.data.path is not None:
            yield f"the file {stage.data.path}"
        if not isinstance(stage, EvalPlan):
            yield from _trackers(stage.track)


def _service(service: str) -> Iterator[str]:
    if service == LOCAL:
        yield "no key and no network for the model: it trains on this machine"
        yield "the packages torch and transformers (rlc[local])"
    else:
        yield (
            "TINKER_API_KEY in the environment: it trains on hosted Tinker, or on a server of "
            "your own (--base-url)"
        )
        yield "the packages tinker and tinker-cookbook (rlc[tinker])"


def _environment(env: EnvPlan) -> Iterator[str]:
    if env.source in _LIBRARIES:
        extra = " (rlc[gem])" if env.source == "gem" else ""
        yield f"the package {_LIBRARIES[env.source]}{extra}"
    for need in needs(env):
        yield f"{env.name}: {_GEM_NEEDS[need]}"
    if env.source == "openreward":
        own = env.args.get("base_url")
        yield f"{env.name}: the OpenReward server at {own}" if own else _OPENREWARD_KEY
        for secret in env.args.get("secrets") or ():
            yield f"{secret} in the environment: {env.name} asks for it"
    if env.source in ("cookbook", "python"):
        yield f"{env.name}: the Python module {env.id.partition(':')[0]}"
    if env.source == "problems" and env.id in PROBLEM_SETS and env.id != "countdown":
        yield f"{env.name}: {_GEM_NEEDS['hub']}"
    for wrapper in env.wrappers:
        if wrapper.name == "search_tool":
            yield f"{env.name}: the search server at {wrapper.args['url']}"
    yield from (f"{env.name}: the file {path}" for path in files_of(env))


def files_of(env: EnvPlan) -> list[str]:
    """Files that an environment reads."""
    values = [env.id, env.args.get("few_shot")]
    values += [value for wrapper in env.wrappers for value in wrapper.args.values()]
    endings = (".jsonl", ".csv", ".parquet", ".j2", ".jinja")
    return [value for value in values if isinstance(value, str) and value.endswith(endings)]


def _trackers(trackers: Iterable[TrackPlan]) -> Iterator[str]:
    for tracker in trackers:
        if tracker.name == "openreward_rollouts":
            yield _OPENREWARD_KEY
        if tracker.name == "wandb":
            yield "WANDB_API_KEY in the environment, or a login of wandb"
        if tracker.name in _TRACKER_PACKAGES:
            yield f"the package {_TRACKER_PACKAGES[tracker.name]}"
