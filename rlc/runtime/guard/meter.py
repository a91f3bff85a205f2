"""The account of a stage: tokens counted as responses come in, written down as they are due."""

from __future__ import annotations

from attrs import asdict, define, evolve, field

from rlc.catalog.facts.prices import dollars, price_of
from rlc.plan.records import LOCAL, ModelPlan
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import Usage

PROBES = 0  # the step that the cost of the first checks is booked under


@define
class Meter:
    """Writes the usage of one stage's steps to the journal, each token once.

    What is written is never taken back: a step that fails, or is run again after a crash, is
    billed all the same.
    """

    journal: Journal
    stage: str
    model: ModelPlan
    _written: dict[int, Usage] = field(factory=dict, init=False)

    def record(self, step: int, usage: Usage) -> None:
        """Write what ``usage``, the running account of a step, has more than when it was last
        recorded."""
        before = asdict(self._written.get(step, Usage()))
        self.add(step, Usage(**{kind: n - before[kind] for kind, n in asdict(usage).items()}))
        self._written[step] = evolve(usage)

    def add(self, step: int, usage: Usage) -> None:
        """Write what was used once, beside a step's running account."""
        if any(asdict(usage).values()):
            self.journal.add_spend(self.stage, step, usage, cost(self.model, usage))


def cost(model: ModelPlan, usage: Usage) -> float | None:
    """Dollars on the model's service; None where a price that it needs is unknown."""
    if model.service == LOCAL:
        return 0.0
    return None if price_of(model.base, model.service) is None else dollars(model.base, usage)
