"""What a job writes, and what it needs: keys, services, packages, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from rlc.plan.parts import TrackPlan
from rlc.plan.paths import hub_dataset
from rlc.plan.records import LOCAL, Plan
from rlc.plan.stages import (
    FromData,
    Likelihood,
    PolicyGradient,
    PreferenceLoss,
    StagePlan,
    Table,
    Training,
    is_training,
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
    if any(stage.played for stage in plan.stages):
        files.append("rollouts.jsonl (a rollout)")
        files.append("failures.jsonl (a cause, if rollouts fail)")
    if any(stage.rollouts for stage in plan.stages):
        files.append("tokens.bin (a sequence that was trained on)")
    if plan.trainings:
        files.append("timeline.jsonl (a node of a step)")
    if any(stage.model.service != LOCAL for stage in plan.stages):
        files.append("service.jsonl (a session)")
    folder = "a run folder (--run-dir, by default runs/NAME-TIME)"
    yield f"{folder} with {', '.join(files)}"
    for stage in plan.trainings:
        yield from (f"{stage.name}: {line}" for line in _WRITTEN[stage](stage))
        yield f"{stage.name}: {_checkpoints(stage)}"
        yield from (f"{stage.name}: {_sent(tracker, stage)}" for tracker in stage.track)


def _of_likelihood(stage: Training) -> Iterator[str]:
    yield f"examples-{stage.name}.jsonl, what it is trained on"
    data = stage.of(FromData).data
    if data.environments and not data.by_oracle:
        yield f"episodes-{stage.name}.jsonl, what was played for it"
    yield from _of_heldout(stage)


def _of_heldout(stage: Training) -> Iterator[str]:
    if stage.heldout is not None:
        yield f"examples-{stage.name}-heldout.jsonl, what is only scored"


def _of_preferences(stage: Training) -> Iterator[str]:
    yield f"examples-{stage.name}.jsonl, what it compares"
    for data, part in zip(stage.data, ("", "-heldout"), strict=False):
        if data.environments:
            yield f"episodes-{stage.name}{part}.jsonl, what was played for it"
    if stage.heldout is not None:
        yield f"examples-{stage.name}-heldout.jsonl, what is only compared"
    if stage.of(PreferenceLoss).reference is not None:
        yield f"reference-{stage.name}.jsonl, the reference's logprobs of each reply"
    yield "comparisons.jsonl, the rewards of the replies in each step"


_WRITTEN: Table[Callable[[Training], Iterator[str]]] = Table(
    {
        PolicyGradient: _of_heldout,
        Likelihood: _of_likelihood,
        PreferenceLoss: _of_preferences,
    }
)


def _checkpoints(stage: Training) -> str:
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
        for env in stage.environments:
            yield from _environment(env)
        for path in (data.file for data in stage.data if data.file is not None):
            is_file = hub_dataset(path) is None
            yield f"the file {path}" if is_file else f"{stage.name}: {_NEEDS['hub']}: {path}"
        for code in filter(None, map(code_of_data, stage.data)):
            yield f"{stage.name}: the Python module {code.target.rpartition(':')[0]}"
        objective = stage.policy_gradient
        if objective and objective.loss.program and stage.model.service != LOCAL:
            yield f"the package torch: `{objective.loss.name}` is traced with it"
        if is_training(stage):
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
