"""Aggregation of token losses, as weights that are folded into the advantages.

The service sums a loss over tokens. Importance sampling, PPO, CISPO, GSPO and cross-entropy are
positively homogeneous in the advantage: a weight on a sequence's loss is the same as that weight
on its advantages. DRO is not, its quadratic term has no advantage in it; there only a weight c
that all sequences share is exact, with ``A' = c A`` and ``beta' = c beta``.

Of B sequences with ``n_i`` sampled tokens, those of one task p together ``N_p``, and P tasks:

======================= =================== =====================================================
kind                    weight              source
======================= =================== =====================================================
token_sum               ``1``               what the service does
token_mean              ``1 / Σ n_i``       DAPO, arXiv 2503.14476
seq_mean_token_sum      ``1 / B``           verl 0.9.1
seq_mean_token_mean     ``1 / (B n_i)``     GRPO, arXiv 2402.03300
seq_mean_token_sum_norm ``1 / (B length)``  Dr. GRPO, arXiv 2503.20783
prompt_mean             ``1 / (P N_p)``     the mean over tasks of each one's mean over tokens
======================= =================== =====================================================

Sequences without a sampled token count neither in B nor in P and weigh 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rlc.algo.errors import AlgorithmError

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlc.algo.episodes import Floats

# The sequences that share one weight, by kind: those of a batch, of a task, or each alone; None:
# every token weighs 1. All others depend on how many sequences, tasks or tokens the batch has.
SHARED_BY: dict[str, Literal["batch", "task", "sequence"] | None] = {
    "token_sum": None,
    "token_mean": "batch",
    "seq_mean_token_sum": "batch",
    "seq_mean_token_mean": "sequence",
    "seq_mean_token_sum_norm": "batch",
    "prompt_mean": "task",
}


def aggregate_weights(
    kind: str, tokens_D: npt.ArrayLike, prompt_D: npt.ArrayLike, length: int | None = None
) -> Floats:
    """Return the weight of each sequence's advantages, shape (D,).

    Args:
        kind: one of :data:`SHARED_BY`.
        tokens_D: sampled tokens of each sequence.
        prompt_D: label of the task that each sequence is an attempt at.
        length: the divisor of ``seq_mean_token_sum_norm``.

    Raises:
        AlgorithmError: another kind, a length that is missing or not positive, negative counts,
            or columns that do not match.
    """
    import numpy as np

    n_D = np.asarray(tokens_D, dtype=np.float64)
    label_D = np.asarray(prompt_D, dtype=np.int64)
    if n_D.shape != label_D.shape or n_D.ndim != 1:
        raise AlgorithmError(
            f"token counts of shape {n_D.shape} and task labels of shape {label_D.shape} "
            "do not match"
        )
    if (n_D < 0).any():
        raise AlgorithmError("a sequence cannot have a negative number of tokens")
    counts_D = n_D > 0
    weight_D = np.zeros(len(n_D))
    if not counts_D.any():
        return weight_D
    n_D, label_D = n_D[counts_D], label_D[counts_D]
    divisor_D: Floats | float
    match kind:
        case "token_sum":
            divisor_D = 1.0
        case "token_mean":
            divisor_D = n_D.sum()
        case "seq_mean_token_sum":
            divisor_D = len(n_D)
        case "seq_mean_token_mean":
            divisor_D = len(n_D) * n_D
        case "seq_mean_token_sum_norm":
            if length is None or length < 1:
                raise AlgorithmError(f"{kind} needs a length of at least 1, not {length}")
            divisor_D = len(n_D) * length
        case "prompt_mean":
            labels_P, task_D = np.unique(label_D, return_inverse=True)
            tokens_P = np.bincount(task_D, weights=n_D)
            divisor_D = np.asarray(len(labels_P) * tokens_P[task_D], np.float64)
        case _:
            known = ", ".join(SHARED_BY)
            raise AlgorithmError(f"there is no aggregation {kind!r}; known are {known}")
    weight_D[counts_D] = 1.0 / divisor_D
    return weight_D
