"""The words of a text, to be coloured or completed: also of one that is no recipe yet."""

from __future__ import annotations

from rlc.lang.source import Source
from rlc.lang.syntax.lalr import Token
from rlc.lang.syntax.lexer import ESCAPES, lex, string_value
from rlc.lang.syntax.tables import load_tables as vocabulary

__all__ = ["COMMENT", "ESCAPES", "read_words", "string_value", "vocabulary"]

COMMENT = "COMMENT"


def read_words(source: Source) -> list[Token]:
    """Return all words of a text in order, comments among them, malformed ones as what they were
    probably meant to be. Never raises."""
    lexed = lex(source, vocabulary())
    return sorted([*lexed.tokens, *lexed.comments], key=lambda word: word.start)
