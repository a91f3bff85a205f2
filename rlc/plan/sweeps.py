"""Sweeps: which runs a recipe is tried with. They are no part of its plan, which is one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rlc.plan.expectations import Unit
from rlc.plan.parts import BudgetPlan, MetricPlan
from rlc.records import Record, frozen


@frozen
class RangePlan(Record):
    """Numbers that a search draws from, both ends included: evenly, or evenly by their logarithms.
    With a ``step`` only ``low``, ``low + step`` and so on; ``whole``: whole numbers."""

    scale: Literal["linear", "log"]
    low: float
    high: float
    step: float | None
    whole: bool


@frozen
class AxisPlan(Record):
    """What is varied: the path of a field or param, as ``--set`` takes it, and its values, as they
    are written; either a list of ``values`` or a ``range``."""

    path: str
    values: tuple[str, ...]
    range: RangePlan | None


@frozen
class SearchPlan(Record):
    """How configurations are chosen: each one (``n`` is None), or ``n`` that are drawn. With an
    ``eta`` only the best of each ``eta`` go on at 1, eta, eta² … times ``first`` steps. One that
    ``learns`` draws where the best were so far."""

    kind: str
    n: int | None
    eta: int | None = None
    first: int | None = None
    learns: bool = False


@frozen
class MeasurePlan(Record):
    """What trials are compared by: the ``metric`` of a ``stage``, which metrics.jsonl calls
    ``key``; ``name`` is how a recipe writes it. ``held_out``: no trial was trained on it."""

    name: str
    stage: str
    key: str
    more_is_better: bool
    held_out: bool


# A value of each axis, as it is written: ``{"learning_rate": "1e-5"}``.
Configuration = Mapping[str, str]


@frozen
class ClaimTerm(Record):
    """``factor`` times the metric of a configuration."""

    factor: float
    configuration: Configuration


@frozen
class ClaimPlan(Record):
    """What is claimed of a sweep: the sum of the ``terms``, seed by seed, has a mean that is
    ``above`` a ``limit``, or else below it; equal counts as both.

    ``level`` is the least confidence of a verdict; ``early``: runs that no claim needs any more are
    left out. ``among``: so many claims the recipe has. ``text``: as it is written. The limit is
    of ``unit``, like what the terms add up to.
    """

    name: str
    text: str
    terms: tuple[ClaimTerm, ...]
    above: bool
    limit: float
    level: float
    early: bool
    among: int
    unit: Unit


@frozen
class SweepPlan(Record):
    """One sweep: the stage ``of`` with what it needs, run with each configuration of the axes and
    each of ``seeds`` seeds. ``budget`` is for all of it."""

    name: str
    of: str
    axes: tuple[AxisPlan, ...]
    seeds: int
    metric: MeasurePlan
    search: SearchPlan
    budget: BudgetPlan
    claims: tuple[ClaimPlan, ...] = ()


@frozen
class Trial:
    """One run of a sweep: a configuration with a seed. ``number`` is that of its configuration,
    from 1."""

    number: int
    configuration: Configuration
    seed: int

    @property
    def id(self) -> str:
        """Return a hash of the configuration and the seed: trials with one id are the same run."""
        import hashlib
        import json  # every check reads these records, and only sweeps need it

        content = json.dumps([sorted(self.configuration.items()), self.seed])
        return hashlib.sha256(content.encode()).hexdigest()[:10]

    @property
    def settings(self) -> list[str]:
        """Return the configuration as values of ``--set``."""
        return [f"{path}={text}" for path, text in self.configuration.items()]

    @property
    def options(self) -> str:
        """Return the configuration as options of a command in a shell."""
        quoted = (text.replace("'", "'\\''") for text in self.settings)
        return " ".join(f"--set '{text}'" for text in quoted)


def values_text(configuration: Configuration) -> str:
    """Return ``learning_rate 1e-5, scheme grpo()``."""
    return ", ".join(f"{path} {text}" for path, text in configuration.items())


def metric_word(metric: MetricPlan) -> str:
    """Return the name of a metric in a recipe: ``pass_at_8``, ``mean_reward``."""
    return metric.name if metric.k is None else f"{metric.name}_{metric.k}"


def metric_label(metric: MetricPlan) -> str:
    """Return the name of a metric in metrics.jsonl: ``pass@8``, ``mean_reward``."""
    return metric.name if metric.k is None else f"{metric.name.replace('_at', '')}@{metric.k}"
