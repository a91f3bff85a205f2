"""What another model says of a sequence: how likely it finds each token, and which tokens it finds
most likely in its place."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import astuple, frozen

from rlc.algo import top_k_shares

if TYPE_CHECKING:
    from tinker.types.topk_logprobs import TopkLogprobs

FloatArray = npt.NDArray[np.float64]


def topk_to_json(topk: TopkLogprobs) -> dict[str, Any]:
    """Return what a service said of some places as JSON data."""
    return {
        "k": topk.token_ids.shape[1],
        "tokens": b64encode(topk.token_ids.astype("<i4").tobytes()).decode(),
        "logprobs": b64encode(topk.logprobs.astype("<f4").tobytes()).decode(),
    }


def topk_from_json(record: Mapping[str, Any]) -> TopkLogprobs:
    """Return it from the data that :func:`topk_to_json` returned."""
    from tinker.types.topk_logprobs import TopkLogprobs

    shape = -1, record["k"]
    return TopkLogprobs(
        np.frombuffer(b64decode(record["tokens"]), dtype="<i4").reshape(shape),
        np.frombuffer(b64decode(record["logprobs"]), dtype="<f4").reshape(shape),
    )


def first_of(topk: TopkLogprobs | None, k: int) -> TopkLogprobs | None:
    """Return the first ``k`` tokens of each place; None if these are none."""
    if topk is None or not k:
        return None
    return type(topk)(topk.token_ids[:, :k], topk.logprobs[:, :k])


@frozen(eq=False)
class Scores:
    """What is said of the tokens of a sequence after the first.

    ``logprobs_T``: of each token; NaN where none was given. ``tokens_TK``: the K most likely in its
    place, none where K is 0; ``shares_TK``: what each has of the probability ``mass_T`` that these
    have together, all 0 where nothing is known.
    """

    logprobs_T: FloatArray
    tokens_TK: npt.NDArray[np.int64]
    shares_TK: FloatArray
    mass_T: FloatArray

    @classmethod
    def of_tokens(cls, logprobs_T: npt.ArrayLike) -> Scores:
        """What is said of the tokens themselves alone."""
        logprobs = np.asarray(logprobs_T, dtype=np.float64)
        none = np.zeros((len(logprobs), 0))
        return cls(logprobs, none.astype(np.int64), none, np.zeros(len(logprobs)))

    @classmethod
    def with_topk(cls, logprobs_T: npt.ArrayLike, topk: TopkLogprobs, vocabulary: int) -> Scores:
        """The same with what a service says of the first positions of a sequence, its first token
        included, of which nothing can be said.

        Tokens beyond the ``vocabulary`` of the tokenizer are left out: models that share one may
        be padded to different sizes.
        """
        later = type(topk)(topk.token_ids[1:], topk.logprobs[1:])
        return cls.at_places(logprobs_T, [(np.arange(len(later.token_ids)), later)], vocabulary)

    @classmethod
    def at_places(
        cls,
        logprobs_T: npt.ArrayLike,
        said: Sequence[tuple[npt.NDArray[np.int64], TopkLogprobs]],
        vocabulary: int,
    ) -> Scores:
        """The same with what is ``said`` at some of the positions after the first."""
        logprobs = np.asarray(logprobs_T, dtype=np.float64)
        shape = len(logprobs), max(topk.token_ids.shape[1] for _, topk in said)
        tokens_TK, best_TK = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf)
        for places, topk in said:
            width = topk.token_ids.shape[1]
            tokens_TK[places, :width], best_TK[places, :width] = topk.token_ids, topk.logprobs
        outside_TK = tokens_TK >= vocabulary
        tokens_TK[outside_TK], best_TK[outside_TK] = 0, -np.inf
        return cls(logprobs, tokens_TK, *top_k_shares(best_TK))

    def at(self, places: npt.NDArray[np.int64] | slice) -> Scores:
        """What is said at some of the positions."""
        return Scores(*(array[places] for array in astuple(self, recurse=False)))

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """The positions of several sequences, and a last one of which nothing is said."""
        rows = zip(*(astuple(part, recurse=False) for part in parts), strict=True)
        return cls(
            *(
                np.concatenate([*row, np.zeros_like(row[0], shape=(1, *row[0].shape[1:]))])
                for row in rows
            )
        )
