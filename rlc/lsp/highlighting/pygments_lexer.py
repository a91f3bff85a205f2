"""Recipes in colour on pages and in notebooks: the lexer that Pygments finds as ``rl``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)

from rlc.check import Role
from rlc.lang import COMMENT, Source, read_words
from rlc.lsp.documents import Document, Documents

_VARIABLES: tuple[Role, ...] = ("declares", "reference", "parameter", "local")
_ATTRIBUTES: tuple[Role, ...] = ("field", "argument", "key", "attribute")
_ROLES: dict[Role, Any] = {
    "kind": Keyword.Declaration,
    "type": Keyword.Type,
    "builtin": Name.Builtin,
    "function": Name.Function,
    "word": Name.Constant,
    "input": Name.Variable.Global,
    **dict.fromkeys(_VARIABLES, Name.Variable),
    **dict.fromkeys(_ATTRIBUTES, Name.Attribute),
}
_WORDS: dict[str, Any] = {
    COMMENT: Comment.Single,
    "STRING": String.Double,
    "THEN": Operator.Word,
    "NAME": Name,
    "BAD": Error,
    **dict.fromkeys(("NUMBER", "MONEY", "DURATION", "PERCENT"), Number),
    **dict.fromkeys(("TRUE", "FALSE"), Keyword.Constant),
    **dict.fromkeys(("LPAR", "RPAR", "LBRACE", "RBRACE", "LSQB", "RSQB"), Punctuation),
    **dict.fromkeys(("COMMA", "COLON", "DOT"), Punctuation),
}


class RlLexer(Lexer):
    """A lexer for recipes of rlc. Its words are the compiler's, and so is what they mean."""

    name = "rlc recipe"
    aliases = ["rl"]
    filenames = ["*.rl"]
    mimetypes = ["text/x-rl"]
    url = "https://github.com/rlc-lang/rlc"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Yield the offset, the type and the text of every word, and of what is between them."""
        source = Source("", text)
        roles = {m.start: m.role for m in Documents().notes(Document(source))[0]}
        offset = 0
        for word in read_words(source):
            if word.start < offset:  # of what is malformed, words may overlap
                continue
            yield from _between(text, offset, word.start)
            named = roles.get(word.start)
            kind = _ROLES.get(named) if named is not None else None
            yield word.start, kind or _WORDS.get(word.kind, Operator), text[word.start : word.end]
            offset = word.end
        yield from _between(text, offset, len(text))


def _between(text: str, start: int, end: int) -> Iterator[tuple[int, Any, str]]:
    if start < end:
        between = text[start:end]
        yield start, Text if between.strip() else Whitespace, between
