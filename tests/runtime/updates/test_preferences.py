"""Losses over preferences and their gradients, as TRL and tinker-cookbook compute them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from expressions import program
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from rlc.algo.expressions.evaluate import preference_loss_and_grad
from rlc.algo.expressions.inputs import RATING_INPUTS
from rlc.algo.preferences import preference_program
from rlc.catalog.index import builtins_of, preference_traits
from rlc.plan.parts import PreferenceLossPlan
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, TokenSequence
from rlc.runtime.updates.preferences import Completion, Preference, judge, labelled, pairs

VECTORS = json.loads((ROOT / "tests/algo/data/preference_vectors.json").read_text(encoding="utf-8"))
NAMES = [builtin.name for builtin in builtins_of("preference_loss")]


def side(prompt: int, reply: int, first: int = 7) -> Completion:
    """A reply of so many tokens after a prompt, which a token comes before."""
    tokens = [first, *range(100, 100 + prompt + reply)]
    turns = [NOT_SAMPLED] * (1 + prompt) + [0] * reply
    return Completion.of([TokenSequence(tokens, [0.0] * len(tokens), turns)])


def as_given(vector: dict[str, Any]) -> tuple[list[Preference], list[int]]:
    """The preferences of a vector, and for each of their sides the row that it is."""
    rows, prompt = vector["logprobs"], vector["prompt"]
    half = len(rows) // 2
    sides = [side(prompt, len(row) - prompt) for row in rows]
    good = vector.get("good", [None] * half)
    found = [Preference(i, (sides[i], sides[half + i]), good[i]) for i in range(half)]
    return found, [at for i in range(half) for at in (i, half + i)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['loss']}, {v['source']}")
def test_values_and_gradients_are_those_of_the_libraries(vector: dict[str, Any]) -> None:
    preferences, order = as_given(vector)
    loss = PreferenceLossPlan(vector["loss"], vector["config"])
    logprobs = [[np.array(vector["logprobs"][at])] for at in order]
    known = [np.array(vector["reference"][at][vector["prompt"] :]) for at in order]
    traits = preference_traits(loss)
    judged = judge(loss, preferences, logprobs, known if traits.reference else None)
    assert judged.metrics["loss/mean"] == pytest.approx(vector["loss_value"], rel=1e-12)
    trained = order[:: 2 if traits.labelled else 1]
    for datum, at in zip(judged.datums, trained, strict=True):
        # The service minimises the sum of −w log p.
        np.testing.assert_allclose(-datum.advantages_T, vector["gradient"][at], atol=1e-13)


@pytest.mark.plain
def test_brier_is_the_loss_of_the_decisions_of_the_cookbook() -> None:
    import torch
    from tinker_cookbook.recipes.decisions.forecasting import brier_score_loss

    scores_P2 = torch.tensor(np.random.default_rng(1).normal(-3, 2, (50, 2)), requires_grad=True)
    right_2 = torch.tensor([1.0, 0.0], dtype=torch.float64)
    loss = sum(brier_score_loss(torch.softmax(row, 0), right_2) for row in scores_P2)
    assert isinstance(loss, torch.Tensor)
    loss.backward()  # type: ignore[no-untyped-call]
    chosen_P, rejected_P = scores_P2.detach().numpy().T
    inputs = {"chosen": chosen_P, "rejected": rejected_P, "chosen_length": np.ones(50)}
    mean, grads = preference_loss_and_grad(preference_program("brier", {}), inputs)
    assert 50 * mean == pytest.approx(loss.item(), rel=1e-13)
    slopes_P2 = 50 * np.stack([grads["chosen"], grads["rejected"]], 1)
    np.testing.assert_allclose(slopes_P2, scores_P2.grad, atol=1e-14)  # type: ignore[arg-type]


@given(
    st.sampled_from(NAMES),
    st.integers(1, 4),
    st.integers(0, 10_000),
)
def test_weights_are_the_slope_of_the_loss(name: str, count: int, seed: int) -> None:
    rng, loss = np.random.default_rng(seed), PreferenceLossPlan(name, {})
    traits = preference_traits(loss)
    lengths = rng.integers(1, 6, size=2 * count)
    sides = [side(2, int(length)) for length in lengths]
    found = [
        Preference(i, (sides[2 * i], sides[2 * i + 1]), bool(i % 2) if traits.labelled else None)
        for i in range(count)
    ]
    logprobs = [[-0.05 - 2 * rng.random(int(n) + 2)] for n in lengths]
    known = [-0.05 - 2 * rng.random(int(n)) for n in lengths] if traits.reference else None
    judged = judge(loss, found, logprobs, known)
    trained = range(0, 2 * count, 2 if traits.labelled else 1)
    h = 1e-6
    for datum, at in zip(judged.datums, trained, strict=True):
        for token in range(len(logprobs[at][0])):
            values = []
            for change in (h, -h):
                moved = [[row[0].copy()] for row in logprobs]
                moved[at][0][token] += change
                values.append(judge(loss, found, moved, known).metrics["loss/mean"])
            slope = (values[0] - values[1]) / (2 * h)
            assert -datum.advantages_T[token] == pytest.approx(slope, abs=1e-6)


@given(st.integers(1, 6), st.integers(0, 10_000), st.floats(0.01, 3), st.floats(-4, 4))
def test_ratings_enter_a_loss_as_a_loop_has_it(
    count: int, seed: int, beta: float, slack: float
) -> None:
    rng = np.random.default_rng(seed)
    margin = f"{slack} * rating_margin + chosen_rating - rejected_rating"
    text = f"softplus({margin} - {beta} * (chosen - chosen_ref - (rejected - rejected_ref)))"
    loss = PreferenceLossPlan("own", {}, program(text, kind="preference"))
    lengths = rng.integers(1, 6, size=2 * count)
    sides = [side(2, int(length)) for length in lengths]
    rated = [dict(zip(RATING_INPUTS, rng.normal(0, 3, 3).tolist(), strict=False)) for _ in sides]
    found = [Preference(i, (sides[2 * i], sides[2 * i + 1]), None, rated[i]) for i in range(count)]
    logprobs = [[-0.05 - 2 * rng.random(int(n) + 2)] for n in lengths]
    known = [-0.05 - 2 * rng.random(int(n)) for n in lengths]
    judged = judge(loss, found, logprobs, known)
    values = []
    for i in range(count):
        better, worse = (logprobs[2 * i + k][0][2:].sum() - known[2 * i + k].sum() for k in (0, 1))
        chosen, rejected, apart = (rated[i][name] for name in RATING_INPUTS[:3])
        short = slack * apart + chosen - rejected - beta * (better - worse)
        values.append(np.logaddexp(0, short))
        weight = beta / (1 + np.exp(-short)) / count
        for k, sign in ((0, 1.0), (1, -1.0)):
            weights_T = judged.datums[2 * i + k].advantages_T
            np.testing.assert_allclose(weights_T[2:], sign * weight, rtol=1e-12)
    assert judged.metrics["loss/mean"] == pytest.approx(np.mean(values), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_of_a_batch_does_not_depend_on_its_order(name: str) -> None:
    rng, loss = np.random.default_rng(3), PreferenceLossPlan(name, {})
    traits = preference_traits(loss)
    sides = [side(2, 3, first=at) for at in range(6)]
    good = [True, False, True] if traits.labelled else [None] * 3
    found = [Preference(i, (sides[2 * i], sides[2 * i + 1]), good[i]) for i in range(3)]
    rows = {id(one): [-rng.random(5)] for one in sides}
    known = {id(one): -rng.random(3) for one in sides}

    def judged(chosen: Sequence[Preference]) -> dict[str, float]:
        order = [one for preference in chosen for one in preference.sides]
        reference = [known[id(one)] for one in order] if traits.reference else None
        return judge(loss, chosen, [rows[id(one)] for one in order], reference).metrics

    turned = judged(found[::-1])
    for key, value in judged(found).items():
        assert turned[key] == pytest.approx(value, rel=1e-12)


def test_equal_replies_are_half_right() -> None:
    same = side(2, 3)
    rows = [[np.full(5, -1.0)]] * 2
    loss = PreferenceLossPlan("dpo", {"beta": 0.1, "label_smoothing": 0.0})
    judged = judge(loss, [Preference(0, (same, same))], rows, [np.full(3, -1.0)] * 2)
    assert judged.metrics["accuracy"] == 0.5
    assert judged.metrics["loss/mean"] == pytest.approx(np.log(2))
    assert judged.metrics["kl/reference"] == 0


def record(prompt: list[int], **replies: list[int]) -> dict[str, Any]:
    def written(reply: list[int]) -> dict[str, Any]:
        tokens = [*prompt, *reply]
        turns = [NOT_SAMPLED] * len(prompt) + [0] * len(reply)
        return TokenSequence(tokens, [0.0] * len(tokens), turns).written()

    return {name: [written(reply)] for name, reply in replies.items()}


def test_a_labelled_reply_has_the_reply_to_another_prompt_beside_it() -> None:
    found = labelled(
        [
            record([1, 2], chosen=[3], rejected=[4, 5]),
            record([6], rejected=[7]),
        ],
        "chosen",
        "rejected",
    )
    assert [one.good for one in found] == [True, False, False]
    assert [one.number for one in found] == [0, 0, 1]
    beside = [one.sides[1].datums[0] for one in found]
    assert [[*d.inputs, int(d.targets_T[-1])] for d in beside] == [[1, 2, 7], [1, 2, 7], [6, 3]]
    assert [d.sampled for d in beside] == [1, 1, 1]


def test_pairs_are_the_better_reply_and_the_worse() -> None:
    (one,) = pairs([record([1], chosen=[2, 3], rejected=[4])], "chosen", "rejected")
    assert [s.datums[0].sampled for s in one.sides] == [2, 1]
    assert one.good is None
    assert len({s.key for s in one.sides}) == 2
