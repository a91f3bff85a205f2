"""What a loss computes over a whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from expressions import program
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import (
    AlgorithmError,
    ExpressionError,
    after_batch,
    batch_values,
    differentiable,
    needs_batch,
    reads_trainer,
)
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.expressions.vocabulary import batch_nodes
from rlc.catalog.index import known_loss, loss_traits
from rlc.plan.parts import LossPlan

NESTED = program(
    """
    covariance = (logq - batch_mean(logq)) * (adv - batch_mean(adv))
    drift = mean(logp - logq)
    held = batch_top(covariance + drift, 0.25)
    -ratio * adv * (1 - held) * batch_draw(adv, 0.5)
    """
)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Sequences with many equal values, and a number of its own for each token."""
    few = st.sampled_from([-1.0, -0.5, 0.0, 0.5])
    made, order = [], iter(draw(st.permutations(range(40))))
    for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=6)):
        column = st.lists(few, min_size=size, max_size=size)
        row: dict[str, Any] = {name: np.array(draw(column)) for name in ("logp", "logq", "adv")}
        made.append(row | {"order": [float(next(order)) for _ in range(size)]})
    return made


def computed(rows: list[dict[str, Any]], loss: Any = NESTED) -> list[dict[str, Any]]:
    found = batch_values(loss, rows, [row["order"] for row in rows])
    return [{key: np.asarray(value).tolist() for key, value in one.items()} for one in found]


@given(rows=batches(), seed=st.randoms(use_true_random=False))
def test_the_order_of_the_batch_does_not_matter(rows: list[dict[str, Any]], seed: Any) -> None:
    """Neither do the tokens of which sequence come first."""
    shuffled = list(range(len(rows)))
    seed.shuffle(shuffled)
    in_order = computed(rows)
    assert computed([rows[at] for at in shuffled]) == [in_order[at] for at in shuffled]


@given(rows=batches())
def test_a_share_of_the_tokens_is_chosen(rows: list[dict[str, Any]]) -> None:
    tokens = sum(len(row["order"]) for row in rows)
    found = computed(rows)
    held = [x for one in found for x in one["batch_top_3"]]
    assert sum(held) == max(tokens // 4, 1)
    drawn = [
        (x, a)
        for one, row in zip(found, rows, strict=True)
        for x, a in zip(one["batch_draw_4"], row["adv"], strict=True)
    ]
    assert all(a != 0 for x, a in drawn if x)
    assert sum(x for x, _ in drawn) == min(sum(a != 0 for _, a in drawn), max(tokens // 2, 1))


def test_the_mean_is_over_all_tokens() -> None:
    rows = [{"adv": [1.0, 2.0, 3.0], "order": [0, 1, 2]}, {"adv": [10.0], "order": [3]}]
    found = computed(rows, program("-(adv - batch_mean(adv)) * ratio"))
    assert [one["batch_mean_1"] for one in found] == [4.0, 4.0]
    assert computed([], NESTED) == []


def test_what_it_leaves_for_the_gradient() -> None:
    assert list(batch_nodes(NESTED).values()) == [
        "batch_mean_1",
        "batch_mean_2",
        "batch_top_3",
        "batch_draw_4",
    ]
    left = after_batch(NESTED)
    assert set(left.inputs) == {"logp", "logq", "adv", "batch_top_3", "batch_draw_4"}
    assert not needs_batch(left)
    assert after_batch(left) is left
    assert differentiable(NESTED)[NESTED.output]
    assert not differentiable(program("-batch_mean(logp) * adv"))[-1]
    assert reads_trainer(NESTED)
    assert not reads_trainer(program("-ratio * adv * batch_top(logq, 0.1)"))
    row = {"logp": [-1.0, -2.0], "logq": [-1.0, -2.0], "adv": [1.0, 1.0]}
    given_row = {**row, "batch_top_3": [1.0, 0.0], "batch_draw_4": [1.0, 1.0]}
    assert loss_and_grad(NESTED, given_row)[0] == -1.0
    with pytest.raises(AlgorithmError, match="reads `batch_top_3`, which is not there"):
        loss_and_grad(NESTED, row)


def test_it_is_a_loss_of_its_own_with_weights_of_its_own() -> None:
    """It looks like PPO to one sequence, in which nothing is chosen."""
    loss = program("-(1 - batch_top(adv, 0.1)) * min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)")
    assert known_loss(loss) is None
    traits = loss_traits(LossPlan("own", {}, loss))
    assert traits.weighted
    assert not traits.forward
    assert loss_traits(LossPlan("own", {}, NESTED)).forward


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-ratio * batch_top(adv, 0) * adv", "takes a number above 0, at most 1 for `share`"),
        ("-ratio * batch_top(adv, 1.5) * adv", "takes a number above 0, at most 1 for `share`"),
        ("-ratio * batch_draw(adv, length) * adv", "takes a number above 0, at most 1"),
        ("-ratio * batch_mean(mean(adv))", "over the tokens of a batch, and this is one value a"),
        ("-ratio * batch_mean(3)", "over the tokens of a batch, and this is a number"),
        ("-ratio * mean(batch_mean(adv))", "over the tokens of a sequence, and this is one value"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        program(text)


def test_what_is_not_finite_is_refused() -> None:
    loss = program("-ratio * adv * batch_top(log(adv), 0.5)")
    with pytest.raises(AlgorithmError, match="what `batch_top` is computed from is not finite"):
        batch_values(loss, [{"adv": [1.0, -1.0]}], [[0, 1]])
