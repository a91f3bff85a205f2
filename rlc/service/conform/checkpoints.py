"""Weights: saved, loaded, listed, expired, copied, taken away."""

from __future__ import annotations

import time
from typing import Any
from urllib.request import urlopen

import numpy as np
import tinker

from rlc.algo import Floats
from rlc.service.conform.probe import HOUR, Probe, likelihood, sequences
from rlc.service.conform.records import Check, check

CHECKS: list[Check] = []

_RATE = 1e-3
_SAME = 1e-5  # nats by which the same weights may compute another logprob


def step(probe: Probe, client: tinker.TrainingClient, scale: float = 1.0) -> Floats:
    """A step, and the logprobs after it."""
    probe.forward(client, likelihood(scale=scale), backward=True)
    probe.step(client, _RATE)
    return np.concatenate(probe.logprobs(client))


def save(probe: Probe, client: tinker.TrainingClient, name: str, **given: Any) -> str:
    saving = client.save_state(name, ttl_seconds=HOUR, **given)
    return probe.keep(probe.get(saving).path)


@check(
    CHECKS,
    "checkpoints.resume",
    "TrainingClient.save_state",
    "ServiceClient.create_training_client_from_state_with_optimizer",
    "TrainingClient.load_state_with_optimizer",
)
def resume(probe: Probe) -> None:
    """A saved state goes on as the model that saved it: in a new client, and loaded into one."""
    client = probe.train()
    saved = step(probe, client)
    path = save(probe, client, "resume")
    onward = step(probe, client, scale=-0.5)
    again = probe.get(probe.bench.sdk.create_training_client_from_state_with_optimizer(path))
    restored = np.concatenate(probe.logprobs(again))
    probe.close("logprobs of a state, saved and restored,", restored, saved, _allowed(probe))
    probe.close("logprobs a step later", step(probe, again, -0.5), onward, _allowed(probe))
    probe.get(client.load_state_with_optimizer(path))
    probe.close("logprobs a step after loading", step(probe, client, -0.5), onward, _allowed(probe))


@check(
    CHECKS,
    "checkpoints.weights",
    "ServiceClient.create_training_client_from_state",
    "TrainingClient.load_state",
)
def weights(probe: Probe) -> None:
    """Weights alone come back without the optimiser's moments."""
    client = probe.train()
    saved = step(probe, client)
    path = save(probe, client, "weights")
    onward = step(probe, client, scale=-0.5)
    again = probe.get(probe.bench.sdk.create_training_client_from_state(path))
    restored = np.concatenate(probe.logprobs(again))
    probe.close("logprobs of weights, saved and restored,", restored, saved, _allowed(probe))
    fresh = step(probe, again, -0.5)
    probe.that(np.abs(fresh - onward).max() > 1e-4, "the optimiser's moments came along")
    probe.get(client.load_state(path))
    probe.close(
        "logprobs a step after loading them", step(probe, client, -0.5), fresh, _allowed(probe)
    )


@check(
    CHECKS,
    "checkpoints.sampler",
    "TrainingClient.save_weights_for_sampler",
    "TrainingClient.create_sampling_client",
    "ServiceClient.create_sampling_client",
)
def sampler(probe: Probe) -> None:
    """Weights that were saved for sampling are those that were trained."""
    client = probe.train()
    step(probe, client)
    saving = client.save_weights_for_sampler("sampler", ttl_seconds=HOUR)
    path = probe.keep(probe.get(saving).path)
    expected = probe.logprobs(client)[0]
    for made in (
        client.create_sampling_client(path),
        probe.bench.sdk.create_sampling_client(model_path=path),
    ):
        told = probe.scored(probe.get(made), sequences()[0])[1:]
        probe.near("logprobs of trainer and saved sampler", expected, told)


@check(CHECKS, "checkpoints.names", "TrainingClient.save_state")
def names(probe: Probe) -> None:
    """A name is taken once; with overwrite the new weights replace the old ones."""
    client = probe.train()
    path = save(probe, client, "name")
    probe.refused("a name that is taken", lambda: save(probe, client, "name"))
    newest = step(probe, client)
    again = save(probe, client, "name", overwrite=True)
    probe.that(again == path, "overwriting gives another path")
    loaded = probe.get(probe.bench.sdk.create_training_client_from_state(again))
    found = np.concatenate(probe.logprobs(loaded))
    probe.close("logprobs of what was overwritten", found, newest, _allowed(probe))
    probe.refused(
        "a path with no checkpoint",
        lambda: probe.get(probe.bench.sdk.create_training_client_from_state(f"{path}-none")),
    )


