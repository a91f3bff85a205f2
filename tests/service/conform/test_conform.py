"""``rlc conform``: our server passes it whole, and servers with a fault are found out by name."""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from attrs import evolve
from http_testing import Running, running
from tinker import types
from tinker.types import SupportedModel

from rlc.catalog.index import service_loss_traits
from rlc.cli.commands.servers import conform as command
from rlc.cli.main import main
from rlc.service.conform import suite
from rlc.service.conform.probe import Bench, Check, CheckOutcome, ConformReport, Probe
from rlc.service.conform.suite import CHECKS, MOST_TOKENS, chosen, run_checks
from rlc.service.engine import losses, trainer
from rlc.service.engine import trainer as optimizer
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.http import RefusedRequest
from rlc.service.interface import ServiceError
from rlc.service.server import app, futures, wire

pytestmark = [pytest.mark.engine, pytest.mark.server]

CLIENTS = (
    tinker.ServiceClient,
    tinker.TrainingClient,
    tinker.SamplingClient,
    tinker.RestClient,
    tinker.AdminClient,
)
# What the SDK answers by itself, what it loads from the hub by a model's name, and what is there
# twice, here under the name that is deprecated.
NOT_OF_A_SERVER = {
    *(f"{client.__name__}.get_telemetry" for client in CLIENTS),
    "ServiceClient.get_console_url",
    "SamplingClient.create",
    "SamplingClient.get_tokenizer",
    "SamplingClient.on_queue_state_change",
    "ServiceClient.create_rest_client",
    "RestClient.get_audit_log",
    "RestClient.get_billing_usage",
    "RestClient.get_current_checkpoint_storage_usage",
}


def methods() -> set[str]:
    """The calls of the SDK that there are to check."""
    found = {
        f"{client.__name__}.{name}"
        for client in CLIENTS
        for name, value in vars(client).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, staticmethod))
    }
    return {call for call in found if not call.endswith("_async")} - NOT_OF_A_SERVER


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("served"), models={"tiny": "tiny"}) as opened:
        yield opened


def report(url: str, *only: str, reference: str | None = "tiny", **given: Any) -> ConformReport:
    bench = Bench(Endpoint(url, "tml-local"), "tiny", reference, publishes=True)
    return run_checks(bench, chosen(only), **given)


