"""The words of a text, for who colours or completes it: also of one that is no recipe yet."""

from __future__ import annotations

from rlc.lang.source import Source
from rlc.lang.syntax.lalr import Token as Word
from rlc.lang.syntax.lexer import ESCAPES, lex, string_value
from rlc.lang.syntax.tables import Tables, load_tables

__all__ = ["COMMENT", "ESCAPES", "NAMES", "Word", "read_words", "string_value", "vocabulary"]

COMMENT = "COMMENT"
NAMES = ("NAME", "THEN", "TRUE", "FALSE")  # the last three are names where the grammar has no use


def read_words(source: Source) -> list[Word]:
    """Return all words of a text in its order, comments among them, malformed ones as what they
    were probably meant to be. Never raises."""
    lexed = lex(source, load_tables())
    return sorted([*lexed.tokens, *lexed.comments], key=lambda word: word.start)


def vocabulary() -> Tables:
    """Return the words that the grammar has: patterns, fixed texts, keywords."""
    return load_tables()
