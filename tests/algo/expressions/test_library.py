"""The losses of recipes/lib/losses.rl against NumPy: values, and gradients worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loss_library import PATH, library, library_loss

from rlc.algo import batch_values, degree, ranges, ratio_is_bounded
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.catalog.index import known_loss

Array = np.ndarray
Terms = tuple[float | Array, Array]  # the loss, a value a token or one; its gradient
LOW, HIGH = "clip_low_threshold", "clip_high_threshold"


def ratio_of(p: Array, q: Array) -> Array:
    return np.asarray(np.exp(p - q))


def surrogate(r: Array, a: Array, low: float, high: float) -> tuple[Array, Array]:
    """PPO's term and its slope by log p: none where the advantage pulls further out."""
    out = ((a > 0) & (r > high)) | ((a < 0) & (r < low))
    return np.where(out, np.clip(r, low, high) * a, r * a), np.where(out, 0.0, r * a)


def log_likelihood(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    return -a * p, -a


def importance(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    r = ratio_of(p, q)
    return -r * a, -r * a


def clipped_surrogate(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    value, slope = surrogate(ratio_of(p, q), a, 0.8, 1.2)
    return -value, -slope


def clipped_weight(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    weight = np.minimum(ratio_of(p, q), 4.0)
    return -weight * a * p, -weight * a


def quadratic_pull(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    return 0.025 * (p - q) ** 2 - a * p, 0.05 * (p - q) - a


def shared_ratio(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    value, slope = surrogate(np.full(len(p), np.exp((p - q).mean())), a, 0.9997, 1.0004)
    return -value, -slope


def sequence_ratio(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    s, advantage = np.exp((p - q).mean()), a.mean()
    value, slope = surrogate(np.array([s]), np.array([advantage]), 0.9997, 1.0004)
    return -float(value[0]), np.full(len(p), -slope[0] / len(p))


def dual_clip(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    r = ratio_of(p, q)
    value, slope = surrogate(r, a, 0.8, 1.2)
    held = (a < 0) & (r > 3.0)
    return -np.where(held, 3.0 * a, value), -np.where(held, 0.0, slope)


def sapo(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    r, tau = ratio_of(p, q), np.where(a > 0, 1.0, 1.05)
    gate = 1 / (1 + np.exp(-tau * (r - 1)))
    return -4 / tau * gate * a, -4 * gate * (1 - gate) * r * a


def gmpo(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    d = p - q
    free = np.where(a > 0, d < 0.4, d > -0.4)
    held = np.where(free, d, np.where(a > 0, 0.4, -0.4))
    value = -np.exp(held.mean()) * a.mean()
    return float(value), value * free / len(p)


def truncated_importance(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    weight = np.minimum(ratio_of(p, q), 2.0)
    return -weight * a * p, -weight * a


def truncated_sequence_importance(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    weight = min(np.prod(ratio_of(p, q)), 2.0)
    return -weight * a * p, -weight * a


def icepop(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    r = ratio_of(p, q)
    weight = r * (r >= 0.5) * (r <= 5.0)
    return -weight * a * p, -weight * a


def dppo_tv(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    moved = np.exp(p) - np.exp(q)
    kept = np.where(a > 0, moved <= 0.2, -moved <= 0.2)
    weight = kept * np.minimum(ratio_of(p, q), 20.0)
    return -weight * a * p, -weight * a


def dppo_kl(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    new, old = np.exp(p), np.exp(q)
    apart = old * (q - p) + (1 - old) * np.log((1 - old + 1e-8) / (1 - new + 1e-8))
    kept = np.where(a > 0, new <= old, new >= old) | (apart <= 0.2)
    weight = kept * np.minimum(ratio_of(p, q), 20.0)
    return -weight * a * p, -weight * a


def ppo_k3(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    value, slope = surrogate(ratio_of(p, q), a, 0.8, 1.2)
    return 0.001 * (np.exp(ref - p) - (ref - p) - 1) - value, 0.001 * (1 - np.exp(ref - p)) - slope


def ppo_entropy(p: Array, q: Array, a: Array, ref: Array) -> Terms:
    r = ratio_of(p, q)
    value, slope = surrogate(r, a, 0.8, 1.2)
    return 0.001 * r * p - value, 0.001 * r * (p + 1) - slope


REFERENCES: dict[str, Callable[[Array, Array, Array, Array], Terms]] = {
    function.__name__: function
    for function in (
        log_likelihood,
        importance,
        clipped_surrogate,
        clipped_weight,
        quadratic_pull,
        shared_ratio,
        sequence_ratio,
        dual_clip,
        sapo,
        gmpo,
        truncated_importance,
        truncated_sequence_importance,
        icepop,
        dppo_tv,
        dppo_kl,
        ppo_k3,
        ppo_entropy,
    )
}


def test_every_loss_has_a_reference_and_a_source() -> None:
    assert library().keys() == {*REFERENCES, *OF_BATCHES}
    text = PATH.read_text("utf-8")
    for block in text.split("\n\n"):
        assert not block.startswith("loss "), f"no comment before {block.splitlines()[0]}"


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Array, Array, Array, Array]:
    """Logprobs that drift to both sides of every clip; advantages of both signs and of 0, at times
    one for all."""
    size = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[float]) -> Array:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    q = column(st.floats(-5, -0.05))
    drift = st.just(0.0) | st.floats(-0.3, 0.3) | st.floats(-2.0, 3.5)
    p = np.minimum(q + column(drift), -1e-3)
    a = column(st.sampled_from([0.0, 1.0, -1.0]) | st.floats(-3, 3, allow_subnormal=False))
    if draw(st.booleans()):
        a = np.full(size, a[0])
    return p, q, a, column(st.floats(-5, -0.05))


@pytest.mark.parametrize("name", REFERENCES)
@given(data=sequences())
def test_a_loss_of_the_library(name: str, data: tuple[Array, Array, Array, Array]) -> None:
    p, q, a, ref = data
    expected, expected_T = REFERENCES[name](p, q, a, ref)
    loss = library_loss(name)
    value, grad_T = loss_and_grad(loss, {"logp": p, "logq": q, "adv": a, "ref": ref})
    assert value == pytest.approx(float(np.sum(expected)), rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(grad_T, expected_T, rtol=1e-9, atol=1e-9)


Batch = list[tuple[Array, Array, Array, Array]]


def centred(values: Array) -> Array:
    """Without their exact mean, so that equal tokens stay equal."""
    mean = sum(map(Fraction, values.tolist())) / len(values)
    return values - float(mean)


def clip_cov(data: Batch, order: Array) -> Terms:
    """A few of the tokens with a covariance between 1 and 5 are drawn, and have no loss."""
    p, q, a = (np.concatenate(columns) for columns in list(zip(*data, strict=True))[:3])
    value, slope = surrogate(ratio_of(p, q), a, 0.8, 1.2)
    cov = centred(q) * centred(a)
    (inside,) = np.nonzero((cov > 1) & (cov < 5))
    drawn = sorted(inside, key=lambda at: order[at])[: max(int(0.2 * len(p)), 1)]
    value[drawn], slope[drawn] = 0.0, 0.0
    return -value, -slope


def kl_cov(data: Batch, order: Array) -> Terms:
    """Those with the largest covariance are held by |log p − log q|, smoothly where it is small."""
    p, q, a = (np.concatenate(columns) for columns in list(zip(*data, strict=True))[:3])
    cov = centred(q) * centred(a)
    top = sorted(range(len(p)), key=lambda at: (-cov[at], order[at]))[: max(int(0.2 * len(p)), 1)]
    held = np.isin(np.arange(len(p)), top)
    r = ratio_of(p, q)
    apart, soft = p - q, np.abs(p - q) + 0.001
    slope = apart * (soft + 0.001) / soft**2
    return held * apart**2 / soft - r * a, held * slope - r * a


OF_BATCHES = {"clip_cov": clip_cov, "kl_cov": kl_cov}


def test_what_rounding_leaves_of_a_fresh_batch_teaches_nothing() -> None:
    """The trainer's logprobs are then the sampler's, as far as two engines agree."""
    loss, q, adv = library_loss("kl_cov", share=1.0), np.full(4, -1.0), np.array([1.0, -1.0, 2, -2])
    row = {"logp": q + 1e-7 * np.sign(adv), "logq": q, "adv": adv}
    (known,) = batch_values(loss, [row], [np.arange(4.0)])
    np.testing.assert_allclose(loss_and_grad(loss, {**row, **known})[1], -adv, atol=1e-3)


@pytest.mark.parametrize("name", OF_BATCHES)
@given(data=st.lists(sequences(), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_a_loss_of_a_whole_batch(name: str, data: Batch, seed: int) -> None:
    ends = np.cumsum([len(p) for p, *_ in data])
    order = np.random.default_rng(seed).permutation(int(ends[-1])).astype(float)
    expected_A, expected_grad_A = OF_BATCHES[name](data, order)
    loss = library_loss(name, share=0.2)
    rows = [{"logp": p, "logq": q, "adv": a} for p, q, a, _ in data]
    computed = batch_values(loss, rows, np.split(order, ends[:-1]))
    results = [
        loss_and_grad(loss, {**row, **known}) for row, known in zip(rows, computed, strict=True)
    ]
    assert sum(value for value, _ in results) == pytest.approx(
        np.sum(expected_A), rel=1e-9, abs=1e-9
    )
    grad_A = np.concatenate([grad_T for _, grad_T in results])
    np.testing.assert_allclose(grad_A, expected_grad_A, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("log_likelihood", ("cross_entropy", {})),
        ("importance", ("importance_sampling", {})),
        ("clipped_surrogate", ("ppo", {LOW: 0.8, HIGH: 1.2})),
        ("clipped_weight", ("cispo", {LOW: 0.0, HIGH: 4.0})),
        ("quadratic_pull", ("dro", {"beta": 0.05})),
        ("shared_ratio", ("gspo", {LOW: 0.9997, HIGH: 1.0004})),
        ("truncated_importance", ("cispo", {LOW: 0.0, HIGH: 2.0})),
    ],
)
def test_the_service_has_it(name: str, same: tuple[str, dict[str, float]]) -> None:
    found = known_loss(library_loss(name))
    assert found is not None
    assert (found.name, found.config) == same


def test_what_is_known_of_the_library() -> None:
    """None can be undefined; all but those with a term of their own scale with the advantages."""
    for name in library():
        loss = library_loss(name)
        assert not ranges(loss).undefined, name
        assert not ranges(loss).decided, name
        bound = ratio_is_bounded(loss)
        own_term = name in ("quadratic_pull", "ppo_k3", "ppo_entropy", "kl_cov")
        assert (degree(loss).of == 1) != own_term, name
        assert bound.positive or name in ("importance", "ppo_entropy", "kl_cov"), name
