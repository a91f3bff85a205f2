"""Who is asking, what was used, what happened; and what the SDK can ask that is not here."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
import server_account
import tinker
from http_testing import Running, running
from raw_http import Raw
from serving_support import BASE, KEY, PROMPT, policy_data, prompt, sampling
from tinker import types
from tinker.types import AccessibleSearchOwner, UserSearchOwner
from tinker.types.session_status_query import (
    ActiveSessionStatusQuery,
    ClientFinishedSessionStatusQuery,
)

from rlc.service.server import backend
from rlc.service.server.backend import USER, Signer
from rlc.service.server.futures import RequestSpan, chrome_trace

NOW = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def admin(server: Running) -> tinker.AdminClient:
    return tinker.AdminClient(base_url=server.url, api_key=KEY)


def step(client: tinker.TrainingClient) -> None:
    client.forward_backward(policy_data(), "importance_sampling")
    client.optim_step(types.AdamParams(learning_rate=0.01)).result()


@pytest.mark.parametrize("key", [None, "tml-secret"])
def test_the_sdk_knows_who_it_is(tmp_path: Path, key: str | None) -> None:
    with running(tmp_path, key=key) as server:
        rest = tinker.RestClient(base_url=server.url, api_key="tml-secret")
        told = rest.whoami().result()
        assert (told.user_urn, told.org_urn, told.email) == (
            USER,
            "tml:organization:local",
            None,
        )
        if key is None:
            return
        forged = Signer().token()
        raw = Raw(server.url)
        assert raw.ask("GET", "training_runs", X_API_Key=forged)[0] == 401
        assert raw.ask("GET", "training_runs", X_API_Key=server.backend.signer.token())[0] == 200
        assert raw.ask("GET", "auth/apikey/me", X_API_Key=key)[1]["name"] == "rlc serve"
        assert raw.ask("DELETE", "auth/apikey/me", X_API_Key=key)[0] == 403
        assert raw.ask("GET", "auth/apikey/me", X_API_Key="eyJ.é")[0] == 401
        raw.close()


def test_an_identity_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer()
    token, (url, _) = signer.token(), signer.url("http://x/", "traces/a")
    expires, signature = (part.split("=")[1] for part in url.split("?")[1].split("&"))
    assert signer.has_signed(token)
    assert signer.has_signed_path("traces/a", expires, signature)
    assert not signer.has_signed_path("traces/b", expires, signature)
    later = time.time() + 3601
    monkeypatch.setattr(backend, "time", SimpleNamespace(time=lambda: later))
    assert not signer.has_signed(token)
    assert not signer.has_signed_path("traces/a", expires, signature)


def test_identities_are_renewed_after_a_restart(tmp_path: Path) -> None:
    """What another process has signed is worth nothing; the SDK asks for another by itself."""
    with running(tmp_path, key="tml-secret") as server:
        rest = tinker.RestClient(base_url=server.url, api_key="tml-secret")
        rest.list_training_runs().result()
        object.__setattr__(server.backend.signer, "_secret", b"of another process")
        rest.list_training_runs().result()


def test_usage_is_what_was_computed(
    sdk: tinker.ServiceClient, admin: tinker.AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_account, "now", lambda: NOW)
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    step(client)
    client.forward(policy_data(), "importance_sampling").result()
    with pytest.raises(tinker.RequestFailedError):
        client.forward_backward(policy_data(), "dro").result()
    client.save_state("one").result()
    sampler = client.save_weights_and_get_sampling_client().result()
    replies = [sampler.sample(prompt(), 3, sampling()).result() for _ in range(2)]
    cached = sum(reply.prompt_cache_hit_tokens or 0 for reply in replies)
    assert cached > 0

    hour = NOW.replace(minute=0, second=0)
    told = admin.get_billing_usage(hour, hour + HOUR).result()
    session = client.holder.get_session_id()
    mine = [event for event in told.data if event.session_id == session]
    counts = [event.event_info.model_dump() for event in mine]
    assert sorted(counts, key=str) == sorted(
        [
            {"type": "training", "token_count": 2 * 3 * 7},
            {
                "type": "sampling_prefill",
                "cached": False,
                "token_count": 2 * len(PROMPT) - cached,
            },
            {"type": "sampling_prefill", "cached": True, "token_count": cached},
            {"type": "sampling_sample", "token_count": 2 * 3 * 6},
            {"type": "checkpoint", "count": 1},
        ],
        key=str,
    )
    assert {event.base_model for event in mine} == {BASE}
    assert {event.bucket_start for event in mine} == {hour}
    assert not any(event.estimated_cost_usd for event in mine)
    assert session in told.sessions
    assert admin.get_billing_usage(hour - HOUR, hour).result().data == []
    assert admin.get_billing_usage(hour + HOUR, hour + 2 * HOUR).result().data == []


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("2026-03-01T00:30:00Z", "2026-03-01T01:00:00Z", "starting_on is the start of an hour"),
        ("2026-03-01T00:00:00Z", "2026-03-16T00:00:00Z", "at most 14 days"),
        ("2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z", "ending_before is after starting_on"),
        ("9000-01-01T00:00:00Z", "9000-01-02T00:00:00Z", "starting_on is in the future"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "starting_on is out of range"),
        ("soon", "later", "starting_on: Input should be a valid datetime"),
    ],
)
def test_hours_that_cannot_be_asked_for(raw: Raw, start: str, end: str, said: str) -> None:
    query = f"starting_on={start.replace('+', '%2B')}&ending_before={end}"
    status, answer = raw.ask("GET", f"billing/usage/events?{query}")
    assert (status, said in answer["detail"]) == (400, True), answer


def test_what_checkpoints_take(
    server: Running, rest: tinker.RestClient, admin: tinker.AdminClient
) -> None:
    with tinker.ServiceClient(base_url=server.url, api_key=KEY, project_id="storage") as sdk:
        client = sdk.create_lora_training_client(BASE, rank=2).result()
        client.save_state("a").result()
        client.save_weights_for_sampler("b").result()
    sizes = [c.size_bytes or 0 for c in rest.list_checkpoints(client.model_id).result().checkpoints]
    (item,) = admin.get_current_checkpoint_storage_usage("storage").result().data
    assert (item.checkpoint_count, item.size_bytes) == (2, sum(sizes))
    everything = admin.get_current_checkpoint_storage_usage().result().data
    assert item in everything
    assert admin.get_current_checkpoint_storage_usage("nobody's").result().data == []


def test_the_audit_log_outlives_the_server(tmp_path: Path) -> None:
    with running(tmp_path) as server, tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk:
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        client = sdk.create_lora_training_client(BASE, rank=2).result()
        path = client.save_state("a").result().path
        with pytest.raises(tinker.RequestFailedError):
            client.save_state("a").result()
        rest.publish_checkpoint_from_tinker_path(path).result()
        rest.unpublish_checkpoint_from_tinker_path(path).result()
        rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
        copied = rest.copy_weights(path, "there").result()
        rest.delete_checkpoint_from_tinker_path(path).result()
        session = client.holder.get_session_id()
        rest.assign_session_project(session, "there").result()
    with (tmp_path / "audit.jsonl").open("a") as lines:
        lines.write('{"timestamp": "2026-')  # a process was killed
    with running(tmp_path) as server:
        admin = tinker.AdminClient(base_url=server.url, api_key=KEY)
        entries = admin.get_audit_log().result().entries
        assert [(e.event, e.event_details.get("tinker_path")) for e in entries] == [
            ("checkpoint_created", path),
            ("checkpoint_published", path),
            ("checkpoint_unpublished", path),
            ("checkpoint_ttl_set", path),
            ("checkpoint_created", copied),
            ("checkpoint_deleted", path),
            ("project_session_added", None),
        ]
        assert entries == sorted(entries, key=lambda entry: entry.timestamp)
        only = admin.get_audit_log("projects").result().entries
        assert [e.event_details["session_id"] for e in only] == [session]
        assert admin.get_audit_log(day=date(2020, 1, 1)).result().entries == []
        assert admin.get_audit_log("teams").result().entries == []


def ids(rest: tinker.RestClient, **wanted: Any) -> list[str]:
    """The sessions that a search finds, over pages of two."""
    request = types.SessionSearchRequest(limit=2, **wanted)
    found = []
    while True:
        page = rest.search_sessions(request).result()
        found += [session.session_id for session in page.sessions]
        if page.next_cursor is None:
            return found
        request = request.model_copy(update={"cursor": page.next_cursor})


@pytest.mark.filterwarnings("ignore:RestClient.search_sessions is experimental")
def test_sessions_are_found(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        rest = tinker.RestClient(base_url=server.url, api_key=KEY)
        made = []
        for i in range(5):
            sdk = tinker.ServiceClient(
                base_url=server.url,
                api_key=KEY,
                project_id="even" if i % 2 == 0 else None,
                user_metadata={"number": str(i)},
                display_name=f"Nightly run {i}",
            )
            client = sdk.create_lora_training_client(BASE, rank=2).result()
            client.save_state("a").result()
            made.append(client.holder.get_session_id())
            sdk.close("success" if i < 2 else "errored").result()
        newest = made[::-1]
        assert ids(rest) == ids(rest, owner=AccessibleSearchOwner()) == newest
        assert ids(rest, owner=UserSearchOwner(owner_urns=["tml:user:other"])) == []
        assert ids(rest, owner=UserSearchOwner(owner_urns=[USER])) == newest
        assert ids(rest, project_ids=["even"]) == [made[4], made[2], made[0]]
        assert ids(rest, user_metadata={"number": "3"}) == [made[3]]
        assert ids(rest, display_name="RUN night") == newest
        assert ids(rest, display_name="run 1", session_id=made[3]) == [made[3], made[1]]
        assert ids(rest, statuses=[ActiveSessionStatusQuery()]) == []
        assert ids(rest, statuses=[ClientFinishedSessionStatusQuery()]) == newest
        finished = ClientFinishedSessionStatusQuery(reasons=["success"])
        assert ids(rest, statuses=[finished]) == [made[1], made[0]]
        rest.assign_session_project(made[1], "even").result()
        assert ids(rest, project_ids=["even"]) == [made[4], made[2], made[1], made[0]]
        runs = rest.list_training_runs(project_id="even").result().training_runs
        assert f"{made[1]}:train:0" in [run.training_run_id for run in runs]
        one = types.SessionSearchRequest(session_id=made[0])
        (summary,) = rest.search_sessions(one).result().sessions
        (stored,) = rest.list_checkpoints(f"{made[0]}:train:0").result().checkpoints
        assert (summary.checkpoints_count, summary.checkpoint_storage_bytes) == (
            1,
            stored.size_bytes,
        )
        with pytest.raises(tinker.NotFoundError, match="There is no session nobody"):
            rest.assign_session_project("nobody", "even").result()


def test_a_session_is_exported_as_a_trace(
    sdk: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    step(client)
    with pytest.raises(tinker.RequestFailedError):
        client.forward(policy_data(), "dro").result()
    sampler = client.save_weights_and_get_sampling_client().result()
    for reply in [sampler.sample(prompt(), 1, sampling()) for _ in range(3)]:
        reply.result()
    with urlopen(rest.export_session_trace(client.holder.get_session_id()).result()) as answer:
        events = json.load(answer)["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["args"]["failed"]) for e in spans] == [
        ("create_model", False),
        ("forward_backward", False),
        ("optim_step", False),
        ("forward", True),
        ("save_weights_for_sampler", False),
        *[("sample", False)] * 3,
    ]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert {tracks[e["tid"]].split(":")[0] for e in spans[:5]} == {"train"}
    assert {tracks[e["tid"]].split(":")[0] for e in spans[5:]} == {"sample"}
    with pytest.raises(tinker.NotFoundError, match="There is no session nobody"):
        rest.export_session_trace("nobody").result()


def test_spans_on_one_track_do_not_overlap() -> None:
    spans = []
    for owner, start, end in [("s:a", 0, 4), ("s:a", 1, 2), ("s:a", 2, 3), ("s:b", 1, 5)]:
        spans.append(RequestSpan(owner, "x", start, end, False))
    events = json.loads(chrome_trace(spans, "s"))["traceEvents"]
    found = [(e["tid"], e["ts"] / 1e6, e["dur"] / 1e6) for e in events if e["ph"] == "X"]
    assert found == [(1, 0, 4), (2, 1, 1), (3, 1, 4), (2, 2, 1)]
    assert json.loads(chrome_trace(spans, "other"))["traceEvents"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "join_sampling_session"),
        ("POST", "retrieve_futures"),
        ("GET", "training_runs/run/checkpoints/weights/a/archive"),
        ("POST", "training_runs/run/checkpoints/weights/a/frame"),
    ],
)
def test_what_is_not_here_is_named(raw: Raw, method: str, path: str) -> None:
    assert raw.ask(method, path, {} if method == "POST" else None) == (
        404,
        {"detail": f"This server has no /api/v1/{path}."},
    )
