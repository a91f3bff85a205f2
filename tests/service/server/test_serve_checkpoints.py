"""Checkpoints over the API: named, listed, expired, overwritten, deleted, there after a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tinker
from http_testing import Running, running_server
from serving_support import BASE, KEY, policy_data, prompt, sampling, weights
from tinker import types

from rlc.service.engine import checkpoints
from rlc.service.hosted.stored import delete_stored, stored_checkpoints

HOUR = 3600


def trained(sdk: tinker.ServiceClient, **given: Any) -> tinker.TrainingClient:
    client = sdk.create_lora_training_client(BASE, rank=2, seed=1, **given).result()
    step(client)
    return client


def step(client: tinker.TrainingClient, seed: int = 0) -> None:
    client.forward_backward(policy_data(seed), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.01)).result()


def test_lists_are_newest_first_and_in_pages(
    sdk: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    client = trained(sdk, user_metadata={"who": "me"})
    first = client.save_state("first", user_metadata={"step": "1"}).result().path
    second = client.save_weights_for_sampler("second", ttl_seconds=2 * HOUR).result().path
    listed = rest.list_checkpoints(client.model_id).result().checkpoints
    assert [item.tinker_path for item in listed] == [second, first]
    assert [item.checkpoint_type for item in listed] == ["sampler", "training"]
    assert listed[1].user_metadata == {"step": "1"}
    assert listed[1].expires_at is None
    assert listed[0].expires_at is not None
    left = listed[0].expires_at.timestamp() - time.time()
    assert 2 * HOUR - 60 < left <= 2 * HOUR
    everyone = rest.list_user_checkpoints(limit=1, offset=1).result()
    assert [item.tinker_path for item in everyone.checkpoints] == [first]
    assert everyone.cursor is not None
    assert everyone.cursor.total_count >= 2
    runs = rest.list_training_runs(limit=1).result()
    assert [run.training_run_id for run in runs.training_runs] == [client.model_id]
    run = rest.get_training_run_by_tinker_path(first).result()
    assert run.user_metadata == {"who": "me"}
    assert run.last_checkpoint is not None
    assert run.last_checkpoint.tinker_path == first
    session = rest.get_session(client.holder.get_session_id()).result()
    assert client.model_id in session.training_run_ids


@pytest.mark.parametrize("save", ["save_state", "save_weights_for_sampler"])
def test_a_name_is_taken_once(sdk: tinker.ServiceClient, save: str) -> None:
    client = trained(sdk)
    getattr(client, save)("same").result()
    with pytest.raises(tinker.RequestFailedError, match="There is a checkpoint 'same' already"):
        getattr(client, save)("same").result()
    step(client)  # the client goes on


def test_overwriting_replaces_the_weights(server: Running, sdk: tinker.ServiceClient) -> None:
    client = trained(sdk)
    path = client.save_state("same", user_metadata={"step": "1"}).result().path
    step(client, seed=1)
    assert client.save_state("same", overwrite=True).result().path == path
    again = sdk.create_training_client_from_state(path).result()
    models = server.backend.sessions.models
    np.testing.assert_array_equal(
        weights(models[again.model_id].client), weights(models[client.model_id].client)
    )


def test_a_checkpoint_expires(
    sdk: tinker.ServiceClient, rest: tinker.RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = trained(sdk)
    short = client.save_state("short", ttl_seconds=HOUR).result().path
    longer = client.save_state("longer", ttl_seconds=HOUR).result().path
    kept = client.save_state("kept", ttl_seconds=HOUR).result().path
    rest.set_checkpoint_ttl_from_tinker_path(longer, 3 * HOUR).result()
    rest.set_checkpoint_ttl_from_tinker_path(kept, None).result()

    def after(hours: float) -> list[str]:
        later = time.time() + hours * HOUR
        monkeypatch.setattr(checkpoints, "time", SimpleNamespace(time=lambda: later))
        listed = rest.list_checkpoints(client.model_id).result().checkpoints
        return sorted(item.checkpoint_id for item in listed)

    assert after(0.9) == ["weights/kept", "weights/longer", "weights/short"]
    assert after(1.1) == ["weights/kept", "weights/longer"]
    with pytest.raises(tinker.RequestFailedError, match="has expired"):
        sdk.create_training_client_from_state(short).result()
    with pytest.raises(tinker.NotFoundError, match="has expired"):
        sdk.create_sampling_client(model_path=short).result()
    assert after(3.1) == ["weights/kept"]


@pytest.mark.parametrize("ttl", [60, 400_000_000])
def test_a_lifetime_out_of_tinkers_range_is_refused(
    sdk: tinker.ServiceClient, rest: tinker.RestClient, ttl: int
) -> None:
    client = trained(sdk)
    with pytest.raises(tinker.RequestFailedError, match="between 3600"):
        client.save_state("x", ttl_seconds=ttl).result()
    path = client.save_state("y").result().path
    with pytest.raises(tinker.BadRequestError, match="between 3600"):
        rest.set_checkpoint_ttl_from_tinker_path(path, ttl).result()


def test_a_deleted_checkpoint_is_gone(sdk: tinker.ServiceClient, rest: tinker.RestClient) -> None:
    client = trained(sdk)
    path = client.save_state("gone").result().path
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(client.model_id).result().checkpoints == []
    missing: list[Callable[[], Any]] = [
        lambda: rest.delete_checkpoint_from_tinker_path(path).result(),
        lambda: rest.get_weights_info_by_tinker_path(path).result(),
        lambda: sdk.create_sampling_client(model_path=path).result(),
        lambda: rest.get_training_run("nobody").result(),
        lambda: rest.list_checkpoints("../..").result(),
    ]
    for ask in missing:
        with pytest.raises(tinker.NotFoundError):
            ask()


def test_a_name_that_is_no_name_is_refused(sdk: tinker.ServiceClient) -> None:
    client = trained(sdk)
    for name in ("../up", "a/b", "", "with space"):
        with pytest.raises(tinker.RequestFailedError, match="A checkpoint's name holds"):
            client.save_state(name).result()


def test_checkpoints_outlive_the_server(tmp_path: Path) -> None:
    with running_server(tmp_path) as url, tinker.ServiceClient(base_url=url, api_key=KEY) as sdk:
        client = trained(sdk, user_metadata={"who": "me"})
        path = client.save_state("mid").result().path
        live = client.save_weights_and_get_sampling_client().result()
        expected = live.sample(prompt(), 2, sampling()).result()
    with running_server(tmp_path) as url, tinker.ServiceClient(base_url=url, api_key=KEY) as sdk:
        again = sdk.create_training_client_from_state_with_optimizer(path).result()
        assert again.get_info().lora_rank == 2
        sampler = again.save_weights_and_get_sampling_client().result()
        found = sampler.sample(prompt(), 2, sampling()).result()
        run = tinker.RestClient(base_url=url, api_key=KEY).get_training_run(client.model_id)
        assert run.result().user_metadata == {"who": "me"}
    assert [s.tokens for s in found.sequences] == [s.tokens for s in expected.sequences]


def test_what_is_stored_is_listed_and_deleted_by_its_path(
    server: Running, sdk: tinker.ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    client = trained(sdk)
    about = {"rlc_run": "main", "rlc_id": "12ab"}
    path = client.save_state("kept", ttl_seconds=2 * HOUR, user_metadata=about).result().path
    found = {one.path: one for one in stored_checkpoints("tinker", server.url)}
    one = found[path]
    assert dict(one.metadata) == about
    assert one.size
    assert one.expires is not None
    assert 2 * HOUR - 60 < one.expires - time.time() <= 2 * HOUR
    delete_stored(path, "tinker", server.url)
    assert path not in {one.path for one in stored_checkpoints("tinker", server.url)}
