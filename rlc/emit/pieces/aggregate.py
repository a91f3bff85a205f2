"""What each sequence of an episode weighs in the sum of the service.

``tokens`` are the sampled tokens of each sequence, for each episode."""

from __future__ import annotations

from collections.abc import Sequence


def token_mean(tokens: Sequence[Sequence[int]]) -> list[float]:
    """Each token over the number of all of them."""
    return [1.0 / sum(map(sum, tokens))] * len(tokens)


def seq_mean_token_sum(tokens: Sequence[Sequence[int]]) -> list[float]:
    """Each episode over the number of episodes."""
    return [1.0 / len(tokens)] * len(tokens)


def seq_mean_token_mean(tokens: Sequence[Sequence[int]]) -> list[float]:
    """Each episode over its tokens and the number of episodes."""
    return [1.0 / (len(tokens) * sum(own)) for own in tokens]


def seq_mean_token_sum_norm(
    tokens: Sequence[Sequence[int]], length: int
) -> list[float]:
    """Each episode over a length and the number of episodes."""
    return [1.0 / (length * len(tokens))] * len(tokens)
