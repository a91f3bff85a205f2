"""What differs between runs: the values of their plans that are not the same in all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlc.catalog import plan_from_file
from rlc.plan import (
    PLAN_FILE,
    REHEARSAL,
    ComparedValue,
    PlanFormatError,
    differing_paths,
    plan_values,
    shown_value,
)
from rlc.runtime.journal.runs import RunInfo

_GIVEN = ("--set", "--seed", "--weights", "--service")  # origins of values set on the command line


def what_differs(runs: Sequence[RunInfo]) -> dict[Path, dict[str, str]]:
    """Return, by the folder of each run, the values of its plan that other runs of its recipe do
    not have, and those that were set on the command line, by dotted path. A run whose plan cannot
    be read has none."""
    found: dict[Path, dict[str, str]] = {run.path: {} for run in runs}
    for recipe in {run.recipe for run in runs}:
        values = {run.path: _values(run.path) for run in runs if run.recipe == recipe}
        read = [mine for mine in values.values() if mine]
        differing = differing_paths(read) if read else []
        for path, mine in values.items():
            given = [name for name, side in mine.items() if side.origin.startswith(_GIVEN)]
            rehearsal = any(side.origin == REHEARSAL for side in mine.values())
            found[path] = ({"rehearse": "true"} if rehearsal else {}) | {
                name: shown_value(name.rpartition(".")[2], mine[name].value)
                for name in dict.fromkeys([*given, *differing])
                if name in mine
            }
    return found


def _values(run: Path) -> Mapping[str, ComparedValue]:
    try:
        data = json.loads((run / PLAN_FILE).read_text(encoding="utf-8"))
        return plan_values(plan_from_file(data, run)[0])
    except (OSError, ValueError, PlanFormatError):
        return {}
