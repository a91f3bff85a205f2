"""The program of a supervised stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlc.catalog import (
    COOKBOOK_BATCH,
    COOKBOOK_COMMON,
    code_of_data,
)
from rlc.data import hashed
from rlc.emit.script.common import (
    assigned,
    constants,
    counted,
    ended,
    main,
    opened,
    origin,
    rate_name,
    rate_of,
    shortened,
)
from rlc.emit.script.environments import OpeningLines
from rlc.emit.script.literals import CallText, Expression, given, literal, named, written
from rlc.emit.script.stitch import MARK
from rlc.plan import AnyData, BuilderData, Chats, FromData, Plan, Training


def imitation_body(plan: Plan, stage: Training, path: str) -> str:
    """Return what is written for a stage alone, in a script at ``path``."""
    batch = assigned("BATCH", stage.of(FromData).batch, origin(plan, stage, "batch"))
    lines = [*_train(plan, stage, path), *main()]
    return "\n".join([*constants(plan, stage), batch, MARK, *lines])


def _train(plan: Plan, stage: Training, path: str) -> Iterator[str]:
    opening = OpeningLines(plan.recipe, os.path.dirname(path))
    yield "async def train(steps: int, metrics: str) -> None:"
    yield from opened(stage, os.path.basename(path))
    if any(data.file for data in stage.data):
        yield "    renderer = get_renderer(RENDERER, tokenizer)"
    pairs = zip(("examples", "heldout"), stage.data, strict=False)
    made = [named(f"{name} = ", EXAMPLES[type(data)](stage, data, opening)) for name, data in pairs]
    yield from opening.written()
    yield from (f"    {written(one, 4)}" for one in made)
    yield "    for step in range(1, steps + 1):"
    yield "        numbers = sampled_examples(SEED, STAGE, len(examples), BATCH, step)"
    yield "        batch = [one for number in numbers for one in examples[number]]"
    yield '        gradient = training.forward_backward(batch, "cross_entropy")'
    yield from rate_of(stage, 8)
    yield f"        loss = await update(training, gradient, {rate_name(stage)})"
    yield from counted(stage, "trained", "sum(one.model_input.length for one in batch)", 8)
    yield '        measured = {"loss/mean": loss / weight_of(batch), "loss/sum": loss}'
    if stage.heldout is not None:
        due = "" if stage.every is None else f" or step % {stage.every} == 0"
        yield f"        if step == steps{due}:"
        yield "            scored = [one for example in heldout for one in example]"
        yield '            measured["heldout/loss"] = await heldout_loss(training, scored)'
        read = "sum(one.model_input.length for one in scored)"
        yield from counted(stage, "prefill", read, 12)
    yield from ended(plan, stage)


def _chats(stage: Training, data: Any, opening: OpeningLines) -> Expression:
    rows = opening.rows(data.path, data.split, hashed(data), data.count)
    more = ({"field": data.messages} if data.messages else {}) | shortened(stage, data)
    return CallText("examples_of", ["renderer", rows, literal(data.train_on), *given(more)])


def _built(_: Training, data: Any, opening: OpeningLines) -> Expression:
    code = code_of_data(data)
    assert code is not None
    common = {"model_name_for_tokenizer": "tokenizer.name_or_path", "renderer_name": "RENDERER"}
    common |= {"max_length": "None", "batch_size": "BATCH"}
    config = [f"{name}={text}" for name, text in common.items()]
    common_config = str(CallText("ChatDatasetBuilderCommonConfig", config))
    decided = {COOKBOOK_BATCH: "BATCH", COOKBOOK_COMMON: common_config}
    rows = f"all_of({opening.built(code, decided, data.split)})"
    return rows if data.count is None else f"{rows}[:{literal(data.count)}]"


# What makes the examples of each kind of data.
EXAMPLES: Mapping[type[AnyData], Callable[[Training, Any, OpeningLines], Expression]]
EXAMPLES = {Chats: _chats, BuilderData: _built}
