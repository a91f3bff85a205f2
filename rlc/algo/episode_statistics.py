"""Statistics of the values that share a label"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from rlc.algo.episodes import renewed

Array = np.ndarray[Any, Any]


def labels(keys: Iterable[Hashable]) -> Array:
    """A number for each key, the same for equal ones."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys])


def each(statistic: Callable[..., Any], label: Array, *columns: Any) -> Array:
    """A statistic of the values with a label, for each of them."""
    wide, made = [np.broadcast_to(one, label.shape) for one in columns], np.zeros(len(label))
    for one in np.unique(label):
        made[label == one] = statistic(*(column[label == one] for column in wide))
    return made


def mean(x: Array, weight: Array) -> Any:
    """The weighted mean, exactly the value of equals; where nothing weighs anything, each value."""
    heavy = x[weight > 0]
    if not len(heavy):
        return x
    return np.clip(np.sort(weight * x).sum() / weight.sum(), heavy.min(), heavy.max())


def mean_of_others(x: Array, weight: Array) -> Any:
    """For each value the mean of the others; alone, itself."""
    if len(x) == 1:
        return x
    others = [np.delete(x, at) for at in range(len(x))]
    low, high = np.array([(own.min(), own.max()) for own in others]).T
    share = weight.sum() / (weight.sum() - weight)
    return np.clip(x - (x - mean(x, weight)) * share, low, high)


def max_of_others(x: Array, weight: Array) -> Any:
    """For each value the largest of the others; alone, itself."""
    del weight
    return x if len(x) == 1 else np.where(x == x.max(), np.sort(x)[-2], x.max())


def std(x: Array, weight: Array, ddof: Array, centred: bool = True) -> Any:
    """The weighted standard deviation, exactly 0 of equals."""
    heavy, left = x[weight > 0], weight.sum() - ddof[0]
    if not len(heavy) or left <= 0:
        return 0.0
    centre = np.sort(weight * x).sum() / weight.sum() if centred else 0.0
    widest = max(heavy.max() - centre, centre - heavy.min())
    if widest <= 0 or (centred and np.ptp(heavy) == 0):
        return 0.0
    squares = weight * ((x - centre) / widest) ** 2
    return widest * np.sqrt(np.sort(squares).sum() / left)


def std_of_others(x: Array, weight: Array, ddof: Array) -> Array:
    """For each value the standard deviation of the others; 0 where there are too few."""
    keep = [np.arange(len(x)) != at for at in range(len(x))]
    return np.array([std(x[own], weight[own], ddof) if own.any() else 0.0 for own in keep])


def rms(x: Array, weight: Array, ddof: Array) -> Any:
    """The root of the weighted mean square."""
    return std(x, weight, ddof, centred=False)


def where_alone(alone: Any, label: Array, value: Array) -> Array:
    """A statistic, with another value where a label has one value only."""
    return np.where(each(len, label, value) == 1, alone, value)


def over(x: Any, size: Any, spread: Any = 1.0) -> Array:
    """A quotient: 0 stays 0, and so does what has no spread."""
    with np.errstate(all="ignore"):
        return np.where((x == 0) | (spread == 0), 0.0, x / size)


def split(x: Array, turns: Sequence[int]) -> list[Array]:
    """The values of turns by episode."""
    return np.split(x, np.cumsum(turns)[:-1])


def to_go(x: Array, gamma: float, turns: Sequence[int]) -> Array:
    """Of each turn the value and what follows, discounted by gamma a turn."""
    made = np.array(x, dtype=np.float64)
    for at in reversed(range(len(made))):
        if at + 1 not in np.cumsum(turns):
            made[at] += gamma * made[at + 1]
    return made


def per_episode(statistic: Callable[[Array], Any], x: Array, turns: Sequence[int]) -> Array:
    """A statistic of the turns of each episode."""
    return np.array([statistic(own) for own in split(x, turns)], dtype=np.float64)


AVERAGES: dict[tuple[int, str], float] = {}  # by their place in a formula, and environment


def running(place: int, x: Array, decay: float, episodes: Sequence[Any]) -> Array:
    """The moving average of each environment before these episodes, which then has their values."""
    before, envs = dict(AVERAGES), [one.env for one in episodes]
    for env in dict.fromkeys(envs):
        values = [value for value, own in zip(x.tolist(), envs, strict=True) if own == env]
        AVERAGES[place, env] = renewed(before.get((place, env), 0.0), values, decay)
    return np.array([before.get((place, env), 0.0) for env in envs])


def sigmoid(x: Array) -> Any:
    """1 / (1 + exp(-x)), which does not overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1 + small)


def softplus(x: Array) -> Any:
    """log(1 + exp(x)), which does not overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
