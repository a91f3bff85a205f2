"""What Tinker keeps of an account and `rlc serve` does not: usage, storage and an audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

from attrs import define, field, frozen
from pydantic import BaseModel, ValidationError
from tinker import types

from rlc.service.http import RefusedRequest
from rlc.service.server.backend import USER, Backend, Extension, Handlers
from rlc.service.server.runs import tinker_path

_LONGEST = timedelta(days=14)
_HOUR = timedelta(hours=1)
_GIGABYTE = 10**9
_EVENTS: dict[str, Callable[[int], types.BillingEventInfo]] = {
    "training": lambda n: types.TrainingBillingEvent(token_count=n),
    "prefill": lambda n: types.SamplingPrefillBillingEvent(cached=False, token_count=n),
    "cached_prefill": lambda n: types.SamplingPrefillBillingEvent(cached=True, token_count=n),
    "sample": lambda n: types.SamplingSampleBillingEvent(token_count=n),
    "checkpoints": lambda n: types.CheckpointBillingEvent(count=n),
}


class AuditQuery(BaseModel):
    """The query of ``audit``."""

    event_type: Literal["all", "checkpoints", "projects", "teams", "organizations"] = "all"
    day: date | None = None


def now() -> datetime:
    """The time of what is counted."""
    return datetime.now(UTC)


@frozen
class _Key:
    hour: datetime
    session_id: str
    base_model: str
    kind: str


@define(eq=False)
class Account(Extension):
    """Counts what was really computed, by the hour, and writes a line for each event to a file."""

    log: Path
    _counts: Counter[_Key] = field(factory=Counter, init=False)

    def handlers(self) -> Handlers:
        return {
            "GET": {
                "billing/usage/events": self.usage,
                "billing/usage/checkpoints/current": self.stored,
                "audit": self.audit,
            }
        }

    def used(self, owner: str, base_model: str, counts: Mapping[str, int]) -> None:
        hour = now().replace(minute=0, second=0, microsecond=0)
        for kind, count in counts.items():
            self._counts[_Key(hour, owner.split(":")[0], base_model, kind)] += count

    def happened(self, event: str, details: Mapping[str, object]) -> None:
        entry = types.AuditLogEntry(
            timestamp=datetime.now(UTC), event=event, event_details={"actor": USER, **details}
        )
        with self.log.open("a", encoding="utf-8") as lines:
            lines.write(entry.model_dump_json(exclude_none=True) + "\n")

    def usage(
        self, backend: Backend, query: types.GetBillingUsageRequest
    ) -> types.BillingUsageResponse:
        """The tokens of each hour and session since the server started; all of them are free."""
        start = _hour(query.starting_on, "starting_on")
        end = _hour(query.ending_before, "ending_before")
        if start > datetime.now(UTC):
            raise RefusedRequest(400, "starting_on is in the future.")
        if not start < end <= start + _LONGEST:
            raise RefusedRequest(400, "ending_before is after starting_on, and at most 14 days.")
        sessions = backend.sessions.all
        projects = {session_id: session.project_id for session_id, session in sessions.items()}
        events = self.between(start, end, projects)
        return types.BillingUsageResponse(
            data=events,
            sessions={
                session_id: types.BillingUsageSession(
                    user_metadata=sessions[session_id].metadata or None
                )
                for session_id in {event.session_id for event in events}
                if session_id in sessions
            },
        )

    def between(
        self, start: datetime, end: datetime, projects: Mapping[str, str]
    ) -> list[types.BillingUsageEvent]:
        """The counts of some hours, by the hour and then the largest first."""
        found = [(key, n) for key, n in self._counts.items() if n and start <= key.hour < end]
        return [
            types.BillingUsageEvent(
                bucket_start=key.hour,
                bucket_end=key.hour + _HOUR,
                base_model=key.base_model,
                user_id=USER,
                session_id=key.session_id,
                project_id=projects.get(key.session_id),
                estimated_cost_usd=None if key.kind == "checkpoints" else 0.0,
                effective_rate_usd_per_million_tokens=None if key.kind == "checkpoints" else 0.0,
                event_info=_EVENTS[key.kind](count),
            )
            for key, count in sorted(found, key=lambda pair: (pair[0].hour, -pair[1]))
        ]

    def stored(
        self, backend: Backend, query: types.GetCurrentCheckpointStorageUsageRequest
    ) -> types.CurrentCheckpointStorageUsageResponse:
        """How much the checkpoints of each project take now."""
        projects: dict[str, list[int]] = {}
        for item in backend.engine.store.list():
            project = backend.runs.run_of(tinker_path(item.path)).project_id
            projects.setdefault(project, []).append(item.size_bytes)
        return types.CurrentCheckpointStorageUsageResponse(
            effective_rate_usd_per_gigabyte_month=0.0,
            data=[
                types.CurrentCheckpointStorageUsageItem(
                    project_id=project,
                    org_user_urn=USER,
                    checkpoint_count=len(sizes),
                    size_bytes=sum(sizes),
                    size_gigabytes=sum(sizes) / _GIGABYTE,
                    estimated_monthly_cost_usd=0.0,
                )
                for project, sizes in sorted(projects.items())
                if query.project_id in (None, project)
            ],
        )

    def audit(self, _: Backend, query: AuditQuery) -> types.AuditLogResponse:
        """What happened on a day (UTC), today by default."""
        resource = None if query.event_type == "all" else query.event_type.removesuffix("s")
        day = query.day or datetime.now(UTC).date()
        return types.AuditLogResponse(entries=list(self.entries(day, resource)))

    def entries(self, day: date, resource: str | None) -> Iterator[types.AuditLogEntry]:
        """Yield the events of a day (UTC), of one resource or of all, in order."""
        if not self.log.exists():
            return
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = types.AuditLogEntry.model_validate(json.loads(line))
            except (ValueError, ValidationError):
                continue  # half written when a process was killed
            if entry.timestamp.astimezone(UTC).date() != day:
                continue
            if resource is None or entry.event.startswith(f"{resource}_"):
                yield entry


def _hour(moment: datetime, name: str) -> datetime:
    """A moment in UTC. Raise Refused if it is not the start of an hour, or not in this era."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if not 1970 <= moment.year < 9999:
        raise RefusedRequest(400, f"{name} is out of range.")
    moment = moment.astimezone(UTC)
    if (moment.minute, moment.second, moment.microsecond) != (0, 0, 0):
        raise RefusedRequest(400, f"{name} is the start of an hour, in UTC.")
    return moment
