"""Emitted scripts and the examples, run as they are against a served engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest
from http_testing import one_of_each
from paths import ROOT

import rlc.service.engine  # before anything imports torch
from rlc.compile.recipe import compile_source
from rlc.emit.script.program import script
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

TINY = "rlc/service/tiny/weights"  # a name that is a folder: where the cookbook finds a tokenizer

JOB = """
model policy {{ base = "{base}"  lora_rank = 8  renderer = qwen3_instruct }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> template(qwen3_general) |> rollouts(group_size = 2)
train main {{
  model     = policy
  env       = 2 * guess + 1 * spell
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = {advantage}
  aggregate = {aggregate}
  loss      = {loss}
  optimizer = adam(1e-3, schedule = cosine(warmup = 2))
  steps     = 2
}}
"""
WAVES = """
model policy {{ base = "{base}"  lora_rank = 8 }}
env guess = gem("game:GuessTheNumber-v0-easy") |> concat() |> template(qwen3_game)
train main {{
  model = policy  env = guess  batch = turns(12, parallel = 4)
  sampling = sample(max_tokens = 16)  advantage = rebn(gamma = 0.9)
  loss = dro(beta = 0.5)  optimizer = adam(1e-3)  steps = 2
}}
"""
# A random choice of turns from chats, in which other turns of the same sequence stand.
NAMED = """
model policy {{ base = "{base}"  lora_rank = 8  renderer = qwen3_instruct }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {{
  model = policy  env = guess  batch = turns(10, parallel = 4)
  sampling = sample(max_tokens = 16)  advantage = rebn(gamma = 0.9)
  loss = stable_reinforce(kl_coeff = 0.1)  optimizer = adam(1e-3)  steps = 2
}}
"""
# One loss of each shape; the second is not of degree one in the advantages.
SEQUENCES = """
loss shared {{
  s        = exp(mean(logp - logq))
  sequence = -min(s, 1.01) * mean(adv) * sigmoid(s)
}}
"""
PULLED = """
loss pulled {{
  drift = logp - logq
  token = drift * drift - max(ratio, 0.99) * adv
}}
"""
CHATS = """
model policy {{ base = "{base}"  lora_rank = 8  renderer = qwen3_instruct }}
sft main {{
  model = policy  data = chats("chats.jsonl", train_on = {train_on})  batch = 3
  optimizer = adam(1e-3, schedule = linear(warmup = 1))  steps = 3
}}
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    models = {"tiny": "tiny", TINY: "tiny", f"./{TINY}": "tiny"}
    with one_of_each(tmp_path_factory.mktemp("served"), models) as start:
        yield start


@pytest.fixture
def server(servers: Callable[[], str]) -> str:
    return servers()


def plan_of(text: str, base: str = "tiny", **more: str) -> Plan:
    compiled = compile_source(Source("job.rl", text.format(base=base, **more)))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


def run_script(server: str, folder: Path, *command: str) -> str:
    """Run a Python program as a user would, in a folder of its own that knows the tiny model."""
    weights = folder / TINY
    weights.parent.mkdir(parents=True, exist_ok=True)
    weights.symlink_to(ROOT / TINY)
    return processes.run_script(
        command, folder, {"TINKER_BASE_URL": server, "TINKER_API_KEY": "tml-local"}
    )


def metrics_of(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_here(plan: Plan, path: Path) -> list[dict[str, float]]:
    """The metrics of the same plan in this process."""
    folder = RunFolder.create(path, plan)
    opens = rlc.service.engine.open_engine  # or that of the double
    service = opens(folder.path / "checkpoints", device="cpu", threads=1)
    try:
        asyncio.run(Job(folder, service, Observer()).run())
    finally:
        folder.close()
        service.close()
    return metrics_of(path / "metrics.jsonl")


def on_engine(*texts: str, **more: str) -> Any:
    """A case that needs the engine: the double computes no losses of a recipe's own, and the
    members of a group of this size may all earn the same there."""
    return pytest.param(plan_of(*texts, **more), marks=pytest.mark.engine)


@pytest.mark.parametrize(
    "plan",
    [
        on_engine(
            JOB, advantage="grpo()", aggregate="seq_mean_token_mean()", loss="cispo(clip_high = 5)"
        ),
        plan_of(
            JOB,
            advantage="returns(gamma = 0.9) |> baseline(leave_one_out, over = env, "
            "weight = tokens) |> clip(-1, 1)",
            aggregate="token_mean()",
            loss="importance_sampling()",
        ),
        plan_of(WAVES),
        plan_of(NAMED),
        on_engine(
            SEQUENCES + JOB, advantage="grpo()", aggregate="seq_mean_token_mean()", loss="shared"
        ),
        on_engine(PULLED + JOB, advantage="grpo()", aggregate="token_mean()", loss="pulled"),
    ],
    ids=["episodes", "turns-over-env", "waves", "named-sequences", "own-sequences", "own-pulled"],
)
def test_the_script_repeats_the_run(plan: Plan, server: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script(plan))
    run_script(server, tmp_path, "train.py", "--metrics", "told.jsonl")
    told = metrics_of(tmp_path / "told.jsonl")

    ours = run_here(plan, tmp_path / "run")
    assert len(told) == len(ours) == 2
    for theirs, own in zip(told, ours, strict=True):
        assert theirs["reward/mean"] == pytest.approx(own["reward/mean"], abs=1e-9)
        assert theirs["loss/sum"] == pytest.approx(own["loss/sum"], rel=1e-4, abs=1e-5)


def test_the_script_of_a_supervised_stage_repeats_the_run(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chats of one turn and of two, in epochs of an order of their own."""
    monkeypatch.chdir(tmp_path)
    said = [(f"Say {n}.", f"It is {n}.") for n in range(7)]
    chats = [[said[n], *([said[n - 1]] if n % 2 else [])] for n in range(7)]
    with open("chats.jsonl", "w", encoding="utf-8") as file:
        for chat in chats:
            asked = ("user", "assistant")
            messages = [
                {"role": role, "content": text}
                for pair in chat
                for role, text in zip(asked, pair, strict=True)
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
    for train_on in ("all", "last"):
        folder = tmp_path / train_on
        folder.mkdir()
        plan = plan_of(CHATS, train_on=train_on)
        (folder / "train.py").write_text(script(plan, f"{train_on}/train.py"))
        run_script(server, folder, "train.py", "--metrics", "told.jsonl")
        told, ours = metrics_of(folder / "told.jsonl"), run_here(plan, folder / "run")
        assert len(told) == len(ours) == 3
        for theirs, own in zip(told, ours, strict=True):
            assert theirs["loss/mean"] == pytest.approx(own["loss/mean"], rel=1e-4)


@pytest.mark.engine
def test_the_low_level_example_trains(server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "gem_low_level.py")
    told = run_script(server, tmp_path, example, "--steps", "2", "--num-env", "4", "--batch", "8")
    assert told.count("return") == 2


@pytest.mark.engine
def test_the_cookbook_example_trains(server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "gem_cookbook.py")
    sizes = ("n_batches=2", "groups_per_batch=2", "group_size=2", "log_path=log")
    run_script(server, tmp_path, example, *sizes)
    lines = metrics_of(tmp_path / "log" / "metrics.jsonl")
    assert len([line for line in lines if "env/all/reward/total" in line]) == 2


@pytest.mark.engine
def test_the_supervised_example_trains(server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "sft_cookbook.py")
    run_script(server, tmp_path, example, "n_batches=6", "batch_size=8", "log_path=log")
    losses = [line["train_mean_nll"] for line in metrics_of(tmp_path / "log" / "metrics.jsonl")]
    assert losses[-1] < losses[0]