@check(
    CHECKS,
    "checkpoints.lists",
    "RestClient.list_checkpoints",
    "RestClient.list_user_checkpoints",
    "RestClient.delete_checkpoint",
    "RestClient.delete_checkpoint_from_tinker_path",
)
def lists(probe: Probe) -> None:
    """Checkpoints are listed with their kind, metadata and end, until they are deleted."""
    client, rest = probe.train(), probe.bench.rest
    first = save(probe, client, "first", user_metadata={"conform": "yes"})
    saving = client.save_weights_for_sampler("second", ttl_seconds=HOUR)
    second = probe.keep(probe.get(saving).path)

    def listed() -> dict[str, Any]:
        told = probe.get(rest.list_checkpoints(client.model_id)).checkpoints
        return {item.tinker_path: item for item in told}

    found = listed()
    kinds = [getattr(found.get(path), "checkpoint_type", None) for path in (first, second)]
    probe.that(kinds == ["training", "sampler"], f"their kinds are {kinds}")
    if first in found:
        kept = (found[first].user_metadata or {}).get("conform")
        probe.that(kept == "yes", "the user's metadata is not there")
        ends = found[first].expires_at
        probe.that(
            ends is not None and abs(ends.timestamp() - time.time() - HOUR) < 600,
            f"a checkpoint that was to end in an hour ends at {ends}",
        )
    everywhere = probe.get(rest.list_user_checkpoints(limit=50)).checkpoints
    probe.that(first in [item.tinker_path for item in everywhere], "the user's list lacks it")
    probe.get(rest.delete_checkpoint_from_tinker_path(first))
    if second in found:
        probe.get(rest.delete_checkpoint(client.model_id, found[second].checkpoint_id))
    probe.that(not {first, second} & listed().keys(), "deleted checkpoints are listed")


@check(CHECKS, "checkpoints.ttl", "RestClient.set_checkpoint_ttl_from_tinker_path")
def ttl(probe: Probe) -> None:
    """A checkpoint's end can be moved, within limits, or taken away."""
    client, rest = probe.train(), probe.bench.rest
    path = save(probe, client, "ttl")
    for seconds in (3 * HOUR, None):
        probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, seconds))
        (item,) = probe.get(rest.list_checkpoints(client.model_id)).checkpoints
        if seconds is None:
            probe.that(item.expires_at is None, "an end that was taken away is there")
        else:
            left = -1.0 if item.expires_at is None else item.expires_at.timestamp() - time.time()
            probe.that(abs(left - seconds) < 600, f"it ends in {left:.0f} s, not {seconds}")
    probe.refused("a minute", lambda: probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, 60)))
    probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, HOUR))


@check(
    CHECKS,
    "checkpoints.copy",
    "RestClient.copy_weights",
    "ServiceClient.copy_weights",
    required=False,
)
def copy(probe: Probe) -> None:
    """A copy has the same weights, and stays when the original is deleted."""
    client, rest = probe.train(), probe.bench.rest
    expected = step(probe, client)
    path = save(probe, client, "copy")
    project = probe.bench.endpoint.project or "conform"
    with probe.bench.service(project) as elsewhere:
        copies = [
            probe.keep(probe.get(rest.copy_weights(path, project, ttl_seconds=HOUR))),
            probe.keep(probe.get(elsewhere.copy_weights(path, ttl_seconds=HOUR))),
        ]
    probe.get(rest.delete_checkpoint_from_tinker_path(path))
    for copied in copies:
        loaded = probe.get(probe.bench.sdk.create_training_client_from_state(copied))
        found = np.concatenate(probe.logprobs(loaded))
        probe.close("logprobs of a copy", found, expected, _allowed(probe))


@check(
    CHECKS,
    "checkpoints.publish",
    "RestClient.publish_checkpoint_from_tinker_path",
    "RestClient.unpublish_checkpoint_from_tinker_path",
    required=False,
)
def publish(probe: Probe) -> None:
    """A checkpoint is public until it is not."""
    if not probe.bench.publishes:
        probe.notes.append("not tried: nothing is made public on a server that others use")
        return
    client, rest = probe.train(), probe.bench.rest
    path = save(probe, client, "publish")
    for wanted, ask in (
        (True, rest.publish_checkpoint_from_tinker_path),
        (False, rest.unpublish_checkpoint_from_tinker_path),
    ):
        probe.get(ask(path))
        (item,) = probe.get(rest.list_checkpoints(client.model_id)).checkpoints
        probe.that(item.public is wanted, f"it is {'public' if item.public else 'private'}")


@check(
    CHECKS,
    "checkpoints.export",
    "TrainingClient.save_weights_external",
    "RestClient.get_external_weights_urls",
    required=False,
)
def export(probe: Probe) -> None:
    """An adapter can be fetched in the files of Hugging Face PEFT."""
    client = probe.train()
    step(probe, client)
    saving = client.save_weights_external("export", ttl_seconds=HOUR)
    path = probe.keep(probe.get(saving).path)
    urls = probe.get(probe.bench.rest.get_external_weights_urls(path)).urls
    files = {"adapter_config.json", "adapter_model.safetensors"}
    probe.that(files <= urls.keys(), f"its files are {', '.join(sorted(urls))}")
    for url in urls.values():
        with urlopen(url, timeout=30) as answer:
            probe.that(bool(answer.read(1)), "a file is empty")


def _allowed(probe: Probe) -> float:
    """What two computations with the same weights may differ by: little, if all is in float32."""
    return _SAME if probe.bench.reference is not None else probe.bench.tolerance
