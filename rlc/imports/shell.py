"""Read commands out of shell text, as far as training scripts need it: quotes, continuations,
comments, assignments and their use. Nothing is run."""

from __future__ import annotations

import re

from attrs import define

from rlc.imports.errors import InputError, shown

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\{([A-Za-z_]\w*)(?::?-([^{}]*))?\}|([A-Za-z_]\w*)")
_ENDS = ";\n&|"


@define
class _Word:
    """A word being read; ``started`` distinguishes an empty quoted one from none."""

    text: str = ""
    started: bool = False

    def add(self, text: str) -> None:
        self.text += text
        self.started = True


def commands(text: str) -> list[list[str]]:
    """Return the words of each command, assignments of the script filled in.

    Raise InputError if a quote is not closed or a variable is used and not set in the text.
    """
    return [words for words in _Reader(text).read() if words]


@define
class _Reader:
    text: str
    at: int = 0

    def __attrs_post_init__(self) -> None:
        self.text = self.text.replace("\r\n", "\n")

    def read(self) -> list[list[str]]:
        """Return every command without the assignments before it. One of nothing but several
        assignments is kept whole: it may be options that were given without their program."""
        variables: dict[str, str] = {}
        found: list[list[str]] = []
        while self.at < len(self.text):
            words = self._command(variables)
            if words[:1] == ["export"]:
                words = words[1:]
            rest = words
            while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
                variables[match[1]] = match[2]
                rest = rest[1:]
            found.append(rest or (words if len(words) > 1 else []))
        return found

    def _command(self, variables: dict[str, str]) -> list[str]:
        words: list[str] = []
        word = _Word()
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _ENDS:
                self.at += 1
                break
            if char == "#" and not word.started:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char.isspace():
                self.at += 1
                self._end(word, words)
                word = _Word()
            else:
                self._piece(char, word, variables)
        self._end(word, words)
        return words

    def _end(self, word: _Word, words: list[str]) -> None:
        if word.started and word.text != "$@":
            words.append(word.text)

    def _piece(self, char: str, word: _Word, variables: dict[str, str]) -> None:
        """Read a character, an escape, a variable or a quoted string of a word."""
        self.at += 1
        if char == "\\":
            following = self.text[self.at : self.at + 1]
            self.at += 1
            if following != "\n":
                word.add(following)
        elif char == "'":
            end = self.text.find("'", self.at)
            if end < 0:
                raise InputError("a ' is opened and never closed", "close the quote")
            word.add(self.text[self.at : end])
            self.at = end + 1
        elif char == '"':
            self._double(word, variables)
        elif char == "$":
            word.add(self._variable(variables))
        else:
            word.add(char)

    def _double(self, word: _Word, variables: dict[str, str]) -> None:
        word.add("")
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == '"':
                return
            if char == "\\" and self.text[self.at : self.at + 1] in ('"', "\\", "$", "`", "\n"):
                word.add(self.text[self.at].replace("\n", ""))
                self.at += 1
            elif char == "$":
                word.add(self._variable(variables))
            else:
                word.add(char)
        raise InputError('a " is opened and never closed', "close the quote")

    def _variable(self, variables: dict[str, str]) -> str:
        """Return the value of ``$NAME``, ``${NAME}`` or ``${NAME:-default}``; the ``$`` is read."""
        match = _VARIABLE.match(self.text, self.at)
        if match is None:
            return "$"
        self.at = match.end()
        name = match[1] or match[3]
        if name in variables:
            return variables[name]
        if match[2] is not None:
            return str(match[2])
        message = f"the value of ${shown(name)} does not stand in the script"
        raise InputError(message, f"put `{shown(name)}=…` before the command")
