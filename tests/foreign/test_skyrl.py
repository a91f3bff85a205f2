"""The real package: SkyRL's server on the CPU, behind rlc's bridge.

`python -m tools.skyrl` makes its environment; RLC_SKYRL names the folder, by default `build/skyrl`.
The model is in float32, so that gradients can be compared. What is sampled is another matter: its
random numbers are others than those of the embedded engine.
"""

from __future__ import annotations

import asyncio
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bridge_passes import ADAM, PASSES, opened, two_steps
from bridge_support import here, small_job
from killing import Victim
from loss_functions import WRITTEN, as_custom, data_for
from paths import RECIPES
from run_support import TINY, metrics
from serving_support import sft_data

from rlc.cli.main import main
from rlc.service.bridge.app import bridged
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceClient, TrainingClient

if TYPE_CHECKING:
    from tools.skyrl import SkyRL

SKYRL = TINY.replace('"tiny"', '"tiny"  service = skyrl')


def rewards(path: Path) -> list[float]:
    return [step["reward/mean"] for step in metrics(path)]


def quickstart(run: Path, *words: str) -> list[float]:
    """The mean rewards of the quickstart's first steps, which learn a little faster here."""
    fields = ("--set", "main.steps=5", "--set", "learning_rate=1e-3")
    recipe = f"{RECIPES}/quickstart.rl"
    assert main(["run", recipe, "--quiet", *fields, "--run-dir", str(run), *words]) == 0
    return rewards(run)


def test_the_quickstart_learns_as_on_the_embedded_engine(tmp_path: Path, skyrl: SkyRL) -> None:
    there = quickstart(tmp_path / "there", "--service", "skyrl", "--base-url", skyrl.url)
    expected = quickstart(tmp_path / "here")
    print(there, expected)
    assert max(there[-2:]) > there[0] + 0.02
    assert there == pytest.approx(expected, abs=0.1)


async def own_loss(training: TrainingClient, service: ServiceClient) -> list[float]:
    """A step of a loss that the SDK computes in the client."""
    data, ppo = as_custom(data_for("ppo")), WRITTEN["ppo"]
    loss = await service.create_custom_loss(ppo.fn, ppo.ranks)
    passed = training.forward_backward_custom(data, loss)
    stepped = training.optim_step(ADAM)
    output, step = await passed, await stepped
    end = await training.forward(sft_data(9), "cross_entropy")
    told = [output.metrics["loss:sum"], step.metrics["grad_norm"]]  # type: ignore[index]
    return told + [x for one in end.loss_fn_outputs for x in one["logprobs"].data]


@pytest.mark.parametrize("name", [*PASSES, "own loss"])
def test_steps_are_those_of_the_embedded_engine(tmp_path: Path, skyrl: SkyRL, name: str) -> None:
    """On an adapter that the server has made: likelihoods with weights of both signs, as of
    preferences; losses of ratios; several passes of a step; a recipe's own loss."""

    async def steps(training: TrainingClient, service: ServiceClient) -> list[float]:
        if name == "own loss":
            return await own_loss(training, service)
        return await two_steps(training, PASSES[name], pipelined=True)

    async def there() -> tuple[str, list[float]]:
        service = HostedService(Endpoint(bridged(skyrl.url), "tml-test"))
        try:
            training = await opened(service)
            saved = await training.save_weights_for_sampler(f"start-{name.replace(' ', '-')}")
            return saved.path, await steps(training, service)
        finally:
            await service.close("success")

    async def embedded(service: ServiceClient) -> list[float]:
        adapter = service.create_training_client_from_adapter(str(tmp_path / "adapter"), "tiny")
        return await steps(await adapter, service)

    path, told = asyncio.run(there())
    model, kind, saved = path.removeprefix("tinker://").split("/")
    with tarfile.open(skyrl.checkpoints / model / kind / f"{saved}.tar.gz") as packed:
        packed.extractall(tmp_path / "adapter", filter="data")
    np.testing.assert_allclose(told, here(tmp_path / "here", embedded), rtol=1e-4, atol=1e-4)


def job(folder: Path, **fields: str) -> Path:
    recipe = folder / "small.rl"
    recipe.write_text(SKYRL + small_job(**fields)[len(TINY) :])
    return recipe


def test_a_killed_run_goes_on_to_the_same_rewards(
    tmp_path: Path, skyrl: SkyRL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYRL_BASE_URL", skyrl.url)
    recipe = job(tmp_path)
    assert (
        main(["run", str(recipe), "--seed", "3", "--quiet", "--run-dir", f"{tmp_path}/calm"]) == 0
    )
    victim = Victim(recipe, tmp_path / "run", tmp_path / "log.txt")
    assert victim.kill_at("journalling", 1) is not None
    victim.finish()
    assert rewards(tmp_path / "run") == pytest.approx(rewards(tmp_path / "calm"), abs=1e-6)


def test_a_sweep_of_four(tmp_path: Path, skyrl: SkyRL, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = job(tmp_path, optimizer="adam(rate)", steps="2")
    tried = "of = main  over = { rate = [1e-3, 3e-3] }  seeds = 2  metric = main.reward"
    text = recipe.read_text()
    recipe.write_text(f"param rate: float = 1e-3\n{text}sweep rates {{ {tried} }}\n")
    words: list[Any] = ["sweep", recipe, "--base-url", skyrl.url, "--run-dir", tmp_path / "out"]
    assert main([str(word) for word in words]) == 0, capsys.readouterr()
    assert "finished: 4 finished" in capsys.readouterr().out
