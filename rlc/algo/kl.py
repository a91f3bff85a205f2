"""How far the trainer's policy is from the sampler's, on the tokens that were sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import frozen

from rlc.algo.errors import AlgorithmError


@frozen
class SampleTrainKL:
    """Estimates of KL(sampler || trainer) in nats a token, over ``tokens`` action tokens.

    With ``d = lp - q`` (trainer minus sampler): ``k1 = mean(-d)`` is unbiased and may be
    negative; ``k2 = mean(d²/2)`` is biased with a low variance; ``k3 = mean(exp(d) - 1 - d)``
    is unbiased and never negative. Names after J. Schulman, "Approximating KL divergence".
    """

    k1: float
    k2: float
    k3: float
    tokens: int


def sample_train_kl(
    sampler_logprobs_DT: Sequence[npt.ArrayLike],
    trainer_logprobs_DT: Sequence[npt.ArrayLike],
    mask_DT: Sequence[npt.ArrayLike],
) -> SampleTrainKL | None:
    """KL estimates over the action tokens (mask > 0) of all datums together.

    Args:
        sampler_logprobs_DT: for each datum the sampler's logprobs, shape (T,).
        trainer_logprobs_DT: the trainer's logprobs of the same tokens.
        mask_DT: positive where the token was sampled.

    Returns:
        The estimates; None if there is no action token, as nothing is known then.

    Raises:
        AlgorithmError: rows that do not match.
    """
    if not len(sampler_logprobs_DT) == len(trainer_logprobs_DT) == len(mask_DT):
        raise AlgorithmError(
            f"{len(sampler_logprobs_DT)} rows of sampler logprobs, {len(trainer_logprobs_DT)} of "
            f"trainer logprobs and {len(mask_DT)} of masks do not match"
        )
    rows = zip(sampler_logprobs_DT, trainer_logprobs_DT, mask_DT, strict=True)
    drift_DA = [_drift(index, *row) for index, row in enumerate(rows)]
    drift_A = np.concatenate(drift_DA) if drift_DA else np.zeros(0)
    if not len(drift_A):
        return None
    return SampleTrainKL(
        k1=float(np.mean(-drift_A)),
        k2=float(np.mean(0.5 * drift_A**2)),
        k3=float(np.mean(np.expm1(drift_A) - drift_A)),
        tokens=len(drift_A),
    )


def _drift(
    index: int, sampler_T: npt.ArrayLike, trainer_T: npt.ArrayLike, mask_T: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Trainer minus sampler on the action tokens of one datum."""
    q_T, lp_T = np.asarray(sampler_T, np.float64), np.asarray(trainer_T, np.float64)
    action_T = np.asarray(mask_T) > 0
    if not q_T.shape == lp_T.shape == action_T.shape:
        raise AlgorithmError(
            f"datum {index}: sampler logprobs, trainer logprobs and mask have "
            f"shapes {q_T.shape}, {lp_T.shape} and {action_T.shape}"
        )
    drift_A: npt.NDArray[np.float64] = lp_T[action_T] - q_T[action_T]
    return drift_A
