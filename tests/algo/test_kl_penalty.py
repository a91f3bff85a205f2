"""KL penalties towards a reference or a teacher: the cookbook's, on sampled tokens only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, kl_penalty


def test_a_worked_example() -> None:
    """Distances 1, 3 and 2: the mean is 2."""
    sampled, reference = [[-1.0, -9.0, -1.0], [-1.0]], [[-2.0, 0.0, -4.0], [-3.0]]
    mask = [[1, 0, 1], [1]]
    changes = kl_penalty(sampled, reference, mask, coef=0.5)
    assert [change.tolist() for change in changes] == [[0.5, 0.0, -0.5], [0.0]]
    discounted = kl_penalty(sampled, reference, mask, coef=0.5, discount=0.5)
    assert [change.tolist() for change in discounted] == [[0.5 - 0.125, 0.0, -0.5], [0.0]]


def test_a_worked_example_of_a_teacher() -> None:
    """The teacher finds the first token likelier by 1, and the last one less likely by 3."""
    sampled, teacher, mask = [[-2.0, 0.0, -1.0]], [[-1.0, -9.0, -4.0]], [[1, 0, 1]]
    (scores,) = kl_penalty(sampled, teacher, mask, coef=0.5, centred=False)
    assert scores.tolist() == [0.5, 0.0, -1.5]
    (discounted,) = kl_penalty(sampled, teacher, mask, coef=0.5, discount=0.5, centred=False)
    assert discounted.tolist() == [0.5 - 1.5 / 4, 0.0, -1.5]


def penalty(
    batch: list[np.ndarray], coef: float, discount: float = 0.0, centred: bool = True
) -> list[np.ndarray]:
    sampled, reference, mask = ([row[i] for row in batch] for i in range(3))
    return kl_penalty(sampled, reference, mask, coef, discount, centred=centred)


# Rows of sampler logprobs, reference logprobs and marks.
tokens = st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.booleans())
rows = st.lists(tokens, min_size=1, max_size=6).map(lambda row: np.array(row, np.float64).T)
batches = st.lists(rows, min_size=1, max_size=4)


@given(batches, st.floats(0.001, 10))
def test_without_a_discount_it_adds_up_to_nothing_and_spares_the_prompt(
    batch: list[np.ndarray], coef: float
) -> None:
    changes = penalty(batch, coef)
    assert sum(change.sum() for change in changes) == pytest.approx(0, abs=1e-9)
    for change, (_, _, mask) in zip(changes, batch, strict=True):
        assert not change[mask == 0].any()


@given(batches, st.floats(0.1, 1))
def test_the_order_of_the_batch_changes_no_bit(batch: list[np.ndarray], discount: float) -> None:
    straight = penalty(batch, 0.1, discount)
    back = penalty(batch[::-1], 0.1, discount)
    for one, other in zip(straight, back[::-1], strict=True):
        assert one.tobytes() == other.tobytes()


@given(batches, st.floats(0.01, 9), st.floats(0, 1))
def test_no_sequence_changes_the_teachers_scores_of_another(
    batch: list[np.ndarray], coef: float, discount: float
) -> None:
    """So nothing has to wait for a whole batch."""
    scores = [row.tobytes() for row in penalty(batch, coef, discount, centred=False)]
    alone = [penalty([row], coef, discount, centred=False)[0].tobytes() for row in batch]
    assert scores == alone


def cookbook_datums(*columns: Sequence[np.ndarray]) -> list[Any]:
    """Datums with logprobs, advantages and mask."""
    import tinker
    import torch

    def tensor(row: np.ndarray) -> tinker.TensorData:
        return tinker.TensorData.from_torch(torch.tensor(np.asarray(row, np.float32)))

    return [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([1] * len(row[0])),
            loss_fn_inputs={
                "target_tokens": tinker.TensorData.from_torch(
                    torch.ones(len(row[0]), dtype=torch.long)
                ),
                **dict(zip(("logprobs", "advantages", "mask"), map(tensor, row), strict=True)),
            },
        )
        for row in zip(*columns, strict=True)
    ]


@define
class Scorer:
    """A client that gives these logprobs, one row after the other, as cookbook 0.5 and 0.6 ask."""

    rows: list[list[float]]

    async def compute_logprobs_async(self, _: object) -> list[float | None]:
        return [None, *self.rows.pop(0)]

    def compute_logprobs(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(coroutine=lambda: self.compute_logprobs_async(_))

    def sample(self, **_: object) -> SimpleNamespace:
        async def response() -> SimpleNamespace:
            scores = await self.compute_logprobs_async(None)
            used = {"prompt_cache_hit_tokens": 0, "sequences": []}
            return SimpleNamespace(prompt_logprobs=scores, **used)

        return SimpleNamespace(coroutine=response)


@pytest.mark.engine
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_a_reference_agrees_with_the_tinker_cookbook(discount: float) -> None:
    pytest.importorskip("tinker_cookbook")
    from tinker_cookbook.rl.metrics import incorporate_kl_penalty

    rng = np.random.default_rng(1)
    sizes = [5, 1, 8]
    sampled = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    reference = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    masks = [(rng.random(n) < 0.7).astype(np.float32) for n in sizes]
    datums = cookbook_datums(sampled, [np.zeros(n) for n in sizes], masks)
    client = Scorer([ref.tolist() for ref in reference])
    asyncio.run(incorporate_kl_penalty(datums, client, 0.3, discount))
    ours = kl_penalty(sampled, reference, masks, coef=0.3, discount=discount)
    for change, datum, mask in zip(ours, datums, masks, strict=True):
        theirs = datum.loss_fn_inputs["advantages"].to_numpy()
        np.testing.assert_allclose(change, np.where(mask > 0, theirs, 0.0), atol=2e-6)


@pytest.mark.engine
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_a_teacher_agrees_with_the_tinker_cookbook(discount: float) -> None:
    pytest.importorskip("tinker_cookbook")
    from tinker_cookbook.distillation.train_on_policy import incorporate_kl_penalty

    rng = np.random.default_rng(3)
    sizes = [5, 1, 8]
    sampled = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    teacher = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    masks = [np.arange(n) >= n // 3 for n in sizes]
    before = [np.where(mask, rng.normal(size=len(mask)), 0.0) for mask in masks]
    datums = cookbook_datums(sampled, before, masks)

    clients = [Scorer([row.tolist()]) for row in teacher]
    asyncio.run(incorporate_kl_penalty(datums, clients, [0] * len(datums), 0.7, discount))
    made = kl_penalty(sampled, teacher, masks, 0.7, discount, centred=False)
    for datum, start, change, mask in zip(datums, before, made, masks, strict=True):
        theirs = datum.loss_fn_inputs["advantages"].to_numpy()
        assert theirs[mask] == pytest.approx((start + change)[mask], rel=1e-5, abs=1e-6)


def test_without_sampled_tokens_nothing_changes() -> None:
    assert kl_penalty([], [], [], coef=1.0) == []
    assert [c.tolist() for c in kl_penalty([[-1.0]], [[-2.0]], [[0]], coef=1.0)] == [[0.0]]


def test_what_stands_beside_the_sampled_tokens_is_not_read() -> None:
    inf = float("inf")
    (change_T,) = kl_penalty([[-inf, -1.0, -2.0]], [[-inf, -1.5, -1.5]], [[0, 1, 1]], coef=0.5)
    assert change_T.tolist() == [0.0, -0.25, 0.25]


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="of reference logprobs and 1 of masks do not match"):
        kl_penalty([[-1.0]], [], [[1]], coef=1.0)
    with pytest.raises(AlgorithmError, match="datum 0: sampler logprobs, reference logprobs"):
        kl_penalty([[-1.0]], [[-1.0, -2.0]], [[1]], coef=1.0)
    with pytest.raises(AlgorithmError, match="datum 0: a logprob of a sampled token is not finite"):
        kl_penalty([[-1.0]], [[float("nan")]], [[1]], coef=1.0)
