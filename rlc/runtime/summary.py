"""The summary of a run, which :func:`rlc.run` returns."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import fmean

from attrs import field, frozen

from rlc.plan import ExpectationResult
from rlc.runtime.journal.history import History, curve, history


@frozen
class StageSummary:
    """The result of a training stage.

    ``values`` has the value of its ``measure``, "reward" or "loss", for each finished step that has
    one. ``updates`` are the steps that changed the weights.
    """

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
        """Return the mean of the first or last steps (:func:`window_size`); None before the
        first."""
        return window_mean(self.values, last)


@frozen
class EvalSummary:
    """The metrics of an evaluation after a step of the stage that it evaluates."""

    name: str
    step: int
    metrics: dict[str, float]


@frozen
class Summary:
    """How a run ended, and what it achieved; :func:`rlc.run` and :func:`rlc.resume` return it.

    A notebook shows it as a table with curves.

    Attributes:
        folder: the folder of the run.
        state: ``"finished"``, ``"interrupted"``, ``"budget"``, or ``"nothing learnt"`` if no step
            of a stage changed its weights.
        stages: for each training stage its ``stage``, ``planned`` steps, those ``done`` and those
            with ``updates``, ``measure`` ("reward" or "loss"), ``values`` of the measure by step,
            ``seconds``, and last ``checkpoint``, which is called ``weights`` where a model can be
            named: ``runs/x@main:20``.
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
        """The expectations that do not hold."""
        return [one for one in self.expectations if one.holds is False]

    @property
    def weights(self) -> str | None:
        """What the last stage that was trained has left, as :func:`rlc.model` and `weights = "…"`
        take it; None if nothing was saved."""
        left = [stage.weights for stage in self.stages if stage.weights is not None]
        return left[-1] if left else None

    @property
    def history(self) -> History:
        """The metrics of each step and evaluation, as :func:`rlc.history` reads them."""
        return history(self.folder)

    def _repr_html_(self) -> str:
        return summary_html(self)


def window_size(count: int) -> int:
    """Return how many values the first and the last ones are of so many: five, or fewer, so that
    none is among both; 1 of a single one."""
    return max(1, min(5, count // 2))


def window_mean(values: Sequence[float], last: bool) -> float | None:
    """Return the mean of the first or last values (:func:`window_size`); None if there are none."""
    size = window_size(len(values))
    part = values[-size:] if last else values[:size]
    return fmean(part) if part else None


def window_label(count: int) -> str:
    """Say what the first and the last of so many values are."""
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
    spent = f", ${summary.spent_usd:.2f} spent" if summary.spent_usd else ""
    return (
        f"<div><b>{escape(summary.state)}</b>{spent}: <code>{escape(str(summary.folder))}</code>"
        f"{f'<p>{escape(summary.cause)}</p>' if summary.cause else ''}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"<ul>{evaluations}{expected}</ul></div>"
    )


def verdict(judged: ExpectationResult) -> str:
    """Say in a word whether an expectation passed."""
    return {True: "passed", False: "failed", None: "open"}[judged.holds]
