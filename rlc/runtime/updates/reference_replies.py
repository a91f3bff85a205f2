"""The reference's logprobs of replies: asked for once, then kept in the run folder."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define, field

from rlc.chat.tokens import model_input
from rlc.runtime.concurrency import all_of
from rlc.runtime.guard.meter import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.updates.datums import FloatArray, TrainingDatum
from rlc.runtime.updates.preferences import Side
from rlc.service.interface import SamplingClient


@define(eq=False)
class ReferenceReplies:
    """Asks a frozen model for the logprobs of replies, each once in the life of a run.

    ``meter`` counts the tokens sent, at that model's price, in the step that needs them. ``file``
    has what is known, by the keys of the sides.
    """

    client: SamplingClient
    meter: Meter
    folder: RunFolder
    file: str
    _known: dict[str, FloatArray] = field(factory=dict, init=False)
    _read: Counter[int] = field(factory=Counter, init=False)  # tokens, by the step they were for
    _asked: dict[int, asyncio.Task[None]] = field(factory=dict, init=False)  # by step

    def __attrs_post_init__(self) -> None:
        if (self.folder.path / self.file).exists():
            for record in self.folder.read(self.file):
                if "key" in record:  # the last line may be damaged by a crash
                    values = np.frombuffer(b64decode(record["logprobs"]), dtype="<f4")
                    self._known[record["key"]] = values.astype(np.float64)
                    self._read[record["step"]] += record["tokens"]

    def ask(self, step: int, sides: Sequence[Side]) -> None:
        """Start to ask for what a step will need, without waiting."""
        if step not in self._asked:
            self._asked[step] = asyncio.create_task(self._ask(step, sides))

    async def logprobs(self, step: int, sides: Sequence[Side]) -> list[FloatArray]:
        """Return the logprobs of each side's reply, token by token."""
        self.ask(step, sides)
        await self._asked.pop(step)
        self.meter.running[step]
        await self._ask(step, sides)  # of others than were foreseen
        return [self._known[side.key] for side in sides]

    def write(self) -> None:
        """Write down what the running steps have read so far."""
        self.meter.write()

    def finish(self, step: int) -> int:
        """Write all down, and return the tokens that were read for a step, by this process or an
        earlier one."""
        self.meter.running[step]
        self.meter.finish(step)
        return self._read[step]

    async def close(self) -> None:
        """Give up what was asked for ahead."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _ask(self, step: int, sides: Sequence[Side]) -> None:
        missing = {side.key: side for side in sides if side.key not in self._known}
        if not missing:
            return
        found = await all_of(self._of_side(step, side) for side in missing.values())
        records: list[dict[str, Any]] = [
            {
                "key": key,
                "step": step,
                "tokens": sum(len(datum.inputs) + 1 for datum in side.datums),
                "logprobs": b64encode(row.astype("<f4").tobytes()).decode(),
            }
            for (key, side), row in zip(missing.items(), found, strict=True)
        ]
        self.folder.append(self.file, records)
        self._known |= zip(missing, found, strict=True)
        self._read[step] += sum(record["tokens"] for record in records)

    async def _of_side(self, step: int, side: Side) -> FloatArray:
        return side.replies(await all_of(self._of_datum(step, datum) for datum in side.datums))

    async def _of_datum(self, step: int, datum: TrainingDatum) -> FloatArray:
        tokens = [*datum.inputs, int(datum.targets_T[-1])]
        logprobs = await self.client.compute_logprobs(model_input(tokens, datum.chunks))
        self.meter.running[step].prefill += len(tokens)
        # What is not text has no logprob.
        return np.array([0.0 if one is None else one for one in logprobs[1:]], dtype=np.float64)
