"""Sources of `problems()`, with the defaults of the language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rlc.data.errors import FilePlace
from rlc.data.rows import DataRow
from rlc.envs.problems import ProblemSource
from rlc.plan.environments import GraderPlan

ARGS = {
    "split": "train",
    "question": "question",
    "answer": "answer",
    "shuffle": False,
    "samples": None,
    "few_shot": None,
    "suffix": "",
    "format_coef": 0.1,
}


def jsonl(folder: Path, rows: Sequence[Any], name: str = "rows.jsonl") -> str:
    """The path of a file with these rows."""
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(folder / name)


def grader(name: str = "numeric", weight: float = 1.0, **args: Any) -> GraderPlan:
    """A grader that compares answers, or with ``function`` one of the user's own, of that name."""
    if "function" in args:
        return GraderPlan(name, weight, "grade_with", {"weights": {}, **args})
    return GraderPlan("correct", weight, name, args)


def problem_source(data: str, args: Mapping[str, Any] = MappingProxyType({})) -> ProblemSource:
    """The source of these rows, with `grader = numeric` or another one, and its `pattern`."""
    own = dict(args)
    name = own.pop("grader", "numeric")
    inner = {"pattern": own.pop("pattern")} if "pattern" in own else {}
    return ProblemSource(data, ARGS | own, [grader(name, **inner)])


def data_row(**fields: Any) -> DataRow:
    return DataRow(fields, FilePlace("rows.jsonl", 3, 3))
