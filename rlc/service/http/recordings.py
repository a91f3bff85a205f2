"""The sampled sequences that a session may name in the datums it trains on.

What is sampled with ``record_stability_info`` is remembered for a day, and for another one after
each request that uses it. Here that is the lengths of prompt and reply: the embedded engine needs
nothing else, so that a client finds the same mistakes as on Tinker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from attrs import define, field
from tinker import types

from rlc.service.http.refusals import Refused

_DAY = 24 * 3600.0


@define
class _Recording:
    prompt: int  # tokens
    sampled: int
    used_at: float


@define(eq=False)
class Recordings:
    """The recorded sequences of one session, by id."""

    _by_id: dict[str, _Recording] = field(factory=dict, init=False)

    def add(self, sequence_id: str, prompt: int, sampled: int) -> None:
        """Remember a sequence by its lengths."""
        now = time.time()
        for old in [i for i, known in self._by_id.items() if now - known.used_at > _DAY]:
            del self._by_id[old]
        self._by_id[sequence_id] = _Recording(prompt, sampled, now)

    def use(self, data: Sequence[types.Datum]) -> None:
        """Check the spans of some datums.

        Raises:
            Refused: a span names a sequence that is not recorded in this session, or tokens that
                its prompt or its reply does not have.
        """
        used: list[_Recording] = []
        for i, datum in enumerate(data):
            for span in [*(datum.model_input_spans or []), *(datum.loss_fn_input_spans or [])]:
                known = self._by_id.get(span.sequence_id)
                if known is None or time.time() - known.used_at > _DAY:
                    raise Refused(
                        400,
                        f"Datum {i} names the sequence {span.sequence_id}, which this session has "
                        "not sampled with record_stability_info = True in the last day.",
                    )
                is_sampled = isinstance(span, types.SampledProvenanceSpan)
                what, length = ("reply", known.sampled) if is_sampled else ("prompt", known.prompt)
                if span.offset + span.length > length:
                    raise Refused(
                        400,
                        f"Datum {i} names the tokens {span.offset} to {span.offset + span.length} "
                        f"of the {what} of {span.sequence_id}, which has {length}.",
                    )
                used.append(known)
        for known in used:
            known.used_at = time.time()
