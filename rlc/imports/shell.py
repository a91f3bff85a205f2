"""Read commands out of shell text, as far as training scripts need it: quotes, continuations,
comments, assignments and their use. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlc.imports.errors import InputError, shown

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = r"\$\{(?P<braced>[A-Za-z_]\w*)(:?-(?P<default>[^{}]*))?\}|\$(?P<name>[A-Za-z_]\w*)"
# The pieces of a command, and those of a string in double quotes.
_PLAIN = re.compile(
    rf"""
      (?P<end>[;\n&|])       # of a command
    | (?P<space>[^\S\n]+)
    | (?P<hash>\#)           # begins a comment, if no word has begun
    | \\(?P<escaped>.?)
    | '(?P<single>[^']*)'
    | (?P<open>')            # never closed
    | (?P<quote>")           # a string in double quotes begins
    | {_VARIABLE}
    | (?P<text>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(rf'(?P<quote>")|\\(?P<escaped>["\\$`\n])|{_VARIABLE}|(?P<text>.)', re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Return the words of each command, assignments of the script filled in.

    One of nothing but several assignments is kept whole: it may be options that were given without
    their program. Raise InputError if a quote is not closed or a variable is used and not set in
    the text.
    """
    variables: dict[str, str] = {}
    found = []
    for words in _read(text.replace("\r\n", "\n"), variables):
        given = [word for word in words if word != "$@"]
        given = given[1:] if given[:1] == ["export"] else given
        rest = given
        while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
            variables[match[1]] = match[2]
            rest = rest[1:]
        if rest or len(given) > 1:
            found.append(rest or given)
    return found


def _read(text: str, variables: dict[str, str]) -> Iterator[list[str]]:
    """Yield the words of each command; its caller adds to ``variables`` before the next one."""
    words: list[str] = []
    word: str | None = None  # None between words
    quoted, at = False, 0
    while at < len(text):
        piece = (_QUOTED if quoted else _PLAIN).match(text, at)
        assert piece is not None
        kind, at = piece.lastgroup, piece.end()
        if kind == "open":
            raise InputError("a ' is opened and never closed", "close the quote")
        if kind in ("end", "space"):
            if word is not None:
                words.append(word)
            word = None
            if kind == "end":
                yield words
                words = []
        elif kind == "hash" and word is None:
            at = (text + "\n").index("\n", at)
        elif kind == "quote":
            word, quoted = word or "", not quoted
        elif piece["escaped"] != "\n":  # a line that goes on
            word = (word or "") + _value(piece, variables)
    if quoted:
        raise InputError('a " is opened and never closed', "close the quote")
    yield words if word is None else [*words, word]


def _value(piece: re.Match[str], variables: dict[str, str]) -> str:
    """Return the text that a piece stands for: its own, or the value of a variable."""
    name = piece["braced"] or piece["name"]
    if name is None:
        return piece[piece.lastgroup or 0]
    if name in variables:
        return variables[name]
    if piece["default"] is not None:
        return piece["default"]
    message = f"the value of ${shown(name)} does not stand in the script"
    raise InputError(message, f"put `{shown(name)}=…` before the command")
