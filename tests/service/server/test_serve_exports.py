"""Checkpoints for others: published, copied, and exported in the files of Hugging Face PEFT."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import safetensors.numpy
import tinker
import torch
import transformers
from http_testing import Running, running
from raw_http import Raw
from serving_support import BASE, KEY, PROMPT, policy_data, prompt, weights
from tinker import types

from rlc.service import tiny
from rlc.service.engine.checkpoints import CheckpointStore

HOUR = 3600


def trained(sdk: tinker.ServiceClient, rank: int = 2) -> tinker.TrainingClient:
    client = sdk.create_lora_training_client(BASE, rank=rank, seed=1).result()
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.01)).result()
    return client


def test_a_checkpoint_is_public_until_it_is_not(tmp_path: Path) -> None:
    with running(tmp_path) as server, tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk:
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        client = trained(sdk)
        path = client.save_state("shown", user_metadata={"step": "1"}).result().path
        before = rest.list_checkpoints(client.model_id).result().checkpoints[0]
        assert not before.public
        rest.publish_checkpoint_from_tinker_path(path).result()
        published = rest.list_checkpoints(client.model_id).result().checkpoints[0]
        changed = {"public": True, "size_bytes": published.size_bytes}
        assert published.model_dump() == before.model_dump() | changed
        rest.set_checkpoint_ttl_from_tinker_path(path, 2 * HOUR).result()
    with running(tmp_path) as server:  # it is kept beside the checkpoint
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        assert rest.list_user_checkpoints().result().checkpoints[0].public
        address = f"training_runs/{client.model_id}/checkpoints/weights/shown/publish"
        raw = Raw(server.url)
        assert raw.ask("POST", address) == (409, {"detail": f"{path} is public already."})
        rest.unpublish_checkpoint_from_tinker_path(path).result()
        assert not rest.list_user_checkpoints().result().checkpoints[0].public
        assert raw.ask("DELETE", address) == (409, {"detail": f"{path} is private already."})
        raw.close()
        with pytest.raises(tinker.NotFoundError, match="There is no checkpoint"):
            rest.publish_checkpoint_from_tinker_path(f"{path}-2").result()


@pytest.mark.parametrize("save", ["save_state", "save_weights_for_sampler"])
def test_a_copy_is_a_checkpoint_of_a_run_of_its_own(
    server: Running, sdk: tinker.ServiceClient, rest: tinker.RestClient, save: str
) -> None:
    client = trained(sdk)
    path = getattr(client, save)("mine", ttl_seconds=HOUR).result().path
    rest.publish_checkpoint_from_tinker_path(path).result()
    copied = rest.copy_weights(path, "archive").result()
    rest.delete_checkpoint_from_tinker_path(path).result()
    run = rest.get_training_run_by_tinker_path(copied).result()
    (listed,) = rest.list_checkpoints(run.training_run_id).result().checkpoints
    assert (listed.tinker_path, listed.public, listed.expires_at) == (copied, False, None)
    in_archive = rest.list_training_runs(project_id="archive").result().training_runs
    assert run.training_run_id in [found.training_run_id for found in in_archive]
    assert client.model_id not in [found.training_run_id for found in in_archive]
    again = sdk.create_training_client_from_state(copied).result()
    models = server.backend.sessions.models
    np.testing.assert_array_equal(
        weights(models[again.model_id].client), weights(models[client.model_id].client)
    )


def test_copies_that_cannot_be_made(sdk: tinker.ServiceClient, raw: Raw) -> None:
    client = trained(sdk)
    path = client.save_state("mine").result().path
    once = {"X_Idempotency_Key": "one"}
    body = {"source_path": path, "destination_project_id": "p"}
    first = raw.post("copy_weights", body, **once)
    assert raw.post("copy_weights", body, **once) == first  # repeated, not copied twice
    assert raw.post("copy_weights", body)[1] != first[1]
    session = {"session_id": client.holder.get_session_id(), "model_seq_id": 0}
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"source_path": f"{path}2"}, 404, "There is no checkpoint"),
        ({"source_path": "x"}, 400, "starts with tinker://"),
        ({"ttl_seconds": 60}, 400, "between 3600"),
        ({"destination_project_id": None}, 400, "needs a destination_project_id, or a session_id"),
        (session, 400, f"There is a training run {client.model_id} already"),
    ]
    for change, status, said in wrong:
        found, answer = raw.post("copy_weights", body | change)
        assert (found, said in answer["detail"]) == (status, True), answer


def exported(sdk: tinker.ServiceClient, rest: tinker.RestClient, folder: Path, rank: int) -> str:
    """The path of a trained adapter whose files are in ``folder``."""
    path = trained(sdk, rank).save_weights_external("peft").result().path
    signed = rest.get_external_weights_urls(path).result()
    assert timedelta(minutes=55) < signed.expires - datetime.now(UTC) <= timedelta(hours=1)
    for name, url in signed.urls.items():
        with urlopen(url) as answer:
            (folder / name).write_bytes(answer.read())
    return path


@pytest.mark.parametrize("rank", [2, 8])
def test_an_export_computes_in_transformers_what_the_server_does(
    sdk: tinker.ServiceClient, rest: tinker.RestClient, tmp_path: Path, rank: int
) -> None:
    """As PEFT does: ``W + lora_alpha / r · B·A`` on the layers whose names are in the file."""
    path = exported(sdk, rest, tmp_path, rank)
    run = path.removeprefix("tinker://").split("/")[0]
    again = sdk.create_lora_training_client(BASE, rank=rank, seed=1).result()
    again.forward_backward(policy_data(), "importance_sampling")
    again.optim_step(types.AdamParams(learning_rate=0.01)).result()
    sampler = again.save_weights_and_get_sampling_client().result()
    expected = np.array(sampler.compute_logprobs(prompt()).result()[1:], dtype=np.float64)

    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (rank, BASE)
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.path(), dtype=torch.float32)
    arrays = safetensors.numpy.load_file(tmp_path / "adapter_model.safetensors")
    changed = {key.rpartition(".lora_")[0] for key in arrays}
    for name in changed:
        a, b = (torch.from_numpy(arrays[f"{name}.lora_{part}.weight"]) for part in "AB")
        layer = model.get_submodule(name.removeprefix("base_model.model."))
        layer.weight = torch.nn.Parameter(layer.weight + config["lora_alpha"] / rank * b @ a)
    named = {name for name, _ in model.named_modules()}
    suffixes = tuple(f".{name}" for name in config["target_modules"])
    assert changed == {
        f"base_model.model.{name}" for name in named if f".{name}".endswith(suffixes)
    }
    with torch.no_grad():
        tokens = torch.tensor([PROMPT])
        logprobs = model(tokens).logits[0].log_softmax(-1)
    found = logprobs[:-1].gather(1, tokens[0, 1:, None])[:, 0]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [item.checkpoint_type for item in listed] == ["external"]


def test_an_export_is_for_others_alone(sdk: tinker.ServiceClient, rest: tinker.RestClient) -> None:
    client = trained(sdk)
    path = client.save_weights_external("peft", ttl_seconds=HOUR).result().path
    with pytest.raises(tinker.RequestFailedError, match="is an export for other programs"):
        sdk.create_training_client_from_state(path).result()
    with pytest.raises(tinker.NotFoundError, match="is an export for other programs"):
        sdk.create_sampling_client(model_path=path).result()
    for recipients, said in [
        (["age1x"], "'age1x' is no recipient"),
        (["age1x"] * 11, "at most 10"),
    ]:
        with pytest.raises(tinker.RequestFailedError, match=said):
            client.save_weights_external("x", age_encryption_recipients=recipients).result()
    with pytest.raises(tinker.RequestFailedError, match="There is a checkpoint 'peft' already"):
        client.save_weights_external("peft").result()
    rest.delete_checkpoint_from_tinker_path(path).result()
    with pytest.raises(tinker.NotFoundError):
        rest.get_external_weights_urls(path).result()


def test_an_export_for_recipients_is_encrypted_to_them(
    sdk: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    pyrage = pytest.importorskip("pyrage")
    client = trained(sdk)
    plain = rest.get_external_weights_urls(client.save_weights_external("plain").result().path)
    identity = pyrage.x25519.Identity.generate()
    saving = client.save_weights_external(
        "secret", age_encryption_recipients=[str(identity.to_public())]
    )
    secret = rest.get_external_weights_urls(saving.result().path).result().urls
    arrays = {}
    for name, url in plain.result().urls.items():
        with urlopen(url) as whole, urlopen(secret[f"{name}.age"]) as encrypted:
            decrypted = pyrage.decrypt(encrypted.read(), [identity])
            if name.endswith(".json"):
                assert decrypted == whole.read()
            else:
                arrays = safetensors.numpy.load(decrypted)
                expected = safetensors.numpy.load(whole.read())
    assert arrays.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(arrays[key], array)


def test_addresses_are_signed_and_need_no_key(tmp_path: Path) -> None:
    with (
        running(tmp_path, key="tml-secret") as server,
        tinker.ServiceClient(base_url=server.url, api_key="tml-secret") as sdk,
    ):
        rest = tinker.RestClient(base_url=server.url, api_key="tml-secret")
        path = trained(sdk).save_weights_external("peft").result().path
        url = rest.get_external_weights_urls(path).result().urls["adapter_config.json"]
        assert urlopen(url).status == 200
        wrong = [
            url[:-1] + ("0" if url[-1] != "0" else "1"),
            url.replace("/peft/", "/other/"),
            url.replace("expires=", "expires=9"),
            url.split("?")[0],
        ]
        assert {refused(address) for address in wrong} == {403}
        rest.delete_checkpoint_from_tinker_path(path).result()
        assert refused(url) == 404


def refused(address: str) -> int:
    with pytest.raises(HTTPError) as answer:
        urlopen(address)
    with answer.value:
        return answer.value.code


def test_checkpoints_from_before_there_was_publishing_are_private(tmp_path: Path) -> None:
    with running(tmp_path) as server, tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk:
        path = trained(sdk).save_state("old").result().path.replace("tinker://", "local://")
    store = CheckpointStore(tmp_path)
    with safetensors.safe_open(store.file(path), framework="numpy") as opened:
        header = json.loads(opened.metadata()["rlc"])
    del header["description"]["public"]
    arrays = safetensors.numpy.load_file(store.file(path))
    safetensors.numpy.save_file(arrays, store.file(path), {"rlc": json.dumps(header)})
    assert not store.find(path).description.public
