"""Arguments of `problems()`, with the defaults of the language."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ARGS = {
    "split": "train",
    "question": "question",
    "answer": "answer",
    "grader": "numeric",
    "grade_with": None,
    "pattern": None,
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