@pytest.fixture(scope="module")
def whole(server: Running) -> Iterator[tuple[ConformReport, dict[str, set[str]]]]:
    """All checks of our server, and which calls each of them made."""
    made: dict[str, set[str]] = {}
    now: set[str] = set()

    def counted(call: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def ask(*args: Any, **given: Any) -> Any:
            now.add(call)
            return function(*args, **given)

        return ask

    def tell(found: CheckOutcome) -> None:
        made[found.check.name] = set(now)
        now.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_TELEMETRY", "0")
        for call in methods():
            owner = getattr(tinker, call.partition(".")[0])
            name = call.partition(".")[2]
            function = counted(call, getattr(owner, name))
            is_static = isinstance(vars(owner)[name], staticmethod)
            patch.setattr(owner, name, staticmethod(function) if is_static else function)
        yield report(server.url, tell=tell), made


def command_line(url: str, *only: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([url, *(f"--only={name}" for name in only)])


def states(report: ConformReport) -> dict[str, str]:
    return {found.check.name: f"{found.state}: {found.said}" for found in report.found}


def test_our_server_conforms(whole: tuple[ConformReport, dict[str, set[str]]]) -> None:
    told, _ = whole
    others = {name: said for name, said in states(told).items() if not said.startswith("holds")}
    assert others == {
        "optimizer.dimuon": "lacks: the server refused a request: "
        "This server has AdamW only, not 'dimuon'"
    }
    assert told.conforms


def test_every_loss_and_every_call_of_the_sdk_is_tried(
    whole: tuple[ConformReport, dict[str, set[str]]],
) -> None:
    _, made = whole
    for check in CHECKS:
        assert set(check.calls) <= made[check.name], check.name
    assert set().union(*made.values()) == methods()
    named = {check.name.partition(".")[2] for check in CHECKS if check.name.startswith("losses.")}
    assert named == losses.LOSSES.keys()


def test_no_more_is_asked_than_was_said(whole: tuple[ConformReport, dict[str, set[str]]]) -> None:
    told, _ = whole
    for kind in ("prefill", "sample", "train"):
        asked, most = getattr(told.tokens, kind), getattr(MOST_TOKENS, kind)
        assert 0.5 * most < asked <= most, kind


def test_nothing_is_left_on_the_server(
    server: Running, whole: tuple[ConformReport, dict[str, set[str]]]
) -> None:
    left = server.backend.runs.checkpoints()
    assert [item.tinker_path for item in left] == []


def test_a_report_is_json(whole: tuple[ConformReport, dict[str, set[str]]]) -> None:
    told = json.loads(json.dumps(whole[0].to_dict()))
    assert (told["model"], told["reference"], told["conforms"]) == ("tiny", "tiny", True)
    (one,) = [check for check in told["checks"] if check["name"] == "losses.dro"]
    assert one["state"] == "holds"
    assert all(measure["found"] < measure["allowed"] for measure in one["measures"])


def shifted(patch: pytest.MonkeyPatch) -> None:
    """The trainer's logprobs are 0.01 too high."""
    split = trainer.split_targets
    patch.setattr(trainer, "split_targets", lambda *given: [row + 0.01 for row in split(*given)])


def wrong_loss(name: str, sum_M: Any) -> Callable[[pytest.MonkeyPatch], None]:
    def spoil(patch: pytest.MonkeyPatch) -> None:
        changed = evolve(losses.LOSSES[name], sum_M=sum_M)
        patch.setattr(losses, "LOSSES", {**losses.LOSSES, name: changed})

    return spoil


PPO = losses.LOSSES["ppo"]


def wide_clip(lp_M: torch.Tensor, x: Any) -> Any:
    """Clips at 0.7 and 1.3, whatever is asked."""
    low, high = torch.full_like(lp_M, 0.7), torch.full_like(lp_M, 1.3)
    bounds = {"clip_low_threshold": low, "clip_high_threshold": high}
    return PPO.sum_M(lp_M, {**x, **bounds})


def with_gradient(lp_M: torch.Tensor, x: Any) -> Any:
    """The value of cispo, whose weight has a gradient."""
    ratio_M = torch.exp(lp_M - x["logprobs"])
    clipped_M = torch.clamp(ratio_M, x["clip_low_threshold"], x["clip_high_threshold"])
    return -(clipped_M * lp_M * x["advantages"]).sum()


def averaged(lp_M: torch.Tensor, x: Any) -> Any:
    return -(x["weights"] * lp_M).sum() / len(lp_M)


def drawing(**fixed: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Samples that are drawn without regard to some settings."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = app._HANDLERS["POST"]["asample"]

        @functools.wraps(right)
        def wrong(backend: Any, request: types.SampleRequest) -> Any:
            params = request.sampling_params.model_copy(update=fixed)
            return right(backend, request.model_copy(update={"sampling_params": params}))

        patch.setitem(app._HANDLERS["POST"], "asample", wrong)

    return spoil


def without(method: str, path: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.delitem(app._HANDLERS[method], path)


def ignoring(**fixed: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Steps of an optimiser that does not see some of its settings."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = optimizer.AdamW.step
        patch.setattr(
            optimizer.AdamW,
            "step",
            lambda self, params: right(self, params.model_copy(update=fixed)),
        )

    return spoil


def faster(patch: pytest.MonkeyPatch) -> None:
    """Steps that are a tenth larger than asked."""
    right = optimizer.AdamW.step

    def step(self: Any, params: types.AdamParams) -> float:
        rate = 1.1 * params.learning_rate
        return right(self, params.model_copy(update={"learning_rate": rate}))

    patch.setattr(optimizer.AdamW, "step", step)


def wide_by_default(patch: pytest.MonkeyPatch) -> None:
    """PPO clips wider where a request names no range."""
    right = losses.BuiltinLoss.of
    wide = {"clip_low_threshold": 0.7, "clip_high_threshold": 1.3}

    def of(name: str, config: Any) -> Any:
        return right(name, config or (wide if name == "ppo" else None))

    patch.setattr(losses.BuiltinLoss, "of", of)


def shapeless(patch: pytest.MonkeyPatch) -> None:
    """A tensor without a shape is refused."""
    right = wire._tensor

    def tensor(message: Any, where: str) -> types.TensorData:
        if not message.shape:
            raise RefusedRequest(400, f"{where}: a tensor has a shape.")
        return right(message, where)

    patch.setattr(wire, "_tensor", tensor)


def spoiled_samples(spoil: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Answers to requests for samples that are changed before they are sent."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(
            futures,
            "write_sample",
            lambda response, *given: wire.write_sample(spoil(response), *given),
        )

    return patched


def rolled(response: Any) -> Any:
    """Logprobs of the prompt, each at the token after the one that it is of."""
    logprobs = response.prompt_logprobs_np
    return (
        response if logprobs is None else replace(response, prompt_logprobs_np=np.roll(logprobs, 1))
    )


def cut_off(response: Any) -> Any:
    """One logprob fewer than tokens."""
    sequences = [replace(one, logprobs_np=one.logprobs_np[1:]) for one in response.sequences]
    return replace(response, sequences=sequences)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str, str]] = {
    "logprobs": (shifted, "training.logprobs", "differs: the trainer's logprobs and float64"),
    "logprobs without a reference": (shifted, "losses.importance_sampling", "differs: importance"),
    "scores": (
        spoiled_samples(rolled),
        "sampling.scores",
        "differs: 1 of 15 tokens after others have no logprob",
    ),
    "missing logprob": (
        spoiled_samples(cut_off),
        "sampling.logprobs",
        "differs: sampled and computed logprobs have the shapes",
    ),
    "clip": (wrong_loss("ppo", wide_clip), "losses.ppo", "differs: ppo and its formula"),
    "gradient": (
        wrong_loss("cispo", with_gradient),
        "losses.cispo",
        "differs: the gradient of `cispo` and",
    ),
    "mean": (wrong_loss("cross_entropy", averaged), "training.sums", "differs: the loss of two"),
    "seed": (drawing(seed=None), "sampling.seeds", "differs: a seed is ignored"),
    "temperature": (
        drawing(temperature=1.0),
        "sampling.temperature",
        "differs: gaps of logprobs at temperature 0.5",
    ),
    "rate": (
        faster,
        "optimizer.step_size",
        "differs: the largest weight of B after a step, and the learning rate",
    ),
    "default": (wide_by_default, "losses.ppo", "differs: ppo with its defaults, and without"),
    "shape": (shapeless, "training.shapes", "lacks: "),
    "decay": (ignoring(weight_decay=0.0), "optimizer.weight_decay", "differs: a decay of 0.3"),
    "norm": (ignoring(grad_clip_norm=0.0), "optimizer.clipping", "differs: two gradients"),
    "beta": (ignoring(beta1=0.0), "optimizer.moments", "differs: beta1 = 0.9"),
    "route": (without("POST", "weights_info"), "training.layers", "lacks: the server does not"),
    "optional route": (
        without("POST", "sessions/search"),
        "account.search",
        "lacks: the server does not",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    spoil, name, said = FAULTS[fault]
    spoil(monkeypatch)
    with running(tmp_path, models={"tiny": "tiny"}) as spoiled:
        told = report(spoiled.url, name, reference=None if fault.endswith("reference") else "tiny")
    assert states(told)[name].startswith(said)
    assert told.conforms == (fault == "optional route")


def tried(run: Callable[[Probe], Any], patience: float = 60.0) -> CheckOutcome:
    bench: Any = SimpleNamespace()
    return suite._run(Check("x.y", "a promise", (), run), bench, patience)


def test_a_check_that_gets_no_answer_fails_alone() -> None:
    never = threading.Event()
    found = tried(lambda _: never.wait(), patience=0.01)
    assert (found.state, found.conforms) == ("fails", False)
    assert "no answer within" in found.said
    never.set()


def test_what_a_server_that_died_was_to_do_fails_at_once(tmp_path: Path) -> None:
    with running(tmp_path, models={"tiny": "tiny"}) as opened:
        bench = Bench(Endpoint(opened.url, "tml-local"), "tiny")
    found = run_checks(bench, chosen(["losses"]), patience=0.5).found
    assert "no answer within" in found[0].said
    assert {one.said for one in found[1:]} == {
        f"cannot reach {opened.url}: [Errno 111] Connection refused"
    }


def test_an_error_of_the_server_is_a_failure_and_not_a_lack() -> None:
    def broken(probe: Probe) -> None:
        raise tinker.RequestFailedError(
            "Request failed: it broke for self.request_id=1",
            request_id="1",
            category=types.RequestErrorCategory.Server,
        )

    assert tried(broken).state == "fails"


def test_a_measure_that_is_no_number_differs() -> None:
    found = tried(lambda probe: probe.within("both", float("nan"), 1.0))
    assert (found.state, found.said) == ("differs", "both differ by nan, at most 1")


def test_what_may_be_lacking_is_a_trait() -> None:
    required = {c.name: c.required for c in CHECKS if c.name.startswith("losses.")}
    for name, needed in required.items():
        traits = service_loss_traits(name.partition(".")[2])
        assert needed == (traits.published and not traits.per_sequence)


def test_checks_are_chosen_by_name_pattern_and_subject() -> None:
    assert [c.name for c in chosen(["losses.p*", "custom"])] == [
        "losses.ppo",
        "custom.in_client",
        "custom.on_server",
    ]
    with pytest.raises(ServiceError, match="there is no check `lossess`"):
        chosen(["lossess"])


def test_the_command(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", server.url, "--only", "losses.ppo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in told["checks"]] == ["losses.ppo"]
    assert main(["conform", server.url, "--only", "optimizer.dimuon"]) == 0
    out = capsys.readouterr().out
    assert "lacks" in out
    assert "not 'dimuon' (optional)" in out


def test_rows_are_printed_as_the_checks_are_over(
    server: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen is there, whatever comes then."""

    def broken(found: Check, bench: Bench, patience: float) -> CheckOutcome:
        if found.name == "optimizer.dimuon":
            raise KeyboardInterrupt
        return CheckOutcome(found, "holds", "", (), 0.0)

    monkeypatch.setattr(suite, "_run", broken)
    with pytest.raises(KeyboardInterrupt):
        command.run(command_line(server.url, "losses.ppo", "optimizer.dimuon"))
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["check", "difference"], ["losses.ppo", "holds"]]


def test_a_fault_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong_loss("ppo", wide_clip)(monkeypatch)
    with running(tmp_path, models={"tiny": "tiny"}) as spoiled:
        assert main(["conform", spoiled.url, "--only", "losses.ppo"]) == 1
    assert "it does not conform: losses.ppo" in capsys.readouterr().out


def test_nothing_is_asked_of_a_server_elsewhere_before_its_cost_is_agreed_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offered = [SupportedModel(model_name=name) for name in ("Qwen/Qwen3.5-9B", "Qwen/Qwen3-8B")]
    monkeypatch.setattr("rlc.service.hosted.service.offered_models", lambda _: offered)
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    assert main(["conform", "https://example.invalid"]) == 2
    said = capsys.readouterr().err
    assert "`Qwen/Qwen3-8B`" in said  # the cheaper one
    assert "$0.0038 by the catalogue's prices" in said
    assert main(["conform", "https://example.invalid", "--budget", "0.001"]) == 2
    assert main(["conform", "https://example.invalid", "--model", "x", "--budget", "9"]) == 2
    assert "at an unknown price" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "http://127.0.0.1:9"]) == 2
    assert "cannot reach http://127.0.0.1:9" in capsys.readouterr().err


def test_the_own_server_is_there_for_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    with command._server(None) as endpoint:
        assert endpoint.is_loopback
        told = report(str(endpoint.base_url), "sampling.scores")
    assert told.conforms
