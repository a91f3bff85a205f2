"""What a run reports: to an observer while it goes on, as a history of metrics, in its summary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from html import escape
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rlc.errors import Error
from rlc.plan import (
    JOURNAL_FILE,
    PLAN_FILE,
    Evaluation,
    ExpectationResult,
    Plan,
    Training,
    in_dollars,
)
from rlc.runtime.journal.folder import no_run
from rlc.runtime.journal.metrics import Record, is_number, read_metrics

if TYPE_CHECKING:
    from pandas import DataFrame

    from rlc.runtime.records import Rollout, TrainedSample


class Observer:
    """Base class whose methods do nothing: override those of interest.

    They are called on the thread of the run and must return quickly.
    """

    def started(self, plan: Plan, folder: Path) -> None:
        """The run has begun, or has been resumed."""

    def stage_started(self, stage: Training, done: int, values: Sequence[float]) -> None:
        """A stage begins; ``done`` of its steps were run before a resume, with these values."""

    def waiting(self, what: str) -> None:
        """The run waits for something; no more if empty, or if a step or evaluation is done."""

    def progress(self, done: int, planned: int) -> None:
        """So many groups of the running step have been played."""

    def played(self, members: Sequence[Rollout]) -> None:
        """These members of a group have played a task in a step or an evaluation."""

    def learnt(self, lesson: TrainedSample) -> None:
        """A step of a stage that learns from data is done, from this row among others."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step of the stage that started last is done and journalled."""

    def evaluated(self, plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> None:
        """An evaluation is done and journalled."""

    def note(self, text: str) -> None:
        """Something worth a line of its own happened."""

    def warning(self, text: str) -> None:
        """Something unexpected happened; a note, unless this is overridden."""
        self.note(text)

    def close(self) -> None:
        """The run is over."""


_WIDTH, _HEIGHT = 240, 32  # of a curve, in pixels


class UnknownStageError(Error, KeyError):
    """A stage of which a run has no metrics."""


class UnknownMetricError(Error, KeyError):
    """A metric that a stage has not."""


class Columns(dict[str, list[Any]]):
    """The metrics of a stage by name, each with a value for each step."""

    def __missing__(self, name: str) -> list[Any]:
        near = get_close_matches(name, self, 3)
        known = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(self)}"
        raise UnknownMetricError(f"no step has the metric `{name}`", known)


@frozen(eq=False, repr=False)
class History(Mapping[str, Columns]):
    """The metrics of a run as columns: ``history["main"]["reward/mean"]``.

    A mapping from the name of each stage, or evaluation, to its columns by the names of the
    metrics: first ``step``, then a value for each of its steps, None where a metric is not defined.
    A notebook shows a table with curves.

    Attributes:
        folder: the folder of the run.
        records: the metrics of each step and evaluation, in the order they were made.
    """

    folder: Path
    records: tuple[Record, ...]

    def __getitem__(self, stage: str) -> Columns:
        rows = [record for record in self.records if record["stage"] == stage]
        if not rows:
            known = f"it has those of {', '.join(self)}" if self else "no step of it is done yet"
            raise UnknownStageError(f"{self.folder} has no metrics of `{stage}`", known)
        rows.sort(key=lambda record: int(record["step"]))
        names = dict.fromkeys(["step", *(name for row in rows for name in row if name != "stage")])
        return Columns({name: [row.get(name) for row in rows] for name in names})

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(record["stage"] for record in self.records))

    def __len__(self) -> int:
        return len(set(self))

    def frame(self, stage: str) -> DataFrame:
        """Return the columns of a stage as a ``pandas.DataFrame``, with the steps as its index and
        NaN where a metric is not defined. Raise rlc.Error if there are none, or no pandas."""
        columns = self[stage]
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise Error("a DataFrame needs pandas", "pip install pandas") from error
        return DataFrame(columns).set_index("step")

    def __repr__(self) -> str:
        counts = (f"{len(columns['step']):,} of {stage}" for stage, columns in self.items())
        return f"<steps in {self.folder}: {', '.join(counts) or 'none yet'}>"

    def _repr_html_(self) -> str:
        parts = [_table(stage, columns) for stage, columns in self.items()]
        return f"<div>{''.join(parts) or escape(repr(self))}</div>"


def history(run_dir: str | os.PathLike[str]) -> History:
    """Return the metrics of a run, which may still be going on; nothing is run or changed.

    Args:
        run_dir: the folder of the run.

    Raises:
        rlc.Error: the folder holds no run.

    Example::

        history = rlc.history("runs/quickstart-20261121-101500")
        print(history["main"]["step"], history["main"]["reward/mean"])
        history.frame("main")["reward/mean"].plot()  # with pandas and matplotlib
    """
    folder = Path(run_dir)
    if not any((folder / name).is_file() for name in (PLAN_FILE, JOURNAL_FILE)):
        raise no_run(folder)
    return History(folder, tuple(read_metrics(folder)))


def curve(values: Sequence[float]) -> str:
    """Return a line through the finite values as SVG; empty for fewer than two of them."""
    values = [value for value in values if is_number(value)]
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    scale = (_HEIGHT - 2) / (high - low) if high > low else 0.0
    points = " ".join(
        f"{index * _WIDTH / (len(values) - 1):.1f},{_HEIGHT - 1 - (value - low) * scale:.1f}"
        for index, value in enumerate(values)
    )
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="from {values[0]:.3f} to '
        f'{values[-1]:.3f}"><polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
    )


