"""The data of a stage that learns from rows, as the expressions that read it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlc.catalog import COOKBOOK_BATCH, COOKBOOK_COMMON, code_of_data
from rlc.data import hashed
from rlc.emit.script.environments import OpeningLines
from rlc.emit.script.literals import CallText, Expression, given, literal, written
from rlc.plan import AnyData, BuilderData, Chats, LabelledReplies, Pairs, Plan, Rows, Training


def data_sets(plan: Plan, stage: Training, path: str) -> Iterator[str]:
    """Yield the function that reads what a stage learns from, and what it holds out."""
    opening = OpeningLines(plan.recipe, os.path.dirname(path))
    made = [EXAMPLES[type(data)](stage, data, opening) for data in stage.data]
    yield "def data_sets(tokenizer: Any) -> list[Any]:"
    if any(data.file for data in stage.data):
        yield "    renderer = get_renderer(RENDERER, tokenizer)"
    yield from opening.written()
    yield f"    return {written(CallText('', made, '[]'), 4, 7)}"


def _rows(stage: Training, data: Any, opening: OpeningLines, reader: str, **how: Any) -> CallText:
    """Return what reads the rows of a file; some may be too long."""
    rows = opening.rows(data.path, data.split, hashed(data), data.count)
    limits = [limit for limit in (data.max_tokens, stage.model.context) if limit is not None]
    how |= {"most": min(limits)} if limits else {}
    how |= {"drops": True} if data.too_long == "drop" else {}
    return CallText(reader, ["renderer", rows, *given(how)])


def _chats(stage: Training, data: Any, opening: OpeningLines) -> Expression:
    field = {"field": data.messages} if data.messages else {}
    return _rows(stage, data, opening, "examples_of", which=data.train_on, **field)


def _answers(stage: Training, data: Any, opening: OpeningLines) -> Expression:
    return _rows(stage, data, opening, "answers_of", prompt=data.prompt, reply=data.reply)


def _pairs(stage: Training, data: Any, opening: OpeningLines) -> Expression:
    return _rows(stage, data, opening, "pairs_of")


def _labelled(stage: Training, data: Any, opening: OpeningLines) -> Expression:
    return _rows(stage, data, opening, "labelled_of")


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
EXAMPLES = {
    Chats: _chats,
    Rows: _answers,
    Pairs: _pairs,
    LabelledReplies: _labelled,
    BuilderData: _built,
}
