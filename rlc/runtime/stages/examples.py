"""The examples of a supervised stage: made once, then kept in the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlc.plan.records import SftPlan
from rlc.runtime.asked import AskedModels
from rlc.runtime.concurrency import in_thread
from rlc.runtime.guard.meter import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.environments import build_envs, close_envs
from rlc.runtime.stages.demonstrations import demonstrations
from rlc.runtime.stages.file_examples import file_examples
from rlc.runtime.stages.weights import StageWeights
from rlc.runtime.updates.datums import TokenSequence, TrainingDatum, shifted

# One demonstration: the datums of its merged turns.
Example = list[TrainingDatum]


async def load_examples(
    folder: RunFolder,
    stage: SftPlan,
    weights: StageWeights,
    meter: Meter,
    asked: AskedModels,
    on_progress: Callable[[int, int], None],
    note: Callable[[str], None],
) -> list[Example]:
    """Return the examples of a stage, from the run folder or else made now.

    A resumed run imitates the same examples, even if the file or the weights that they came from
    have changed.

    Raises:
        DataError: a row of the file cannot be used.
        RunError: the examples cannot be made, or those of a resumed run are gone.
    """
    name = _file_name(stage)
    if not (folder.path / name).exists():
        if weights.step:
            raise RunError(f"{folder.path / name} is gone, and cannot be made again")
        if stage.data.path is not None:
            await make_file_examples(folder, stage, weights.training.get_tokenizer(), note)
        else:
            records = await _from_episodes(folder, stage, weights, meter, asked, on_progress)
            folder.rewrite(name, records)
    return [_example(record["sequences"]) for record in folder.read(name)]


async def make_file_examples(
    folder: RunFolder, stage: SftPlan, tokenizer: Any, note: Callable[[str], None]
) -> None:
    """Make the examples of a stage that learns from a file, unless it has begun.

    Raise DataError or RunError for rows that cannot be used.
    """
    name = _file_name(stage)
    if (folder.path / name).exists() or folder.journal.steps(stage.name):
        return
    records, notes = await in_thread(file_examples, stage, tokenizer)
    folder.rewrite(name, records)
    for text in notes:
        note(text)


def _file_name(stage: SftPlan) -> str:
    return f"examples-{stage.name}.jsonl"


def _example(parts: Sequence[Mapping[str, Any]]) -> Example:
    """Return the example in which each token that the model is to write has weight 1."""
    sequences = [TokenSequence.read(part) for part in parts]
    turns = 1 + max(turn for sequence in sequences for turn in sequence.turns)
    weight_T, chosen_T = np.ones(turns), np.ones(turns, dtype=np.bool_)
    return [shifted(sequence, weight_T, chosen_T) for sequence in sequences]


async def _from_episodes(
    folder: RunFolder,
    stage: SftPlan,
    weights: StageWeights,
    meter: Meter,
    asked: AskedModels,
    on_progress: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    tokenizer = weights.training.get_tokenizer()
    assert stage.data.env is not None
    plan, renderer = stage.data.env, stage.model.renderer
    env = build_envs([plan], tokenizer, renderer, asked.responders(meter))[plan.name]
    client = (await weights.snapshot(0)).client if stage.data.policy == "model" else None
    try:
        shown = await demonstrations(folder, stage, env, client, meter, tokenizer, on_progress)
    finally:
        meter.write()
        await close_envs([env])
    return [one.example() for one in shown]
