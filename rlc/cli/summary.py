"""The end of `rlc run`: results, warnings, and the commands that come next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rlc.cli.live.lines import sparkline
from rlc.cli.output import visible
from rlc.plan import OUTCOMES, elapsed, in_dollars
from rlc.report import read_files
from rlc.report.findings import findings
from rlc.report.measures import distinct, measures
from rlc.runtime import (
    COMPARISONS_FILE,
    NOTHING_LEARNT,
    ROLLOUTS_FILE,
    command,
    evaluation_results,
    read_failures,
    verdict,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rlc.report.measures import Measure
    from rlc.runtime import RunInfo, StageInfo, StageSummary, Summary

_CAUSES = 3  # distinct causes of failures that are listed
_LABEL = 13  # columns of the labels on the left
_KEPT = "\N{NULL}"  # stands for a blank where a line is not broken
_TRACEBACK = 12  # last lines of the first traceback that are shown


def print_summary(console: Console, summary: Summary) -> None:
    """Print the results, the findings and the next commands, wrapped at words in a terminal."""
    for line in "\n".join(map(visible, _lines(summary))).split("\n"):
        for part in _wrapped(line, console.width) if console.is_terminal else [line]:
            console.print(part, highlight=False, markup=False, soft_wrap=True)


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line in indented parts. The text before a wide gap, a command, stays whole."""
    from textwrap import wrap

    if not line.startswith("  "):
        return wrap(line, width) or [""]
    label, text = line[:_LABEL], line[_LABEL:]
    whole, gap, rest = text.partition("   ")
    if gap:
        text = whole.replace(" ", _KEPT) + gap + rest
    room = max(1, width - _LABEL)
    parts = wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    below = (" " * _LABEL + part for part in parts[1:])
    return [part.replace(_KEPT, " ") for part in (label + parts[0], *below)]


def _lines(summary: Summary) -> Iterator[str]:
    files = read_files(summary.folder)
    plans = {stage.name: stage for stage in files.plan.trainings}
    for stage in summary.stages:
        yield from _stage(stage, distinct(measures(files, plans[stage.stage])))
    for number, evaluation in enumerate(summary.evaluations):
        found = {k: v for k, v in evaluation.metrics.items() if k.split("/")[-1] not in OUTCOMES}
        results = "   ".join(f"{name} {value:.3f}" for name, value in found.items())
        yield "\n" * (number == 0) + f"{evaluation.name} after step {evaluation.step}: {results}"
    for number, one in enumerate(summary.expectations):
        label = "" if number else "expected"
        yield f"  {label:<10} {verdict(one)}: {one.text}   ({one.said})"
    yield f"  run folder {summary.folder}   (metrics.jsonl, rollouts.jsonl, plan.json)"
    if summary.spent_usd:
        yield f"  spent      {in_dollars(summary.spent_usd)}"
    failures = read_failures(summary.folder)
    for number, failure in enumerate(failures[:_CAUSES]):
        yield f"  {'' if number else 'failures':<10} {failure}"
    if (more := len(failures) - _CAUSES) > 0:
        yield f"             and {more:,} more causes"
    if failures and failures[0].place:
        lines = failures[0].traceback.rstrip().splitlines()
        if len(lines) > _TRACEBACK:
            yield "             …"
        yield from (f"             {line}" for line in lines[-_TRACEBACK:])
    for finding in findings(files):
        code, advice = finding.code and f" {finding.code}", finding.advice and f": {finding.advice}"
        yield f"  warning{code}   {finding.text}{advice}"
    if summary.state == "budget":
        yield "  stopped at the budget, with a checkpoint (`--weights` begins another run from it)"
    elif summary.state == NOTHING_LEARNT:
        yield f"\nnothing was learnt: {summary.cause}"
    yield from _next(summary)


def _stage(stage: StageSummary, measured: Sequence[Measure]) -> Iterator[str]:
    steps = f"{stage.done} of {stage.planned} steps in {elapsed(stage.seconds)}"
    if stage.updates < stage.done:
        steps += f", {stage.updates or 'none'} of them with an update"
    yield f"\n{stage.stage}: {steps}"
    width = max([10, *(len(one.name) for one in measured)])
    for number, one in enumerate(measured):
        several = len(one.curve.values) > 1
        change = f"{one.first:.3f} → {one.last:.3f}" if several else f"{one.first:.3f}"
        yield f"  {one.name:<{width}} {change}" + f"   ({one.label})" * (number == 0)
        if several and number == 0:
            yield f"  {'':{width}} {sparkline(one.curve.values)}"
    if stage.checkpoint:
        unchanged = "" if stage.updates else "   (the weights that it began with)"
        hosted = "" if stage.checkpoint.startswith("local://") else f"   ({stage.checkpoint})"
        yield f"  checkpoint {stage.weights}{hosted}{unchanged}"


def _next(summary: Summary) -> Iterator[str]:
    """Yield the commands that come next, as a shell takes them."""
    resumable = summary.state == "interrupted"  # at its budget it would stop again
    trained = summary.weights and summary.state != NOTHING_LEARNT
    readable = {
        summary.folder / ROLLOUTS_FILE: "prints episodes, with their rewards and advantages",
        summary.folder / COMPARISONS_FILE: "prints replies that were compared, with their rewards",
    }
    written = (what for file, what in readable.items() if file.is_file() and file.stat().st_size)
    known = {
        "run --resume": "goes on where it stopped" if resumable else "",
        "show": next(written, ""),
        "report": "writes a page with curves, costs and episodes",
        "chat": "talks to what was trained" if trained else "",
        "export": "takes it away as an adapter" if trained else "",
    }
    verbs = [verb for verb, what in known.items() if what]
    shown = [command(verb, summary.folder) + " -o DIR" * (verb == "export") for verb in verbs]
    width = max(map(len, shown))
    for number, (text, what) in enumerate(zip(shown, filter(None, known.values()), strict=True)):
        yield f"  {'' if number else 'next':<10} {text:<{width}}   {what}"


def last_results(info: RunInfo) -> str:
    """Return a line for each stage with the results of its last step."""
    return "\n".join(", ".join(f"{name} {v:.3f}" for name, v in _results(s)) for s in info.stages)


def _results(stage: StageInfo) -> list[tuple[str, float]]:
    if not stage.watched:
        found = evaluation_results(stage.metrics, stage.name)
        return [(name, value) for name, value in found.items() if "/" not in name]
    several = {one.key: one.parts for one in stage.watched if len(one.parts) > 1}
    shown = [part for one in stage.watched for part in several.get(one.key, (one,))]
    return [(o.of or o.label, stage.metrics[o.key]) for o in shown if o.key in stage.metrics]
