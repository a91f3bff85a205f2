"""The runs of a folder."""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from rlc.cli.browser.run_screen import RunScreen
from rlc.cli.summary import last_results
from rlc.plan import elapsed
from rlc.runtime import RunInfo, list_runs, what_differs
from rlc.sweeps import TRIALS, is_sweep

_COLUMNS = ("run", "state", "ago", "steps", "spent", "last", "differs")


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
        self.query_one(DataTable).add_columns(*_COLUMNS)

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
            spent = f"${info.spent_usd:.2f}"
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
