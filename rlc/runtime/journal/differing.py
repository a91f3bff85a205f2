"""What differs between runs: the values of their plans that are not the same in all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlc.plan.paths import PLAN_FILE
from rlc.runtime.journal.runs import RunInfo


def what_differs(runs: Sequence[RunInfo]) -> dict[Path, dict[str, str]]:
    """Return, by the folder of each run, the values of its plan that other runs of its recipe do
    not have, by dotted path. A run whose plan cannot be read has none."""
    found: dict[Path, dict[str, str]] = {}
    for recipe in {run.recipe for run in runs}:
        values = {run.path: _values(run.path) for run in runs if run.recipe == recipe}
        read = [mine for mine in values.values() if mine]
        paths = dict.fromkeys(path for mine in read for path in mine)
        differing = [path for path in paths if len({mine.get(path) for mine in read}) > 1]
        for path, mine in values.items():
            found[path] = {name: mine[name] for name in differing if name in mine}
    return found


def _values(run: Path) -> dict[str, str]:
    try:
        plan = json.loads((run / PLAN_FILE).read_text(encoding="utf-8"))
        stages = {stage["name"]: stage for stage in plan["stages"]}
        return dict(_leaves({**stages, "seed": plan["seed"]}, ""))
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _leaves(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every value of plain data by its dotted path; the items of a list by their names, or else by
    their numbers."""
    if isinstance(node, dict):
        for name, child in node.items():
            yield from _leaves(child, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list):
        for number, child in enumerate(node):
            name = child.get("name", number) if isinstance(child, dict) else number
            yield from _leaves(child, f"{path}.{name}")
    else:
        yield path, f"{node:g}" if isinstance(node, float) else str(node)
