"""From rollouts and advantages to the datums of ``forward_backward``.

Turns whose prompt extends the tokens before it are merged into one sequence, so an episode of a
chat is one datum. Targets are the inputs shifted by one; only sampled tokens carry an advantage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from rlc.run.records import Rollout, Turn

if TYPE_CHECKING:
    from tinker import types

FloatArray = npt.NDArray[np.float64]


@define
class _Sequence:
    tokens: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    advantages: list[float] = field(factory=list)
    sampled: list[bool] = field(factory=list)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens that the policy did not sample."""
        self._append(tokens, [0.0] * len(tokens), 0.0, False)

    def extend_sampled(self, turn: Turn, advantage: float) -> None:
        self._append(turn.tokens, turn.logprobs, advantage, True)

    def _append(
        self, tokens: Sequence[int], logprobs: Sequence[float], advantage: float, sampled: bool
    ) -> None:
        self.tokens.extend(tokens)
        self.logprobs.extend(logprobs)
        self.advantages.extend([advantage] * len(tokens))
        self.sampled.extend([sampled] * len(tokens))


@frozen
class TrainingDatum:
    """One sequence, already shifted: position ``t`` predicts ``targets_T[t]`` from the inputs
    up to ``t``. ``mask_T`` marks sampled targets."""

    inputs: list[int]
    targets_T: npt.NDArray[np.int64]
    logprobs_T: FloatArray
    advantages_T: FloatArray
    mask_T: npt.NDArray[np.bool_]

    def to_tinker(self, loss: str) -> types.Datum:
        """The datum that ``loss`` takes; cross-entropy has the advantages as its weights."""
        from tinker import types

        arrays: dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int64]] = {
            "target_tokens": self.targets_T
        }
        advantages_T = self.advantages_T.astype(np.float32)
        if loss == "cross_entropy":
            arrays["weights"] = advantages_T
        else:
            arrays["logprobs"] = self.logprobs_T.astype(np.float32)
            arrays["advantages"] = advantages_T
        return types.Datum(
            model_input=types.ModelInput.from_ints(self.inputs),
            loss_fn_inputs={key: types.TensorData.from_numpy(a) for key, a in arrays.items()},
        )


def rollout_datums(
    rollout: Rollout,
    advantages_T: FloatArray,
    chosen_T: npt.NDArray[np.bool_],
    drop_zero: bool,
) -> list[TrainingDatum]:
    """The datums of one rollout; ``advantages_T`` and ``chosen_T`` have one value a turn.

    A turn that is not chosen is context only. With ``drop_zero`` a sequence without any
    advantage is left out: where the loss is proportional to the advantage its gradient is
    exactly zero, and a service bills every token.
    """
    merged = _merge(rollout.turns, advantages_T, chosen_T)
    useful = (s for s in merged if any(s.advantages if drop_zero else s.sampled))
    return [_shift(sequence) for sequence in useful]


def _merge(
    turns: Sequence[Turn], advantages_T: FloatArray, chosen_T: npt.NDArray[np.bool_]
) -> Iterator[_Sequence]:
    current = _Sequence()
    for turn, advantage, chosen in zip(turns, advantages_T.tolist(), chosen_T, strict=True):
        known = len(current.tokens)
        if turn.prompt[:known] != current.tokens:
            yield current
            current, known = _Sequence(), 0
        current.extend(turn.prompt[known:])
        if chosen:
            current.extend_sampled(turn, advantage)
        else:
            current.extend(turn.tokens)
    if current.tokens:
        yield current


def _shift(sequence: _Sequence) -> TrainingDatum:
    return TrainingDatum(
        inputs=sequence.tokens[:-1],
        targets_T=np.asarray(sequence.tokens[1:], dtype=np.int64),
        logprobs_T=np.asarray(sequence.logprobs[1:], dtype=np.float64),
        advantages_T=np.asarray(sequence.advantages[1:], dtype=np.float64),
        mask_T=np.asarray(sequence.sampled[1:], dtype=np.bool_),
    )
