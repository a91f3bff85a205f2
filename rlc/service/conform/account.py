"""What a server offers, who asks, and what it remembers of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.request import urlopen

from tinker import types

from rlc.service.conform.probe import Probe
from rlc.service.conform.records import Check, check

FIRST: list[Check] = []
CHECKS: list[Check] = []


@check(
    FIRST,
    "server.models",
    "ServiceClient.get_server_capabilities",
    "RestClient.get_server_capabilities",
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


@check(FIRST, "server.unknown_model", "ServiceClient.create_lora_training_client")
def unknown_model(probe: Probe) -> None:
    """A model that is not there is refused, for training and for sampling."""
    sdk, name = probe.bench.sdk, "nobody/no-such-model"
    probe.refused(
        "training of an unknown model",
        lambda: probe.get(sdk.create_lora_training_client(name, rank=4)),
    )
    probe.refused(
        "sampling of an unknown model",
        lambda: probe.get(
            probe.get(sdk.create_sampling_client(base_model=name)).compute_logprobs(
                types.ModelInput.from_ints([40, 41])
            )
        ),
    )


@check(CHECKS, "account.whoami", "RestClient.whoami", required=False)
def whoami(probe: Probe) -> None:
    """The server knows who asks."""
    told = probe.get(probe.bench.rest.whoami())
    probe.that(bool(told.user_urn and told.org_urn), "no user, or no organisation")


@check(
    CHECKS,
    "account.runs",
    "RestClient.list_training_runs",
    "RestClient.get_training_run",
    "RestClient.get_training_run_by_tinker_path",
    "TrainingClient.get_console_url",
)
def runs(probe: Probe) -> None:
    """A training run is listed and described."""
    client, rest = probe.train(user_metadata={"conform": "yes"}), probe.bench.rest
    path = probe.keep(probe.get(client.save_weights_for_sampler("run", ttl_seconds=3600)).path)
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


@check(CHECKS, "account.sessions", "RestClient.get_session", "RestClient.list_sessions")
def sessions(probe: Probe) -> None:
    """A session says what it has made."""
    client, rest = probe.train(), probe.bench.rest
    own = client.holder.get_session_id()
    told = probe.get(rest.get_session(own))
    probe.that(client.model_id in told.training_run_ids, "its training run is not there")
    probe.that(own in probe.get(rest.list_sessions()).sessions, "it is not in the list")


@check(CHECKS, "account.search", "RestClient.search_sessions", required=False)
def search(probe: Probe) -> None:
    """Sessions are found by what is known of them."""
    own = probe.train().holder.get_session_id()
    ask = types.SessionSearchRequest(session_id=own)
    found = probe.get(probe.bench.rest.search_sessions(ask)).sessions
    probe.that([one.session_id for one in found] == [own], "it is not the one that is found")


@check(CHECKS, "account.project", "RestClient.assign_session_project", required=False)
def project(probe: Probe) -> None:
    """A session can be moved into a project."""
    name = probe.bench.endpoint.project or "conform"
    client = probe.train()
    probe.get(probe.bench.rest.assign_session_project(client.holder.get_session_id(), name))
    listed = probe.get(probe.bench.rest.list_training_runs(project_id=name)).training_runs
    ids = [run.training_run_id for run in listed]
    probe.that(client.model_id in ids, "its run is not listed under the project")


@check(CHECKS, "account.trace", "RestClient.export_session_trace", required=False)
def trace(probe: Probe) -> None:
    """What a session did can be fetched as a trace."""
    own = probe.train().holder.get_session_id()
    with urlopen(probe.get(probe.bench.rest.export_session_trace(own)), timeout=30) as answer:
        probe.that(len(answer.read()) > 2, "the trace is empty")


@check(
    CHECKS,
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


@check(CHECKS, "account.audit", "AdminClient.get_audit_log", required=False)
def audit(probe: Probe) -> None:
    """The audit log can be read."""
    probe.get(probe.bench.admin.get_audit_log())
