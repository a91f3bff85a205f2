"""The SDK's requests through a bridge to SkyRL: gradients, orders, repetitions, models' lives."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from bridge_passes import ADAM, CONFIG, PASSES, opened, own_step, two_steps
from bridge_support import Start, at, here
from raw_http import Raw
from serving_support import policy_data, sft_data
from skyrl_server import SkyRLServer
from tinker import types

from rlc.service.bridge.app import bridged
from rlc.service.interface import ServiceClient, TrainingClient

pytestmark = pytest.mark.server


def close(told: Any, expected: Any) -> None:
    np.testing.assert_allclose(told, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("name", PASSES)
def test_steps_are_those_of_tinkers_sums(
    tmp_path: Path, start: Start, name: str, pipelined: bool
) -> None:
    """Awaited one by one before the step, or asked for together with it."""

    async def talk(service: ServiceClient) -> list[float]:
        return await two_steps(await opened(service), PASSES[name], pipelined)

    server = start()
    close(at(server, talk), here(tmp_path, talk))
    backward = [body for body in server.asked("forward_backward") if not body["given"].forward_only]
    assert len(backward) == 2 * len(PASSES[name])


def test_both_versions_and_the_sdk_agree(tmp_path: Path, server: SkyRLServer) -> None:
    async def talk(service: ServiceClient) -> list[float]:
        return await two_steps(await opened(service), PASSES["several"], True)

    close(at(server, talk), here(tmp_path, talk))


def test_a_custom_loss_is_computed_by_the_sdk_in_the_client(tmp_path: Path, start: Start) -> None:
    async def talk(service: ServiceClient) -> list[float]:
        return await own_step(service, await opened(service))

    close(at(start(), talk), here(tmp_path, talk))


def test_a_pass_without_its_step_changes_nothing(tmp_path: Path, start: Start) -> None:
    """What is saved in between has no gradient, and the gradient is still there for the step."""

    async def talk(service: ServiceClient) -> list[float]:
        training = await opened(service)
        await training.forward_backward(policy_data(1), "ppo", CONFIG["ppo"])
        saved = await training.save_state("between")
        again = await service.create_training_client_from_state_with_optimizer(saved.path)
        norms = [(await one.optim_step(ADAM)).metrics for one in (again, training)]
        return [norm["grad_norm"] for norm in norms]  # type: ignore[index]

    told = at(start(), talk)
    close(told, here(tmp_path, talk))
    assert told[0] == 0.0 < told[1]


@pytest.mark.parametrize("awaited", [True, False])
def test_a_pass_that_is_refused_spoils_nothing(tmp_path: Path, start: Start, awaited: bool) -> None:
    """By the bridge, before anything of its step is sent: what follows is as without it."""

    async def refused(training: TrainingClient) -> list[Any]:
        asked = [training.forward_backward(policy_data(1), "dro", {"beta": 0.1})]
        if not awaited:
            asked.append(training.optim_step(ADAM))  # type: ignore[arg-type]
        return await asyncio.gather(*asked, return_exceptions=True)

    async def talk(service: ServiceClient) -> tuple[list[Any], list[float]]:
        training = await opened(service)
        return await refused(training), await two_steps(training, PASSES["ppo"], True)

    async def calm(service: ServiceClient) -> list[float]:
        return await two_steps(await opened(service), PASSES["ppo"], True)

    errors, told = at(start(), talk)
    assert all("computes no `dro`" in str(error) for error in errors)
    close(told, here(tmp_path, calm))


def test_two_models_do_not_mix(tmp_path: Path, start: Start) -> None:
    async def talk(service: ServiceClient) -> list[float]:
        one, other = await opened(service), await opened(service, rank=8)
        asked = [
            one.forward_backward(policy_data(1), "ppo", CONFIG["ppo"]),
            other.forward_backward(sft_data(1), "cross_entropy"),
            one.forward_backward(sft_data(2), "cross_entropy"),
            other.optim_step(ADAM),
            other.forward_backward(policy_data(3), "importance_sampling"),
            one.optim_step(ADAM),
            other.optim_step(ADAM),
        ]
        answers: list[Any] = [await answer for answer in asked]
        return [
            x for one in answers for k, x in one.metrics.items() if k in ("loss:sum", "grad_norm")
        ]

    close(at(start(), talk), here(tmp_path, talk))


def test_a_request_that_is_repeated_counts_once(server: SkyRLServer) -> None:
    """By the SDK, whose connection to the bridge broke: the number of the request is the same."""
    raw = Raw(bridged(server.url))
    try:
        session = raw.post("create_session", {"tags": [], "sdk_version": "0"})[1]["session_id"]
        body = {"session_id": session, "model_seq_id": 0, "base_model": "tiny"}
        made = [raw.post("create_model", body | {"lora_config": {"rank": 4}}) for _ in range(2)]
        assert made[0] == made[1]
        found = raw.post("retrieve_future", {"request_id": made[0][1]["request_id"]})[1]
        step = {"model_id": found["model_id"], "seq_id": 1, "optim_params": {}}
        asked = [raw.post("optim_step", step | {"type": "optim_step"}) for _ in range(2)]
        assert asked[0] == asked[1], asked
        assert raw.post("retrieve_future", {"request_id": asked[0][1]["request_id"]})[0] == 200
    finally:
        raw.close()
    assert len(server.asked("create_model")) == len(server.asked("optim_step")) == 1


@pytest.mark.parametrize("endpoint", ["forward_backward", "optim_step"])
def test_a_lost_answer_of_the_server_counts_once(
    tmp_path: Path, start: Start, endpoint: str
) -> None:
    """The bridge repeats what version 0.4 recognises as repeated."""

    async def talk(service: ServiceClient) -> list[float]:
        return await two_steps(await opened(service), PASSES["ppo"], True)

    server = start()
    server.dropped[endpoint] = 2
    close(at(server, talk), here(tmp_path, talk))


@pytest.mark.parametrize("endpoint", ["forward_backward", "optim_step"])
def test_what_version_03_would_count_twice_is_not_repeated(start: Start, endpoint: str) -> None:
    async def talk(service: ServiceClient) -> Any:
        training = await opened(service)
        passed = training.forward_backward(policy_data(1), "ppo", CONFIG["ppo"])
        stepped = training.optim_step(ADAM)
        return await asyncio.gather(passed, stepped, return_exceptions=True)

    server = start(in_protobuf=False)
    server.dropped[endpoint] = 1
    told = at(server, talk)
    assert f"broke at `{endpoint}`, which it may have done" in str(told[-1])
    assert (
        len(
            [
                b
                for b in server.asked(endpoint)
                if b.get("given") is None or not b["given"].forward_only
            ]
        )
        == 1
    )


def test_samples_and_logprobs_are_those_of_the_engine(tmp_path: Path, server: SkyRLServer) -> None:
    """Of the base model, of the newest weights, and of weights saved by name."""
    prompt = types.ModelInput.from_ints(list(range(40, 60)))
    params = types.SamplingParams(max_tokens=6, seed=3, stop="zz")

    async def talk(service: ServiceClient) -> list[Any]:
        training = await opened(service)
        training.forward_backward(policy_data(1), "ppo", CONFIG["ppo"])
        await training.optim_step(ADAM)
        newest = await training.save_weights_and_get_sampling_client()
        path = (await training.save_weights_for_sampler("named")).path
        named = await service.create_sampling_client(model_path=path)
        bare = await service.create_sampling_client(base_model="tiny")
        told = list[Any]()
        for sampler in (newest, named, bare):
            answer = await sampler.sample(prompt, 2, params, True)
            told += [token for one in answer.sequences for token in one.tokens]
            told += [x for one in answer.sequences for x in one.logprobs or ()]
            assert answer.prompt_logprobs is not None
            assert answer.prompt_logprobs[0] is None
            told += answer.prompt_logprobs[1:]
            told += (await sampler.compute_logprobs(prompt))[1:]
        return told

    close(at(server, talk), here(tmp_path, talk))


def test_the_other_backends_sum_already(tmp_path: Path, start: Start) -> None:
    """FSDP and Megatron, as far as their code tells: a pass goes there as it is, and its loss and
    the norm of a step come back under the names of the SDK's programs."""

    async def talk(service: ServiceClient) -> list[float]:
        training = await opened(service)
        told = list[float]()
        for _ in range(2):
            passed = training.forward_backward(PASSES["ppo"][0][1], "ppo", CONFIG["ppo"])
            stepped = training.optim_step(ADAM)
            told += [(await passed).metrics["loss:sum"]]
            told += [(await stepped).metrics["grad_norm"]]  # type: ignore[index]
        return told

    server = start(backend="fsdp")
    close(at(server, talk), here(tmp_path, talk))
    backward = [body for body in server.asked("forward_backward") if not body["given"].forward_only]
    assert [body["given"].loss for body in backward] == ["ppo", "ppo"]


@pytest.mark.slow
@pytest.mark.kill
def test_rlc_bridge_serves_any_program_of_the_sdk(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    command = [str(Path(sys.executable).with_name("python")), "-m", "rlc", "bridge", server.url]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = list[str]()
            while "Ctrl-C" not in "".join(lines):
                lines.append(process.stdout.readline())
            (url,) = re.findall(r"export TINKER_BASE_URL=(\S+)", "".join(lines))
            monkeypatch.setenv("TINKER_API_KEY", "tml-local")
            with tinker.ServiceClient(base_url=url) as client:
                names = client.get_server_capabilities().supported_models
                training = client.create_lora_training_client("tiny", rank=4, seed=7)
                passed = training.forward_backward(policy_data(1), "ppo")
                stepped = training.optim_step(ADAM)
                assert passed.result().metrics["loss:sum"]
                assert stepped.result().metrics["grad_norm"] > 0  # type: ignore[index]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    assert [one.model_name for one in names] == ["tiny", "/models/tiny"]
