"""Checks of the account: models, runs, sessions and usage; and of checkpoints."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen

import numpy as np
import tinker
from tinker import types

from rlc.algo import Floats
from rlc.service.conform.probe import HOUR, Probe, check, prompt
from rlc.service.gradients import sequences


@check(
    "server.models", "ServiceClient.get_server_capabilities", "RestClient.get_server_capabilities"
)
def models(probe: Probe) -> None:
    """The server lists its models and their contexts."""
    ours = probe.bench.sdk.get_server_capabilities().supported_models
    theirs = probe.get(probe.bench.rest.get_server_capabilities()).supported_models
    probe.that([m.model_name for m in ours] == [m.model_name for m in theirs], "two lists differ")
    named = {model.model_name: model for model in theirs}
    probe.that(probe.bench.base in named, f"{probe.bench.base} is not in the list")
    without = [name for name, model in named.items() if not model.max_context_length]
    probe.that(not without, f"no context is said of {', '.join(map(str, without))}")


@check("server.unknown_model", "ServiceClient.create_lora_training_client")
def unknown_model(probe: Probe) -> None:
    """A model that is not there is refused, for training and for sampling."""
    sdk, name = probe.bench.sdk, "nobody/no-such-model"

    def sample() -> None:
        sampler = probe.get(sdk.create_sampling_client(base_model=name))
        probe.get(sampler.compute_logprobs(prompt([40, 41])))

    probe.refused(
        "training of an unknown model",
        lambda: probe.get(sdk.create_lora_training_client(name, rank=4)),
    )
    probe.refused("sampling of an unknown model", sample)


@check("account.whoami", "RestClient.whoami", required=False)
def whoami(probe: Probe) -> None:
    """The server knows who asks."""
    answer = probe.get(probe.bench.rest.whoami())
    probe.that(bool(answer.user_urn and answer.org_urn), "no user, or no organisation")


@check(
    "account.runs",
    "RestClient.list_training_runs",
    "RestClient.get_training_run",
    "RestClient.get_training_run_by_tinker_path",
    "TrainingClient.get_console_url",
)
def runs(probe: Probe) -> None:
    """A training run is listed and described."""
    client, rest = probe.train(user_metadata={"conform": "yes"}), probe.bench.rest
    path = probe.saved(client.save_weights_for_sampler("run", ttl_seconds=3600))
    for run in (
        probe.get(rest.get_training_run(client.model_id)),
        probe.get(rest.get_training_run_by_tinker_path(path)),
    ):
        probe.that(run.base_model == probe.bench.base, f"its base model is {run.base_model}")
        probe.that(run.lora_rank == client.get_info().lora_rank, f"its rank is {run.lora_rank}")
        kept = (run.user_metadata or {}).get("conform")
        probe.that(kept == "yes", "the user's metadata is not there")
    listed = probe.get(rest.list_training_runs(limit=20)).training_runs
    ids = [run.training_run_id for run in listed]
    probe.that(client.model_id in ids, "the newest run is not among the first 20")
    page = probe.get(rest.list_training_runs(limit=1, offset=1)).training_runs
    probe.that(len(page) <= 1, f"a page of one has {len(page)} runs")
    probe.that(bool(client.get_console_url()), "there is no address in the console")


@check("account.sessions", "RestClient.get_session", "RestClient.list_sessions")
def sessions(probe: Probe) -> None:
    """A session says what it has made."""
    client, rest = probe.train(), probe.bench.rest
    own = client.holder.get_session_id()
    answer = probe.get(rest.get_session(own))
    probe.that(client.model_id in answer.training_run_ids, "its training run is not there")
    probe.that(own in probe.get(rest.list_sessions()).sessions, "it is not in the list")


@check("account.search", "RestClient.search_sessions", required=False)
def search(probe: Probe) -> None:
    """Sessions are found by what is known of them."""
    own = probe.train().holder.get_session_id()
    ask = types.SessionSearchRequest(session_id=own)
    found = probe.get(probe.bench.rest.search_sessions(ask)).sessions
    probe.that([one.session_id for one in found] == [own], "it is not the one that is found")


@check("account.project", "RestClient.assign_session_project", required=False)
def project(probe: Probe) -> None:
    """A session can be moved into a project."""
    name = probe.bench.endpoint.project or "conform"
    client = probe.train()
    probe.get(probe.bench.rest.assign_session_project(client.holder.get_session_id(), name))
    listed = probe.get(probe.bench.rest.list_training_runs(project_id=name)).training_runs
    ids = [run.training_run_id for run in listed]
    probe.that(client.model_id in ids, "its run is not listed under the project")


@check("account.trace", "RestClient.export_session_trace", required=False)
def trace(probe: Probe) -> None:
    """What a session did can be fetched as a trace."""
    own = probe.train().holder.get_session_id()
    with urlopen(probe.get(probe.bench.rest.export_session_trace(own)), timeout=30) as answer:
        probe.that(len(answer.read()) > 2, "the trace is empty")


@check(
    "account.usage",
    "AdminClient.get_billing_usage",
    "AdminClient.get_current_checkpoint_storage_usage",
    required=False,
)
def usage(probe: Probe) -> None:
    """Usage and storage can be asked for."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    probe.get(probe.bench.admin.get_billing_usage(hour - timedelta(hours=1), hour))
    for item in probe.get(probe.bench.admin.get_current_checkpoint_storage_usage()).data:
        probe.that(item.checkpoint_count >= 0, "a negative number of checkpoints")


