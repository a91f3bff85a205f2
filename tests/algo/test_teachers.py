"""What a teacher says of sampled tokens: the cookbook's reverse KL, on sampled tokens only."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.kl import kl_penalty


def test_a_worked_example() -> None:
    """The teacher finds the first token likelier by 1, and the last one less likely by 3."""
    sampled, teacher, mask = [[-2.0, 0.0, -1.0]], [[-1.0, -9.0, -4.0]], [[1, 0, 1]]
    (scores,) = kl_penalty(sampled, teacher, mask, coef=0.5, centred=False)
    assert scores.tolist() == [0.5, 0.0, -1.5]
    (discounted,) = kl_penalty(sampled, teacher, mask, coef=0.5, discount=0.5, centred=False)
    assert discounted.tolist() == [0.5 - 1.5 / 4, 0.0, -1.5]


@given(st.data())
def test_no_sequence_changes_what_is_said_of_another(data: st.DataObject) -> None:
    """So nothing has to wait for a whole batch."""
    logprobs = st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0), st.booleans()), min_size=1)
    rows = data.draw(st.lists(logprobs.map(lambda row: np.array(row).T), min_size=1, max_size=4))
    coef, discount = data.draw(st.floats(0.01, 9)), data.draw(st.floats(0, 1))

    def scores(batch: list[np.ndarray]) -> list[bytes]:
        sampled, teacher, mask = ([row[i] for row in batch] for i in range(3))
        made = kl_penalty(sampled, teacher, mask, coef, discount, centred=False)
        return [row.tobytes() for row in made]

    assert scores(rows) == [one for row in rows for one in scores([row])]


@pytest.mark.engine
@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_it_agrees_with_the_tinker_cookbook(discount: float) -> None:
    pytest.importorskip("tinker_cookbook")
    import tinker
    import torch
    from tinker_cookbook.distillation.train_on_policy import incorporate_kl_penalty

    rng = np.random.default_rng(3)
    sizes = [5, 1, 8]
    sampled = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    teacher = [rng.uniform(-3, 0, n).astype(np.float32) for n in sizes]
    masks = [np.arange(n) >= n // 3 for n in sizes]
    before = [np.where(mask, rng.normal(size=len(mask)), 0.0) for mask in masks]

    def tensor(values: np.ndarray) -> tinker.TensorData:
        return tinker.TensorData.from_torch(torch.tensor(np.asarray(values, np.float32)))

    data = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([7] * len(mask)),
            loss_fn_inputs={
                "target_tokens": tinker.TensorData.from_torch(torch.tensor([7] * len(mask))),
                "logprobs": tensor(q),
                "advantages": tensor(advantages),
                "mask": tensor(mask),
            },
        )
        for q, mask, advantages in zip(sampled, masks, before, strict=True)
    ]

    async def logprobs(row: np.ndarray) -> list[float | None]:
        return [None, *row.tolist()]

    clients = [
        SimpleNamespace(compute_logprobs_async=lambda _, row=row: logprobs(row)) for row in teacher
    ]
    asyncio.run(incorporate_kl_penalty(data, clients, [0] * len(data), 0.7, discount))
    made = kl_penalty(sampled, teacher, masks, 0.7, discount, centred=False)
    for datum, start, change, mask in zip(data, before, made, masks, strict=True):
        theirs = datum.loss_fn_inputs["advantages"].to_numpy()
        assert theirs[mask] == pytest.approx((start + change)[mask], rel=1e-5, abs=1e-6)
