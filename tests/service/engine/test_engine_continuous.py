"""The worker that serves clients who know nothing of each other: what joins, waits and fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_support import engine, folder, prompt, random_group, run
from tinker import types

from rlc.service.engine import open_engine
from rlc.service.engine import sampling as engine_sampling
from rlc.service.engine.decoder import Decoder, RunningSample
from rlc.service.engine.service import LocalSamplingClient, LocalService
from rlc.service.engine.trainer import Trainer
from rlc.service.interface import SampledToken, ServiceError

FOREVER: list[int] = []


@pytest.fixture
def continuous(tmp_path: Path) -> Iterator[LocalService]:
    opened = open_engine(tmp_path, device="cpu", threads=1, continuous=True)
    yield opened
    opened.close()


def sampling(tokens: int, seed: int = 3) -> types.SamplingParams:
    return types.SamplingParams(max_tokens=tokens, seed=seed, stop=FOREVER)


def assert_close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


class Gate:
    """Holds the engine's thread before a token until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_step: int) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.rows: list[int] = []
        plain_step = Decoder.step

        def step(decoder: Decoder) -> list[RunningSample]:
            if len(self.rows) == at_step:
                self.reached.set()
                self.opened.wait()
            self.rows.append(len(decoder.samples))
            return plain_step(decoder)

        monkeypatch.setattr(Decoder, "step", step)

    async def wait(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.reached.wait)


