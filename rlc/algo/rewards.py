"""The credit of episodes for their rewards, and pass@k."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise, product
from math import comb, fsum

from rlc.algo.errors import AlgorithmError
from rlc.records import Record, frozen


def reduce_rewards(
    rewards_T: Sequence[float | None],
    reduce: str,
    *,
    nonterminal: float | None = None,
    low: float | None = None,
    high: float | None = None,
    ended: bool = True,
    shaped: Callable[[float], float] | None = None,
) -> tuple[float, ...] | None:
    """Return the credit of each turn: the reduced reward on the last one, zeros before it.

    ``nonterminal``, where given, counts as one more reward if the episode did not end by itself;
    ``shaped`` then makes another number of the reduced one, and ``low`` and ``high`` limit the
    result. ``turns`` keeps a number for each turn, the nonterminal reward added to the last, and
    limits each of them. Turns without a reward (None) take no part, as in OpenReward 0.1.167.

    Returns:
        T numbers; None if there is no reward at all.

    Raises:
        AlgorithmError: another reduction, or ``shaped`` of one for each turn.
    """
    if reduce not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise AlgorithmError(f"there is no reward reduction {reduce!r}; known are {known}")
    last = [] if nonterminal is None or ended else [nonterminal]
    values = [reward for reward in rewards_T if reward is not None] + last
    if not values or not rewards_T:
        return None
    if reduce == "turns":
        if shaped is not None:
            raise AlgorithmError("the rewards of turns are not shaped one by one")
        kept = [0.0 if reward is None else reward for reward in rewards_T]
        kept[-1] = fsum([kept[-1], *last])
        return tuple(_limited(value, low, high) for value in kept)
    reduced = _REDUCERS[reduce](values)
    reduced = reduced if shaped is None else shaped(reduced)
    return (*[0.0] * (len(rewards_T) - 1), _limited(reduced, low, high))


_REDUCERS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": fsum,
    "mean": lambda values: fsum(values) / len(values),
    "max": max,
    "min": min,
    "last": lambda values: values[-1],
}
REDUCTIONS = ("turns", *_REDUCERS)


def _limited(value: float, low: float | None, high: float | None) -> float:
    value = value if low is None else max(low, value)
    return float(value if high is None else min(high, value))


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the probability that at least one of k samples drawn without replacement is correct.

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


@frozen
class RewardShape(Record):
    """What a reward pays for, as far as its formula shows it.

    ``constant``: it is the same for every episode. ``falls``: the more an episode earns, the less
    it gets. ``free``: nothing pays more than what an episode that earns nothing can have by its
    length. ``dominant``: what moves it the most, and how many times as much as all else that is
    earned; None if that is less than `OUTWEIGHS`.
    """

    constant: bool
    falls: bool
    free: bool
    dominant: tuple[str, float] | None


OUTWEIGHS = 100.0


def reward_shape(
    reward: Callable[[Mapping[str, float]], float],
    earned: Sequence[str],
    others: Mapping[str, Sequence[float]],
) -> RewardShape:
    """Return what a reward pays for.

    Args:
        reward: a number from the values of its inputs.
        earned: the inputs that say how good an episode was; each is tried between 0 and 1.
        others: values to try of the inputs that do not, such as its length in tokens.
    """
    settings = [dict(zip(others, values, strict=True)) for values in product(*others.values())]
    levels = [dict.fromkeys(earned, level) for level in (0.0, 0.25, 0.5, 0.75, 1.0)]
    single = [{other: float(other == name) for other in earned} for name in earned]
    steps = [[reward({**setting, **level}) for level in levels] for setting in settings]
    tried = [[reward({**setting, **one}) for one in single] for setting in settings]
    values = [value for row in (*steps, *tried) for value in row]
    # Parts may have another scale, and bounds leave one value of those between 0 and 1.
    far = [
        {**{n: 1e4 * max(v) for n, v in others.items()}, **dict.fromkeys(earned, x)}
        for x in (-1e3, 1e3)
    ]
    if {*values, *map(reward, far)} == {values[0]}:
        return RewardShape(constant=True, falls=False, free=False, dominant=None)
    falls = (
        all(after <= before for row in steps for before, after in pairwise(row))
        and any(row[-1] < row[0] for row in steps)
        and all(one <= row[0] for row, ones in zip(steps, tried, strict=True) for one in ones)
    )
    free = max(row[0] for row in steps) >= max(values)
    moved = {
        name: max(abs(row[at] - nothing[0]) for row, nothing in zip(tried, steps, strict=True))
        for at, name in enumerate(earned)
    }
    for name, known in others.items():
        usual = [dict.fromkeys(earned, 0.5) | {name: value} for value in known]
        rest = {other: given[len(given) // 2] for other, given in others.items() if other != name}
        paid_for = [reward({**rest, **one}) for one in usual]
        moved[name] = max(paid_for) - min(paid_for)
    return RewardShape(False, falls, free, outweighing(moved, earned))


def outweighing(moved: Mapping[str, float], earned: Collection[str]) -> tuple[str, float] | None:
    """Return what moves a reward `OUTWEIGHS` times as much as all else that is ``earned``, and how
    many times that is; None if nothing does."""
    first, *less = sorted(moved, key=lambda name: -moved[name])
    second = max((moved[name] for name in less if name in earned), default=0.0)
    outweighs = second > 0 and moved[first] >= OUTWEIGHS * second
    return (first, moved[first] / second) if outweighs else None
