"""What a job writes, and what it needs: keys, services, packages, files."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.catalog.environments import (
    code_of,
    code_of_data,
    env_facts,
    files_of,
    played_as,
    rubrics_of,
)
from rlc.catalog.index import source_traits, tracker_traits, wrapper_traits
from rlc.catalog.traits import Key
from rlc.plan.environments import EndpointPlan, EnvPlan
from rlc.plan.paths import hub_dataset
from rlc.plan.records import (
    LOCAL,
    EvalPlan,
    Plan,
    PreferencePlan,
    SftPlan,
    StagePlan,
    TrackPlan,
    TrainedPlan,
    TrainPlan,
    data_of,
    environments_of,
)
from rlc.plan.units import show

_NEEDS = {
    "hub": "a data set from the Hugging Face hub, downloaded when the run starts",
    "nltk": "the word list of nltk, downloaded when the run starts",
    "openrouter": "OPENROUTER_API_KEY in the environment, for the models that the game asks itself",
    "patience": "more than ten seconds to begin a game",
}


def written(plan: Plan) -> Iterator[str]:
    """Yield what the job writes, and where."""
    files = ["plan.json", "journal.sqlite", "metrics.jsonl (an object a step)"]
    if any(not data_of(stage) for stage in plan.stages):
        files.append("rollouts.jsonl (a rollout)")
        files.append("failures.jsonl (a cause, if rollouts fail)")
    if any(isinstance(stage, TrainPlan) for stage in plan.stages):
        files.append("tokens.bin (a sequence that was trained on)")
    if any(not isinstance(stage, EvalPlan) for stage in plan.stages):
        files.append("timeline.jsonl (a node of a step)")
    if any(stage.model.service != LOCAL for stage in plan.stages):
        files.append("service.jsonl (a session)")
    folder = "a run folder (--run-dir, by default runs/NAME-TIME)"
    yield f"{folder} with {', '.join(files)}"
    for stage in plan.stages:
        if isinstance(stage, PreferencePlan):
            yield from _of_preferences(stage)
        elif isinstance(stage, SftPlan):
            yield f"{stage.name}: examples-{stage.name}.jsonl, what it is trained on"
            if stage.data.policy == "model" or stage.data.sampled is not None:
                yield f"{stage.name}: episodes-{stage.name}.jsonl, what was played for it"
            if stage.heldout is not None:
                yield f"{stage.name}: examples-{stage.name}-heldout.jsonl, what is only scored"
        if not isinstance(stage, EvalPlan):
            yield f"{stage.name}: {_checkpoints(stage)}"
            yield from (f"{stage.name}: {_sent(tracker, stage)}" for tracker in stage.track)


def _of_preferences(stage: PreferencePlan) -> Iterator[str]:
    yield f"{stage.name}: examples-{stage.name}.jsonl, what it compares"
    for data, part in zip(data_of(stage), ("", "-heldout"), strict=False):
        if data.env is not None:
            yield f"{stage.name}: episodes-{stage.name}{part}.jsonl, what was played for it"
    if stage.heldout is not None:
        yield f"{stage.name}: examples-{stage.name}-heldout.jsonl, what is only compared"
    if stage.reference is not None:
        yield f"{stage.name}: reference-{stage.name}.jsonl, the reference's logprobs of each reply"
    yield f"{stage.name}: comparisons.jsonl, the rewards of the replies in each step"


def _checkpoints(stage: TrainedPlan) -> str:
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
    """What a tracker writes, and where."""
    sends = tracker_traits(tracker.name).sends.format(stage=stage.name)
    return "".join([sends, *(f", {name} {value}" for name, value in tracker.args.items() if value)])


def needed(plan: Plan) -> list[str]:
    """Return what the job needs before it can run, without repetitions."""
    return list(dict.fromkeys(_needed(plan)))


def _needed(plan: Plan) -> Iterator[str]:
    for service in dict.fromkeys(stage.model.service for stage in plan.stages):
        yield from _service(service)
    for stage in plan.stages:
        for env in environments_of(stage):
            yield from _environment(env)
        for path in (data.path for data in data_of(stage) if data.path is not None):
            is_file = hub_dataset(path) is None
            yield f"the file {path}" if is_file else f"{stage.name}: {_NEEDS['hub']}: {path}"
        for code in filter(None, map(code_of_data, data_of(stage))):
            yield f"{stage.name}: the Python module {code.target.rpartition(':')[0]}"
        if isinstance(stage, TrainPlan) and stage.loss.program and stage.model.service != LOCAL:
            yield f"the package torch: `{stage.loss.name}` is traced with it"
        if not isinstance(stage, EvalPlan):
            for tracker in stage.track:
                traits = tracker_traits(tracker.name)
                if traits.key:
                    yield _key(traits.key)
                yield f"the package {traits.package}"


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
    source = source_traits(env.source)
    for player in dict.fromkeys((source, source_traits(played_as(env)))):
        if player.package:
            extra = f" (rlc[{player.extra}])" if player.extra else ""
            yield f"the package {player.package}{extra}"
    if source.key:
        own = env.args.get("base_url")
        yield f"{env.name}: the OpenReward server at {own}" if own else _key(source.key)
        for secret in env.args.get("secrets") or ():
            yield f"{secret} in the environment: {env.name} asks for it"
    if source.code:
        for path, code in code_of(env):
            if path == "id":
                yield f"{env.name}: the Python module {code.target.rpartition(':')[0]}"
    if env.play is not None and env.play.script is not None and env.play.script.function:
        yield f"{env.name}: the function {env.play.script.function}"
    if env.agent is not None:
        yield f"{env.name}: the agent {env.agent.called}"
    yield from (f"{env.name}: {_NEEDS[need]}" for need in env_facts(env).needs)
    for wrapper in env.wrappers:
        traits = wrapper_traits(wrapper.name)
        if needed := traits.package_of(wrapper.args):
            yield "the package {} (rlc[{}])".format(*needed)
        if traits.server:
            yield f"{env.name}: the server of `{wrapper.name}()`, {wrapper.args[traits.server]}"
        for secret in wrapper.args.get("secrets") or ():
            yield f"{secret} in the environment: `{wrapper.name}()` asks for it"
    for _, _, judge in rubrics_of(env):
        if isinstance(judge.model, EndpointPlan):
            if judge.model.key:
                yield _key(Key(judge.model.key, f"for {judge.model.url}"))
            yield f"{judge.name}: the endpoint {judge.model.url}"
    yield from (f"{env.name}: the file {path}" for _, path in files_of(env))


def _key(key: Key) -> str:
    purpose = f": {key.purpose}" if key.purpose else ""
    instead = f", or {key.instead}" if key.instead else ""
    return f"{key.variable} in the environment{instead}{purpose}"
