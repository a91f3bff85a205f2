"""A terminal of a fixed width, as far as a display that is redrawn in place needs one."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])|(.)", re.DOTALL)
_OTHER_SCREEN = "?1049"


class Terminal:
    """What is on the screen: ``lines`` after :meth:`feed`. A character in the last column leaves
    the cursor there until the next one, which begins a line, as in real terminals. ``other``: it
    shows its second screen, which keeps nothing."""

    def __init__(self, width: int) -> None:
        self.width, self.lines, self.other = width, [""], False
        self._row = self._column = 0
        self._kept: tuple[list[str], int, int] = ([""], 0, 0)

    def feed(self, text: str) -> None:
        for found in _PART.finditer(text):
            parameters, command, control, char = found.groups()
            if command in ("h", "l") and parameters == _OTHER_SCREEN:
                self._switch(command == "h")
            elif command == "H":
                assert not parameters
                self._row = self._column = 0
            elif command == "K":
                assert not parameters
                self.lines[self._row] = self.lines[self._row][: self._column]
            elif command == "J":
                assert not parameters
                del self.lines[self._row + 1 :]
                self.lines[self._row] = self.lines[self._row][: self._column]
            elif command in ("m", "h", "l"):  # colours, and whether there is a cursor
                continue
            elif control == "\r":
                self._column = 0
            elif control == "\n":
                self._down()
            elif char is not None:
                self._put(char)
            else:
                raise NotImplementedError(found[0])

    def _switch(self, other: bool) -> None:
        if other:
            self._kept = self.lines, self._row, self._column
            self.lines, self._row, self._column = [""], 0, 0
        else:
            self.lines, self._row, self._column = self._kept
        self.other = other

    def _down(self) -> None:
        self._row, self._column = self._row + 1, 0
        self.lines += [""] * (self._row + 1 - len(self.lines))

    def _put(self, char: str) -> None:
        if self._column == self.width:
            self._down()
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + char + line[self._column + 1 :]
        self._column += 1
