"""The loops of two public guides, with the SDK's calls as they make them: OpenReward's for Tinker,
and the solvers and judge of rLLM. They end, and go on from what they saved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import tinker
import torch
from serving_support import BASE, PROMPT, prompt
from tinker import types
from tinker_cookbook import checkpoint_utils

STEP = types.AdamParams(learning_rate=1e-2)


async def sampled(client: Any, **given: Any) -> types.SampledSequence:
    params = types.SamplingParams(max_tokens=6, seed=3, **given)
    answer = await client.sample_async(prompt=prompt(), num_samples=1, sampling_params=params)
    sequence: types.SampledSequence = answer.sequences[0]
    return sequence


def test_openreward_trains_on_whole_dialogs_and_goes_on_with_its_optimizer(
    sdk: tinker.ServiceClient,
) -> None:
    """Targets are the tokens themselves, with zeros for what was not sampled, as the guide has
    them; replies end at texts."""

    async def train(training: tinker.TrainingClient, step: int) -> list[int]:
        name = f"step_{step:06d}"
        sampler = await training.save_weights_and_get_sampling_client_async(name=name)
        said = await sampled(sampler, stop=["<|im_end|>", "</tool_call>"])
        tokens, zeros = [*PROMPT, *said.tokens], [0.0] * len(PROMPT)
        logprobs = [*zeros, *(said.logprobs or ())]
        inputs = {
            "target_tokens": torch.tensor(tokens, dtype=torch.int32),
            "logprobs": torch.tensor(logprobs, dtype=torch.float32),
            "advantages": torch.tensor([*zeros, *[0.5] * len(said.tokens)], dtype=torch.float32),
        }
        tensors = {name: tinker.TensorData.from_torch(value) for name, value in inputs.items()}
        datum = tinker.Datum(types.ModelInput.from_ints(tokens), tensors)
        clip = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
        forward = await training.forward_backward_async([datum], "ppo", clip)
        optim = await training.optim_step_async(STEP)
        assert "loss:sum" in (await forward).metrics
        await optim
        return tokens

    async def guide() -> tuple[list[int], list[int]]:
        training = await sdk.create_lora_training_client_async(base_model=BASE, rank=8)
        await train(training, 0)
        saved = await (await training.save_state_async("checkpoint_000001"))
        again = await sdk.create_training_client_from_state_with_optimizer_async(saved.path)
        return await train(training, 1), await train(again, 1)

    first, second = asyncio.run(guide())
    assert first == second


def test_rllm_goes_on_from_a_model_id_and_from_its_own_folder(
    sdk: tinker.ServiceClient, tmp_path: Path
) -> None:
    """It keeps both kinds of checkpoint under one name, and writes the path of one as that of the
    other."""

    async def guide() -> tuple[list[int], ...]:
        training = await sdk.create_lora_training_client_async(base_model=BASE, rank=8)
        saved = await (await training.save_weights_for_sampler_async(name="000000")).result_async()
        said = await sampled(training.create_sampling_client(saved.path))
        whole, before = [*PROMPT, *said.tokens], len(PROMPT) - 1
        inputs = {
            "target_tokens": torch.tensor(whole[1:]),
            "logprobs": torch.tensor([0.0] * before + list(said.logprobs or ())),
            "advantages": torch.tensor([0.0] * before + [1.0] * len(said.tokens)),
        }
        tensors = {name: tinker.TensorData.from_torch(value) for name, value in inputs.items()}
        datum = types.Datum(types.ModelInput.from_ints(whole[:-1]), tensors)
        forward = await training.forward_backward_async([datum], loss_fn="importance_sampling")
        output = await forward.result_async()
        trained = output.loss_fn_outputs[0]["logprobs"].to_torch()[before:]
        assert torch.allclose(trained, torch.tensor(said.logprobs), atol=1e-4)
        await (await training.optim_step_async(STEP)).result_async()
        paths = await checkpoint_utils.save_checkpoint_async(
            training, "000001", str(tmp_path), {"batch": 1}, kind="both"
        )
        now = await sampled(training.create_sampling_client(paths["sampler_path"]))
        by_id = paths["state_path"].replace("/weights/", "/sampler_weights/")
        again = await sdk.create_training_client_from_state_async(paths["state_path"])
        there = await sampled(again.create_sampling_client(by_id))
        last = checkpoint_utils.get_last_checkpoint(str(tmp_path))
        assert last is not None
        kept = await sampled(again.create_sampling_client(last.sampler_path))
        return now.tokens, there.tokens, kept.tokens

    now, there, kept = asyncio.run(guide())
    assert now == there == kept
