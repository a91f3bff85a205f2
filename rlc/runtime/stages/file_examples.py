"""Examples from the rows of a file, as sequences of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from rlc.data.chats import hashed, read_chat, read_pair, reader_of
from rlc.data.errors import DataError, Place, at_place
from rlc.data.rows import DataRow, rows_of
from rlc.data.sets.problems import rows_in
from rlc.data.splits import said
from rlc.envs.base import EnvError
from rlc.envs.history import chunks_of
from rlc.envs.tool_chat import ToolChatHistory, fitting_renderer, observation_of
from rlc.plan.records import DataPlan, SftPlan
from rlc.runtime.records import RunError
from rlc.runtime.stages.conversations import Conversations
from rlc.runtime.stages.demonstrations import encoded_reply
from rlc.runtime.updates.datums import NOT_SAMPLED, TokenSequence

Row = Mapping[str, Any]
Read = Callable[[Row], list[TokenSequence]]


def file_examples(stage: SftPlan, tokenizer: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The examples of a stage's file, as records of the run folder, and what is worth a note.

    Raise DataError for a row that cannot be used; RunError for rows that are too long, unless the
    plan drops them, and if none is left.
    """
    data, model = stage.data, stage.model
    conversations = Conversations(fitting_renderer(tokenizer, model.renderer), model.renderer)
    read = READERS[data.kind](data, conversations)
    limits = [limit for limit in (data.max_tokens, model.context) if limit is not None]
    records, notes, long = list[dict[str, Any]](), list[str](), list[tuple[Place, int]]()
    for row in _rows(data):
        with at_place(row.place):
            sequences = read(row.fields)
        length = max(len(sequence.tokens) for sequence in sequences)
        if limits and length > min(limits):
            long.append((row.place, length))
        else:
            written = [sequence.written() for sequence in sequences]
            records.append({"place": str(row.place), "sequences": written})
    if long:
        place, length = long[0]
        what = (
            f"{len(long):,} of {len(long) + len(records):,} rows of {data.path} have more than "
            f"{min(limits):,} tokens; the first is {place} with {length:,}"
        )
        if data.too_long == "stop" or not records:
            raise RunError(what, "`too_long = drop` leaves such rows out")
        notes.append(f"{stage.name}: left out, {what}")
    if conversations.differing:
        notes.append(
            f"{stage.name}: the renderer `{model.renderer}` writes {conversations.differing:,} of "
            "the messages that are trained on after something else than the prompt that it samples "
            "them with"
        )
    return records, notes


def read_all(data: DataPlan) -> None:
    """Raise DataError for a row of a stage's file that cannot be used."""
    read = reader_of(data)
    for row in _rows(data):
        with at_place(row.place):
            read(row.fields)


def _rows(data: DataPlan) -> Iterable[DataRow]:
    assert data.path is not None
    if data.split is None:  # of a plan that an older version wrote
        return islice(rows_of(data.path), data.count)
    rows = rows_in(data.path, data.split, hashed(data))
    if data.count is not None and data.count > len(rows):
        there = f"{data.path} has {len(rows):,} rows in {said(data.split)}"
        raise DataError(f"`n = {data.count}`, but {there}")
    return rows[: data.count]


def _chats(data: DataPlan, conversations: Conversations) -> Read:
    assert data.train_on is not None
    field, train_on = data.messages, data.train_on
    return lambda row: conversations.sequences(read_chat(row, field, train_on))


def _pairs(data: DataPlan, conversations: Conversations) -> Read:
    """Prompts as they are when the model is sampled, each with the text of its reply after it."""
    assert data.prompt is not None
    assert data.reply is not None
    names, renderer = (data.prompt, data.reply), conversations.renderer

    def read(row: Row) -> list[TokenSequence]:
        prompt, reply = read_pair(row, *names)
        history = ToolChatHistory(renderer)
        try:
            shown = history.observe(observation_of(prompt))
            said = encoded_reply(reply, history, renderer.tokenizer)
        except EnvError as error:
            raise DataError(str(error), error.hint) from error
        sequence = TokenSequence(chunks=chunks_of(history))
        sequence.append(shown, [0.0] * len(shown), NOT_SAMPLED)
        sequence.append(said, [0.0] * len(said), 0)
        return [sequence]

    return read


# By the name of the builtin that names the file.
READERS: Mapping[str, Callable[[DataPlan, Conversations], Read]] = {
    "chats": _chats,
    "rows": _pairs,
}
