"""Golden files: what is expected, as text. A test that fails shows how the text differs."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path

import pytest
from paths import ROOT

UPDATE = "RLC_UPDATE_GOLDEN=1 .venv/bin/pytest"
_MOST_LINES = 200  # of a difference


def check_golden(path: Path, text: str) -> None:
    """Fail unless the file ``path`` holds exactly ``text``; write it with RLC_UPDATE_GOLDEN=1."""
    if os.environ.get("RLC_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    check_file(path, text, f"{UPDATE} {test}".rstrip())


def check_file(path: Path, text: str, command: str) -> None:
    """Fail unless the file ``path``, which ``command`` writes anew, holds exactly ``text``."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if not path.is_file():
        pytest.fail(f"{name} is missing; this writes it: {command}", pytrace=False)
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        lines = difference(expected, text, str(name))
        pytest.fail(
            f"{name} holds another text. If the new one is right, this writes it: {command}\n\n"
            + "\n".join(lines),
            pytrace=False,
        )


def difference(expected: str, text: str, name: str) -> list[str]:
    """Return the lines of a unified diff, without more than a test should print."""
    before, after = (_lines(side) for side in (expected, text))
    lines = list(unified_diff(before, after, f"{name} (expected)", f"{name} (now)", lineterm=""))
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"… and {more} more lines"] if more > 0 else [])]


def _lines(text: str) -> list[str]:
    """The lines of a text; of those that end in spaces or without a newline, all characters."""
    lines = text.splitlines(keepends=True)
    return [x[:-1] if x == x.rstrip() + "\n" else repr(x) for x in lines]
