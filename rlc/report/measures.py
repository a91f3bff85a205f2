"""What the stages of a run are watched by: rewards, losses, results of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import frozen

from rlc.catalog import STAGES
from rlc.plan import Evaluation, FromData, Rollouts, StagePlan, Table, Training
from rlc.report.charts.series import Series, series
from rlc.report.run_files import RunFiles
from rlc.runtime import Record, evaluation_results, measure, window_label, window_mean


@frozen
class Measure:
    """A metric of a stage, over its steps or evaluations. ``rises``: more is better."""

    stage: str
    kind: str
    name: str
    curve: Series
    rises: bool

    @property
    def title(self) -> str:
        """It in a page on which there are other stages."""
        return f"{self.stage}: {'reward, ' if self.kind == 'train' else ''}{self.name}"

    @property
    def first(self) -> float:
        """The mean of the first steps, or the first evaluation."""
        return self._end(last=False)

    @property
    def last(self) -> float:
        """The mean of the last steps, or the last evaluation."""
        return self._end(last=True)

    @property
    def label(self) -> str:
        """How many steps the first and the last ones are."""
        if self.kind != "eval":
            return window_label(len(self.curve.values))
        return "first evaluation → last" if len(self.curve.values) > 1 else "one evaluation"

    @property
    def best(self) -> tuple[float, int]:
        """The best value and its step; of equals the first."""
        sign = 1 if self.rises else -1
        pairs = zip(self.curve.values, self.curve.steps, strict=True)
        return max(pairs, key=lambda pair: (sign * pair[0], -pair[1]))

    def better(self, value: float, other: float) -> bool | None:
        """Whether a value is better than another; None if they are equal."""
        return None if value == other else (value > other) == self.rises

    def _end(self, last: bool) -> float:
        values = self.curve.values
        if self.kind == "eval":
            return values[-1 if last else 0]
        mean = window_mean(values, last)
        assert mean is not None, "a series has values"
        return mean


def _results(stage: Evaluation, records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(n for r in records for n in evaluation_results(r, stage.name)):
        yield name, f"eval/{stage.name}/{name}"


def _rewards(stage: Training, _: Sequence[Record]) -> Iterator[tuple[str, str]]:
    for env in stage.of(Rollouts).envs:
        yield env.name, f"reward/{env.name}"


def _measure(stage: Training, _: Sequence[Record]) -> Iterator[tuple[str, str]]:
    yield measure(stage).partition("/")[0], measure(stage)


# What a stage is watched by: names, and the metrics of its steps.
_WATCHED: Table[Callable[[Any, Sequence[Record]], Iterator[tuple[str, str]]]] = Table(
    {Rollouts: _rewards, FromData: _measure, Evaluation: _results}, by="source"
)


def measures(files: RunFiles, stage: StagePlan) -> Iterator[Measure]:
    """Yield what a stage is watched by, as far as it was measured."""
    records, kind = files.of_stage(stage.name), stage.kind
    for name, key in _WATCHED[stage](stage, records):
        if (curve := series(name, records, key)) is not None:
            yield Measure(stage.name, kind, name, curve, STAGES[kind].rises)
