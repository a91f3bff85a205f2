"""What sessions have used since the server started: tokens and checkpoints, by the hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from attrs import define, field, frozen
from tinker import types

from rlc.service.http.account.signing import USER

_HOUR = timedelta(hours=1)
_EVENTS: dict[str, Callable[[int], types.BillingEventInfo]] = {
    "training": lambda n: types.TrainingBillingEvent(token_count=n),
    "prefill": lambda n: types.SamplingPrefillBillingEvent(cached=False, token_count=n),
    "cached_prefill": lambda n: types.SamplingPrefillBillingEvent(cached=True, token_count=n),
    "sample": lambda n: types.SamplingSampleBillingEvent(token_count=n),
    "checkpoints": lambda n: types.CheckpointBillingEvent(count=n),
}


@frozen
class _Key:
    hour: datetime
    session_id: str
    base_model: str
    kind: str


@define(eq=False)
class Usage:
    """Counts what was really computed: a request that fails, or is repeated, adds nothing."""

    _counts: Counter[_Key] = field(factory=Counter, init=False)

    def add(self, owner: str, base_model: str, **counts: int) -> None:
        """Count for the session of ``owner``, a model or a sampler; the kinds are those above."""
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        for kind, count in counts.items():
            self._counts[_Key(hour, owner.split(":")[0], base_model, kind)] += count

    def between(
        self, start: datetime, end: datetime, projects: Mapping[str, str]
    ) -> list[types.BillingUsageEvent]:
        """The counts of some hours, by the hour and then the largest first. They cost nothing.

        ``projects`` are those of the sessions.
        """
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
