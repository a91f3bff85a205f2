"""Preferences made by a model itself: of several replies to a task the best and the worst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlc.plan import AnyData, PreferredPairs, StagePlan, Training
from rlc.runtime.journal.meter import Meter
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.tasks import TaskStream, new_cursor
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.file_examples import CHOSEN, REJECTED
from rlc.runtime.stages.samples import (
    EpisodeSampler,
    KeptEpisode,
    collect,
    model_player,
    opened_env,
)

MOST_TRIES = 20  # tasks played for each pair that is asked for


async def preferred(setup: Setup, stage: Training, data: PreferredPairs) -> list[dict[str, Any]]:
    """Return the pairs of a stage's data as records of the run folder, in the order of their tasks.

    Each task is played by as many members as the plan says; tasks whose rewards are all equal are
    ties. Raise RunError if too few tasks have replies that differ.
    """
    part = part_of(stage, data)
    folder, tokenizer, renderer = setup.folder, setup.tokenizer, stage.model.renderer
    name, rollouts, model = data.env.name, data.env.rollouts, data.model.model
    account = Meter(folder.journal, stage.name, model)
    async with opened_env(setup, data.env, tokenizer, renderer, account) as env:
        client = await setup.asked.client(data.model)
        play = model_player(client, rollouts, model.context, account)
        names = ("preferred", stage.name, *([part] if part else []))
        stream = TaskStream(
            {name: env}, new_cursor([name]), folder.plan.seed, names, size=rollouts.group
        )
        whose = f"{stage.name}{part}"
        sampler = EpisodeSampler(folder, whose, stream, model, play, account)
        most = MOST_TRIES * data.count * rollouts.group
        found, played = await collect(
            sampler, 2 * data.count, most, best_and_worst, setup.observer.progress
        )
    tasks = played // rollouts.group
    if len(found) < 2 * data.count:
        raise RunError(
            f"only {len(found) // 2} of {tasks:,} tasks of `{name}` had replies whose rewards "
            f"differ; {data.count} pairs are wanted",
            "lower `n`, draw more `samples` of each task, or take tasks that are sometimes solved",
        )
    pairs = list(zip(found[::2], found[1::2], strict=True))
    if ties := tasks - len(pairs):
        setup.observer.note(f"{whose}: {ties:,} of {tasks:,} tasks are left out, most as ties")
    return [_record(better, worse, tokenizer) for better, worse in pairs]


def part_of(stage: StagePlan, data: AnyData) -> str:
    """Return what the names of things that are made of a stage's data end with."""
    return "-heldout" if data is stage.heldout else ""


def best_and_worst(group: Sequence[KeptEpisode]) -> Sequence[KeptEpisode]:
    """Return the episodes of a task with the highest and the lowest reward, of equals the first;
    none if all rewards are equal."""
    usable = [one for one in group if one.sequences]
    if not usable:
        return []
    better = max(usable, key=lambda one: one.reward)
    worse = min(usable, key=lambda one: one.reward)
    return [better, worse] if better.reward > worse.reward else []


def _record(better: KeptEpisode, worse: KeptEpisode, tokenizer: Any) -> dict[str, Any]:
    first = better.sequences[0]
    asked = [
        token
        for token, turn in zip(first["tokens"], first["turns"], strict=True)
        if turn < 0 and token >= 0
    ]
    return {
        "place": f"{better.env} task {better.task}",
        CHOSEN: list(better.sequences),
        REJECTED: list(worse.sequences),
        "earned": [better.reward, worse.reward],
        "shown": {
            "prompt": tokenizer.decode(asked),
            CHOSEN: "\n".join(better.actions),
            REJECTED: "\n".join(worse.actions),
        },
    }
