"""pass@k of one problem, from n samples of which c are correct."""

from __future__ import annotations

from math import comb

from rlc.algo.errors import AlgorithmError


def pass_at_k(n: int, c: int, k: int) -> float:
    """The probability that at least one of k samples drawn without replacement is correct.

    ``1 - C(n-c, k) / C(n, k)``, the unbiased estimator of arXiv 2107.03374; the counts are exact
    integers and only the quotient is rounded.

    Raises:
        AlgorithmError: not ``0 <= c <= n`` or not ``1 <= k <= n``.
    """
    if n < 1 or not 0 <= c <= n:
        raise AlgorithmError(f"{c} correct of {n} samples is not possible")
    if not 1 <= k <= n:
        raise AlgorithmError(f"pass@{k} needs at least {max(k, 1)} samples and k >= 1; n is {n}")
    ways = comb(n, k)
    return (ways - comb(n - c, k)) / ways
