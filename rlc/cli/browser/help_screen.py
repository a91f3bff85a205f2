"""What each key does, and what can be looked for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from rlc.cli.browser.queries import TERMS

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
            for title, table in tables:
                yield Static(title, classes="title")
                yield Static(_grid(table), classes="block")


def _grid(table: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", max_width=24)
    grid.add_column()
    for row in table:
        grid.add_row(*map(Text, row))
    return grid
