"""Divergence of policies on sampled tokens: the drift of the trainer from the sampler, and the
penalties that pull it towards a reference or a teacher."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Literal

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Bools, Floats, reward_to_go, split
from rlc.algo.errors import AlgorithmError
from rlc.records import frozen


def kl_penalty(
    sampled_DT: Sequence[npt.ArrayLike],
    reference_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
    coef: float,
    discount: float = 0.0,
    *,
    centred: bool = True,
) -> list[Floats]:
    """Return the changes of a batch's advantages by a KL penalty towards another policy.

    With ``d_t = q_t - ref_t`` (sampler minus reference) a sampled token gets
    ``coef (mean(d) - d_t)``, the mean taken over all sampled tokens of the batch, so that the
    penalty sums to zero. A teacher's scores are not ``centred``: the token gets ``-coef d_t``,
    whose expectation is the reverse KL (arXiv 2306.13649), whatever the others get. With a discount
    a token also counts those after it in its datum, ``P_t = p_t + discount P_{t+1}``, every
    position being a step. All as in tinker-cookbook 0.5.8
    (``rl/metrics.py``, ``distillation/train_on_policy.py``), except that a token that was not
    sampled always gets 0.

    Args:
        sampled_DT: for each datum the sampler's logprobs, shape (T,).
        reference_DT: the reference's logprobs of the same tokens.
        mask_DT: positive where the token was sampled.
        coef: strength of the penalty.
        discount: 0: each token counts alone.
        centred: subtract the mean, as for a reference.

    Returns:
        For each datum the summand of its advantages, shape (T,).

    Raises:
        AlgorithmError: rows that do not match, or logprobs that are not finite.
    """
    rows = matched_rows("reference", sampled_DT, reference_DT, mask_DT)
    distance_DT = [
        np.subtract(q_T, ref_T, out=np.zeros(len(q_T)), where=action_T)
        for q_T, ref_T, action_T in rows
    ]
    for index, distance_T in enumerate(distance_DT):
        if not np.isfinite(distance_T).all():
            raise AlgorithmError(f"datum {index}: a logprob of a sampled token is not finite")
    if not rows:
        return []
    action_N = np.concatenate([action_T for _, _, action_T in rows])
    distance_N, lengths_D = np.concatenate(distance_DT), np.array([len(q_T) for q_T, _, _ in rows])
    mean = fsum(distance_N.tolist()) / max(int(action_N.sum()), 1) if centred else 0.0
    change_N = np.where(action_N, coef * (mean - distance_N), 0.0)
    if discount > 0:
        change_N = np.where(action_N, reward_to_go(discount, change_N, lengths_D), 0.0)
    return split(change_N, lengths_D)


def matched_rows(
    other: str,
    sampler_DT: Sequence[npt.ArrayLike],
    other_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
) -> list[tuple[Floats, Floats, Bools]]:
    """Return each datum's two columns of logprobs and which of its tokens were sampled.

    Raise AlgorithmError for rows that do not match.
    """
    if not len(sampler_DT) == len(other_DT) == len(mask_DT):
        raise AlgorithmError(
            f"{len(sampler_DT)} rows of sampler logprobs, {len(other_DT)} of "
            f"{other} logprobs and {len(mask_DT)} of masks do not match"
        )
    rows = []
    for index, row in enumerate(zip(sampler_DT, other_DT, mask_DT, strict=True)):
        q_T, lp_T = (np.asarray(side, np.float64) for side in row[:2])
        action_T = np.asarray(row[2]) > 0
        if not q_T.shape == lp_T.shape == action_T.shape:
            raise AlgorithmError(
                f"datum {index}: sampler logprobs, {other} logprobs and mask have "
                f"shapes {q_T.shape}, {lp_T.shape} and {action_T.shape}"
            )
        rows.append((q_T, lp_T, action_T))
    return rows


def top_k_shares(logprobs_TK: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the shares that a teacher's most likely tokens have of their total probability, and
    this total.

    The shares are ``s_k = p_k / Σ_j p_j``, as in tinker-cookbook 0.5.8 (``distillation/sdft.py``).

    Args:
        logprobs_TK: the logprobs of K tokens at each position; -inf where a position has fewer.

    Returns:
        The shares, shape (T, K), all 0 at a position without a token, and the sums ``Σ_j p_j``,
        shape (T,).
    """
    probs_TK = np.exp(np.asarray(logprobs_TK, np.float64))
    total_T = probs_TK.sum(axis=1)
    shares_TK = np.divide(
        probs_TK, total_T[:, None], out=np.zeros_like(probs_TK), where=total_T[:, None] > 0
    )
    return shares_TK, total_T


def forward_kl(shares_TK: npt.ArrayLike, logprobs_TK: npt.ArrayLike) -> Floats:
    """Return the forward KL of a model from its teacher, ``KL(s ‖ p) = Σ_k s_k log(s_k / p_k)``, at
    each position, in nats.

    With s the shares of a teacher's most likely tokens, and p the full distribution of the model,
    this is at least 0, and 0 only where p is s. Its gradient is that of the cross-entropy
    ``−Σ_k s_k log p_k``, since the teacher's entropy does not depend on the model.

    Args:
        shares_TK: as :func:`top_k_shares` returns them.
        logprobs_TK: the model's logprobs of the same tokens.
    """
    shares, logprobs = np.asarray(shares_TK, np.float64), np.asarray(logprobs_TK, np.float64)
    own = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    gap = np.subtract(own, logprobs, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray((shares * gap).sum(axis=1))


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
    """Bounds of the ratio, and the effect of a loss beyond them.

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
        The estimates; None if no token was sampled.

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
