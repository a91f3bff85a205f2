"""On a bad day the SDK and the server together still come to the same end."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import tinker
from http_testing import running
from serving_support import BASE, KEY, policy_data, prompt, sampling, weights
from tinker import types
from tinker.lib.retryable_exception import RetryableException

from rlc.service.interface import ServiceError
from rlc.service.server.faults import (
    ConstantDelay,
    Dice,
    Faults,
    Latency,
    LogNormal,
    Pareto,
    parse_delay,
    parse_faults,
)

STEPS = 3


def train(folder: Path, faults: Faults) -> tuple[np.ndarray, list[list[list[int]]]]:
    """A small run: its final weights, and what it sampled."""
    with (
        running(folder, faults) as server,
        tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk,
    ):
        client = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
        sampled = []
        for seed in range(STEPS):
            sampler = client.save_weights_and_get_sampling_client().result()
            asked = [sampler.sample(prompt(), 2, sampling(seed=i)) for i in range(4)]
            sampled.append([list(s.tokens) for a in asked for s in a.result().sequences])
            passing = client.forward_backward(policy_data(seed), "importance_sampling")
            stepping = client.optim_step(types.AdamParams(learning_rate=0.01))
            passing.result()
            stepping.result()
            client.save_state(f"step-{seed}").result()
        return weights(server.backend.sessions.models[client.model_id].client), sampled


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, object]:
    return train(tmp_path_factory.mktemp("calm"), Faults())


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "faults",
    [
        Faults(too_many=0.2, seed=1),
        Faults(errors=0.2, seed=2),
        Faults(drops=0.2, seed=3),
        Faults(lost=0.2, seed=4),
        Faults(slow=0.2, slow_seconds=0.05, seed=5),
        Faults(0.05, 0.05, 0.05, 0.0, 0.05, 0.05, 0.02, seed=6),
    ],
    ids=["too_many", "errors", "drops", "lost", "slow", "all"],
)
def test_a_run_comes_to_the_same_end(
    undisturbed: tuple[np.ndarray, object], tmp_path: Path, faults: Faults
) -> None:
    disturbed_P, sampled = train(tmp_path, faults)
    calm_P, calmly_sampled = undisturbed
    assert sampled == calmly_sampled
    np.testing.assert_allclose(disturbed_P, calm_P, atol=1e-5)


def test_after_a_restart_a_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    step = types.AdamParams(learning_rate=0.01)
    with (
        running(tmp_path) as server,
        tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk,
    ):
        client = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
        path = client.save_state("start").result().path
        server.backend.disturbances.latency = Latency(train=ConstantDelay(60))
        passing = client.forward_backward(policy_data(), "importance_sampling")
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        while server.backend.futures.find(f"{client.model_id}/2") is None:
            rest.get_server_capabilities().result()
        server.backend.disturbances.latency = Latency()
        server.backend.restart()
        with pytest.raises(RetryableException):
            passing.result()
        with pytest.raises(tinker.NotFoundError, match="from its last checkpoint"):
            client.optim_step(step).result()
        with tinker.ServiceClient(base_url=server.url, api_key=KEY) as another:
            again = another.create_training_client_from_state_with_optimizer(path).result()
            again.forward_backward(policy_data(), "importance_sampling")
            assert norm(again.optim_step(step).result()) > 0


def norm(response: types.OptimStepResponse) -> float:
    assert response.metrics is not None
    return response.metrics["grad_norm"]


def test_answers_come_late_as_asked_for(tmp_path: Path) -> None:
    latency = Latency(sample=ConstantDelay(0.1), train=ConstantDelay(0.05))
    with (
        running(tmp_path, latency=latency) as server,
        tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk,
    ):
        client = sdk.create_lora_training_client(BASE, rank=1).result()
        sampler = client.save_weights_and_get_sampling_client().result()
        started = time.monotonic()
        asked = [sampler.sample(prompt(), 1, sampling()) for _ in range(20)]
        for future in asked:
            future.result()
        took = time.monotonic() - started
        assert took >= 0.1
        assert took < 20 * 0.1  # they wait side by side, and the engine goes on meanwhile
        started = time.monotonic()
        client.forward(policy_data(), "importance_sampling").result()
        assert time.monotonic() - started >= 0.05


@pytest.mark.parametrize(
    ("text", "delay", "middle"),
    [
        ("0.5", ConstantDelay(0.5), 0.5),
        ("lognormal:2,0.5", LogNormal(2, 0.5), 2.0),
        ("pareto:1,2", Pareto(1, 2), 2**0.5),
    ],
)
def test_delays_are_drawn_from_their_distribution_and_by_seed(
    text: str, delay: object, middle: float
) -> None:
    parsed = parse_delay(text)
    assert parsed == delay
    dice, again = Dice(3), Dice(3)
    drawn = [parsed.at(dice.throw("sample")) for _ in range(2001)]
    assert drawn == [parsed.at(again.throw("sample")) for _ in range(2001)]
    assert median(drawn) == pytest.approx(middle, rel=0.06)
    assert all(seconds >= 0 for seconds in drawn)


def test_a_pareto_tail_is_heavy() -> None:
    dice, delay = Dice(1), Pareto(1.0, 1.5)
    late = sum(delay.at(dice.throw("sample")) > 10 for _ in range(4000))
    assert late / 4000 == pytest.approx(10**-1.5, rel=0.3)


@pytest.mark.parametrize(
    "text", ["", "fast", "-1", "lognormal:1", "pareto:1,0", "normal:1,2", "nan"]
)
def test_what_is_no_delay_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="is not a delay"):
        parse_delay(text)


def test_faults_are_read_and_refused() -> None:
    read = parse_faults("errors=5%, drops=0.1,slow=1,slow_seconds=2", seed=7)
    assert read == Faults(errors=0.05, drops=0.1, slow=1.0, slow_seconds=2.0, seed=7)
    assert parse_faults("", seed=0) == Faults()
    for text, said in (
        ("erors=5%", "there is no fault `erors`"),
        ("errors", "`errors` is no rate"),
        ("errors=105%", "is no rate"),
        ("errors=60%,drops=60%", "exceed 100 % together"),
    ):
        with pytest.raises(ServiceError, match=said):
            parse_faults(text, seed=0)
