"""What steps took: the time, tokens and dollars that a page can draw curves by instead of steps."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from rlc.report.run_files import RunFiles, TimeSpan

_MOST = 300  # of the steps whose values a page has; between them lie straight lines

Axes = dict[str, dict[str, list[float]]]  # of a stage: "step", and what it had taken by then


def axes_of(files: RunFiles) -> Axes:
    """Return for each stage that trains its steps, from 0, and what it had taken at their ends:
    the seconds in which it ran, tokens, and dollars where they are known and not nothing."""
    found: Axes = {}
    for stage in files.plan.trainings:
        done = sorted((s for s in files.steps if s.stage == stage.name), key=lambda s: s.step)
        spent = {s.step: s for s in files.spent if s.stage == stage.name}
        if not done:
            continue
        known = [spent.get(span.step) for span in done]
        tokens = [float(sum(one.tokens.values())) if one else 0.0 for one in known]
        dollars = [0.0 if one is None else one.usd for one in known]
        columns = {
            "step": [0.0, *(float(span.step) for span in done)],
            "time": [0.0, *_running(done)],
            "tokens": [0.0, *accumulate(tokens)],
        }
        if any(dollars) and None not in dollars:
            columns["dollars"] = [0.0, *accumulate(usd or 0.0 for usd in dollars)]
        most = len(done)
        kept = sorted({round(i * most / min(most, _MOST)) for i in range(min(most, _MOST) + 1)})
        found[stage.name] = {
            name: [round(values[i], 6) for i in kept] for name, values in columns.items()
        }
    return found


def _running(done: Iterable[TimeSpan]) -> Iterable[float]:
    """Yield the seconds, up to the end of each step, in which a step ran: pauses do not count, and
    what overlaps counts once."""
    covered, reached = 0.0, 0.0
    for span in done:
        covered += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
        yield covered
