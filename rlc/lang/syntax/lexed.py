"""What the lexer makes of a text."""

from __future__ import annotations

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.syntax.lalr import Token
from rlc.records import frozen

MAX_FINDINGS = 50  # in one file; one with more is not a recipe, and nobody reads on

QUOTES = "\"'`“”"

# A word whose meaning cannot be guessed: it fits nowhere in the grammar.
BAD = "BAD"


@frozen(eq=False)
class TokenStream:
    """The tokens and comments of a source, and what was wrong with its words.

    ``doubtful`` holds the starts of words that were guessed or skipped: a syntax error in the
    same field is more likely their consequence than another mistake.
    """

    tokens: list[Token]
    comments: list[Token]
    doubtful: list[int]
    diagnostics: Diagnostics


def shortened(text: str) -> str:
    """A word as a message can show it."""
    return text if len(text) <= 40 else f"{text[:39]}…"
