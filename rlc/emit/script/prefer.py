"""The program of a stage that learns from pairs of replies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from rlc.algo import pair_functions
from rlc.catalog import preference_program, preference_traits
from rlc.data import hashed
from rlc.emit.script.common import (
    asked_model,
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
    when,
)
from rlc.emit.script.environments import OpeningLines
from rlc.emit.script.literals import CallText, given, named, written
from rlc.emit.script.stitch import MARK
from rlc.plan import FromData, Plan, PreferenceLoss, Training

_READ = "sum(len(tokens) - 1 for side in sides for tokens, _ in side)"


def preference_body(plan: Plan, stage: Training, path: str) -> str:
    """Return what is written for a stage alone, in a script at ``path``."""
    batch = assigned("BATCH", stage.of(FromData).batch, origin(plan, stage, "batch"))
    functions = pair_functions(preference_program(stage.of(PreferenceLoss).loss))
    named = "FUNCTIONS = (loss, slope_of_chosen, slope_of_rejected)"
    lines = [*functions, "", "", named, "", "", *_train(plan, stage, path), *main()]
    return "\n".join([*constants(plan, stage), batch, MARK, *lines])


def _train(plan: Plan, stage: Training, path: str) -> Iterator[str]:
    opening, objective = OpeningLines(plan.recipe, os.path.dirname(path)), stage.of(PreferenceLoss)
    made = [_pairs(stage, data, opening) for data in stage.data]
    mean = preference_traits(objective.loss).mean
    ref = "await by_model(reference, sides, known)" if objective.reference else "None"
    yield "async def train(steps: int, metrics: str) -> None:"
    yield from opened(stage, os.path.basename(path))
    yield "    renderer = get_renderer(RENDERER, tokenizer)"
    if objective.reference is not None:
        yield f"    reference = {asked_model(objective.reference.model)}"
        yield "    known: dict[int, Array] = {}"
    for name, pairs in zip(("pairs", "heldout"), made, strict=False):
        yield f"    {written(named(f'{name} = ', pairs), 4)}"
    yield "    for step in range(1, steps + 1):"
    yield "        numbers = sampled_examples(SEED, STAGE, len(pairs), BATCH, step)"
    yield "        sides = [side for number in numbers for side in pairs[number]]"
    yield f"        ref = {ref}"
    yield "        rows = await by_trainer(training, sides)"
    yield f"        data, measured = judged(sides, rows, ref, FUNCTIONS, mean={mean})"
    yield from counted(stage, "prefill", _READ, 8)
    yield '        gradient = training.forward_backward(data, "cross_entropy")'
    yield from rate_of(stage, 8)
    yield f"        await update(training, gradient, {rate_name(stage)})"
    yield from counted(stage, "trained", _READ, 8)
    if stage.heldout is not None:
        due = when(stage.every, f" or step % {stage.every} == 0")
        yield f"        if step == steps{''.join(due)}:"
        yield "            sides = [side for pair in heldout for side in pair]"
        yield f"            ref, rows = {ref}, await by_trainer(training, sides)"
        yield f"            _, found = judged(sides, rows, ref, FUNCTIONS, mean={mean})"
        yield '            measured["heldout/loss"] = found["loss/mean"]'
        yield '            measured["heldout/accuracy"] = found["accuracy"]'
        yield from counted(stage, "prefill", _READ, 12)
    yield from ended(plan, stage)


def _pairs(stage: Training, data: Any, opening: OpeningLines) -> CallText:
    rows = opening.rows(data.path, data.split, hashed(data), data.count)
    return CallText("pairs_of", ["renderer", rows, *given(shortened(stage, data))])
