"""What is learnt from rows of data, whatever kind of stage reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlc.data.chats import MESSAGES, read_chat, read_pair
from rlc.data.comparisons import PROMPTS, compares, read_comparison, read_labelled
from rlc.plan import AnyData, Chats, LabelledReplies, Pairs, Rows

Row = Mapping[str, Any]

# What reads a row of each kind of data that has rows.
_READERS: Mapping[type[AnyData], Callable[[Row, Any], object]] = {
    Rows: lambda row, data: read_pair(row, data.prompt, data.reply),
    Chats: lambda row, data: read_chat(row, data.messages, data.train_on),
    Pairs: read_comparison,
    LabelledReplies: read_labelled,
}
# The field by whose content their rows are taken apart.
_HASHED: Mapping[type[AnyData], Callable[[Any], str]] = {
    Rows: lambda data: str(data.prompt),
    Chats: lambda data: data.messages or MESSAGES,
    Pairs: lambda data: data.prompt or PROMPTS[0],
    LabelledReplies: lambda data: data.prompt or PROMPTS[0],
}


def reader_of(data: AnyData) -> Callable[[Row], object]:
    """Return what reads the rows of a file that a stage learns from."""
    return partial(_swapped, _READERS[type(data)], data)


def _swapped(read: Callable[[Row, Any], object], data: AnyData, row: Row) -> object:
    return read(row, data)


def hashed(data: AnyData) -> str:
    """Return the field by whose content the rows of such a file are taken apart."""
    return _HASHED[type(data)](data)


def kept(data: AnyData) -> Callable[[Row], bool] | None:
    """Return what says whether a row is learnt from; None if all are."""
    return partial(compares, data=data) if isinstance(data, Pairs) else None
