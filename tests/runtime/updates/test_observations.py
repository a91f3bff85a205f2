"""What comes between replies, learnt beside the loss: which tokens, their gradient, and runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from plain_service import open_plain, table
from run_support import TINY, assert_resumes, metrics, tiny, train, undisturbed

from rlc.algo import builtin_loss_and_grad
from rlc.compile.recipe import compile_source
from rlc.explanation import explain_text
from rlc.lang import Diagnostics
from rlc.lang.source import Source
from rlc.plan.stages import PolicyGradient, Training
from rlc.pricing.tokens import step_tokens
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.updates.datums import episode_datums, minibatches, rollout_datums
from rlc.runtime.updates.optimizer import submit_gradients

pytestmark = pytest.mark.plain

SAID = {"observations": "0.25"}


def turn(prompt: list[int], reply: list[int]) -> Turn:
    return Turn(prompt, reply, [-6.2] * len(reply), "", "", 0.0, "stop")


FIRST = turn([10, 11], [30, 31])
TURNS = (FIRST, turn([10, 11, 30, 31, 50, 51], [32]), turn([10, 11, 30, 31, 50, 51, 32, 52], [33]))


@pytest.mark.parametrize(
    ("chosen", "learnt"), [([1, 1, 1], [50, 51, 52]), ([1, 0, 1], [50, 51]), ([0, 1, 0], [52])]
)
def test_what_comes_after_a_reply_that_is_trained_on(chosen: list[int], learnt: list[int]) -> None:
    """Neither the task nor a reply; up to the last of them, of which alone there is a gradient."""
    (datum,) = episode_datums(TURNS, np.ones(3), np.array(chosen, bool))
    observing = datum.observing(0.5)
    assert observing.targets_T[observing.mask_T].tolist() == learnt
    assert observing.targets_T[-1] == learnt[-1]
    assert observing.advantages_T.tolist() == (0.5 * observing.mask_T).tolist()


def test_images_are_not_learnt_and_separate_prompts_have_nothing_between() -> None:
    marked = (FIRST, turn([10, 11, 30, 31, -1, 51], [32]))
    (datum,) = episode_datums(marked, np.ones(2), np.ones(2, bool))
    assert datum.targets_T[datum.observed_T].tolist() == [51]
    for datum in episode_datums((FIRST, turn([10, 50], [32])), np.ones(2), np.ones(2, bool)):
        assert not datum.observed_T.any()


def stage_of(**fields: str) -> Training:
    (stage,) = tiny(train(**fields)).stages
    assert isinstance(stage, Training)
    return stage


@pytest.mark.parametrize("aggregate", ["token_sum()", "token_mean()", "seq_mean_token_mean()"])
def test_the_gradient_is_that_of_the_loss_and_the_likelihood(
    aggregate: str, tmp_path: Path
) -> None:
    """By finite differences of both together, in a random direction of the weights."""
    stage = stage_of(aggregate=aggregate, loss="ppo(clip_high = 1.28)", **SAID)
    others = (turn([10, 12], [34]), turn([10, 12, 34, 53, 54, 55], [35, 36]))
    rollouts = [
        Rollout("env", 0, member, "", turns, "done", (0.0,))
        for member, turns in enumerate((TURNS, others, (FIRST,)))
    ]
    advantages = [np.array([1.0, -0.5, 0.7]), np.array([-1.0, 0.3]), np.array([0.4])]
    chosen = [np.ones(len(row), bool) for row in advantages]
    episodes = rollout_datums(rollouts, advantages, chosen, [{}] * 3)
    objective = stage.of(PolicyGradient)
    (minibatch,) = minibatches(objective, 1, episodes)

    def value(weights: np.ndarray) -> float:
        total, counts = 0.0, {"sampled": [4, 3, 2], "observed": [3, 3, 0]}
        for part, of in counts.items():
            scale = {"token_sum()": [1.0] * 3, "token_mean()": [1 / sum(of)] * 3}.get(aggregate)
            scale = scale or [1 / (n * np.count_nonzero(of)) if n else 0.0 for n in of]
            for i, episode in enumerate(episodes):
                (datum,) = episode.datums
                rows = table().logprobs(weights, np.array(datum.inputs))
                lp_T = rows[np.arange(len(rows)), datum.targets_T]
                if part == "observed":
                    total -= 0.25 * scale[i] * float(lp_T[datum.observed_T].sum())
                    continue
                inputs = {"logprobs": datum.logprobs_T, "advantages": scale[i] * datum.advantages_T}
                total += builtin_loss_and_grad(
                    "ppo", stage.of(PolicyGradient).loss.config, lp_T, inputs
                )[0]
        return total

    async def gradient() -> tuple[np.ndarray, np.ndarray]:
        training = await open_plain(tmp_path).create_lora_training_client("tiny", seed=1)
        await asyncio.gather(
            *(
                one.output
                for one in (await submit_gradients(training, stage, 1, [minibatch])).submitted
            )
        )
        assert training.gradient is not None
        return training.weights, training.gradient

    weights, found = asyncio.run(gradient())
    direction = np.random.default_rng(1).normal(size=weights.shape)
    step = 1e-4
    slope = (value(weights + step * direction) - value(weights - step * direction)) / (2 * step)
    assert float((found * direction).sum()) == pytest.approx(slope, rel=1e-4)


def of_run(**fields: str) -> list[dict[str, Any]]:
    fields = {"optimizer": "adam(1e-1)", **fields}
    return metrics(undisturbed(tiny(train(**fields))))


def test_a_run_learns_what_it_is_told_and_pays_for_it() -> None:
    told, hardly, silent = of_run(observations="1.0"), of_run(observations="1e-6"), of_run()
    assert told[0]["observations/nll"] == hardly[0]["observations/nll"]
    assert told[-1]["observations/nll"] < 0.9 * hardly[-1]["observations/nll"]
    assert all("observations/nll" not in record for record in silent)
    assert told[0]["tokens/trained"] > silent[0]["tokens/trained"]
    stage = stage_of(observations="1.0")
    low, high = (step_tokens(stage, level).train for level in ("low", "high"))
    assert all(low <= record["tokens/trained"] <= high for record in told)
    without = evolve(stage, objective=evolve(stage.of(PolicyGradient), observations=None))
    expected = [step_tokens(one, "expected").train for one in (stage, without)]
    assert expected[0] == 2 * expected[1]


def test_it_resumes_exactly_and_with_several_updates_a_batch(tmp_path: Path) -> None:
    job = tiny(train(batch="groups(4, group_size = 4, updates = 2)", loss="ppo()", **SAID))
    assert_resumes(job, ("main", 2), tmp_path)


def test_explain_shows_it() -> None:
    plan = tiny(train(**SAID))
    text = " ".join(explain_text(plan, Diagnostics()).split())
    assert "L = L − observations Σ_o log p_o observations = 0.25 o: the tokens between" in text
    assert "learnt by a gradient of their own" in text


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"env": "spell", **SAID}, "RL0448"), ({"observations": "0"}, "RL0202")],
)
def test_what_it_cannot_be(fields: dict[str, str], code: str) -> None:
    found = compile_source(Source("recipe.rl", TINY + train(**fields))).diagnostics
    assert code in [item.code for item in found]
