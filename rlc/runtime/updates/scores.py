"""What another model says of a sequence: how likely it finds each token, and which tokens it finds
likeliest in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from attrs import astuple, frozen

from rlc.algo.kl import top_k_shares

if TYPE_CHECKING:
    from tinker.types.topk_logprobs import TopkLogprobs

FloatArray = npt.NDArray[np.float64]


@frozen(eq=False)
class Scores:
    """What is said of the tokens of a sequence after the first.

    ``logprobs_T``: of each token; NaN where none was given. ``tokens_TK``: the K likeliest in its
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
    def with_likeliest(
        cls, logprobs_T: npt.ArrayLike, topk: TopkLogprobs, vocabulary: int
    ) -> Scores:
        """The same with what a service says of the first positions of a sequence, its first token
        included, of which nothing can be said.

        Tokens beyond the ``vocabulary`` of the tokenizer are left out: models that share one may
        be padded to different sizes.
        """
        logprobs = np.asarray(logprobs_T, dtype=np.float64)
        known, places = len(topk.token_ids) - 1, (len(logprobs), topk.token_ids.shape[1])
        tokens_TK, likeliest_TK = np.zeros(places, dtype=np.int64), np.full(places, -np.inf)
        tokens_TK[:known], likeliest_TK[:known] = topk.token_ids[1:], topk.logprobs[1:]
        outside_TK = tokens_TK >= vocabulary
        tokens_TK[outside_TK], likeliest_TK[outside_TK] = 0, -np.inf
        return cls(logprobs, tokens_TK, *top_k_shares(likeliest_TK))

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
