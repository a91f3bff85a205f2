"""A penalty on the distance from a reference, in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from run_support import compiled, copy_of, metrics, rollouts, run, run_new, tiny, train, undisturbed
from stage_parts import changed, flat

from rlc.plan.parts import ModelState
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.pricing.cost import stage_cost
from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain


def penalised(coef: float, **fields: str) -> Plan:
    return tiny(train(kl=f'reference("tiny", coef = {coef})', **fields))


PENALISED = penalised(0.1, optimizer="adam(3e-3)")


@pytest.mark.engine
def test_an_untrained_adapter_is_where_its_base_model_is() -> None:
    first, *later = (record["kl/reference"] for record in metrics(undisturbed(PENALISED)))
    assert abs(first) < 1e-4
    assert all(abs(distance) > 1e-3 for distance in later)


@pytest.mark.engine
def test_a_strong_penalty_keeps_the_policy_near(tmp_path: Path) -> None:
    distances = {}
    for coef in (1e-6, 3.0):
        job = penalised(
            coef, steps="5", env="spell", optimizer="adam(5e-3)", batch="groups(3, group_size = 4)"
        )
        run_new(tmp_path / str(coef), job)
        distances[coef] = [record["kl/reference"] for record in metrics(tmp_path / str(coef))]
    free, held = (sum(distances[coef][3:]) for coef in (1e-6, 3.0))
    assert held < 0.5 * free


def test_what_the_reference_reads_is_counted_and_metered(tmp_path: Path) -> None:
    path = copy_of(undisturbed(PENALISED), tmp_path / "run")
    records, played = metrics(path), rollouts(path)
    tokens = sum(
        record["turns"][-1]["prompt_tokens"] + record["turns"][-1]["tokens"] for record in played
    )
    assert sum(record["tokens/reference"] for record in records) == tokens
    kinds = ("prefill", "cached", "sampled", "trained", "reference")
    used = sum(record[f"tokens/{kind}"] for record in records for kind in kinds)
    folder = RunFolder.resume(path)
    assert folder.journal.used("main").tokens == used
    folder.close()


def test_a_saved_state_as_the_reference(tmp_path: Path) -> None:
    """A policy that goes on from the very state that it is compared with."""
    summary = run_new(tmp_path / "first", tiny(train(steps="2", optimizer="adam(3e-3)")))
    saved = str(summary.stages[0].checkpoint)
    job = penalised(0.1, steps="1")
    stage = job.stages[0]
    assert isinstance(stage, Training)
    assert flat(stage).kl is not None
    for weights, near in ((saved, True), (None, False)):
        other = changed(
            stage,
            kl=evolve(
                flat(stage).kl, reference=ModelState(evolve(stage.model, weights=saved), None)
            ),
            model=evolve(stage.model, weights=weights),
        )
        path = tmp_path / str(near)
        folder = RunFolder.create(path, evolve(job, stages=(other,)))
        (path / "checkpoints").symlink_to(tmp_path / "first" / "checkpoints")
        run(folder)
        assert (abs(metrics(path)[0]["kl/reference"]) < 1e-4) == near


JOB = """\
model policy { base = "tiny"  lora_rank = 8 }
model twin { base = "tiny"  lora_rank = 8 }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
sft warmup {
  model = policy  data = demonstrations(guess, n = 16)  steps = 1  batch = 4  optimizer = adam(1e-2)
}
train main {
  model = warmup  env = guess  batch = groups(2, group_size = 2)  sampling = sample(max_tokens = 8)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(3e-3)  steps = 2
  kl = reference(REFERENCE, coef = 0.5)
}
"""


def compared_with(reference: str, path: Path) -> list[dict[str, Any]]:
    """What the steps of a job measure that compares with a reference, times aside."""
    run_new(path, compiled(JOB.replace("REFERENCE", reference)))
    return [
        {name: value for name, value in record.items() if not name.startswith(("time/", "spend/"))}
        for record in metrics(path)
        if record["stage"] == "main"
    ]


def test_a_stage_is_the_reference_that_its_weights_are(tmp_path: Path) -> None:
    stage = compared_with("warmup", tmp_path / "stage")
    assert abs(stage[0]["kl/reference"]) < 1e-4  # it goes on from there
    assert abs(stage[1]["kl/reference"]) > 1e-4
    weights = f'"{tmp_path / "stage"}@warmup"'
    assert compared_with(weights, tmp_path / "weights") == stage
    base = compared_with("policy.base", tmp_path / "base")
    assert base != stage
    assert compared_with('"tiny"', tmp_path / "named") == base
    assert compared_with("twin", tmp_path / "twin") == base  # nothing has trained it


def test_what_a_reference_reads_is_paid_at_its_own_price() -> None:
    text = JOB.replace('base = "tiny"', 'base = "Qwen/Qwen3.5-4B"').replace(
        "chat()", "concat() |> template(qwen3_game)"
    )
    prices = {}
    for reference in ("policy.base", "warmup", '"Qwen/Qwen3.5-9B"'):
        plan = compiled(text.replace("REFERENCE", reference))
        prices[reference] = stage_cost(plan.trainings[1]).bill["high"]["reference"].usd
    assert prices["policy.base"] == prices["warmup"] > 0
    assert prices['"Qwen/Qwen3.5-9B"'] > prices["warmup"]
