"""Datums of which every token is named by the reply that it was sampled in"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tinker import types

from rlc.emit.pieces.datums import Trained

Reply = tuple[str, int, int]  # its sampled sequence, and its tokens in that to train on


def trimmed(one: Trained) -> Trained:
    """A sequence up to the last token that is trained on."""
    end = int(np.flatnonzero(one.mask)[-1]) + 1
    names = ("logprobs", "advantages", "mask", "turns")
    arrays: dict[str, Any] = {name: getattr(one, name)[:end] for name in names}
    return replace(one, tokens=one.tokens[: end + 1], **arrays)


def with_replies(made: types.Datum, one: Trained) -> types.Datum:
    """The datum, with the sampled sequence behind every token."""
    replies = list[Reply]()
    for turn in dict.fromkeys(one.turns[one.mask].tolist()):
        at = np.flatnonzero(one.turns == turn) + 1  # target t is token t + 1
        replies.append((one.episode.turns[turn].sequence_id, int(at[0]), int(at[-1]) + 1))
    length = len(one.tokens) - 1
    return made.with_provenance(spans(replies, 0, length), spans(replies, 1, length + 1))


def spans(replies: Sequence[Reply], first: int, end: int) -> list[Any]:
    """Where the tokens from ``first`` to ``end`` come from: a reply was sampled, and what lies
    before it was in the prompt that it answers."""
    made: list[Any] = []
    for name, begin, stop in replies:
        start, stop = max(begin, first), min(stop, end)
        which: dict[str, Any] = {"sequence_id": name}
        if start > first:
            made.append(types.PromptProvenanceSpan(**which, offset=first, length=start - first))
        if stop > start:
            span = which | {"offset": start - begin, "length": stop - start}
            made.append(types.SampledProvenanceSpan(**span))
        first = stop
    return made
