"""A job of several stages on a Tinker server: warm start, training with a reference, evaluation."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from engine_tinker import engine_tinker
from hosted_support import BASE

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer, Summary
from rlc.service.hosted.connect import connect_service

pytestmark = [pytest.mark.plain, pytest.mark.server]

STAGES = """
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 4  renderer = qwen3_instruct }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
sft warmup {
  model = policy
  data  = demonstrations(guess, n = 4)
  batch = 2
  steps = 1
  optimizer = adam(1e-4)
}
train main {
  model     = warmup
  env       = guess
  batch     = groups(2, group_size = 2)
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference(policy.base, coef = 0.01)
  optimizer = adam(1e-4)
  steps     = 1
}
eval after { model = main  env = guess  tasks = 2  samples = 2  metrics = [mean_reward()] }
"""


PREFERENCES = """
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 4  renderer = qwen3_instruct }
preference align {
  model = policy
  data  = pairs("pairs.jsonl")
  loss  = dpo()
  batch = 2
  steps = 3
  optimizer = adam(1e-4)
}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Summary, list[str]]:
    return served(STAGES, tmp_path, monkeypatch)


def served(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Summary, list[str]]:
    """The folder of a run on a server, how it ended, and the endpoints that were asked."""
    compiled = compile_source(Source("stages.rl", text), {}, 1)
    assert compiled.plan is not None, compiled.diagnostics
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    with engine_tinker(tmp_path / "server") as server:
        folder = RunFolder.create(tmp_path / "run", compiled.plan)
        service = connect_service(compiled.plan, folder.path / "checkpoints", server.url)
        try:
            summary = asyncio.run(Job(folder, service, Observer()).run())
        finally:
            folder.close()
        return folder.path, summary, [endpoint for endpoint, _ in server.requests]


def test_every_stage_is_run_checked_and_recorded(
    run: tuple[Path, Summary, list[str]],
) -> None:
    path, summary, asked = run
    assert summary.state == "finished"
    assert asked.count("load_weights") == 2  # the end of warmup into main, that of main into after
    events = [json.loads(line) for line in (path / "service.jsonl").read_text().splitlines()]
    probes = {e["stage"]: e["loss"] for e in events if e["event"] == "loss probe"}
    assert probes == {"warmup": "cross_entropy", "main": "importance_sampling"}
    models = [e for e in events if e["event"] == "model"]
    assert {e["metadata"]["rlc_stage"] for e in models} == {"warmup", "main", "after"}
    assert all(e["base"] == BASE for e in models)
    steps = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    (main,) = (step for step in steps if step.get("stage") == "main")
    assert main["tokens/reference"] > 0
    assert summary.spent_usd > 0


def test_preferences_are_learnt_with_two_requests_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward pass and a gradient, whose update does not wait; nothing is sampled from the
    weights, and the reference is asked once for each reply."""
    rows = [{"prompt": f"{n}?", "chosen": f"{n}", "rejected": f"no {n}"} for n in range(4)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    path, summary, asked = served(PREFERENCES, tmp_path, monkeypatch)
    assert summary.state == "finished"
    assert asked.count("forward_backward") == 2 * 3 + 2  # a forward pass is one too; 2 probe
    assert asked.count("optim_step") == 3
    assert asked.count("asample") == 2 * len(rows)
    first, *_, last = [json.loads(line) for line in (path / "metrics.jsonl").open()]
    assert first["kl/reference"] < 1e-9
    assert last["tokens/reference"] == 0
    assert summary.spent_usd > 0
