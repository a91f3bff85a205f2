"""What a service has billed: hourly buckets of usage by session, and checkpoints that it stores.

Tinker's SDK has this from 0.36 on, for keys with a role in billing. Amounts are gross, before
credits, and lag by hours; those of a day that is not over are by list price.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import tinker
from tinker import types

from rlc.service.hosted.endpoint import Endpoint, find_endpoint
from rlc.service.hosted.sdk import open_rest
from rlc.service.hosted.service import answer_of, require_reachable, status_of
from rlc.service.interface import ServiceError
from rlc.service.usage import AccountUsage, BilledUsage, StoredCheckpoints

_LONGEST = timedelta(days=14)  # of the window of one request


def account_usage(
    service: str, base_url: str | None, start: float, end: float
) -> tuple[AccountUsage, StoredCheckpoints]:
    """Return what was billed between two times (seconds since the epoch), and what is stored now;
    blocks. Raise ServiceError if the service cannot say it, or does not let this key know."""
    endpoint = find_endpoint(base_url, service=service)
    if endpoint.provider.module is not None:
        raise ServiceError(f"{endpoint.name} does not say what it has billed")
    require_reachable(endpoint)

    def ask() -> tuple[AccountUsage, StoredCheckpoints]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # older SDKs have no client of its own
            client = _client(endpoint)
            answers = [client.get_billing_usage(*one).result() for one in windows(start, end)]
            return usage_of(answers), _stored(
                client.get_current_checkpoint_storage_usage().result()
            )

    try:
        return answer_of(ask, endpoint, "said what it has billed", "try again later")
    except ServiceError as error:
        if status_of(error) in (403, 404, 405):
            raise ServiceError(
                f"{endpoint.name} does not say what it has billed: {error.message}",
                "Tinker says it to keys of administrators and of billing administrators",
            ) from error
        raise


def _client(endpoint: Endpoint) -> Any:
    at: Any = {"base_url": endpoint.client_url, "api_key": endpoint.api_key}
    if hasattr(tinker, "AdminClient"):
        return tinker.AdminClient(**at)
    rest = open_rest(endpoint)
    if not hasattr(rest, "get_billing_usage"):
        what = f"tinker {tinker.__version__} cannot ask what was billed"
        raise ServiceError(what, "pip install -U tinker")
    return rest


def windows(start: float, end: float) -> Iterator[tuple[datetime, datetime]]:
    """Yield the windows, in whole hours, that cover a time."""
    hour = timedelta(hours=1)
    at = datetime.fromtimestamp(start, UTC).replace(minute=0, second=0, microsecond=0)
    last = datetime.fromtimestamp(end, UTC).replace(minute=0, second=0, microsecond=0) + hour
    while at < last:
        yield at, min(at + _LONGEST, last)
        at += _LONGEST


def usage_of(answers: Iterable[types.BillingUsageResponse]) -> AccountUsage:
    """Return the usage in answers of the API."""
    events, sessions, until = list[BilledUsage](), dict[str, Mapping[str, str]](), None
    for answer in answers:
        for event in answer.data:
            kind, amount = _kind_and_amount(event.event_info)
            own = event.session_id, event.base_model, kind, amount, event.estimated_cost_usd
            events.append(BilledUsage(*own))
        sessions |= {name: one.user_metadata or {} for name, one in answer.sessions.items()}
        until = answer.cost_data_through or until
    return AccountUsage(tuple(events), sessions, None if until is None else until.isoformat())


def usage_in_file(data: Any) -> AccountUsage:
    """Return the usage in an answer of the API that was saved as JSON, or a list of them. Raise
    ServiceError if it is something else."""
    answers: Sequence[Any] = data if isinstance(data, list) else [data]
    try:
        return usage_of(types.BillingUsageResponse.model_validate(one) for one in answers)
    except ValueError as error:
        raise ServiceError(
            f"this is no answer about usage: {str(error).splitlines()[0]}",
            "`tinker --format json billing usage START END` prints one",
        ) from error


def _kind_and_amount(info: Any) -> tuple[str, float]:
    match info.type:
        case "training":
            return "trained", info.token_count
        case "sampling_prefill":
            return "cached" if info.cached else "prefill", info.token_count
        case "sampling_sample":
            return "sampled", info.token_count
        case "storage":
            return "storage", info.gigabyte_hours
    return "checkpoints", info.count


def _stored(answer: types.CurrentCheckpointStorageUsageResponse) -> StoredCheckpoints:
    costs = [one.estimated_monthly_cost_usd for one in answer.data]
    known = [one for one in costs if one is not None]
    return StoredCheckpoints(
        sum(one.checkpoint_count for one in answer.data),
        sum(one.size_gigabytes for one in answer.data),
        sum(known) if len(known) == len(costs) else None,
    )


def session_link(session: str) -> str | None:
    """Return the page of a session in Tinker's console; None if the SDK knows of none."""
    try:
        from tinker.lib.console_urls import session_console_url
    except ImportError:
        return None
    return session_console_url(session)