def test_a_request_joins_the_batch_that_is_running_and_gets_the_same_answer(
    continuous: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = engine(tmp_path / "plain")

    async def alone() -> list[types.SampleResponse]:
        sampler = await plain.create_sampling_client(base_model=folder())
        first = await sampler.sample(prompt([5, 17, 40]), 2, sampling(12))
        return [first, await sampler.sample(prompt([5, 17, 9, 33]), 3, sampling(4), True)]

    expected = run(alone)
    plain.close()
    gate, later = Gate(monkeypatch, at_step=3), Gate(monkeypatch, at_step=9)

    async def main() -> list[types.SampleResponse]:
        sampler = await continuous.create_sampling_client(base_model=folder())
        first = asyncio.ensure_future(sampler.sample(prompt([5, 17, 40]), 2, sampling(12)))
        await gate.wait()
        second = sampler.sample(prompt([5, 17, 9, 33]), 3, sampling(4), True)
        gate.opened.set()
        answer = await asyncio.wait_for(second, 60)  # shorter, it does not wait for the first
        later.opened.set()
        return [await first, answer]

    found = run(main)
    assert gate.rows == [2] * 4 + [5] * 4 + [2] * 4
    for ours, theirs in zip(found, expected, strict=True):
        assert [s.tokens for s in ours.sequences] == [s.tokens for s in theirs.sequences]
        for a, b in zip(ours.sequences, theirs.sequences, strict=True):
            assert_close(a.logprobs_np, b.logprobs_np)
    assert found[1].prompt_cache_hit_tokens == 2  # of a prompt that was still being answered
    assert_close(found[1].prompt_logprobs_np, expected[1].prompt_logprobs_np)


def test_weights_take_turns_and_none_changes_what_the_others_sample(
    continuous: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few tokens of one do not wait for the many of another, nor the last for all before."""
    monkeypatch.setattr(engine_sampling, "_SLICE", 0.0)
    plain = engine(tmp_path / "plain")
    done: list[str] = []

    async def work(service: LocalService, gate: Gate | None) -> list[list[list[int]]]:
        client = await service.create_lora_training_client(folder(), rank=2, seed=0)
        one = await client.save_weights_and_get_sampling_client()
        await client.forward_backward(random_group(1), "importance_sampling")
        await client.optim_step(types.AdamParams(learning_rate=0.05))
        two = await client.save_weights_and_get_sampling_client()
        three = await service.create_sampling_client(base_model=folder())
        await two.sample(prompt([5, 17, 40]), 1, sampling(1))  # its prompt is cached from now on

        async def ask(
            name: str, sampler: LocalSamplingClient, samples: int, tokens: int
        ) -> list[list[int]]:
            answer = await sampler.sample(prompt([5, 17, 40]), samples, sampling(tokens))
            done.append(name)
            return [list(sequence.tokens) for sequence in answer.sequences]

        asked = [asyncio.ensure_future(ask("many", one, 4, 24))]
        if gate is not None:
            await gate.wait()
        for name, sampler, tokens in (("few", two, 4), ("base", three, 6), ("late", one, 2)):
            asked.append(asyncio.ensure_future(ask(name, sampler, 2, tokens)))
            await asyncio.sleep(0)
        if gate is not None:
            gate.opened.set()
        return await asyncio.gather(*asked)

    expected = run(lambda: work(plain, None))
    plain.close()
    done.clear()
    gate = Gate(monkeypatch, at_step=2)
    assert run(lambda: work(continuous, gate)) == expected
    assert done == ["late", "few", "base", "many"]
    assert gate.rows[1:6] == [4, 4, 2, 2, 6]


def test_training_goes_on_in_the_middle_of_a_batch(
    continuous: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither waits for the other to end, and neither changes the other's numbers."""
    step = types.AdamParams(learning_rate=0.02)
    plain = engine(tmp_path / "plain")

    async def work(service: LocalService, gate: Gate | None) -> tuple[list[list[int]], float]:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        sampler = await client.save_weights_and_get_sampling_client()
        asked = asyncio.ensure_future(sampler.sample(prompt([5, 17, 40]), 2, sampling(40)))
        if gate is not None:
            await gate.wait()
        passing = client.forward_backward(random_group(1), "importance_sampling")
        stepping = client.optim_step(step)
        if gate is not None:
            gate.opened.set()
        await passing
        stepped, answer = await stepping, await asked
        assert stepped.metrics is not None
        return [list(s.tokens) for s in answer.sequences], stepped.metrics["grad_norm"]

    expected = run(lambda: work(plain, None))
    plain.close()
    gate = Gate(monkeypatch, at_step=2)
    steps_before: list[int] = []
    plain_run = Trainer.run

    def noted(trainer: Trainer, *given: Any) -> types.ForwardBackwardOutput:
        steps_before.append(len(gate.rows))
        return plain_run(trainer, *given)

    monkeypatch.setattr(Trainer, "run", noted)
    tokens, norm = run(lambda: work(continuous, gate))
    assert (steps_before, len(gate.rows)) == ([3], 40)
    assert tokens == expected[0]
    assert norm == pytest.approx(expected[1], rel=1e-5)


def test_a_failure_of_the_engine_is_told_to_its_batch_and_ends_there(
    continuous: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_add = Decoder.add

    def add(decoder: Decoder, samples: list[RunningSample]) -> None:
        if any(sample.limit == 7 for sample in samples):
            raise RuntimeError("the device fell over")
        plain_add(decoder, samples)

    monkeypatch.setattr(Decoder, "add", add)

    async def main() -> None:
        sampler = await continuous.create_sampling_client(base_model=folder())
        with pytest.raises(RuntimeError, match="fell over"):
            await sampler.sample(prompt([5, 17, 40]), 2, sampling(7))
        answer = await sampler.sample(prompt([5, 17, 40]), 2, sampling(3))
        assert [len(s.tokens) for s in answer.sequences] == [3, 3]

    run(main)


def test_what_was_asked_for_is_finished_on_closing_and_nothing_after(
    continuous: LocalService,
) -> None:
    async def main() -> None:
        sampler = await continuous.create_sampling_client(base_model=folder())
        asked = sampler.sample(prompt([5, 17, 40]), 2, sampling(5))
        continuous.close()
        assert len((await asked).sequences) == 2
        with pytest.raises(ServiceError, match="has been closed"):
            await sampler.sample(prompt([5, 17, 40]), 2, sampling(5))
        with pytest.raises(ServiceError, match="has been closed"):
            await continuous.create_sampling_client(base_model=folder())

    run(main)


@pytest.mark.parametrize("is_continuous", [False, True])
def test_tokens_are_told_as_they_are_sampled(tmp_path: Path, is_continuous: bool) -> None:
    engine = open_engine(tmp_path, device="cpu", threads=1, continuous=is_continuous)
    told: list[SampledToken] = []

    async def work() -> types.SampleResponse:
        client = await engine.create_sampling_client(base_model="tiny")
        return await client.sample(
            prompt(range(12)), 2, sampling(6), topk_sample_logprobs=3, on_token=told.append
        )

    try:
        response = asyncio.run(work())
    finally:
        engine.close()
    for i, sequence in enumerate(response.sequences):
        own = [token for token in told if token.sample == i]
        assert [token.token for token in own] == list(sequence.tokens)
        assert [token.logprob for token in own] == sequence.logprobs
        assert [list(token.topk) for token in own] == sequence.topk_logprobs
        assert [token.stop_reason for token in own] == [None] * 5 + ["length"]


def test_a_token_is_told_before_the_next_is_sampled(
    continuous: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, at_step=2)

    async def work() -> int:
        told: list[SampledToken] = []
        client = await continuous.create_sampling_client(base_model="tiny")
        reply = asyncio.ensure_future(
            client.sample(prompt(range(12)), 1, sampling(6), on_token=told.append)
        )
        await gate.wait()
        await asyncio.sleep(0)
        before = len(told)
        gate.opened.set()
        await reply
        return before

    assert asyncio.run(work()) == 2
