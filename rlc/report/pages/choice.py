"""Which page shows what is in some folders: a run, a sweep, or several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlc.report.episodes import StepEpisodes
from rlc.report.pages.rendering import render
from rlc.report.side_by_side import folders_of
from rlc.runtime import is_run
from rlc.sweeps import is_sweep


def shown_folders(roots: Sequence[Path]) -> list[Path]:
    """Return the folders that a page about ``roots`` is about: the sweep, if it is one alone, or
    all runs, of folders and sweeps those in them. Raise RunError if there are none."""
    if len(roots) == 1 and (is_sweep(roots[0]) or is_run(roots[0]) or not roots[0].is_dir()):
        return list(roots)
    return folders_of(roots)


def page_html(
    folders: Sequence[Path], live: bool = False, found: StepEpisodes | None = None
) -> str:
    """Return the page about what :func:`shown_folders` found, or that there is nothing yet; of a
    run alone, the episodes are read on from what was ``found`` before. Raise RunError if it cannot
    be read."""
    if not folders:
        return render(None, "none.html.j2", live)
    if len(folders) > 1:
        from rlc.report.pages.runs_page import runs_html

        return runs_html(folders, live)
    if is_sweep(folders[0]):  # which needs packages that runs do without
        from rlc.report.pages.sweep_page import sweep_html

        return sweep_html(folders[0], live)
    from rlc.report.pages.run_page import run_html

    return run_html(folders[0], live, found)
