"""The places of the tokens of a text, and which of them start a declaration or a field.

Two witnesses say where a declaration starts: its words (`env x =`, `model m {`) and its place at
the start of a line. The words are there in any text, the places only in one whose author breaks
lines and indents as most do. So the places count only where most heads stand at one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import Token
from rlc.records import field, frozen

OPEN = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
CLOSE = {closer: opener for opener, closer in OPEN.items()}

ARITHMETIC = {"PLUS", "MINUS", "STAR", "SLASH"}
# A declaration or field does not end before or after one of these.
JOINERS = {"EQUAL", "COLON", "COMMA", "DOT", "PIPE", "THEN", "COMPARE", *ARITHMETIC, *OPEN}
# After one of these stands a value.
BEFORE_VALUE = JOINERS - {"LBRACE", "DOT", "COLON"}
LITERALS = {"NUMBER", "MONEY", "DURATION", "PERCENT", "STRING", "TRUE", "FALSE", "BAD"}

_BLANK = re.compile(r"[ \t\r\f]*")
_MOST_OF_PARAMETERS = 500  # tokens; each that reads as a head is looked at
_MOST = 0.75  # of the heads, to trust what they have in common


@frozen
class Layout:
    """The tokens of a source with what stands around them."""

    source: Source
    tokens: Sequence[Token]
    _indents: dict[int, int] = field(factory=dict)

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def line(self, token: Token) -> int:
        return self.source.position(token.start)[0]

    def column(self, token: Token) -> int:
        return self.source.position(token.start)[1]

    def is_first(self, token: Token) -> bool:
        """Return whether nothing but space stands before the token on its line."""
        return self.indent(token) == self.column(token)

    def indent(self, token: Token) -> int:
        """Return the column of the first word on the token's line."""
        line = self.line(token)
        if line not in self._indents:
            start = self.source.line_starts[line - 1]
            blank = _BLANK.match(self.source.text, start)
            self._indents[line] = (blank.end() if blank else start) - start + 1
        return self._indents[line]

    @cached_property
    def heads(self) -> list[int]:
        """Indices of the tokens that start a declaration by their words."""
        return [index for index in range(len(self.tokens)) if self.is_head(index)]

    @cached_property
    def has_lines(self) -> bool:
        """Whether a declaration starts a line, as a rule."""
        first = [self.is_first(self.tokens[index]) for index in self.heads]
        return sum(first) >= _MOST * len(first)

    @cached_property
    def has_columns(self) -> bool:
        """Whether declarations are indented alike, as a rule, and their fields more."""
        columns = Counter(self.column(self.tokens[index]) for index in self.heads)
        if not columns or not self.has_lines:
            return self.has_lines
        outer, alike = columns.most_common(1)[0]
        fields = [
            self.column(token) > outer
            for index, token in enumerate(self.tokens)
            if self.is_field(index) and self.is_first(token)
        ]
        return alike >= _MOST * len(self.heads) and sum(fields) >= _MOST * len(fields)

    def kinds(self, index: int, count: int) -> list[str]:
        return [token.kind for token in self.tokens[index : index + count]]

    def is_block_head(self, index: int) -> bool:
        """Return whether ``kind name {`` stands here, perhaps with parameters."""
        if self.kinds(index, 2) != ["NAME", "NAME"] or self.after_parameters(index) != "LBRACE":
            return False
        before = self.tokens[index - 1].kind if index else ""
        return self.is_after_value(index) if before == "NAME" else before != "DOT"

    def after_parameters(self, index: int) -> str | None:
        """Return the kind of token after ``kind name``, and after its parameters if it has any."""
        after, depth = index + 2, 0
        if self.kinds(after, 1) == ["LPAR"]:
            for token in self.tokens[after : after + _MOST_OF_PARAMETERS]:
                depth += (token.kind == "LPAR") - (token.kind == "RPAR")
                after += 1
                if depth == 0:
                    break
        return next(iter(self.kinds(after, 1)), None)

    def is_head(self, index: int) -> bool:
        """Return whether a declaration starts here by its words.

        ``kind name =`` looks like a field without its `=` before another field, ``model policy
        env = …``: there no complete value stands before it.
        """
        if self.is_block_head(index):
            return True
        return self.reads_as_head(index) and self.is_after_value(index)

    def reads_as_head(self, index: int) -> bool:
        """Return whether the words here are those of a head, whatever precedes them."""
        kinds = self.kinds(index, 3)
        if kinds[:1] != ["NAME"]:
            return False
        if kinds[1:] == ["NAME", "COLON"]:
            return True
        if kinds[1:2] == ["NAME"] and self.after_parameters(index) in ("LBRACE", "EQUAL"):
            return True
        return kinds[1:2] == ["STRING"] and self.span(self.tokens[index]).text == "import"

    def lacks_brace(self, index: int) -> bool:
        """Return whether ``kind name field =`` stands here: a block's head without its brace."""
        kinds = self.kinds(index, 4)
        return kinds[:3] == ["NAME"] * 3 and kinds[3:] in (["EQUAL"], ["COLON"])

    def is_field(self, index: int) -> bool:
        """Return whether ``name =`` stands here, in a block or a call."""
        kinds = self.kinds(index, 2)
        return kinds in (["NAME", "EQUAL"], ["NAME", "COLON"])

    def is_after_value(self, index: int) -> bool:
        """Return whether this is the first token, or the one before it can end a declaration."""
        if index == 0:
            return True
        kind = self.tokens[index - 1].kind
        if kind == "NAME":
            return index > 1 and self.tokens[index - 2].kind in BEFORE_VALUE | {"DOT"}
        return kind in LITERALS or kind in CLOSE
