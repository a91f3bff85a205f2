"""Tokens to text, one at a time, and no more of it than is certain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

_HALF = "\N{REPLACEMENT CHARACTER}"  # what bytes are decoded to that are no whole character
_WINDOW = 16  # tokens that are decoded together with a new one


@define(eq=False)
class TextDecoder:
    """Decodes a sequence of tokens as it grows, as the tokenizer would decode all of them."""

    tokenizer: Any
    _window: list[int] = field(factory=list, init=False)
    _sent: int = field(default=0, init=False)  # characters of the window

    def feed(self, token: int) -> str:
        """Return the text that a token completes."""
        self._window.append(token)
        text = self.tokenizer.decode(self._window)
        whole = not text.endswith(_HALF)
        new = self._upto(text, len(text) - (not whole))
        if whole and len(self._window) > _WINDOW:
            self._window = self._window[-4:]
            self._sent = len(self.tokenizer.decode(self._window))
        return new

    def finish(self) -> str:
        """Return what is left when no token follows."""
        text = self.tokenizer.decode(self._window)
        return self._upto(text, len(text))

    def _upto(self, text: str, end: int) -> str:
        new = text[self._sent : end]
        self._sent = max(self._sent, end)
        return new


@define(eq=False)
class StopCutter:
    """Passes text on up to the first of some stops, and holds back what may be the start of one."""

    stops: Sequence[str]
    matched: str | None = field(default=None, init=False)
    _held: str = field(default="", init=False)

    def feed(self, text: str) -> str:
        """Return what of the text is certain to come before a stop."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(text.index(stop), stop) for stop in self.stops if stop in text]
        if found:
            end, self.matched = min(found)
            self._held = ""
            return text[:end]
        keep = longest_start(text, self.stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return what was held back, when no text follows."""
        held, self._held = self._held, ""
        return held


def longest_start(text: str, marks: Iterable[str]) -> int:
    """How many characters at the end of a text are the start of a mark that is not complete."""
    longest = 0
    for mark in marks:
        for length in range(min(len(mark) - 1, len(text)), longest, -1):
            if text.endswith(mark[:length]):
                longest = length
                break
    return longest
