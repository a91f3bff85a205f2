"""Advantage schemes written out as records, and batches to try them on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Advantages, Episodes
from rlc.algo.expressions.reader import ExpressionReader
from rlc.algo.scheme import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Returns,
    Scale,
    Scope,
    scheme_of,
    scheme_of_returns,
    with_step,
)
from rlc.lang.ast import BlockDecl
from rlc.lang.source import Source
from rlc.lang.syntax import parse

Singleton = Literal["zero", "raw", "drop", "error"]
Weight = Literal["value", "tokens"]


def scheme(
    *steps: AdvantageStep,
    unit: Literal["episode", "turn"] = "episode",
    gamma: float = 1.0,
    constant: Literal["keep", "drop"] = "keep",
) -> AdvantageScheme:
    return reduce(with_step, steps, scheme_of_returns("test", Returns(unit, gamma), constant))


def mean(
    over: Scope = "group", singleton: Singleton = "zero", weight: Weight = "value"
) -> Baseline:
    return Baseline("mean", over, weight, singleton)


def leave_one_out(singleton: Singleton = "zero", weight: Weight = "value") -> Baseline:
    return Baseline("leave_one_out", "group", weight, singleton)


def length_weighted(singleton: Singleton = "zero") -> Baseline:
    return Baseline("length_weighted", "group", "value", singleton)


def std(over: Scope = "group", ddof: int = 1, eps: float = 0.0, weight: Weight = "value") -> Scale:
    return Scale("std", over, weight, ddof, eps, "outside")


def by_mean(over: Scope = "group", eps: float = 0.0) -> Scale:
    return Scale("mean", over, "value", 1, eps, "outside", of="returns")


CENTER = scheme(mean())
RLOO = scheme(leave_one_out())
OPO = scheme(length_weighted())
MAXRL = scheme(mean(), by_mean())
REINFORCE = scheme()
REINFORCE_PP_BASELINE = scheme(
    mean(singleton="raw"),
    mean("batch", weight="tokens"),
    Scale("std", "batch", "tokens", 1, 1e-8, "inside"),
)


def grpo(ddof: int = 1, eps: float = 0.0) -> AdvantageScheme:
    return scheme(mean(), std(ddof=ddof, eps=eps))


def rebn(gamma: float = 1.0, eps: float = 0.0) -> AdvantageScheme:
    return scheme(mean("batch"), std("batch", eps=eps), unit="turn", gamma=gamma)


def single_turn(
    groups: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]] | None = None
) -> Episodes:
    """One-turn rollouts, one reward each, given group by group; three tokens each by default."""
    rewards = [reward for group in groups for reward in group]
    counts = [n for group in tokens for n in group] if tokens else [3] * len(rewards)
    labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return Episodes.from_rollouts(
        [[r] for r in rewards], [[n] for n in counts], labels, np.zeros_like(labels)
    )


def advantages_of(
    scheme: AdvantageScheme,
    groups: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[int]] | None = None,
) -> npt.NDArray[np.float64]:
    return compute_advantages(scheme, single_turn(groups, tokens)).advantages_N


def bits(advantages: Advantages) -> tuple[bytes, bytes]:
    """Everything in a result, comparable bit by bit."""
    return (
        advantages.advantages_N.tobytes(),
        advantages.kept_R.tobytes(),
    )


def declared(text: str) -> AdvantageScheme:
    """The scheme of a declaration, as a recipe writes it."""
    recipe, found = parse(Source("recipe.rl", text))
    (decl,) = recipe.decls
    assert isinstance(decl, BlockDecl)
    assert not found
    reader = ExpressionReader("advantage", (), {})
    for field in decl.fields:
        reader.define(field)
    return scheme_of(decl.name.id, reader.builder, reader.parts)