@check("account.audit", "AdminClient.get_audit_log", required=False)
def audit(probe: Probe) -> None:
    """The audit log can be read."""
    probe.get(probe.bench.admin.get_audit_log())


def save(probe: Probe, client: tinker.TrainingClient, name: str, **given: Any) -> str:
    return probe.saved(client.save_state(name, ttl_seconds=HOUR, **given))


def compare(probe: Probe, what: str, found: Floats, expected: Floats) -> None:
    """Compare the logprobs of two computations with the same weights, which differ by little if all
    is in float32."""
    allowed = 1e-5 if probe.bench.reference is not None else probe.bench.tolerance
    probe.close(what, found, expected, allowed)


def loaded(probe: Probe, path: str) -> Floats:
    """Return the logprobs of saved weights."""
    client = probe.get(probe.bench.sdk.create_training_client_from_state(path))
    return probe.logprobs_of_all(client)


@check(
    "checkpoints.resume",
    "TrainingClient.save_state",
    "ServiceClient.create_training_client_from_state_with_optimizer",
    "TrainingClient.load_state_with_optimizer",
)
def resume(probe: Probe) -> None:
    """A saved state goes on as the model that saved it: in a new client, and loaded into one."""
    client = probe.train()
    saved = probe.stepped(client)
    path = save(probe, client, "resume")
    onward = probe.stepped(client, -0.5)
    again = probe.get(probe.bench.sdk.create_training_client_from_state_with_optimizer(path))
    compare(probe, "logprobs of a state, saved and restored,", probe.logprobs_of_all(again), saved)
    compare(probe, "logprobs a step later", probe.stepped(again, -0.5), onward)
    probe.get(client.load_state_with_optimizer(path))
    compare(probe, "logprobs a step after loading", probe.stepped(client, -0.5), onward)


@check(
    "checkpoints.weights",
    "ServiceClient.create_training_client_from_state",
    "TrainingClient.load_state",
)
def weights(probe: Probe) -> None:
    """Weights alone come back without the optimiser's moments."""
    client = probe.train()
    saved = probe.stepped(client)
    path = save(probe, client, "weights")
    onward = probe.stepped(client, -0.5)
    again = probe.get(probe.bench.sdk.create_training_client_from_state(path))
    compare(probe, "logprobs of weights, saved and restored,", probe.logprobs_of_all(again), saved)
    fresh = probe.stepped(again, -0.5)
    probe.that(np.abs(fresh - onward).max() > 1e-4, "the optimiser's moments came along")
    probe.get(client.load_state(path))
    compare(probe, "logprobs a step after loading them", probe.stepped(client, -0.5), fresh)


@check(
    "checkpoints.sampler",
    "TrainingClient.save_weights_for_sampler",
    "TrainingClient.create_sampling_client",
    "ServiceClient.create_sampling_client",
)
def sampler(probe: Probe) -> None:
    """Weights that were saved for sampling are those that were trained."""
    client = probe.train()
    probe.stepped(client)
    path = probe.saved(client.save_weights_for_sampler("sampler", ttl_seconds=HOUR))
    expected = probe.logprobs(client)[0]
    of_service = probe.bench.sdk.create_sampling_client(model_path=path)
    for made in (client.create_sampling_client(path), of_service):
        found = probe.scored(probe.get(made), sequences()[0])[1:]
        probe.near("logprobs of trainer and saved sampler", expected, found)


