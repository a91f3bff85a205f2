"""The examples of a stage that learns from data: made once, then kept in the run folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from rlc.catalog import LIKELIHOOD
from rlc.plan import AnyData, Demonstrations, PreferredPairs, Samples, StagePlan, Training, is_read
from rlc.runtime.concurrency import in_thread
from rlc.runtime.graph import Inputs, NodeContext, StepFunction
from rlc.runtime.journal.folder import RunFolder, examples_file
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.tokens import Scores, TokenSequence
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.file_examples import file_examples
from rlc.runtime.stages.samples import demonstrations, preferred, samples
from rlc.runtime.updates.datums import TrainingDatum, shifted
from rlc.runtime.weights import is_scored

if TYPE_CHECKING:
    from tinker import types


# One demonstration: the datums of its merged turns.
Example = list[TrainingDatum]


async def load_examples(setup: Setup, stage: Training, data: AnyData) -> list[Example]:
    """Return the examples of a stage's data, from the run folder or else made now. A resumed run
    has the same examples, even if the file or the weights that they came from have changed.

    Raises:
        DataError: a row of the file cannot be used.
        RunError: the examples cannot be made, or those of a resumed run are gone.
    """
    vocabulary = len(setup.tokenizer)
    return [
        _example(record["sequences"], vocabulary, record.get("weight", 1.0))
        for record in await example_records(setup, stage, data)
    ]


def _example(parts: Sequence[Mapping[str, Any]], vocabulary: int, weight: float = 1.0) -> Example:
    """Return the example in which each token that the model is to write has one weight."""
    sequences = [TokenSequence.read(part) for part in parts]
    turns = 1 + max(turn for sequence in sequences for turn in sequence.turns)
    weight_T, chosen_T = np.full(turns, weight), np.ones(turns, dtype=np.bool_)
    datums = []
    for one in sequences:
        turn_T, scored = np.asarray(one.turns[1:]), dict[str, Scores]()
        if one.topk:
            known = [(np.flatnonzero(turn_T == turn), topk) for turn, topk in one.topk.items()]
            scored["teacher"] = Scores.at_places(one.logprobs[1:], known, vocabulary)
        datums.append(shifted(one, weight_T, chosen_T, scored))
    return datums


async def example_records(setup: Setup, stage: Training, data: AnyData) -> list[dict[str, Any]]:
    """Return the records of a stage's data in the run folder; make missing ones."""
    folder, name = setup.folder, examples_file(stage, data)
    if setup.weights.step and not (folder.path / name).exists():
        raise RunError(f"{folder.path / name} is gone, and cannot be made again")
    await make_file_examples(folder, stage, setup.tokenizer, setup.observer.note)
    if not (folder.path / name).exists():
        folder.rewrite(name, await MAKERS[type(data)](setup, stage, data))
    return folder.read(name)


async def make_file_examples(
    folder: RunFolder, stage: StagePlan, tokenizer: Any, note: Callable[[str], None]
) -> None:
    """Make the examples of a stage from files, unless it has begun; raise DataError or RunError."""
    for data in stage.data:
        name = examples_file(stage, data)
        if (folder.path / name).exists() or folder.journal.steps(stage.name) or not is_read(data):
            continue
        records, notes = await in_thread(file_examples, stage, data, tokenizer)
        folder.rewrite(name, records)
        for text in notes:
            note(text)


# Data made of episodes: what plays them, and returns the records of the run folder.
MAKERS: Mapping[
    type[AnyData], Callable[[Setup, Training, Any], Awaitable[list[dict[str, Any]]]]
] = {Demonstrations: demonstrations, Samples: samples, PreferredPairs: preferred}


_AT_ONCE = 128  # sequences of a forward pass


async def heldout_node(setup: Setup, stage: Training) -> dict[str, StepFunction]:
    """Return the node function that scores the held-out examples of a stage, if it has any."""
    if stage.heldout is None:
        return {}
    training, examples = setup.weights.training, await load_examples(setup, stage, stage.heldout)
    datums = [datum for example in examples for datum in example]
    wired: list[types.Datum] = []  # the same each time

    async def score(node: NodeContext, _inputs: Inputs) -> dict[str, float]:
        """Return the mean loss of a token, if it is due after the step."""
        if not is_scored(stage, node.step):
            return {}
        if not wired:
            wired.extend(await in_thread(lambda: [one.to_tinker(LIKELIHOOD) for one in datums]))
        parts = (wired[start : start + _AT_ONCE] for start in range(0, len(wired), _AT_ONCE))
        outputs = await asyncio.gather(*(training.forward(p, LIKELIHOOD.name) for p in parts))
        setup.meter.running[node.step].prefill += sum(len(datum.inputs) for datum in datums)
        rows = [row["logprobs"].to_numpy() for output in outputs for row in output.loss_fn_outputs]
        pairs = zip(datums, rows, strict=True)  # not every service reports the loss of a forward
        total = fsum(-float(datum.advantages_T @ logprobs_T) for datum, logprobs_T in pairs)
        return {"heldout/loss": total / fsum(datum.weighed for datum in datums)}

    return {"heldout": score}
