"""From rollouts and advantages to the datums of ``forward_backward``.

Turns whose prompt extends the tokens before it are merged into one sequence, so an episode of a
chat is one datum. Targets are the inputs shifted by one; only sampled tokens carry an advantage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from rlc.algo import FIRST, MASK, WEIGHT, Program, after_batch
from rlc.catalog import loss_traits
from rlc.chat import NO_CHUNKS, Chunks, model_input
from rlc.plan import SCORERS, LossPlan
from rlc.runtime.records import RunError, Turn
from rlc.runtime.rollouts.tokens import (
    NOT_SAMPLED,
    ReplySpan,
    TokenSequence,
    merged_sequences,
)
from rlc.runtime.scores import Scores

if TYPE_CHECKING:
    from tinker import types

FloatArray = npt.NDArray[np.float64]


@frozen(eq=False)
class TrainingDatum:
    """One sequence, already shifted: position ``t`` predicts ``targets_T[t]``.

    It does so from the inputs up to ``t``, which hold the marks of ``chunks``. ``mask_T`` marks
    sampled targets; ``scored`` has the targets' logprobs under other models, by the kind of node
    that asked for them: the ``reference``, the ``teacher``; NaN where none was given. ``topk``
    is what a teacher said that was asked for its most likely tokens. ``replies`` are those that are
    trained on. ``weight`` is that of the sequence, where it is not folded into the advantages;
    ``folded`` is what they were multiplied by where it is.
    ``name`` is what the sequence is called within its step; ``batch`` has what the loss has
    computed over all sequences of the step, one number or one for each sampled token, by name.
    """

    inputs: list[int]
    targets_T: npt.NDArray[np.int64]
    logprobs_T: FloatArray
    advantages_T: FloatArray
    mask_T: npt.NDArray[np.bool_]
    scored: Mapping[str, FloatArray] = field(factory=dict)
    topk: Scores | None = None
    chunks: Chunks = NO_CHUNKS
    replies: tuple[ReplySpan, ...] = ()
    weight: float = 1.0
    folded: float = 1.0
    name: tuple[str | int, ...] = ()
    batch: Mapping[str, float | FloatArray] = field(factory=dict)

    @property
    def sampled(self) -> int:
        """How many tokens are trained on."""
        return int(self.mask_T.sum())

    @property
    def weighed(self) -> float:
        """How many tokens are trained on, each counted with its weight."""
        return float(self.advantages_T.sum())

    @property
    def ref(self) -> FloatArray | None:
        """The logprobs that a recipe's own loss reads as `ref`; None if no other model was asked.
        Where it gave none they are the sampler's."""
        read_T = next((self.scored[scorer] for scorer in SCORERS if scorer in self.scored), None)
        return None if read_T is None else np.where(np.isnan(read_T), self.logprobs_T, read_T)

    def trimmed(self) -> TrainingDatum:
        """Return the datum without what follows the last token that is trained on."""
        end = int(np.flatnonzero(self.mask_T)[-1]) + 1
        return evolve(
            self,
            inputs=self.inputs[:end],
            targets_T=self.targets_T[:end],
            logprobs_T=self.logprobs_T[:end],
            advantages_T=self.advantages_T[:end],
            mask_T=self.mask_T[:end],
            scored={scorer: logprobs_T[:end] for scorer, logprobs_T in self.scored.items()},
            topk=self.topk and self.topk.at(slice(end)),
        )

    def anchored(self, trainer_logprobs_T: npt.NDArray[Any]) -> TrainingDatum:
        """Return the datum with the trainer's own logprobs where nothing is trained on.

        A pull to the sampler's logprobs, which are not known there, then has no gradient.
        """
        return evolve(self, logprobs_T=np.where(self.mask_T, self.logprobs_T, trainer_logprobs_T))

    def to_tinker(self, loss: LossPlan) -> types.Datum:
        """Return the datum that ``loss`` takes.

        A loss without a ratio takes the advantages as its weights.
        """
        from tinker import types

        traits = loss_traits(loss)
        if loss.program is not None:
            floats = self._read_by(loss.program, traits.weighted)
        elif traits.sampler_logprobs:
            floats = {"logprobs": self.logprobs_T, "advantages": self.advantages_T}
        else:
            floats = {"weights": self.advantages_T}
        if traits.per_sequence:  # which tokens the ratio of the sequence is taken over
            floats["sequence_ratio_mask"] = self.mask_T
        arrays = {key: np.asarray(array, dtype=np.float32) for key, array in floats.items()}
        datum = types.Datum(
            model_input=model_input(self.inputs, self.chunks),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(self.targets_T),
                **{key: types.TensorData.from_numpy(array) for key, array in arrays.items()},
            },
        )
        if not traits.recorded:
            return datum
        length = len(self.inputs)
        return datum.with_provenance(self._spans(0, length), self._spans(1, length + 1))

    def to_targets(self) -> types.Datum:
        """Return the datum of which cross-entropy learns the shares of a teacher's top-k tokens at
        the sampled positions, each times ``weight``.

        The sampled token is the last target, with a weight of 0: the trainer's logprob of it comes
        back with the others.
        """
        from tinker import types

        said = self.topk
        assert said is not None
        tokens_TK = np.column_stack([said.tokens_TK, self.targets_T])
        weights_TK = np.column_stack([self.weight * said.shares_TK, np.zeros(len(self.targets_T))])
        weights_TK[~self.mask_T] = 0.0
        return types.Datum(
            model_input=model_input(self.inputs, self.chunks),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(tokens_TK),
                "weights": types.TensorData.from_numpy(weights_TK.astype(np.float32)),
            },
        )

    def sampled_inputs(self, trainer_T: FloatArray | None) -> dict[str, Any]:
        """Return what a recipe's own loss reads of the sampled tokens, each of shape (S,), and its
        values over the batch; ``logp`` is there if the trainer's logprobs, shape (T,), are."""
        rows = {
            "logp": trainer_T,
            "logq": self.logprobs_T,
            "adv": self.advantages_T,
            "ref": self.ref,
        }
        read = {key: row_T[self.mask_T] for key, row_T in rows.items() if row_T is not None}
        return {**read, **self.batch}

    def _read_by(self, program: Program, weighted: bool) -> dict[str, Any]:
        """Return what the function of a recipe's own loss takes beside the trainer's logprobs."""
        program, ref_T = after_batch(program), self.ref
        if ref_T is None and "ref" in program.inputs:
            raise RunError("a sequence has no logprobs of the reference that the loss reads")
        known = {"logq": self.logprobs_T, "adv": self.advantages_T, "ref": ref_T}
        first = int(np.argmax(self.mask_T))
        read: dict[str, Any] = {
            key: np.where(self.mask_T, array_T, array_T[first])
            for key, array_T in known.items()
            if array_T is not None and key in program.inputs
        }
        for key, value in self.batch.items():
            if key in program.inputs:
                read[key] = value
                if isinstance(value, np.ndarray):
                    read[key] = np.full(len(self.mask_T), value[0])
                    read[key][self.mask_T] = value
        read |= {MASK: self.mask_T, FIRST: np.arange(len(self.mask_T)) == first}
        return read | ({WEIGHT: self.weight} if weighted else {})

    def _spans(self, first: int, end: int) -> types.ProvenanceSpans:
        """Return where the tokens ``[first, end)`` of the sequence come from.

        Each reply that is trained on is a sampled span; what lies before it, earlier replies
        included, is part of the prompt that it was asked for with.
        """
        from tinker import types

        spans: types.ProvenanceSpans = []
        at = first
        for reply in self.replies:
            begin, stop = max(reply.begin, first), min(reply.end, end)
            name = {"sequence_id": reply.sequence_id}
            if begin > at:
                spans.append(types.PromptProvenanceSpan(**name, offset=at, length=begin - at))
            if stop > begin:
                offset = begin - reply.begin
                length = stop - begin
                spans.append(types.SampledProvenanceSpan(**name, offset=offset, length=length))
            at = stop
        return spans


