"""Servers that compute something else than they say, one lie each: a run ends before it trains
anything, and ``rlc conform`` names the lie."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve, frozen
from hosted_support import RECIPE
from http_testing import Running, running

from rlc.cli.main import main
from rlc.service.conform.probe import Bench, CheckOutcome
from rlc.service.conform.suite import chosen, run_checks
from rlc.service.engine import losses, trainer
from rlc.service.engine.base_model import BaseModel, WeightSnapshot
from rlc.service.engine.service import LocalSamplingClient
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService

pytestmark = pytest.mark.server

KEY = "tml-a-key-for-tests"
Patch = pytest.MonkeyPatch
Spoil = Callable[[Patch], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _of_others(monkeypatch: Patch, tmp_path: Path) -> None:
    """The server is one that others have written."""

    async def theirs(_: HostedService) -> bool:
        return False

    monkeypatch.setattr(HostedService, "is_rlc", theirs)
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.chdir(tmp_path)


@frozen
class Done:
    """What a run of one step has come to: ``probes`` is what was measured of its training."""

    status: int
    err: str
    trained: bool
    probes: list[dict[str, Any]]


def run(server: Running, capsys: pytest.CaptureFixture[str]) -> Done:
    """Run a step of PPO that may sample from weights one step old."""
    text = RECIPE.replace("importance_sampling()", "ppo()")
    Path("job.rl").write_text(text.replace("steps     = 3", "steps = 1"))
    overlap = ["--set", "main.overlap=asynchronous(max_staleness = 1)"]
    status = main(["run", "job.rl", "--run-dir", "run", "--base-url", server.url, *overlap])
    lines = Path("run/service.jsonl").read_text().splitlines()
    probes = [event for event in map(json.loads, lines) if event["event"] == "training probe"]
    trained = bool(Path("run/metrics.jsonl").read_text())
    return Done(status, " ".join(capsys.readouterr().err.split()), trained, probes)


def conform(server: Running, check: str) -> CheckOutcome:
    bench = Bench(Endpoint(server.url, KEY), "Qwen/Qwen3-8B")
    (found,) = run_checks(bench, chosen([check])).found
    return found


def over_datums(patch: Patch) -> None:
    """The gradient of a pass is averaged over its datums."""
    right = trainer.Trainer.run

    def averaged(self: Any, data: Any, loss: Any, backward: bool) -> Any:
        before_P = self.optimizer.gradient_P.clone()
        passed = right(self, data, loss, backward)
        self.optimizer.gradient_P.sub_(before_P).div_(len(data)).add_(before_P)
        return passed

    patch.setattr(trainer.Trainer, "run", averaged)


def in_gradient(name: str, wrong: Callable[[Any, Any], Any]) -> Spoil:
    """A loss with its value, and the gradient of another."""

    def spoil(patch: Patch) -> None:
        right = losses.LOSSES[name]

        def sum_M(lp_M: torch.Tensor, x: Any) -> Any:  # noqa: N802 (a field of the loss)
            other = wrong(lp_M, x)
            return other + (right.sum_M(lp_M, x) - other).detach()

        patch.setattr(losses, "LOSSES", {**losses.LOSSES, name: evolve(right, sum_M=sum_M)})

    return spoil


def over_length(lp_M: torch.Tensor, x: Any) -> Any:
    return -(x["weights"] * lp_M).sum() / len(lp_M)


def over_weights(lp_M: torch.Tensor, x: Any) -> Any:
    return -(x["weights"] * lp_M).sum() / x["weights"].sum().clamp(min=1e-9)


PPO = losses.LOSSES["ppo"]


def of_other_clip(lp_M: torch.Tensor, x: Any) -> Any:
    low, high = torch.full_like(lp_M, 0.5), torch.full_like(lp_M, 2.0)
    clip = {"clip_low_threshold": low, "clip_high_threshold": high}
    return PPO.sum_M(lp_M, {**x, **clip})


def faster(patch: Patch) -> None:
    """Steps are twice as large as they should be."""
    right = trainer.AdamW.step

    def step(self: Any, params: Any) -> float:
        rate = 2 * params.learning_rate
        return right(self, params.model_copy(update={"learning_rate": rate}))

    patch.setattr(trainer.AdamW, "step", step)


def one_slot(patch: Patch) -> None:
    """A sampler loads its weights into the trainer."""
    take, sample = BaseModel.snapshot, LocalSamplingClient.sample
    owners: dict[WeightSnapshot, Any] = {}

    def snapshot(self: BaseModel, adapter: Any) -> WeightSnapshot:
        taken = take(self, adapter)
        owners[taken] = adapter
        return taken

    def load(self: LocalSamplingClient, *given: Any, **more: Any) -> Any:
        kept = self._snapshot
        if kept.adapter is not None and kept in owners:
            with torch.no_grad():
                owners[kept].flat_P.copy_(kept.adapter.flat_P)
        return sample(self, *given, **more)

    patch.setattr(BaseModel, "snapshot", snapshot)
    patch.setattr(LocalSamplingClient, "sample", load)


def without_loss(patch: Patch) -> None:
    """A forward pass reports no loss."""
    right = trainer.Trainer.run

    def quiet(self: Any, data: Any, loss: Any, backward: bool) -> Any:
        passed = right(self, data, loss, backward)
        return passed if backward else evolved(passed)

    patch.setattr(trainer.Trainer, "run", quiet)


def without_norm(patch: Patch) -> None:
    """A step does not report the norm of the gradient."""
    right = trainer.Trainer.step
    patch.setattr(trainer.Trainer, "step", lambda self, params: evolved(right(self, params)))


def evolved(answer: Any) -> Any:
    answer.metrics.clear()
    return answer


def as_counted(said: str) -> str:
    """A message with its numbers rounded to whole ones."""
    return re.sub(r"\d\.\d+", lambda found: f"{float(found[0]):.0f}", said)


LIES: dict[str, tuple[Spoil, str, str]] = {
    "datums": (over_datums, "training.sums", "the gradient of two copies of each sequence, 1 "),
    "length": (in_gradient("cross_entropy", over_length), "training.sums", "two copies of each"),
    "weights": (in_gradient("cross_entropy", over_weights), "training.sums", "of weights of 2, 1 "),
    "clip": (in_gradient("ppo", of_other_clip), "losses.ppo", "the gradient of `ppo` and that of"),
    "rate": (faster, "optimizer.plain_steps", "the way of the logprobs in a step, 2 "),
    "slot": (one_slot, "training.older_sampler", "before and after a sample of older weights"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found_before_anything_is_trained(
    server: Running, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], lie: str
) -> None:
    spoil, check, said = LIES[lie]
    spoil(monkeypatch)
    done = run(server, capsys)
    assert done.status == 1
    assert f"{server.url} trains otherwise than the plan says: " in done.err
    assert said in as_counted(done.err)
    assert "nothing has been trained yet" in done.err
    assert not done.trained
    found = conform(server, check)
    assert found.state == "differs"
    assert said in as_counted(found.said)


def test_an_honest_server_passes(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(server, capsys)
    assert done.status == 0, done.err
    (probe,) = done.probes
    assert (probe["stage"], probe["loss"], probe["notes"]) == ("main", "ppo", [])
    assert len(probe["measures"]) == 9
    assert all(one["found"] < 0.2 * one["allowed"] for one in probe["measures"])
    for check in dict.fromkeys(check for _, check, _ in LIES.values()):
        assert conform(server, check).state == "holds"


def test_a_server_whose_forward_pass_has_no_loss_is_asked_for_a_gradient(
    server: Running, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_loss(monkeypatch)
    done = run(server, capsys)
    assert done.status == 0, done.err
    assert done.trained
    assert "have no `loss:sum`" in conform(server, "training.forward").said


def test_gradients_are_compared_by_steps_where_no_norm_is_reported(
    server: Running, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_norm(monkeypatch)
    done = run(server, capsys)
    assert done.status == 0, done.err
    (probe,) = done.probes
    assert len(probe["measures"]) == 8  # how far a step goes is unknown
    assert "reports no grad_norm: gradients were compared" in conform(server, "training.sums").said
    over_datums(monkeypatch)
    Path("run").rename("honest")
    done = run(server, capsys)
    assert done.status == 1
    assert "the gradient of two copies of each sequence, 1 times" in as_counted(done.err)
    assert not done.trained


def test_a_server_that_also_ignores_eps_is_not_accused(
    server: Running, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_norm(monkeypatch)
    step = trainer.AdamW.step
    fixed = {"eps": 1e-8, "beta1": 0.9, "beta2": 0.999}
    changed = lambda self, params: step(self, params.model_copy(update=fixed))  # noqa: E731
    monkeypatch.setattr(trainer.AdamW, "step", changed)
    done = run(server, capsys)
    assert done.status == 0, done.err
    assert "ignores eps: they were not compared" in done.probes[0]["notes"][0]
    assert len(done.probes[0]["measures"]) == 2
