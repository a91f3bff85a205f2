"""How a run went: what :func:`rlc.run` returns."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from attrs import field, frozen

_WIDTH, _HEIGHT = 240, 32  # of a curve, in pixels


@frozen
class StageSummary:
    """How a stage went. ``values`` has its measure, "reward" or "loss", of each finished step."""

    stage: str
    planned: int
    measure: str
    values: list[float] = field(repr=False)
    seconds: float
    checkpoint: str | None

    def window(self, last: bool) -> float | None:
        """Mean of the first or last five steps; None before the first step."""
        part = self.values[-5:] if last else self.values[:5]
        return sum(part) / len(part) if part else None


@frozen
class EvalSummary:
    """What an evaluation gave after a step of the stage that it evaluates."""

    name: str
    step: int
    metrics: dict[str, float]


@frozen
class Summary:
    """How a run ended: ``finished``, ``interrupted`` or ``budget``."""

    folder: Path
    state: str
    stages: list[StageSummary]
    evaluations: list[EvalSummary]
    spent_usd: float

    def _repr_html_(self) -> str:
        return summary_html(self)


def summary_html(summary: Summary) -> str:
    """HTML without scripts or styles of its own."""
    titles = ("stage", "steps", "measure", "first five", "last five", "", "checkpoint")
    head = "".join(f"<th>{title}</th>" for title in titles)
    stages = "".join(map(_stage, summary.stages))
    evaluations = "".join(
        f"<li>{escape(result.name)} after step {result.step:,}: "
        f"{escape(', '.join(f'{name} {value:.3f}' for name, value in result.metrics.items()))}</li>"
        for result in summary.evaluations
    )
    spent = f", ${summary.spent_usd:.2f} spent" if summary.spent_usd else ""
    return (
        f"<div><b>{escape(summary.state)}</b>{spent}: <code>{escape(str(summary.folder))}</code>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{stages}</tbody></table>"
        f"<ul>{evaluations}</ul></div>"
    )


def _stage(stage: StageSummary) -> str:
    first, last = stage.window(last=False), stage.window(last=True)
    cells = [
        escape(stage.stage),
        f"{len(stage.values):,} of {stage.planned:,}",
        escape(stage.measure),
        "" if first is None else f"{first:.3f}",
        "" if last is None else f"{last:.3f}",
        curve(stage.values),
        escape(stage.checkpoint or ""),
    ]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def curve(values: Sequence[float]) -> str:
    """A line through the values as SVG; nothing for fewer than two."""
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
