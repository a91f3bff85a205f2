"""Changes of a text as a unified diff."""

from __future__ import annotations

import difflib
import io


def text_diff(name: str, before: str, after: str, what: str) -> str:
    """How ``after``, called ``name what``, differs from ``before``; empty if it does not."""
    # Unlike splitlines, a StringIO ends lines at line ends only.
    old, new = list(io.StringIO(before)), list(io.StringIO(after))
    lines = difflib.unified_diff(old, new, name, f"{name} {what}")
    # A last line without a line end would run into the next one.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
