"""The metrics of a run by stage and step, as Python has them: :func:`rlc.history`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from rlc.errors import Error
from rlc.plan import JOURNAL_FILE, PLAN_FILE
from rlc.runtime.journal.folder import no_run
from rlc.runtime.journal.metrics import METRICS_FILE

if TYPE_CHECKING:
    from pandas import DataFrame

Record = dict[str, Any]
_WIDTH, _HEIGHT = 240, 32  # of a curve, in pixels


class UnknownStageError(Error, KeyError):
    """A stage of which a run has no metrics."""


@frozen(eq=False, repr=False)
class History(Mapping[str, dict[str, list[Any]]]):
    """The metrics of a run as columns: ``history["main"]["reward/mean"]``.

    A mapping from the name of each stage, or evaluation, to its columns by the names of the
    metrics. The first column is ``step``; the others have a value for each of its steps, None where
    a metric is not defined. A notebook shows a table with curves.

    Attributes:
        folder: the folder of the run.
        records: the metrics of each step and evaluation, in the order they were made.
    """

    folder: Path
    records: tuple[Record, ...]

    def __getitem__(self, stage: str) -> dict[str, list[Any]]:
        rows = [record for record in self.records if record["stage"] == stage]
        if not rows:
            known = f"it has those of {', '.join(self)}" if self else "no step of it is done yet"
            raise UnknownStageError(f"{self.folder} has no metrics of `{stage}`", known)
        rows.sort(key=lambda record: int(record["step"]))
        names = dict.fromkeys(["step", *(name for row in rows for name in row if name != "stage")])
        return {name: [row.get(name) for row in rows] for name in names}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(record["stage"] for record in self.records))

    def __len__(self) -> int:
        return len(set(self))

    def frame(self, stage: str) -> DataFrame:
        """Return the columns of a stage as a ``pandas.DataFrame``, with the steps as its index and
        NaN where a metric is not defined.

        Raise rlc.Error if there are none of the stage, or pandas is not installed.
        """
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


def read_metrics(path: Path) -> list[Record]:
    """Return the metrics in a run folder: a record for each step and evaluation."""
    return [r for r in read_lines(path / METRICS_FILE) if "stage" in r and "step" in r]


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the objects of a file of JSON lines, if it exists, except those that are damaged."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if (record := parse_line(line)) is not None:
                yield record


def parse_line(line: str) -> Record | None:
    """Return the object on a line, or None if a crash or an editor damaged it."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def is_number(value: object) -> bool:
    """Return whether a value is a finite number, so that it can be drawn."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(float(value))  # type: ignore[arg-type]


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
