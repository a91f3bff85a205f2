"""How far the trainer's policy is from the sampler's, on the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from rlc.algo.kl import matched_rows
from rlc.algo.ragged import Floats
from rlc.records import frozen


@frozen
class Drift:
    """Estimates over ``tokens`` sampled tokens, in nats a token. q: sampler, p: trainer.

    With ``d = log p - log q`` and ``rho = exp(d)``, the means over tokens drawn from q:

    - ``k1 = mean(-d)`` estimates KL(q || p) without bias and may be negative;
      ``k2 = mean(d²/2)`` does so with a bias and a low variance; ``k3 = mean(rho - 1 - d)``
      without bias and never negative. Names after J. Schulman, "Approximating KL divergence".
    - ``reverse = mean(rho d - (rho - 1))`` estimates KL(p || q) without bias and is never negative.
    - ``ess = sum(rho)² / (tokens sum(rho²))`` is the effective sample size as a share of the
      tokens: 1 if all ratios are equal, 1 / tokens if one outweighs all others (A. Kong, 1992).
    """

    k1: float
    k2: float
    k3: float
    reverse: float
    ess: float
    tokens: int


@frozen
class ClipRange:
    """Bounds of the ratio, and what a loss does beyond them.

    ``acts_on``: a token loses its ``gradient`` where the advantage pulls the ratio further out
    (PPO), or has its ``weight`` bounded for every advantage (CISPO). ``per_sequence``: all
    sampled tokens of a datum share the ratio ``exp(mean(d))`` (GSPO).
    """

    low: float
    high: float
    acts_on: Literal["gradient", "weight"]
    per_sequence: bool = False


def drift(
    sampler_logprobs_DT: Sequence[npt.ArrayLike],
    trainer_logprobs_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
) -> Drift | None:
    """Return the drift over the sampled tokens (mask > 0) of all datums together.

    Args:
        sampler_logprobs_DT: for each datum the sampler's logprobs, shape (T,).
        trainer_logprobs_DT: the trainer's logprobs of the same tokens.
        mask_DT: positive where the token was sampled.

    Returns:
        The estimates; None if no token was sampled, since nothing is known then.

    Raises:
        AlgorithmError: rows that do not match.
    """
    gaps_DA = _gaps(sampler_logprobs_DT, trainer_logprobs_DT, mask_DT)
    gap_A = np.concatenate(gaps_DA) if gaps_DA else np.zeros(0)
    if not len(gap_A):
        return None
    excess_A = np.expm1(gap_A)  # rho - 1
    # Shares do not change if all ratios are divided by the largest, which cannot overflow.
    share_A = np.exp(gap_A - gap_A.max())
    return Drift(
        k1=float(np.mean(-gap_A)),
        k2=float(np.mean(0.5 * gap_A**2)),
        k3=float(np.mean(excess_A - gap_A)),
        reverse=float(np.mean(np.exp(gap_A) * gap_A - excess_A)),
        ess=float(share_A.sum() ** 2 / (len(gap_A) * (share_A**2).sum())),
        tokens=len(gap_A),
    )


def clip_fraction(
    clip: ClipRange,
    sampler_logprobs_DT: Sequence[npt.ArrayLike],
    trainer_logprobs_DT: Sequence[npt.ArrayLike],
    advantages_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
) -> float | None:
    """Return the share of the sampled tokens on which a clip range acts; None without any.

    The arguments are those of :func:`drift`; ``advantages_DT`` has the advantage of each token.
    For a clip of gradients this is verl 0.9.1's ``pg_clipfrac``, whose clipped loss is larger.

    Raises:
        AlgorithmError: rows that do not match.
    """
    gaps_DA = _gaps(sampler_logprobs_DT, trainer_logprobs_DT, mask_DT)
    clipped, tokens = 0, 0
    for gap_A, advantages_T, mask_T in zip(gaps_DA, advantages_DT, mask_DT, strict=True):
        if not len(gap_A):
            continue
        ratio_A = np.exp(np.full_like(gap_A, gap_A.mean()) if clip.per_sequence else gap_A)
        above_A, below_A = ratio_A > clip.high, ratio_A < clip.low
        if clip.acts_on == "gradient":
            advantage_A = np.asarray(advantages_T, np.float64)[np.asarray(mask_T) > 0]
            above_A, below_A = above_A & (advantage_A > 0), below_A & (advantage_A < 0)
        clipped, tokens = clipped + int((above_A | below_A).sum()), tokens + len(gap_A)
    return clipped / tokens if tokens else None


def _gaps(
    sampler_DT: Sequence[npt.ArrayLike],
    trainer_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
) -> list[Floats]:
    """Return ``log p - log q`` of each datum's sampled tokens."""
    rows = matched_rows("trainer", sampler_DT, trainer_DT, mask_DT)
    return [lp_T[action_T] - q_T[action_T] for q_T, lp_T, action_T in rows]
