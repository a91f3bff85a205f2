"""What is learnt from rows of data, whatever kind of stage reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlc.data.chats import MESSAGES, read_chat, read_pair
from rlc.data.comparisons import PROMPTS, compares, comparison_reader
from rlc.plan.preferences import PreferencesPlan
from rlc.plan.records import DataPlan


def reader_of(data: DataPlan | PreferencesPlan) -> Callable[[Mapping[str, Any]], object]:
    """What reads the rows of a file that a plan learns from."""
    if isinstance(data, PreferencesPlan):
        return comparison_reader(data)
    if data.train_on is not None:
        train_on = data.train_on
        return lambda row: read_chat(row, data.messages, train_on)
    assert data.prompt is not None
    assert data.reply is not None
    prompt, reply = data.prompt, data.reply
    return lambda row: read_pair(row, prompt, reply)


def hashed(data: DataPlan | PreferencesPlan) -> str:
    """The field by whose content the rows of such a file are taken apart."""
    if isinstance(data, PreferencesPlan):
        return data.prompt or PROMPTS[0]
    return data.prompt or data.messages or MESSAGES


def kept(data: DataPlan | PreferencesPlan) -> Callable[[Mapping[str, Any]], bool] | None:
    """What says whether a row is learnt from; None if all are."""
    return partial(compares, data=data) if isinstance(data, PreferencesPlan) else None
