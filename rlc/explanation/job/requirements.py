"""What a job writes, and what it needs: keys, services, packages, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rlc.catalog import tracker_traits
from rlc.catalog.requirements import (
    KEY_OF_TINKER,
    SERVICE_PACKAGES,
    Requirement,
    requirements,
)
from rlc.plan import (
    LOCAL,
    TINKER,
    FromData,
    Likelihood,
    Plan,
    PolicyGradient,
    PreferenceLoss,
    StagePlan,
    Table,
    TrackPlan,
    Training,
    show,
)


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
    """Return what the job needs before it can run, as sentences without repetitions."""
    return list(dict.fromkeys(_needed(plan)))


def _needed(plan: Plan) -> Iterator[str]:
    all_of_it = requirements(plan)
    services = dict.fromkeys(one.name for one in all_of_it if one.kind == "service")
    covered = {package for service in services for package in SERVICE_PACKAGES[service]}
    for service in services:
        yield from _SERVICES[service]
    for one in all_of_it:
        in_service = one.kind == "package" and one.name in covered
        if one.kind != "service" and not in_service and one.name != KEY_OF_TINKER:
            yield from _SAID[one.kind](one)


_SERVICES = {
    LOCAL: (
        "no key and no network for the model: it trains on this machine",
        "the packages torch and transformers (rlc[local])",
    ),
    TINKER: (
        "TINKER_API_KEY in the environment: it trains on hosted Tinker, or on a server of your own "
        "(--base-url)",
        "the packages tinker and tinker-cookbook (rlc[tinker])",
    ),
}


def _package(one: Requirement) -> Iterator[str]:
    extra = f" (rlc[{one.extra}])" if one.extra else ""
    yield f"the package {one.name}{extra}" + (f": {one.purpose}" if one.purpose else "")


def _key(one: Requirement) -> Iterator[str]:
    purpose = f": {one.purpose}" if one.purpose else ""
    instead = f", or {one.instead}" if one.instead else ""
    yield f"{one.name} in the environment{instead}{purpose}"


def _data_set(one: Requirement) -> Iterator[str]:
    name = f": {one.name}" if one.name else ""
    yield f"{one.by}: a data set from the Hugging Face hub, downloaded when the run starts{name}"


# How each kind of requirement is said.
_SAID: Mapping[str, Callable[[Requirement], Iterator[str]]] = {
    "package": _package,
    "key": _key,
    "file": lambda one: iter([f"{one.by}: the file {one.name}"]),
    "data set": _data_set,
    "code": lambda one: iter([f"{one.by}: {one.name}"]),
    "program": lambda one: iter([f"{one.by}: the agent {one.name}"]),
    "command": lambda one: iter([f"the command {one.name}"]),
    "server": lambda one: iter([f"{one.by}: {one.purpose}"]),
    "weights": lambda one: iter([f"{one.by}: the weights {one.name}"]),
    "beginning": lambda one: iter([f"{one.by}: {one.name}"]),
}
