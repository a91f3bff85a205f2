"""The account of a stage: tokens are counted as responses arrive, and journalled."""

from __future__ import annotations

from collections import defaultdict

from attrs import asdict, define, evolve, field

from rlc.catalog import dollars, price_of
from rlc.plan import LOCAL, ModelPlan
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import Usage

PROBES = 0  # the step that is charged for the first checks


@define
class Meter:
    """Writes the usage of one stage's steps to the journal, each token once.

    ``running`` has the totals of the running steps, which others add to as responses arrive.
    Nothing is ever taken back: a step that fails, or is repeated after a crash, is charged too.
    """

    journal: Journal
    stage: str
    model: ModelPlan
    running: defaultdict[int, Usage] = field(factory=lambda: defaultdict(Usage), init=False)
    _written: dict[int, Usage] = field(factory=dict, init=False)

    def write(self) -> None:
        """Write how much the running totals have grown since the last call."""
        for step, usage in self.running.items():
            before = asdict(self._written.get(step, Usage()))
            self.add(step, Usage(**{kind: n - before[kind] for kind, n in asdict(usage).items()}))
            self._written[step] = evolve(usage)

    def finish(self, step: int) -> Usage:
        """Write all totals; return that of a step, which is no longer counted."""
        self.write()
        self._written.pop(step, None)
        return self.running.pop(step, Usage())

    def add(self, step: int, usage: Usage) -> None:
        """Write usage that is not part of a step's running total."""
        if any(asdict(usage).values()):
            self.journal.add_spend(self.stage, step, usage, cost(self.model, usage))


def cost(model: ModelPlan, usage: Usage) -> float | None:
    """Return the cost on the model's service in dollars; None if a price is unknown."""
    if model.service == LOCAL:
        return 0.0
    return None if price_of(model.base, model.service) is None else dollars(model.base, usage)
