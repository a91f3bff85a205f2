"""The records of what ends a stage, and of what becomes of a failure in it."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from rlc.records import Record


@frozen(eq=False, repr=False, slots=False)
class FailurePlan(Record):
    """What happens to a rollout whose environment or sampling call fails: it is played again
    up to ``retries`` times, then dropped, or counted with the reward ``penalty``, or the run
    stops."""

    retries: int
    then: Literal["drop", "stop", "penalise"]
    penalty: float | None


@frozen(eq=False, repr=False, slots=False)
class GiveUpPlan(Record):
    """When a run is hopeless: in ``steps`` steps in a row at least ``share`` of the rollouts
    failed."""

    steps: int
    share: float


@frozen(eq=False, repr=False, slots=False)
class DeadlinesPlan(Record):
    """How long a stage waits, in seconds, before it ends with what it waited for.

    ``request``: for an answer of the service, while nothing else is answered. ``unreachable``: for
    a server that cannot be reached. ``step``: from one finished step to the next; None: for ever.
    """

    request: float
    unreachable: float
    step: float | None


@frozen(eq=False, repr=False, slots=False)
class KlGuardPlan(Record):
    """What happens once the trainer's logprobs are further from the sampler's than ``max``
    (nats a token, mean of d²/2)."""

    max: float
    then: Literal["warn", "synchronous", "stop"]


@frozen(eq=False, repr=False, slots=False)
class BudgetPlan(Record):
    """What a stage may use before it stops with a checkpoint; None: no limit."""

    usd: float | None
    tokens: int | None
    seconds: float | None
