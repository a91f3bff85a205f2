"""Output of several commands: findings, errors, differences of texts; and whether in colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.lang import Diagnostics
    from rlc.plan import Plan

Part = str | tuple[str, str]  # of a line: text, with a style
Line = tuple[str, list[Part]]  # the style of a line, and its parts


class UsageError(Error):
    """Arguments that mean nothing."""

    exit_status = 2


def has_color(stream: TextIO) -> bool:
    """Return whether a stream shows colour and its user wants it (https://no-color.org)."""
    dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not dumb


def redraws(stream: TextIO) -> bool:
    """Return whether a display that is redrawn in place makes sense on a stream."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


@contextmanager
def announced(text: str, quiet: bool = False, in_logs: bool = False) -> Iterator[None]:
    """Show a text on the terminal until the block ends; or as a line ``in_logs``."""
    shown = not quiet and redraws(sys.stdout)
    try:
        if shown:
            print(f"{text} …", end="\r", flush=True)
        elif in_logs and not quiet:
            print(f"{text} …", file=sys.stderr)
        yield
    finally:
        if shown:
            print("\x1b[K", end="", flush=True)


@contextmanager
def standard_output_kept() -> Iterator[None]:
    """Until the block ends, print to standard error, also from code that is not Python and from
    the processes that are started meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def print_findings(found: Diagnostics) -> None:
    if found:
        from rlc.lang.render import render_human

        sys.stderr.write(render_human(found, color=has_color(sys.stderr)))


def print_left_out(plan: Plan | None) -> None:
    """Print what the rehearsal of a job leaves out, with --quiet too."""
    if plan is not None and plan.rehearses:
        from rlc.compile import left_out

        if (text := left_out(plan)) is not None:
            print(f"note: {text}", file=sys.stderr)


def print_audit(plan: Plan | None) -> None:
    """Print in a line what the audits of a job's environments have found."""
    if plan is not None and not plan.rehearses:
        from rlc.catalog import audit_line, environments_of

        if (text := audit_line(environments_of(plan), plan.recipe)) is not None:
            print(f"audit: {text}", file=sys.stderr)


def print_error(message: str, status: int = 1, *hints: str) -> int:
    """Print an error with what to do about it, and return the exit status."""
    for line in (f"error: {message}", *(f"  help: {hint}" for hint in hints)):
        print(visible(line), file=sys.stderr)
    return status


def print_diff(name: str, before: str, after: str, what: str) -> None:
    """Print as a unified diff how ``after``, called ``name what``, differs from ``before``."""
    import difflib
    import io

    # Unlike splitlines, a StringIO ends lines at line ends only.
    old, new = list(io.StringIO(before)), list(io.StringIO(after))
    for line in difflib.unified_diff(old, new, name, f"{name} {what}"):
        # A last line without a line end would run into the next one.
        sys.stdout.write(line if line.endswith("\n") else f"{line}\n")


def visible(text: str) -> str:
    """Escape the control characters of a text: a model may write what moves the cursor."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
