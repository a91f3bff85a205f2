"""The browser as an application: which screens there are, and how they look."""

from __future__ import annotations

from pathlib import Path

from textual.app import App
from textual.binding import Binding

from rlc.cli.browser.help_screen import HelpScreen
from rlc.cli.browser.run_screen import RunScreen
from rlc.cli.browser.runs_screen import RunsScreen
from rlc.report import read_plan
from rlc.runtime import RunError, is_run, list_runs
from rlc.sweeps import TRIALS, is_sweep

DARK, LIGHT = "textual-dark", "textual-light"


class Browser(App[None]):
    """Shows a run, or the runs of a folder.

    Args:
        path: the folder of a run, or of runs.
        every: the seconds between two looks at what has been written; None to look only on demand.
    """

    TITLE = "rlc"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "browser.tcss"
    BINDINGS = [
        Binding("q", "quit", "quit", priority=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("t", "light_or_dark", "light or dark", show=False),
    ]

    def __init__(self, path: Path, every: float | None = 1.0) -> None:
        super().__init__()
        self.path, self.every = path, every

    def on_mount(self) -> None:
        self.theme = DARK
        screen = RunScreen if is_run(self.path) else RunsScreen
        self.push_screen(screen(self.path, self.every))

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_light_or_dark(self) -> None:
        self.theme = LIGHT if self.theme == DARK else DARK


def open_browser(path: Path) -> int:
    """Show a run, or the runs of a folder, until the user quits; return the exit status.

    Raise RunError if there are none, or the run cannot be read.
    """
    if is_run(path):
        read_plan(path)
    elif not list_runs(path / TRIALS if is_sweep(path) else path):
        raise RunError(
            f"there are no runs in {path}",
            "`rlc run RECIPE` starts one; name their folder if they are elsewhere",
        )
    app = Browser(path)
    app.run()
    return app.return_code or 0
