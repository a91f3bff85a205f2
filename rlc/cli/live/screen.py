"""A screen that is redrawn in place, and leaves its last state behind when it is closed.

It is the terminal's other screen, so that a resize, or what is typed, cannot tear what stands on
the first one. What the process prints meanwhile is kept, and printed when the first is back.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from rich.console import Console
from rich.text import Text

_INTERVAL = 0.25  # seconds between two looks at what has changed, at the least
_SHARE = 0.02  # of a core, that drawing takes at the most
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"

Draw = Callable[[int, int], list[Text]]


class _Kept(io.TextIOBase):
    """Stands for a stream, keeps what is written, and calls ``on_line`` with each line."""

    def __init__(self, stream: TextIO, on_line: Callable[[str], None]) -> None:
        self.stream, self.text, self._on_line = stream, io.StringIO(), on_line

    def write(self, text: str) -> int:
        if line := text.strip().rpartition("\n")[2]:
            self._on_line(line)
        return self.text.write(text)

    def isatty(self) -> bool:
        return False  # what is written must stay readable: no progress bars


class Screen:
    """Redraws what ``draw`` returns for a width and a height: at most four times a second, and less
    often where that would take more than two percent of a core.

    ``on_line`` is called with what the process prints meanwhile, line by line.
    """

    def __init__(self, console: Console, draw: Draw, on_line: Callable[[str], None]) -> None:
        self._console, self._draw, self._on_line = console, draw, on_line
        self._thread = threading.Thread(target=self._redraw, name="live view", daemon=True)
        self._changed, self._closed, self._streams = True, threading.Event(), list[_Kept]()

    def open(self) -> None:
        """Show the other screen and begin to draw."""
        self._console.file = self._console.file  # this stream, whatever takes its place
        self._streams = [_Kept(stream, self._on_line) for stream in (sys.stdout, sys.stderr)]
        sys.stdout, sys.stderr = self._streams
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        self.draw()
        self._thread.start()

    def changed(self) -> None:
        """Draw again soon; without a change it is drawn once a second, for the clock."""
        self._changed = True

    def draw(self) -> None:
        """Draw now."""
        lines = self._rendered(*self._console.size).replace("\n", f"{_REST_OF_LINE}\n")
        self._console.file.write(f"{_HOME}{lines}{_REST_OF_LINE}{_REST}")
        self._console.file.flush()

    def close(self) -> None:
        """Go back to the first screen, and leave the last state there."""
        if not self._streams:
            return
        self._closed.set()
        self._thread.join()
        kept, self._streams = self._streams, []
        sys.stdout, sys.stderr = (stream.stream for stream in kept)
        self._console.show_cursor(True)
        self._console.set_alt_screen(False)
        self._console.file.write(self._rendered(*self._console.size) + "\n")
        self._console.file.flush()
        for stream in kept:
            stream.stream.write(stream.text.getvalue())
            stream.stream.flush()

    def _rendered(self, width: int, height: int) -> str:
        """Return the lines with their colours; the last column stays free, as some terminals begin
        a line after it."""
        lines = self._draw(width - 1, height)
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, no_wrap=True, crop=True, overflow="crop", highlight=False)
        return captured.get().removesuffix("\n")

    def _redraw(self) -> None:
        waited, pause = 0.0, _INTERVAL
        with suppress(OSError):  # the terminal is gone, the run is not
            while not self._closed.wait(pause):
                waited += pause
                if self._changed or waited >= 1:
                    self._changed, waited = False, 0.0
                    began = time.thread_time()
                    self.draw()
                    pause = max(_INTERVAL, (time.thread_time() - began) / _SHARE)
