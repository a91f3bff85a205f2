"""Runs with a loss of the recipe's own: they learn, and resume as others do."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from plan_recipes import recipe
from run_support import assert_resumes, compiled, metrics, run_new, tiny, train

pytestmark = [pytest.mark.engine, pytest.mark.slow]

GATE = """
loss gated(tau = 1.0) {
  gate  = 4 / tau * sigmoid(tau * (ratio - 1))
  token = -gate * adv
}
"""
# Not of degree one in the advantages, and compared with a reference.
HELD = """
loss held {
  away  = ref - logp
  token = -min(ratio, 2) * adv + 0.05 * (exp(away) - away - 1)
}
"""
MEAN = "loss mean_ratio { sequence = -mean(min(ratio, 2)) * mean(adv) * sigmoid(mean(adv)) }\n"


@pytest.mark.parametrize(
    ("declared", "loss", "fields"),
    [
        (GATE, "gated(tau = 2)", {"overlap": "streamed(minibatches = 3)"}),
        (HELD, "held", {"kl": "reference(policy.base, coef = 0)", "aggregate": "token_mean()"}),
        (MEAN, "mean_ratio", {"overlap": "asynchronous(max_staleness = 1)"}),
    ],
    ids=["streamed", "with a reference", "asynchronous"],
)
def test_a_run_that_is_stopped_goes_on_to_the_same_end(
    declared: str, loss: str, fields: dict[str, str], tmp_path: Path
) -> None:
    job = tiny(declared, train(env="spell", steps="3", loss=loss, **fields))
    assert_resumes(job, ("main", 1), tmp_path / "stopped")


def test_a_loss_of_ones_own_learns(tmp_path: Path) -> None:
    text = recipe("spell_backward").replace("importance_sampling()", "gated(tau = 1.5)")
    fewer = {"main.steps": "8", "main.batch": "groups(6, group_size = 8)", "learning_rate": "5e-3"}
    run_new(tmp_path / "run", compiled(text + GATE, fewer))
    rewards = [step["reward/mean"] for step in metrics(tmp_path / "run")]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.1
