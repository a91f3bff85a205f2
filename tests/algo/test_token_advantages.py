"""Advantages of each sampled token, against loops over random batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from algo_schemes import declared
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, Episodes, ExpressionError, Scale, compute_advantages, with_step
from rlc.algo.expressions.formula import formula

Rows = list[list[float]]  # of the tokens of each turn


@frozen
class Episode:
    rewards: list[float]
    group: int
    logq: Rows
    ref: Rows
    teacher: Rows

    @property
    def whole(self) -> list[tuple[int, int]]:
        """The turn and the place of each token."""
        return [(t, i) for t, row in enumerate(self.logq) for i in range(len(row))]


def to_go(values: Sequence[float], gamma: float) -> list[float]:
    found = 0.0
    return [found := value + gamma * found for value in reversed(values)][::-1]


def at_end(one: Episode) -> list[float]:
    """The reward of each turn on its last token."""
    return [one.rewards[t] if i == len(one.logq[t]) - 1 else 0.0 for t, i in one.whole]


def of_group(value: Callable[[Episode], float], one: Episode, batch: Sequence[Episode]) -> float:
    return float(np.mean([value(x) for x in batch if x.group == one.group]))


def penalised(one: Episode, batch: Sequence[Episode]) -> list[float]:
    def togo(x: Episode) -> list[float]:
        apart = [0.05 * (x.logq[t][i] - x.ref[t][i]) for t, i in x.whole]
        return to_go([r - a for r, a in zip(at_end(x), apart, strict=True)], 0.97)

    def first(x: Episode) -> float:
        return togo(x)[0] if x.whole else 0.0

    return [value - of_group(first, one, batch) for value in togo(one)]


def distilled(one: Episode, batch: Sequence[Episode]) -> list[float]:
    total = sum(one.rewards) - of_group(lambda x: sum(x.rewards), one, batch)
    return [total + 0.3 * (one.teacher[t][i] - one.logq[t][i]) for t, i in one.whole]


def surprised(one: Episode, batch: Sequence[Episode]) -> list[float]:
    means = [float(np.mean(row)) if row else 0.0 for row in one.logq]
    longest = max((len(row) for row in one.logq), default=0)
    least = min((x for row in one.logq for x in row), default=0.0)
    last = one.logq[-1][-1] if one.logq[-1] else 0.0
    return [
        one.rewards[t] * (one.logq[t][i] - means[t]) / longest + least * (i + 1) - last
        for t, i in one.whole
    ]


def rarest(one: Episode, batch: Sequence[Episode]) -> list[float]:
    """Only what is less likely than the mean of the episode learns."""

    def weighed(x: Episode) -> float:
        weights = [i + 1 for _, i in x.whole]
        rows = [x.logq[t][i] * w for (t, i), w in zip(x.whole, weights, strict=True)]
        return sum(rows) / sum(weights) if rows else 0.0

    centred = sum(one.rewards) - of_group(lambda x: sum(x.rewards), one, batch)
    return [centred if one.logq[t][i] < weighed(one) else 0.0 for t, i in one.whole]


SCHEMES: dict[str, Callable[[Episode, Sequence[Episode]], list[float]]] = {
    """
    at_end = where(position == tokens, reward, 0)
    togo   = discounted(at_end - 0.05 * (logq - ref), 0.97)
    token  = togo - mean(first(togo), over = group)
    """: penalised,
    """
    total = sum(reward)
    token = total - mean(total, over = group) + 0.3 * (teacher - logq)
    """: distilled,
    """
    long  = max(count(logq, over = tokens))
    last  = last(last(logq, over = tokens))
    token = reward * (logq - mean(logq, over = tokens)) / long + min(logq) * position - last
    """: surprised,
    """
    total = sum(reward)
    token = where(logq < mean(logq, weight = position), total - mean(total, over = group), 0)
    """: rarest,
}


@st.composite
def batches(draw: st.DrawFn) -> list[Episode]:
    logprobs = st.floats(-20, -0.001)

    def rows(lengths: Sequence[int]) -> Rows:
        return [draw(st.lists(logprobs, min_size=n, max_size=n)) for n in lengths]

    made = []
    for _ in range(draw(st.integers(1, 6))):
        lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
        rewards = [draw(st.sampled_from([0.0, 1.0, -0.3])) for _ in lengths]
        columns = rows(lengths), rows(lengths), rows(lengths)
        made.append(Episode(rewards, draw(st.integers(0, 2)), *columns))
    return made


def columns(batch: Sequence[Episode]) -> Episodes:
    made = Episodes.from_rollouts(
        [one.rewards for one in batch],
        [[len(row) for row in one.logq] for one in batch],
        [one.group for one in batch],
        [0] * len(batch),
    )
    of_tokens = {
        name: np.array([x for one in batch for row in getattr(one, name) for x in row], np.float64)
        for name in ("logq", "ref", "teacher")
    }
    return evolve(made, of_tokens=of_tokens)


@pytest.mark.parametrize("text", SCHEMES, ids=[loop.__name__ for loop in SCHEMES.values()])
@given(batch=batches())
def test_a_token_has_the_advantage_of_a_loop(text: str, batch: list[Episode]) -> None:
    found = compute_advantages(declared(f"advantage own {{ {text} }}"), columns(batch))
    assert found.of_tokens is not None
    for one, mine, turns in zip(batch, found.of_tokens, found.by_rollout(), strict=True):
        expected = SCHEMES[text](one, batch)
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)
        ends = np.cumsum([len(row) for row in one.logq])[:-1]
        means = [row.mean() if len(row) else 0.0 for row in np.split(mine, ends)]
        np.testing.assert_allclose(turns, means, rtol=1e-12, atol=1e-12)


@given(batch=batches(), order=st.randoms())
def test_no_bit_depends_on_the_order_of_the_batch(batch: list[Episode], order: Any) -> None:
    scheme = declared(f"advantage own {{ {next(iter(SCHEMES))} }}")
    places = list(range(len(batch)))
    order.shuffle(places)
    mine = compute_advantages(scheme, columns(batch)).of_tokens
    other = compute_advantages(scheme, columns([batch[at] for at in places])).of_tokens
    assert mine is not None
    assert other is not None
    for at, row in zip(places, other, strict=True):
        assert row.tolist() == mine[at].tolist()


def test_equals_learn_nothing_and_those_left_out_get_zeros() -> None:
    text = "total = sum(reward)  keep = total  token = (total - mean(total, over = group)) * logq"
    rows = [[-1.0, -2.0]]
    batch = [Episode([reward], 0, rows, rows, rows) for reward in (0.1, 0.1, 0.1, 0.0)]
    found = compute_advantages(declared(f"advantage own {{ {text} }}"), columns(batch))
    assert found.of_tokens is not None
    assert [row.tolist() for row in found.of_tokens] == [[0.0, 0.0]] * 4
    assert found.kept_R.tolist() == [True, True, True, False]


def test_what_is_not_there_or_not_finite_is_said() -> None:
    scheme = declared("advantage own { token = sum(reward) + logq - ref }")
    rows = [[-1.0, -2.0]]
    whole = columns([Episode([1.0], 0, rows, rows, rows)])
    without = evolve(whole, of_tokens={"logq": np.array([-1.0, -2.0])})
    with pytest.raises(AlgorithmError, match="reads `ref`, which is not there"):
        compute_advantages(scheme, without)
    with pytest.raises(AlgorithmError, match="2 action tokens have 1 of `logq`"):
        evolve(whole, of_tokens={"logq": np.array([-1.0])})
    wrong = evolve(whole, of_tokens={"logq": np.array([-1.0, -np.inf])})
    with pytest.raises(AlgorithmError, match="`logq` of a token of rollout 0 is -inf"):
        compute_advantages(scheme, wrong)


def test_no_step_follows_an_advantage_of_tokens() -> None:
    scheme = declared("advantage own { token = sum(reward) * logq }")
    with pytest.raises(ExpressionError, match="no step can follow `own`"):
        with_step(scheme, Scale("std", "batch", "value", 1, 1e-6, "outside"))


def test_a_formula_marks_tokens_by_another_letter_than_turns() -> None:
    scheme = declared(f"advantage own {{ {next(iter(SCHEMES))} }}")
    assert formula(scheme.result) == (
        "at_end_i = where(i = n_t, r_t, 0)",
        "togo_i = at_end_i − 0.05 (log q_i − log p_ref,i) + 0.97 togo_(i+1)",
        "A_i = togo_i − mean_group(first_ti(togo_i))",
    )
