"""What a service says that it has billed."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen


@frozen
class BilledUsage:
    """Usage of one kind in one hour: tokens of ``prefill``, ``cached``, ``sampled`` or ``trained``,
    a number of ``checkpoints``, or gigabyte-hours of ``storage``; USD where they are known."""

    session: str | None
    model: str | None
    kind: str
    amount: float
    usd: float | None


@frozen
class AccountUsage:
    """The usage of an account: by the hour, the metadata of sessions by their ids, and until when
    amounts are those of invoices."""

    events: tuple[BilledUsage, ...]
    sessions: Mapping[str, Mapping[str, str]]
    invoiced_until: str | None = None


@frozen
class StoredCheckpoints:
    """The checkpoints that a service stores for an account, and USD a month; None if unknown."""

    count: int
    gigabytes: float
    usd_a_month: float | None
