"""The browser as an application: the list of runs, the help, and how all of it looks."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Static

from rlc.cli.browser.contents import TERMS
from rlc.cli.browser.run_screen import RunScreen
from rlc.cli.summary import last_results
from rlc.plan import elapsed, in_dollars
from rlc.report import read_plan
from rlc.runtime import RunError, RunInfo, is_run, list_runs, what_differs
from rlc.sweeps import TRIALS, is_sweep

DARK, LIGHT = "textual-dark", "textual-light"


class Browser(App[None]):
    """Shows a run, or the runs of a folder; reads it every so many seconds (None: on demand)."""

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
    """Show a run, or the runs of a folder; return the exit status. Raise RunError without one."""
    if is_run(path):
        read_plan(path)
    elif not list_runs(path / TRIALS if is_sweep(path) else path):
        advice = "`rlc run RECIPE` starts one; name their folder if they are elsewhere"
        raise RunError(f"there are no runs in {path}", advice)
    app = Browser(path)
    app.run()
    return app.return_code or 0


class RunsScreen(Screen[None]):
    """Lists the runs of a folder, or the trials of a sweep, the newest first."""

    BINDINGS = [("r", "read", "read again")]

    def __init__(self, root: Path, every: float | None) -> None:
        super().__init__()
        self.every = every  # the seconds between two looks at a run that is opened
        self.root = root / TRIALS if is_sweep(root) else root
        self.found: list[RunInfo] = []

    def compose(self) -> ComposeResult:
        yield Static(f"Runs in {self.root}: enter opens one", classes="title", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        columns = ("run", "state", "ago", "steps", "spent", "last", "differs")
        self.query_one(DataTable).add_columns(*columns)

    def on_screen_resume(self) -> None:
        self.action_read()

    @work(thread=True, exclusive=True)
    def action_read(self) -> None:
        found = list_runs(self.root)
        self.app.call_from_thread(self._show, found)

    def _show(self, found: list[RunInfo]) -> None:
        table, self.found = self.query_one(DataTable), found
        row, differing = table.cursor_row, what_differs(found)
        table.clear()
        for info in found:
            steps = ", ".join(f"{s.name} {s.done:,}/{s.total:,}" for s in info.stages)
            ago = elapsed(max(0, round(time.time() - info.updated))) if info.updated else ""
            last = " · ".join(line for line in last_results(info).splitlines() if line)
            spent = in_dollars(info.spent_usd)
            differs = " · ".join(f"{n} {v}" for n, v in differing[info.path].items())
            cells = (info.path.name, info.state, ago, steps, spent, last, differs)
            table.add_row(*(Text(cell) for cell in cells))
        table.move_cursor(row=min(row, max(0, len(found) - 1)))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        chosen = self.found[event.cursor_row]
        if chosen.state == "damaged":
            self.notify(chosen.cause or "", title=f"{chosen.path} is damaged", severity="error")
        else:
            self.app.push_screen(RunScreen(chosen.path, self.every))


KEYS = (
    ("↑ ↓  enter", "choose; open or close a stage, a step, a group (space too)"),
    ("tab", "from the list to the page beside it, and back"),
    ("j k  PgUp PgDn", "scroll the page"),
    ("n p", "the next turn of an episode, and the one before"),
    ("b w", "the best and the worst episode of the step, stage or run that is chosen"),
    ("x", "the next episode that failed"),
    ("c", "compare two members of a group: [ and ] change the other one"),
    (", .", "look at single tokens, one after the other: advantage, ratio, logprobs"),
    ("a", "colour turns and tokens by advantage, tokens by ratio, turns by reward, nothing"),
    ("/", "look for episodes; escape shows all of them again"),
    ("f", "follow: go to each new step of a run that goes on"),
    ("z", "the page alone, or with the list"),
    ("t", "light or dark"),
    ("escape", "back"),
    ("q", "quit"),
)
SIGNS = (
    ("▲ ▼ ■", "an advantage above zero, below, or zero"),
    ("┃ ╎", "beside a turn: what it is coloured by is above zero, or below"),
    ("bold, underlined", "a token above zero, or below; by ratio: likelier than it was, or less"),
    ("✕ ↻", "failed; played again after an attempt that failed"),
)


class HelpScreen(ModalScreen[None]):
    BINDINGS = [("escape,question_mark,q", "dismiss", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            tables = (("Keys", KEYS), ("What / looks for", TERMS), ("Signs", SIGNS))
            for title, rows in tables:
                grid = Table.grid(padding=(0, 2, 0, 0))
                grid.add_column(style="bold", max_width=24)
                grid.add_column()
                for row in rows:
                    grid.add_row(*map(Text, row))
                yield Static(title, classes="title")
                yield Static(grid, classes="block")