def episode_datums(
    turns: Sequence[Turn],
    advantages_T: FloatArray,
    chosen_T: npt.NDArray[np.bool_],
    scored: Mapping[str, Sequence[Scores]] | None = None,
) -> list[TrainingDatum]:
    """Return the datums of one episode that have a token to train on.

    ``advantages_T`` and ``chosen_T`` have one value a turn; a turn that is not chosen is context
    only. ``scored`` has for each scorer what it says of each of :func:`merged_sequences`.
    """
    datums = [
        shifted(
            sequence,
            advantages_T,
            chosen_T,
            {scorer: said_S[index] for scorer, said_S in (scored or {}).items()},
        )
        for index, sequence in enumerate(merged_sequences(turns))
    ]
    return [datum for datum in datums if datum.mask_T.any()]


def shifted(
    sequence: TokenSequence,
    advantages_T: FloatArray,
    chosen_T: npt.NDArray[np.bool_],
    scored: Mapping[str, Scores] | None = None,
) -> TrainingDatum:
    """Return one sequence as a datum; the arguments are those of :func:`episode_datums`."""
    scored = scored or {}
    turn_T = np.asarray(sequence.turns[1:], dtype=np.int64)
    mask_T = (turn_T != NOT_SAMPLED) & chosen_T[turn_T]
    logprobs_T = np.asarray(sequence.logprobs[1:], dtype=np.float64)
    return TrainingDatum(
        inputs=sequence.tokens[:-1],
        targets_T=np.maximum(np.asarray(sequence.tokens[1:], dtype=np.int64), 0),  # no marks
        logprobs_T=np.where(mask_T, logprobs_T, 0.0),
        advantages_T=np.where(mask_T, advantages_T[turn_T], 0.0),
        mask_T=mask_T,
        scored={scorer: said.logprobs_T for scorer, said in scored.items()},
        topk=next((said for said in scored.values() if said.tokens_TK.shape[1]), None),
        chunks=sequence.chunks,
        replies=tuple(
            reply
            for turn, reply in sequence.replies.items()
            if chosen_T[turn] and reply.end > reply.begin
        ),
    )
