"""The real package: SkyRL's server on the CPU, behind rlc's bridge.

`python -m tools.skyrl` makes its environment; RLC_SKYRL names the folder, by default `build/skyrl`.
The model is in float32, so that gradients can be compared. What is sampled is another matter: its
random numbers are others than those of the embedded engine.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bridge_passes import ADAM, CONFIG, PASSES, opened
from bridge_support import here, small_job
from killing import Victim
from loss_functions import WRITTEN, as_custom, data_for
from paths import RECIPES
from run_support import TINY, metrics
from skyrl_adapters import tied_norm, unpacked

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
    """The mean rewards of the quickstart's first steps, which are smaller here and learn faster."""
    fields = ("main.steps=3", "learning_rate=3e-3", "main.batch=groups(8, group_size = 8)")
    given = [word for field in fields for word in ("--set", field)]
    recipe = f"{RECIPES}/quickstart.rl"
    assert main(["run", recipe, "--quiet", *given, "--run-dir", str(run), *words]) == 0
    return rewards(run)


def test_the_quickstart_learns_as_on_the_embedded_engine(tmp_path: Path, skyrl: SkyRL) -> None:
    there = quickstart(tmp_path / "there", "--service", "skyrl", "--base-url", skyrl.url)
    assert there[-1] > there[0] + 0.1
    assert there == pytest.approx(quickstart(tmp_path / "here"), abs=0.12)


LIKELIHOOD = PASSES["cross_entropy"]
RATIOS = [one for name in ("importance_sampling", "ppo", "cispo") for one in PASSES[name]]
STEPS = (LIKELIHOOD, RATIOS, [*LIKELIHOOD, *RATIOS], None)


async def gradient(training: TrainingClient, service: ServiceClient, number: int) -> list[float]:
    """Submit the passes of a step, or one of a loss that the SDK computes in the client; return
    the sums of their losses."""
    if (passes := STEPS[number]) is None:
        ppo = WRITTEN["ppo"]
        loss = await service.create_custom_loss(ppo.fn, ppo.ranks)
        answers = [training.forward_backward_custom(as_custom(data_for("ppo")), loss)]
    else:
        answers = [training.forward_backward(data, loss, CONFIG.get(loss)) for loss, data in passes]
    return [(await answer).metrics["loss:sum"] for answer in answers]


def test_gradients_are_those_of_the_embedded_engine(tmp_path: Path, skyrl: SkyRL) -> None:
    """On the adapter that the server has before each step: likelihoods with weights of both signs,
    as of preferences; losses of ratios; several passes of a step; a recipe's own loss."""

    async def there() -> tuple[list[str], list[list[float]]]:
        service = HostedService(Endpoint(bridged(skyrl.url), "tml-test"))
        paths, told = list[str](), list[list[float]]()
        try:
            training = await opened(service)
            for number in range(len(STEPS)):
                paths.append((await training.save_weights_for_sampler(f"s{number}")).path)
                losses = await gradient(training, service, number)
                norm = (await training.optim_step(ADAM)).metrics["grad_norm"]  # type: ignore[index]
                told.append([*losses, norm])
        finally:
            await service.close("success")
        return paths, told

    async def embedded(service: ServiceClient) -> list[list[float]]:
        told = list[list[float]]()
        for number in range(len(STEPS)):
            folder = str(tmp_path / f"s{number}")
            training = await service.create_training_client_from_adapter(folder, "tiny")
            losses = await gradient(training, service, number)
            told.append([*losses, tied_norm(training)])
        return told

    paths, told = asyncio.run(there())
    for path in paths:
        unpacked(skyrl.checkpoints, path, tmp_path)
    for step, expected in zip(told, here(tmp_path / "here", embedded), strict=True):
        assert step == pytest.approx(expected, rel=1e-4)


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
