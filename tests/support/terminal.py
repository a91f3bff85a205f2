"""A terminal of a fixed width, as far as a live display needs one."""

from __future__ import annotations

import re

_PART = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|([\r\n])|(.)", re.DOTALL)


class Terminal:
    """What is on the screen: ``lines`` after :meth:`feed`. A character in the last column leaves
    the cursor there until the next one, which begins a line, as in real terminals."""

    def __init__(self, width: int) -> None:
        self.width, self.lines = width, [""]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for found in _PART.finditer(text):
            parameters, command, control, char = found.groups()
            if command == "A":
                self._row = max(0, self._row - int(parameters or 1))
            elif command == "K":
                assert parameters == "2"
                self.lines[self._row] = ""
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

    def _down(self) -> None:
        self._row, self._column = self._row + 1, 0
        self.lines += [""] * (self._row + 1 - len(self.lines))

    def _put(self, char: str) -> None:
        if self._column == self.width:
            self._down()
        line = self.lines[self._row].ljust(self._column)
        self.lines[self._row] = line[: self._column] + char + line[self._column + 1 :]
        self._column += 1
