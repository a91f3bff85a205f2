"""The sampled sequences that a session may name in the datums it trains on, as Tinker keeps them.

What is sampled with ``record_stability_info`` is remembered for a day, and for another one after
each request that uses it. Here that is the lengths of prompt and reply: the embedded engine needs
nothing else, so a client finds the same mistakes as on Tinker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from attrs import define, field
from tinker import types

from rlc.service.http import RefusedRequest
from rlc.service.server.backend import Extension

_DAY = 24 * 3600.0


@define
class _Recording:
    session_id: str
    prompt: int  # tokens
    sampled: int
    used_at: float


@define(eq=False)
class Recordings(Extension):
    """The recorded sequences of all sessions, by id."""

    _by_id: dict[str, _Recording] = field(factory=dict, init=False)

    def sampled(
        self, sampler_id: str, request: types.SampleRequest, response: types.SampleResponse
    ) -> None:
        if not request.record_stability_info:
            return
        session_id, length = sampler_id.split(":")[0], request.prompt.length
        for i, sequence in enumerate(response.sequences):
            self._by_id[f"{sampler_id}/{request.seq_id}/{i}"] = _Recording(
                session_id, length, len(sequence.tokens), time.time()
            )

    def check_sampled(self, session_id: str, data: Sequence[types.Datum]) -> None:
        used: list[_Recording] = []
        for i, datum in enumerate(data):
            for span in [*(datum.model_input_spans or []), *(datum.loss_fn_input_spans or [])]:
                known = self._by_id.get(span.sequence_id)
                is_lost = known is not None and time.time() - known.used_at > _DAY
                if known is None or is_lost or known.session_id != session_id:
                    raise RefusedRequest(
                        400,
                        f"Datum {i} names the sequence {span.sequence_id}, which this session has "
                        "not sampled with record_stability_info = True in the last day.",
                    )
                is_sampled = isinstance(span, types.SampledProvenanceSpan)
                what, length = ("reply", known.sampled) if is_sampled else ("prompt", known.prompt)
                if span.offset + span.length > length:
                    raise RefusedRequest(
                        400,
                        f"Datum {i} names the tokens {span.offset} to {span.offset + span.length} "
                        f"of the {what} of {span.sequence_id}, which has {length}.",
                    )
                used.append(known)
        for known in used:
            known.used_at = time.time()
