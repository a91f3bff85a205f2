"""Tokens of preferences: a forward pass and a gradient over every reply, and a reference's once."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from rlc.catalog.index import preference_traits
from rlc.plan.sources import AnyData, LabelledReplies
from rlc.plan.stages import FromData, PreferenceLoss, Training
from rlc.pricing.shapes import CHAT_TOKENS, rollout_shapes
from rlc.pricing.texts import Level, RowTokens, preference_tokens
from rlc.records import frozen

SIDE_TOKENS = {"low": 60, "expected": 600, "high": 4_000}  # of a reply that cannot be read
HELDOUT = 1_000  # held-out preferences or examples, where they cannot be counted


@frozen
class PreferenceTokens:
    """Tokens of one preference: those that are ``trained`` on, and those that are only ``read``
    beside them."""

    trained: float
    read: float

    @property
    def total(self) -> float:
        return self.trained + self.read


def measured(stage: Training, data: AnyData) -> RowTokens | None:
    """The rows of a stage's data, if they can be read."""
    return preference_tokens(data, stage.model)


def _sides(data: AnyData) -> int:
    """How many replies one of the preferences of data has."""
    return 1 if data.word == LabelledReplies.word else 2


def of_one(stage: Training, data: AnyData, level: Level) -> PreferenceTokens:
    """What one preference takes, both replies of a pair together."""
    rows, sides = measured(stage, data), _sides(data)
    whole: float = sides * SIDE_TOKENS[level]
    if rows is not None:
        whole = rows.at(level) + sides * CHAT_TOKENS[level]
    for env in data.environments:
        shapes = rollout_shapes(env, stage.model, None, level)
        whole = sides * max(sum(e.copies * e.datum_tokens() for e in shape) for shape in shapes)
    if not _labelled(stage):
        return PreferenceTokens(whole, 0.0)
    return PreferenceTokens(whole / sides, whole / sides)  # a reply, and that to another prompt


def _labelled(stage: Training) -> bool:
    return preference_traits(stage.of(PreferenceLoss).loss.name).labelled


def count_of(stage: Training, data: AnyData) -> int | None:
    """How many preferences data has; None if that is unknown."""
    rows, count = measured(stage, data), data.count
    if count is None and rows is not None:
        count = rows_taken(rows, data)
    return None if count is None else count * (_sides(data) if _labelled(stage) else 1)


def rows_taken(rows: RowTokens, data: AnyData) -> int:
    """How many of the rows of a file the split of data has."""
    split = getattr(data, "split", None)
    return ceil(rows.rows * (split["share"] if isinstance(split, Mapping) else 1.0))


def compared(stage: Training) -> int:
    """How often what is held out is compared."""
    if stage.heldout is None:
        return 0
    return 1 + (0 if stage.every is None else (stage.steps - 1) // stage.every)


def heldout_preferences(stage: Training, level: Level) -> float:
    """Tokens of comparing the held-out preferences once."""
    if stage.heldout is None:
        return 0.0
    count = count_of(stage, stage.heldout)
    return (HELDOUT if count is None else count) * of_one(stage, stage.heldout, level).total


def reference_tokens(stage: Training, level: Level) -> float:
    """Tokens that the reference reads in the whole stage: every reply once."""
    source = stage.of(FromData)
    used, count = stage.steps * source.batch, count_of(stage, source.data)
    learnt = (used if count is None else min(used, count)) * of_one(stage, source.data, level).total
    return learnt + heldout_preferences(stage, level)