@check("checkpoints.names", "TrainingClient.save_state")
def names(probe: Probe) -> None:
    """A name is taken once; with overwrite the new weights replace the old ones."""
    client = probe.train()
    path = save(probe, client, "name")
    probe.refused("a name that is taken", lambda: save(probe, client, "name"))
    newest = probe.stepped(client)
    again = save(probe, client, "name", overwrite=True)
    probe.that(again == path, "overwriting gives another path")
    compare(probe, "logprobs of what was overwritten", loaded(probe, again), newest)
    probe.refused(
        "a path with no checkpoint",
        lambda: probe.get(probe.bench.sdk.create_training_client_from_state(f"{path}-none")),
    )


@check(
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
    second = probe.saved(client.save_weights_for_sampler("second", ttl_seconds=HOUR))

    def listed() -> dict[str, Any]:
        answer = probe.get(rest.list_checkpoints(client.model_id)).checkpoints
        return {item.tinker_path: item for item in answer}

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


@check(
    "checkpoints.deletion",
    "RestClient.delete_checkpoint_from_tinker_path",
    "ServiceClient.create_training_client_from_state",
    required=False,
)
def deletion(probe: Probe) -> None:
    """A checkpoint that is deleted is gone; a server that cannot delete says so."""
    path = save(probe, probe.train(), "deletion")
    probe.get(probe.bench.rest.delete_checkpoint_from_tinker_path(path))
    load = probe.bench.sdk.create_training_client_from_state
    probe.refused("a checkpoint that was deleted", lambda: probe.get(load(path)))


@check("checkpoints.ttl", "RestClient.set_checkpoint_ttl_from_tinker_path")
def ttl(probe: Probe) -> None:
    """A checkpoint's end can be moved, within limits, or taken away."""
    client, rest = probe.train(), probe.bench.rest
    path = save(probe, client, "ttl")
    for seconds in (3 * HOUR, None):
        probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, seconds))
        (item,) = probe.get(rest.list_checkpoints(client.model_id)).checkpoints
        if seconds is None:
            probe.that(item.expires_at is None, "an end that was removed is there")
        else:
            left = -1.0 if item.expires_at is None else item.expires_at.timestamp() - time.time()
            probe.that(abs(left - seconds) < 600, f"it ends in {left:.0f} s, not {seconds}")
    probe.refused("a minute", lambda: probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, 60)))
    probe.get(rest.set_checkpoint_ttl_from_tinker_path(path, HOUR))


@check("checkpoints.copy", "RestClient.copy_weights", "ServiceClient.copy_weights", required=False)
def copy(probe: Probe) -> None:
    """A copy has the same weights, and stays when the original is deleted."""
    client, rest = probe.train(), probe.bench.rest
    expected = probe.stepped(client)
    path = save(probe, client, "copy")
    project = probe.bench.endpoint.project or "conform"
    with probe.bench.service(project) as other:
        copies = [
            probe.keep(probe.get(rest.copy_weights(path, project, ttl_seconds=HOUR))),
            probe.keep(probe.get(other.copy_weights(path, ttl_seconds=HOUR))),
        ]
    probe.get(rest.delete_checkpoint_from_tinker_path(path))
    for copied in copies:
        compare(probe, "logprobs of a copy", loaded(probe, copied), expected)


@check(
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
    "checkpoints.export",
    "TrainingClient.save_weights_external",
    "RestClient.get_external_weights_urls",
    required=False,
)
def export(probe: Probe) -> None:
    """An adapter can be fetched in the files of Hugging Face PEFT."""
    client = probe.train()
    probe.stepped(client)
    path = probe.saved(client.save_weights_external("export", ttl_seconds=HOUR))
    urls = probe.get(probe.bench.rest.get_external_weights_urls(path)).urls
    files = {"adapter_config.json", "adapter_model.safetensors"}
    probe.that(files <= urls.keys(), f"its files are {', '.join(sorted(urls))}")
    for url in urls.values():
        with urlopen(url, timeout=30) as answer:
            probe.that(bool(answer.read(1)), "a file is empty")
