"""The penalty on the distance from a reference: the cookbook's, on sampled tokens only."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
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


def penalty(batch: list[np.ndarray], coef: float, discount: float = 0.0) -> list[np.ndarray]:
    sampled, reference, mask = ([row[i] for row in batch] for i in range(3))
    return kl_penalty(sampled, reference, mask, coef, discount)


@st.composite
def batches(draw: st.DrawFn) -> list[np.ndarray]:
    """Rows of sampler logprobs, reference logprobs and marks."""
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        tokens = draw(
            st.lists(
                st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.booleans()),
                min_size=1,
                max_size=6,
            )
        )
        rows.append(np.array(tokens, dtype=np.float64).T)
    return rows


@given(batches(), st.floats(0.001, 10))
def test_without_a_discount_it_adds_up_to_nothing_and_spares_the_prompt(
    batch: list[np.ndarray], coef: float
) -> None:
    changes = penalty(batch, coef)
    assert sum(change.sum() for change in changes) == pytest.approx(0, abs=1e-9)
    for change, (_, _, mask) in zip(changes, batch, strict=True):
        assert not change[mask == 0].any()


@given(batches(), st.floats(0.1, 1))
def test_the_order_of_the_batch_changes_no_bit(batch: list[np.ndarray], discount: float) -> None:
    straight = penalty(batch, 0.1, discount)
    back = penalty(batch[::-1], 0.1, discount)
    for one, other in zip(straight, back[::-1], strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.engine
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_it_agrees_with_the_tinker_cookbook(discount: float) -> None:
    pytest.importorskip("tinker_cookbook")
    import tinker
    import torch
    from tinker_cookbook.rl.metrics import incorporate_kl_penalty

    rng = np.random.default_rng(1)
    sizes = [5, 1, 8]
    sampled = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    reference = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    masks = [(rng.random(n) < 0.7).astype(np.float32) for n in sizes]
    datums = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([1] * len(q)),
            loss_fn_inputs={
                "target_tokens": tinker.TensorData.from_torch(torch.ones(len(q), dtype=torch.long)),
                "logprobs": tinker.TensorData.from_torch(torch.tensor(q)),
                "mask": tinker.TensorData.from_torch(torch.tensor(mask)),
                "advantages": tinker.TensorData.from_torch(torch.zeros(len(q))),
            },
        )
        for q, mask in zip(sampled, masks, strict=True)
    ]
    waiting = [[None, *ref.tolist()] for ref in reference]

    async def compute_logprobs_async(_: object) -> list[float]:
        return [0.0, *waiting.pop(0)[1:]]

    client = SimpleNamespace(compute_logprobs_async=compute_logprobs_async)
    asyncio.run(incorporate_kl_penalty(datums, client, 0.3, discount))
    ours = kl_penalty(sampled, reference, masks, coef=0.3, discount=discount)
    for change, datum, mask in zip(ours, datums, masks, strict=True):
        theirs = datum.loss_fn_inputs["advantages"].to_numpy()
        np.testing.assert_allclose(change, np.where(mask > 0, theirs, 0.0), atol=2e-6)


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
