"""Advantages: returns, less a baseline, over a spread."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from rlc.emit.pieces.datums import Array
from rlc.emit.pieces.records import Episode


def episode_returns(rewards: Sequence[Sequence[float]]) -> tuple[Array, Array]:
    """One return for each episode, the sum of its rewards; and whose it is."""
    values = [sum(own) for own in rewards]
    return np.array(values, dtype=np.float64), np.arange(len(rewards))


def turn_returns(rewards: Sequence[Sequence[float]], gamma: float) -> tuple[Array, Array]:
    """One return for each turn, G_t = r_t + gamma G_(t+1); and whose it is."""
    made = []
    for own in rewards:
        out, following = np.zeros(len(own)), 0.0
        for turn in reversed(range(len(own))):
            following = out[turn] = own[turn] + gamma * following
        made.append(out)
    owner = np.repeat(np.arange(len(rewards)), [len(own) for own in rewards])
    return np.concatenate(made), owner


def scopes(labels: Sequence[Hashable], owner: Array, keep: Array) -> list[Array]:
    """The positions of the values that share a label."""
    found: dict[Hashable, list[int]] = {}
    for position, episode in enumerate(owner):
        if keep[position]:
            found.setdefault(labels[episode], []).append(position)
    return [np.array(positions) for positions in found.values()]


def varied(values: Array, peers: Sequence[Array]) -> Array:
    """Whether each value stands alone, or with peers that are not all equal to it."""
    keep = np.ones(len(values), dtype=bool)
    for at in peers:
        if len(at) > 1 and np.ptp(values[at]) == 0:
            keep[at] = False
    return keep


def less_mean(values: Array, weights: Array, peers: Sequence[Array], raw: bool = False) -> Array:
    """Each value less the mean of its peers. Equal values give exact zeros, whatever
    rounding does to their mean; a single one gives 0, or stays as it is if ``raw``."""
    made = values.copy()
    for at in peers:
        if len(at) == 1 and raw:
            continue
        x = values[at]
        mean = np.average(x, weights=weights[at])
        made[at] = x - mean if np.ptp(x) > 0 else 0.0
    return made


def less_others(values: Array, weights: Array, peers: Sequence[Array], raw: bool = False) -> Array:
    """Each value less the mean of its other peers."""
    made = values.copy()
    for at in peers:
        if len(at) == 1 and raw:
            continue
        x, w = values[at], weights[at]
        if np.ptp(x) > 0:
            made[at] = (x - np.average(x, weights=w)) * w.sum() / (w.sum() - w)
        else:
            made[at] = 0.0
    return made


def singles(count: int, peers: Sequence[Array]) -> Array:
    """Which of so many values have no peers."""
    alone = np.zeros(count, dtype=bool)
    for at in peers:
        alone[at] = len(at) == 1
    return alone


def over_deviation(
    values: Array,
    weights: Array,
    peers: Sequence[Array],
    ddof: int,
    eps: float,
    inside: bool = False,
    raw: Array | None = None,
) -> Array:
    """Each value over the standard deviation of its peers; 0 exactly where all are
    equal. ``inside``: eps is added to the variance. A single value stays as it is where
    ``raw`` says so."""
    made = values.copy()
    for at in peers:
        x, w = values[at], weights[at]
        if len(at) == 1 and raw is not None and raw[at[0]]:
            spread = 1.0
        elif np.ptp(x) == 0:
            made[at] = 0.0
            continue
        else:
            squares = w * (x - np.average(x, weights=w)) ** 2
            spread = float(np.sqrt(squares.sum() / (w.sum() - ddof)))
        made[at] = x / (np.hypot(spread, np.sqrt(eps)) if inside else spread + eps)
    return made


def by_episode(
    episodes: Sequence[Episode], values: Array, owner: Array, keep: Array
) -> list[tuple[Episode, Array]]:
    """The episodes that are kept, with one value a turn, of values for turns or for episodes."""
    rows = [(one, values[owner == at], keep[owner == at]) for at, one in enumerate(episodes)]
    return [(one, np.resize(row, len(one.turns))) for one, row, kept in rows if kept.all()]
