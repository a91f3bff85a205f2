"""The runs of a comparison, each with a letter that stands for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import frozen

from rlc.report.run_files import RunFiles, read_files
from rlc.runtime.journal.runs import RunInfo, read_run
from rlc.runtime.records import RunError
from rlc.sweeps.read import runs_in

LETTERS = "ABCDEFGHIJKL"
MOST = len(LETTERS)  # on a page: more lines in a chart cannot be told apart


@frozen
class Compared:
    """A run of a comparison. ``place`` is that among the colours and dashes of the page."""

    letter: str
    place: int
    name: str
    info: RunInfo
    files: RunFiles


@frozen
class Unread:
    """A run that cannot be shown, and why."""

    path: Path
    cause: str


def folders_of(roots: Iterable[Path]) -> list[Path]:
    """Return the folders of runs, each once: those that are named, and those in the folders and
    sweeps that are, the newest first. Raise RunError if there is none in one of them."""
    found: dict[Path, Path] = {}
    for root in roots:
        runs = runs_in(root)
        if not runs:
            raise RunError(
                f"there are no runs in {root}", "`rlc runs FOLDER` lists those that there are"
            )
        for run in runs:
            found.setdefault(run.path.resolve(), run.path)
    return list(found.values())


def read_runs(paths: Sequence[Path]) -> tuple[list[Compared], list[Unread]]:
    """Read runs to compare, and say which cannot be read. Raise RunError if they are too many."""
    if len(paths) > MOST:
        raise RunError(
            f"{len(paths)} runs are too many for one page, which shows {MOST}",
            "name those that matter: `rlc runs` says what differs between them",
        )
    names = [path.resolve().name for path in paths]
    found, unread = list[Compared](), list[Unread]()
    for place, (path, name) in enumerate(zip(paths, names, strict=True)):
        shown = name if names.count(name) == 1 else str(path)
        try:
            files = read_files(path)
        except RunError as error:
            unread.append(Unread(path, error.message))
        else:
            found.append(Compared(LETTERS[place], place, shown, read_run(path), files))
    return found, unread
