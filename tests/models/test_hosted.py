"""Models that a Tinker server keeps: asked, fetched as files, and published."""

from __future__ import annotations

from pathlib import Path

import pytest
import tinker
from http_testing import running
from safetensors.numpy import load_file
from serving_support import BASE, KEY, policy_data
from tinker import types

from rlc.models.export import ExportError, export_model, publish
from rlc.models.model import Model
from rlc.models.named import named_model
from rlc.service.engine.checkpoints import peft_arrays
from rlc.service.engine.trainer import state_arrays

pytestmark = [pytest.mark.engine, pytest.mark.server]

MESSAGES = [{"role": "user", "content": "2 + 3 = ?"}]


def test_a_state_is_asked_fetched_and_published(tmp_path: Path) -> None:
    with running(tmp_path) as server, tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk:
        client = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
        client.forward_backward(policy_data(), "importance_sampling")
        client.optim_step(types.AdamParams(learning_rate=0.01)).result()
        plan = named_model(client.save_state("mine").result().path, base=BASE)
        with Model(plan, server.url) as model:
            one = model.chat(MESSAGES, seed=1, max_tokens=6)
            assert one == model.chat(MESSAGES, seed=1, max_tokens=6)
        export_model(plan, tmp_path / "taken", base_url=server.url)
        trainer = server.backend.sessions.models[client.model_id].client.trainer
        arrays, _ = state_arrays(trainer, "weights", None, None)
        expected = peft_arrays(arrays)
        found = load_file(tmp_path / "taken" / "adapter_model.safetensors")
        assert expected.keys() == found.keys()
        assert all((found[key] == array).all() for key, array in expected.items())
        publish(plan, server.url)
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        (listed,) = rest.list_checkpoints(client.model_id).result().checkpoints
        assert listed.public


def test_a_state_that_is_not_there(tmp_path: Path) -> None:
    plan = named_model("tinker://nobody/weights/none", base=BASE)
    with running(tmp_path) as server:
        with pytest.raises(ExportError, match="cannot be fetched"):
            export_model(plan, tmp_path / "taken", base_url=server.url)
        for_sampling = named_model("tinker://nobody/sampler_weights/none", base=BASE)
        with pytest.raises(ExportError, match="for sampling only"):
            export_model(for_sampling, tmp_path / "taken", base_url=server.url)
        assert not (tmp_path / "taken").exists()
        with pytest.raises(ExportError, match="is not on Tinker"):
            publish(named_model("tiny"), server.url)
