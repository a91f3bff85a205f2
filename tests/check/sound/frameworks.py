"""Never imported: `rlc check` reads it."""

from typing import Any

raise ImportError("a check imports nothing")


def load_environment(letter: str, turns: int = 2) -> object: ...


def action(reply: str) -> dict[str, str]:
    return {"message": reply}


def solve(run: Any) -> str:
    return str(run.task["prompt"])


def grade(reply: str, row: Any) -> float:
    return float(reply == row["prompt"])
