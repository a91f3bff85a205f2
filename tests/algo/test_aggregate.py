"""Aggregation folded into advantages: the same gradient as the loss averaged as it is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import SHARED_BY, AlgorithmError, aggregate_weights, builtin_loss_and_grad
from rlc.catalog.index import aggregate_traits

LENGTH = 7
CONFIG: dict[str, dict[str, float]] = {
    "importance_sampling": {},
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28},
    "cispo": {"clip_low_threshold": 0.0, "clip_high_threshold": 1.5},
    "gspo": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
    "dro": {"beta": 0.05},
}
Sequence = tuple[np.ndarray, dict[str, np.ndarray], int]  # logprobs, inputs, task


@st.composite
def batches(draw: st.DrawFn) -> list[Sequence]:
    """Sequences of ragged lengths, several of a task, with an advantage each."""
    batch = []
    numbers = st.floats(-1.0, 1.0, allow_subnormal=False)
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.integers(1, 5))
        sampler = np.array(draw(st.lists(st.floats(-3, -0.01), min_size=size, max_size=size)))
        drift = np.array(draw(st.lists(numbers, min_size=size, max_size=size)))
        inputs = {"logprobs": sampler, "advantages": np.full(size, draw(st.floats(-2, 2)))}
        batch.append((sampler + drift, inputs, draw(st.integers(0, 2))))
    return batch


def averaged(kind: str, batch: list[Sequence], sums: list[np.ndarray]) -> list[np.ndarray]:
    """Per-token gradients, averaged as the name of the kind says: first step by step over the
    tokens of a sequence, then over sequences or tasks."""
    sizes = [len(g) for g in sums]
    tasks = [task for _, _, task in batch]
    match kind:
        case "token_sum":
            return sums
        case "token_mean":
            return [g / sum(sizes) for g in sums]
        case "seq_mean_token_sum":
            return [g / len(sums) for g in sums]
        case "seq_mean_token_mean":
            return [g / len(g) / len(sums) for g in sums]
        case "seq_mean_token_sum_norm":
            return [g / LENGTH / len(sums) for g in sums]
    of_task = {t: sum(n for n, own in zip(sizes, tasks, strict=True) if own == t) for t in tasks}
    return [g / of_task[t] / len(of_task) for g, t in zip(sums, tasks, strict=True)]


@pytest.mark.parametrize("kind", SHARED_BY)
@given(batch=batches())
def test_weighted_advantages_have_the_gradient_of_the_averaged_loss(
    kind: str, batch: list[Sequence]
) -> None:
    weights = weights_of(kind, batch)
    for loss in CONFIG.keys() - {"dro"}:
        sums = [builtin_loss_and_grad(loss, CONFIG[loss], lp, inputs)[1] for lp, inputs, _ in batch]
        for (lp, inputs, _), weight, expected in zip(
            batch, weights, averaged(kind, batch, sums), strict=True
        ):
            folded = {**inputs, "advantages": weight * inputs["advantages"]}
            _, grad_T = builtin_loss_and_grad(loss, CONFIG[loss], lp, folded)
            np.testing.assert_allclose(grad_T, expected, rtol=1e-12, atol=1e-15, err_msg=loss)


@pytest.mark.parametrize("kind", [kind for kind in SHARED_BY if aggregate_traits(kind).uniform])
@given(batch=batches())
def test_a_uniform_weight_folds_into_dro_with_its_beta(kind: str, batch: list[Sequence]) -> None:
    sums = [builtin_loss_and_grad("dro", CONFIG["dro"], lp, inputs)[1] for lp, inputs, _ in batch]
    weights = weights_of(kind, batch)
    assert weights.min() == weights.max()
    beta = {"beta": weights[0] * CONFIG["dro"]["beta"]}
    for (lp, inputs, _), expected in zip(batch, averaged(kind, batch, sums), strict=True):
        folded = {**inputs, "advantages": weights[0] * inputs["advantages"]}
        _, grad_T = builtin_loss_and_grad("dro", beta, lp, folded)
        np.testing.assert_allclose(grad_T, expected, rtol=1e-12, atol=1e-15)


def weights_of(kind: str, batch: list[Sequence]) -> np.ndarray:
    sizes, tasks = [len(lp) for lp, _, _ in batch], [task for _, _, task in batch]
    return aggregate_weights(kind, sizes, tasks, LENGTH)


@pytest.mark.engine
def test_gradients_agree_with_autograd() -> None:
    """The averaged loss written out in torch, and its derivative, against the folded weights."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    sizes, tasks = [3, 1, 4], [0, 0, 1]
    lps = [torch.tensor(rng.uniform(-2, -0.1, n), requires_grad=True) for n in sizes]
    qs = [torch.tensor(rng.uniform(-2, -0.1, n)) for n in sizes]
    advantages = [1.5, -0.5, 0.25]
    means = []
    for lp, q, advantage in zip(lps, qs, advantages, strict=True):
        ratio = (lp - q).exp()
        held = ratio.clamp(0.8, 1.28)
        means.append(-torch.minimum(ratio * advantage, held * advantage).mean())
    (sum(means) / 3).backward()
    weights = aggregate_weights("seq_mean_token_mean", sizes, tasks)
    for lp, q, advantage, weight in zip(lps, qs, advantages, weights, strict=True):
        inputs = {"logprobs": q.numpy(), "advantages": np.full(len(q), weight * advantage)}
        _, grad_T = builtin_loss_and_grad("ppo", CONFIG["ppo"], lp.detach().numpy(), inputs)
        np.testing.assert_allclose(grad_T, lp.grad.numpy(), atol=1e-15)


def test_sequences_without_tokens_do_not_count() -> None:
    for kind in SHARED_BY:
        weights = aggregate_weights(kind, [3, 0, 5], [0, 1, 2], LENGTH)
        alone = aggregate_weights(kind, [3, 5], [0, 2], LENGTH)
        assert weights.tolist() == [alone[0], 0.0, alone[1]]
        assert aggregate_weights(kind, [0], [0], LENGTH).tolist() == [0.0]
        assert aggregate_weights(kind, [], [], LENGTH).tolist() == []


def test_mistakes_are_named() -> None:
    with pytest.raises(AlgorithmError, match="no aggregation 'mean'; known are token_sum"):
        aggregate_weights("mean", [1], [0])
    with pytest.raises(AlgorithmError, match="length of at least 1, not None"):
        aggregate_weights("seq_mean_token_sum_norm", [1], [0])
    with pytest.raises(AlgorithmError, match="negative number of tokens"):
        aggregate_weights("token_mean", [-1], [0])
    with pytest.raises(AlgorithmError, match="do not match"):
        aggregate_weights("token_mean", [1, 2], [0])
