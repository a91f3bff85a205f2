"""Golden files: ``RLC_UPDATE_GOLDEN=1 pytest`` writes them anew, review them with git diff."""

from __future__ import annotations

import os
from pathlib import Path


def check_golden(path: Path, text: str) -> None:
    """Fail unless the file ``path`` holds exactly ``text``."""
    if os.environ.get("RLC_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path} is missing: run the test with RLC_UPDATE_GOLDEN=1"
    assert text == path.read_text(encoding="utf-8")
