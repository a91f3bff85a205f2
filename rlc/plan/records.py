"""The plan: every value decided, nothing left to a default.

An immutable tree of plain values. Where each value came from is kept beside the tree, in
``Plan.provenance``, keyed by the dotted path of the leaf (``stages.main.optimizer.beta1``),
so that moving a line in a recipe leaves the content hash alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlc.plan.stages import Evaluation, StagePlan, Training, is_evaluation, is_training
from rlc.records import Record, field, frozen

if TYPE_CHECKING:
    from rlc.plan.expectations import ExpectationPlan
    from rlc.plan.graph import Graph

SCHEMA_VERSION = 6
REHEARSAL = "--rehearse"  # the origin of what a rehearsal changes
RECOGNISED = ", which is this one"  # ends the origin of a loss that has the formula of its own
# Seconds for which Tinker keeps a checkpoint: between an hour and ten years.
SHORTEST_TTL, LONGEST_TTL = 3_600, 10 * 365 * 86_400


@frozen
class DataFile(Record):
    """The contents of a file that a plan names: bytes, and their BLAKE2b digest of 32 bytes."""

    path: str
    size: int
    digest: str


@frozen
class Plan(Record):
    """A whole job, with every value decided; :meth:`rlc.Recipe.plan` returns one.

    Attributes:
        recipe: the path of the recipe.
        seed: the seed of every random choice.
        stages: the records of the stages, in the order they run.
        graph: the job graph: nodes and edges of all stages.
        provenance: the origin of each value, by dotted path (``stages.main.steps``).
        schema_version: of its JSON; its hash leaves out ``recipe`` and ``provenance``.
        data: what is in the data files that the stages name; empty if they were not read.
        expectations: what the recipe says must hold before the run, or after it.
    """

    recipe: str
    seed: int
    stages: tuple[StagePlan, ...]
    graph: Graph
    provenance: dict[str, str] = field(factory=dict, eq=False)
    schema_version: int = SCHEMA_VERSION
    data: tuple[DataFile, ...] = ()
    expectations: tuple[ExpectationPlan, ...] = ()

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Return the stages that train, in their order."""
        return tuple(stage for stage in self.stages if is_training(stage))

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Return the evaluations, in their order."""
        return tuple(stage for stage in self.stages if is_evaluation(stage))

    @property
    def rehearses(self) -> bool:
        """Return whether it is a small version of a job, which need not learn anything."""
        return REHEARSAL in self.provenance.values()

    def _repr_html_(self) -> str:
        from html import escape  # for notebooks alone

        title = f"<b>{escape(self.recipe)}</b> &nbsp; plan with seed {self.seed}"
        rows = [("stage", "kind", "steps", "model", "service")]
        for stage in self.stages:
            steps = f"{stage.steps:,}" if stage.steps else ""
            model = f"{stage.model.base}, from {stage.after}" if stage.after else stage.model.base
            rows.append((stage.name, stage.kind, steps, model, stage.model.service))
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        table = f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        return f"<div>{title}{table}<code>rlc.explain(plan)</code> has its formulas and cost</div>"