def _table(stage: str, columns: Mapping[str, Sequence[Any]]) -> str:
    """Return the numbers of a stage, a row a metric, as HTML without scripts or styles."""
    rows = []
    for name, values in columns.items():
        numbers = [value for value in values if is_number(value)]
        if numbers and name != "step":
            ends = f"<td>{numbers[0]:,.4g}</td><td>{numbers[-1]:,.4g}</td>"
            rows.append(f"<tr><th>{escape(name)}</th>{ends}<td>{curve(numbers)}</td></tr>")
    steps = columns["step"]
    title = f"<summary>{escape(stage)}: steps {steps[0]:,} to {steps[-1]:,}</summary>"
    head = "<tr><th>metric</th><th>first</th><th>last</th><th></th></tr>"
    return (
        f"<details open>{title}<table><thead>{head}</thead>"
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


@frozen
class StageSummary:
    """The result of a training stage: ``values`` by step of the ``measure`` that it is about;
    ``updates`` is the number of steps that changed the weights."""

    stage: str
    planned: int
    done: int
    updates: int
    measure: str
    values: list[float] = field(repr=False)
    seconds: float
    checkpoint: str | None
    weights: str | None

    def window(self, last: bool) -> float | None:
        """Return the mean of the first or last steps (:func:`window_size`), None without any."""
        return window_mean(self.values, last)


@frozen
class EvalSummary:
    """The metrics of an evaluation after a step of the stage that it evaluates."""

    name: str
    step: int
    metrics: dict[str, float]


@frozen
class Summary:
    """The end of a run and its results; :func:`rlc.run` and :func:`rlc.resume` return it. A
    notebook shows it as a table with curves.

    Attributes:
        folder: the folder of the run.
        state: ``"finished"``, ``"interrupted"``, ``"budget"``, or ``"nothing learnt"`` if no step
            of a stage changed its weights.
        stages: for each training stage its ``stage``, ``planned`` steps, those ``done`` and those
            with ``updates``, the ``measure`` that it is about ("reward", "teacher kl"), ``values``
            of that by step, ``seconds``, and last ``checkpoint``, which is called ``weights`` where
            a model can be named: ``runs/x@main:20``.
        evaluations: for each evaluation its ``name``, the ``step`` it came after, and ``metrics``.
        spent_usd: what the run has cost, 0 if that is unknown or nothing.
        cause: why it ended before the end of its plan, or in vain; empty if it did not.
        expectations: what the recipe expects of the run, each with its ``text``, whether it
            ``holds`` (None: not known yet), and the numbers ``found`` and ``expected``.
    """

    folder: Path
    state: str
    stages: list[StageSummary]
    evaluations: list[EvalSummary]
    spent_usd: float
    cause: str = ""
    expectations: tuple[ExpectationResult, ...] = ()

    @property
    def unmet(self) -> list[ExpectationResult]:
        return [one for one in self.expectations if one.holds is False]

    @property
    def weights(self) -> str | None:
        """The weights that the last training stage has left, as :func:`rlc.model` and
        `weights = "…"` take them; None if nothing was saved."""
        left = [stage.weights for stage in self.stages if stage.weights is not None]
        return left[-1] if left else None

    @property
    def history(self) -> History:
        """The metrics of each step and evaluation, as :func:`rlc.history` reads them."""
        return history(self.folder)

    def _repr_html_(self) -> str:
        return summary_html(self)


def window_size(count: int) -> int:
    """Return the number of first, and of last, values: at most five, and none in both."""
    return max(1, min(5, count // 2))


def window_mean(values: Sequence[float], last: bool) -> float | None:
    """Return the mean of the first or last values (:func:`window_size`); None if there are none."""
    size = window_size(len(values))
    part = values[-size:] if last else values[:size]
    return fmean(part) if part else None


def window_label(count: int) -> str:
    """Return a label for the first and the last of so many values."""
    if count < 2:
        return "one step"
    size = window_size(count)
    number = {1: "", 2: "two ", 3: "three ", 4: "four ", 5: "five "}[size]
    return f"first {number}step{'s' * (size > 1)} → last {number}".rstrip()


def summary_html(summary: Summary) -> str:
    """Return HTML without scripts or styles of its own."""
    titles = ("stage", "steps", "measure", "first steps", "last steps", "", "checkpoint")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = []
    for stage in summary.stages:
        first, last = stage.window(last=False), stage.window(last=True)
        cells = (
            escape(stage.stage),
            f"{stage.done:,} of {stage.planned:,}",
            escape(stage.measure),
            "" if first is None else f"{first:.3f}",
            "" if last is None else f"{last:.3f}",
            curve(stage.values),
            escape(stage.weights or ""),
        )
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    evaluations = "".join(
        f"<li>{escape(result.name)} after step {result.step:,}: "
        f"{escape(', '.join(f'{name} {value:.3f}' for name, value in result.metrics.items()))}</li>"
        for result in summary.evaluations
    )
    expected = "".join(
        f"<li>{escape(verdict(one))} <code>{escape(one.text)}</code>: {escape(one.said)}</li>"
        for one in summary.expectations
    )
    spent = f", {in_dollars(summary.spent_usd)} spent" if summary.spent_usd else ""
    return (
        f"<div><b>{escape(summary.state)}</b>{spent}: <code>{escape(str(summary.folder))}</code>"
        f"{f'<p>{escape(summary.cause)}</p>' if summary.cause else ''}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"<ul>{evaluations}{expected}</ul></div>"
    )


def verdict(judged: ExpectationResult) -> str:
    """Return in a word whether an expectation passed."""
    return {True: "passed", False: "failed", None: "open"}[judged.holds]
