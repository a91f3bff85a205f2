"""The engine on a GPU computes what it does on a CPU; and the benchmark of it runs on both."""

from __future__ import annotations

import asyncio
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paths import ROOT
from tinker import types

from rlc.service.engine import open_engine

PROMPT = list(range(40, 60))


@pytest.fixture
def _on_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")


def trained(root: Path, device: str, dtype: str | None) -> tuple[Any, ...]:
    """Logprobs before and after a step, and samples of the new weights."""

    async def work() -> tuple[Any, ...]:
        engine = open_engine(root, device=device, dtype=dtype)
        try:
            client = await engine.create_lora_training_client("tiny", rank=8, seed=1)
            arrays: dict[str, Any] = {
                "target_tokens": np.array(PROMPT[1:]),
                "weights": np.ones(len(PROMPT) - 1, "f4"),
            }
            data = [types.Datum(types.ModelInput.from_ints(PROMPT[:-1]), arrays)]
            passed = [await client.forward_backward(data, "cross_entropy")]
            await client.optim_step(types.AdamParams(learning_rate=1e-3))
            passed.append(await client.forward(data, "cross_entropy"))
            sampler = await client.save_weights_and_get_sampling_client()
            params = types.SamplingParams(max_tokens=16, temperature=0.0)
            reply = await sampler.sample(types.ModelInput.from_ints(PROMPT), 1, params)
            scored = await sampler.compute_logprobs(types.ModelInput.from_ints(PROMPT))
        finally:
            engine.close()
        rows = [p.loss_fn_outputs[0]["logprobs"].to_numpy() for p in passed]
        return (*rows, np.array(scored[1:]), list(reply.sequences[0].tokens))

    return asyncio.run(work())


@pytest.mark.cuda
@pytest.mark.usefixtures("_on_cuda")
def test_a_gpu_computes_what_a_cpu_does(tmp_path: Path) -> None:
    there = trained(tmp_path / "gpu", "cuda", "float32")
    here = trained(tmp_path / "cpu", "cpu", "float32")
    for ours, theirs in zip(there[:3], here[:3], strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert there[3] == here[3]
    np.testing.assert_allclose(there[1], there[2], atol=2e-3)  # trainer and sampler


@pytest.mark.cuda
@pytest.mark.usefixtures("_on_cuda")
def test_a_gpu_computes_in_bfloat16_what_a_cpu_does(tmp_path: Path) -> None:
    """It does so by itself: the included model was saved in bfloat16."""
    there = trained(tmp_path / "gpu", "cuda", None)
    here = trained(tmp_path / "cpu", "cpu", "bfloat16")
    for ours, theirs in zip(there[:3], here[:3], strict=True):
        assert 0 < np.abs(ours - theirs).mean() < 0.05
    assert np.abs(there[1] - there[2]).mean() < 0.02  # trainer and sampler


@pytest.mark.slow
def test_the_benchmark_runs_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["gpu.py", "--size", "tiny", "--device", "cpu", "--repeats", "1"]
    monkeypatch.setattr(sys, "argv", given)
    runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "engine, bfloat16" in said
    assert "transformers, bfloat16" in said
    (differs,) = [line for line in said.splitlines() if line.startswith("trainer and sampler")]
    assert float(differs.split()[5]) < 0.01
    (sampled,) = [line.split("│") for line in said.splitlines() if line.startswith("│ sample ")]
    assert sampled[2].strip() == sampled[3].strip() == "32"  # 2 groups of 2, 8 tokens each


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--size", "4b", "--device", "cpu"], "--size 4b is for a GPU"),
        (["--size", "tiny"], "there is no GPU here"),
    ],
)
def test_the_benchmark_refuses_what_takes_hours(
    given: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", *given])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"), run_name="__main__")
    assert reason in capsys.readouterr().err
