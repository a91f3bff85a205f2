"""Saved states: exact, complete or absent, and refused in a sentence when they are bad."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_support import engine, folder, prompt, random_group, run
from tinker import types

from rlc.service.engine.service import LocalService, LocalTrainingClient
from rlc.service.interface import ServiceError

STEP = types.AdamParams(learning_rate=0.02, weight_decay=0.01)


async def train(client: LocalTrainingClient, seeds: range) -> list[bytes]:
    """Steps, and all that they tell."""
    seen = []
    for seed in seeds:
        output = await client.forward_backward(random_group(seed), "ppo")
        seen += [o["logprobs"].to_numpy().tobytes() for o in output.loss_fn_outputs]
        stepped: Any = await client.optim_step(STEP)
        seen.append(np.float64(stepped.metrics["grad_norm"]).tobytes())
    return seen


async def trained(service: LocalService) -> LocalTrainingClient:
    client = await service.create_lora_training_client(folder(), rank=4, seed=0)
    await train(client, range(3))
    return client


def test_a_restored_client_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    async def begin(service: LocalService) -> tuple[str, list[bytes]]:
        client = await trained(service)
        saved = client.save_state("step-3")
        rest = await train(client, range(3, 6))
        return (await saved).path, rest

    async def go_on(service: LocalService, path: str) -> list[bytes]:
        client = await service.create_training_client_from_state_with_optimizer(path)
        return await train(client, range(3, 6))

    first, second = engine(tmp_path), engine(tmp_path)
    path, undisturbed = run(lambda: begin(first))
    assert path == "local://model-1/weights/step-3"
    assert run(lambda: go_on(second, path)) == undisturbed
    first.close()
    second.close()


def test_weights_alone_start_a_fresh_optimiser(service: LocalService) -> None:
    async def main() -> tuple[LocalTrainingClient, LocalTrainingClient]:
        client = await trained(service)
        path = (await client.save_state("a")).path
        return client, await service.create_training_client_from_state(path)

    old, new = run(main)
    ours, theirs = new.trainer.optimizer, old.trainer.optimizer
    assert (ours.parameters_P == theirs.parameters_P).all()
    assert (ours.steps, theirs.steps) == (0, 3)
    assert not ours.mean_P.any()


def test_sampling_from_a_checkpoint_is_sampling_from_the_weights(service: LocalService) -> None:
    async def main() -> Any:
        client = await trained(service)
        saved = await client.save_weights_for_sampler("a")
        state = await client.save_state("a")
        samplers = [
            await client.save_weights_and_get_sampling_client(),
            await service.create_sampling_client(model_path=saved.path),
            await service.create_sampling_client(model_path=state.path),
        ]
        params = types.SamplingParams(max_tokens=6, seed=1, stop=[])
        replies = [await s.sample(prompt([5, 6]), 1, params) for s in samplers]
        return [(r.sequences[0].tokens, r.sequences[0].logprobs) for r in replies]

    live, saved, state = run(main)
    assert live == saved == state


def test_a_name_is_taken_once_unless_overwritten(service: LocalService) -> None:
    async def main() -> None:
        client = await trained(service)
        await client.save_state("best")
        with pytest.raises(ServiceError, match="a checkpoint 'best' already"):
            await client.save_state("best")
        before = client.trainer.optimizer.steps
        await train(client, range(1))
        path = (await client.save_state("best", overwrite=True)).path
        again = await service.create_training_client_from_state_with_optimizer(path)
        assert again.trainer.optimizer.steps == before + 1
        other = await service.create_lora_training_client(folder(), rank=4)
        assert (await other.save_state("best")).path == "local://model-2/weights/best"

    run(main)


@pytest.mark.parametrize("name", ["", "../out", "a/b", ".hidden", "a b"])
def test_names_that_are_no_names(service: LocalService, name: str) -> None:
    async def main() -> None:
        client = await trained(service)
        await client.save_state(name)

    with pytest.raises(ServiceError, match="name holds letters"):
        run(main)


def test_an_interrupted_save_leaves_nothing_half_written(
    service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> str:
        client = await trained(service)
        path = (await client.save_state("a")).path
        monkeypatch.setattr(os, "fsync", full)
        await train(client, range(1))
        with pytest.raises(ServiceError, match="No space left"):
            await client.save_state("a", overwrite=True)
        return path

    path = run(main)
    monkeypatch.undo()
    restored = run(lambda: service.create_training_client_from_state_with_optimizer(path))
    assert restored.trainer.optimizer.steps == 3
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["a.safetensors"]


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "gone"])
def test_a_missing_or_damaged_checkpoint(
    service: LocalService, tmp_path: Path, damage: str
) -> None:
    async def main() -> str:
        return (await (await trained(service)).save_state("a")).path

    path = run(main)
    (file,) = tmp_path.rglob("a.safetensors")
    content = bytearray(file.read_bytes())
    content[-9] ^= 4
    new = {"cut": bytes(content[:-100]), "bit": bytes(content), "empty": b"", "gone": None}[damage]
    file.unlink() if new is None else file.write_bytes(new)
    says = "There is no checkpoint" if damage == "gone" else "is damaged"
    with pytest.raises(ServiceError, match=says):
        run(lambda: service.create_training_client_from_state_with_optimizer(path))


def test_a_state_for_sampling_is_no_state_for_training(service: LocalService) -> None:
    async def main() -> None:
        client = await trained(service)
        path = (await client.save_weights_for_sampler("a")).path
        await service.create_training_client_from_state_with_optimizer(path)

    with pytest.raises(ServiceError, match="not an optimiser's state"):
        run(main)


def test_deleting(service: LocalService) -> None:
    async def main() -> None:
        client = await trained(service)
        path = (await client.save_state("a")).path
        await service.delete_checkpoint(path)
        for action in (service.delete_checkpoint, service.create_training_client_from_state):
            with pytest.raises(ServiceError, match="There is no checkpoint"):
                await action(path)
        with pytest.raises(ServiceError, match="no checkpoint of the local engine"):
            await service.delete_checkpoint("/etc/passwd")
        await client.save_state("a")

    run(main)


def test_a_checkpoint_expires(service: LocalService, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        client = await trained(service)
        path = (await client.save_state("a", ttl_seconds=100)).path
        kept = (await client.save_state("b")).path
        await service.create_training_client_from_state(path)
        late = time.time() + 101
        monkeypatch.setattr(time, "time", lambda: late)
        with pytest.raises(ServiceError, match="has expired"):
            await service.create_training_client_from_state(path)
        await client.save_state("c")
        with pytest.raises(ServiceError, match="There is no checkpoint"):
            await service.create_training_client_from_state(path)
        await service.create_training_client_from_state(kept)
        with pytest.raises(ServiceError, match="must be positive"):
            await client.save_state("d", ttl_seconds=0)

    run(main)


def test_a_checkpoint_of_another_base_is_refused(service: LocalService) -> None:
    async def main() -> None:
        client = await trained(service)
        client.trainer.base.fingerprint = "of another model"
        path = (await client.save_state("a")).path
        del client.trainer.base.fingerprint
        await service.create_training_client_from_state(path)

    with pytest.raises(ServiceError, match="another version of the base model"):
        run(main)


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    service = engine(tmp_path / "file")

    async def main() -> None:
        await (await trained(service)).save_state("a")

    with pytest.raises(ServiceError, match="Cannot write checkpoints"):
        run(main)
    service.close()
