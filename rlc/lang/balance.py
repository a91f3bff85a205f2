"""Pairs brackets. Where they do not match, the layout says which one is missing or extra.

A closing bracket left out swallows the rest of the file: what follows still parses, inside the
wrong declaration. Users however indent what they mean. So, only in a text whose brackets do not
match, a line that starts a declaration no deeper than the open block ends that block, and a line
that starts a field no deeper than the line with an open `(` or `[` ends that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.lalr import Token
from rlc.lang.lexer import MAX_FINDINGS
from rlc.lang.source import Source, Span
from rlc.record import define, field, frozen

CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
OPENERS = {closer: opener for opener, closer in CLOSERS.items()}
TEXTS = {"LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{", "RBRACE": "}"}


_BLANK = re.compile(r"[ \t\r\f]*")


@frozen
class Layout:
    """Where tokens stand on their lines."""

    source: Source
    _indents: dict[int, int] = field(factory=dict)

    def span(self, token: Token) -> Span:
        return Span(self.source, token.start, token.end)

    def line(self, token: Token) -> int:
        return self.source.position(token.start)[0]

    def column(self, token: Token) -> int:
        return self.source.position(token.start)[1]

    def is_first(self, token: Token) -> bool:
        """Whether nothing but space stands before the token on its line."""
        return self.indent(token) == self.column(token)

    def indent(self, token: Token) -> int:
        """Column of the first word on the token's line."""
        line = self.line(token)
        if line not in self._indents:
            start = self.source.line_starts[line - 1]
            blank = _BLANK.match(self.source.text, start)
            self._indents[line] = (blank.end() if blank else start) - start + 1
        return self._indents[line]


@frozen
class Balanced:
    """Tokens whose brackets match; ``doubtful`` as in ``Lexed``."""

    tokens: list[Token]
    doubtful: frozenset[int]
    diagnostics: Diagnostics


def balance(layout: Layout, tokens: Sequence[Token]) -> Balanced:
    """Add and drop brackets until they match, reporting each, up to MAX_FINDINGS."""
    if _matches(tokens):
        return Balanced(list(tokens), frozenset(), Diagnostics())
    kinds = Counter(token.kind for token in tokens)
    pairing = _Pairing(layout, extra=kinds["RBRACE"] - kinds["LBRACE"])
    for index, token in enumerate(tokens):
        if len(pairing.found) >= MAX_FINDINGS:
            return Balanced([], frozenset(), pairing.found)
        if pairing.open:
            pairing.close_by_layout(tokens, index)
        if not pairing.open and layout.is_first(token):
            pairing.note_head(tokens[index : index + 4])
        pairing.add(token)
    while pairing.open and len(pairing.found) < MAX_FINDINGS:
        pairing.close()
    return Balanced(pairing.out, frozenset(pairing.doubtful), pairing.found)


def _matches(tokens: Sequence[Token]) -> bool:
    stack: list[str] = []
    for token in tokens:
        if token.kind in CLOSERS:
            stack.append(CLOSERS[token.kind])
        elif token.kind in OPENERS and (not stack or stack.pop() != token.kind):
            return False
    return not stack


@define
class _Open:
    """An open bracket; ``pipe`` is the index in the output of the first ``|>`` inside it."""

    token: Token
    pipe: int | None = None


@define
class _Pairing:
    layout: Layout
    extra: int  # closing braces beyond the opening ones
    out: list[Token] = field(factory=list)
    open: list[_Open] = field(factory=list)
    counts: Counter[str] = field(factory=Counter)  # open brackets of each kind
    doubtful: list[int] = field(factory=list)
    found: Diagnostics = field(factory=Diagnostics)
    head: int | None = None  # index in ``out`` of the last block head without a brace

    def note_head(self, line: Sequence[Token]) -> None:
        kinds = [token.kind for token in line]
        if kinds == ["NAME", "NAME", "NAME", "EQUAL"]:
            self.head = len(self.out)
        elif kinds[:2] == ["NAME", "NAME"]:
            self.head = None

    def add(self, token: Token) -> None:
        if token.kind in CLOSERS:
            self.open.append(_Open(token))
            self.counts[token.kind] += 1
        elif token.kind in OPENERS:
            self.add_closer(token)
            return
        elif token.kind == "PIPE" and self.open and self.open[-1].pipe is None:
            # Pipelines inside arguments are rare, calls in pipelines are not.
            is_call = self.open[-1].token.kind == "LPAR"
            self.open[-1].pipe = len(self.out) if is_call else None
        self.out.append(token)

    def add_closer(self, token: Token) -> None:
        opener = OPENERS[token.kind]
        if self.is_stray(token):
            self.extra -= 1
            self.drop(token)
        elif self.counts[opener]:
            while self.open[-1].token.kind != opener:
                self.close()
            self.pop()
            self.out.append(token)
        elif self.open and self.open[-1].token.kind != "LBRACE" and opener != "LBRACE":
            self.replace_closer(token)
        elif opener != "LBRACE" or self.open or not self.add_missing_brace(token):
            self.drop(token)

    def is_stray(self, token: Token) -> bool:
        """Whether a brace too many stands in the middle of a line inside a longer block."""
        if token.kind != "RBRACE" or self.extra <= 0 or not self.open:
            return False
        opened = self.open[-1].token
        inside = opened.kind != "LBRACE" or self.layout.line(opened) < self.layout.line(token)
        return inside and not self.layout.is_first(token)

    def drop(self, token: Token) -> None:
        message = f"`{TEXTS[token.kind]}` closes nothing"
        self.found.error("RL0011", self.layout.span(token), message, "leave it out")
        self.doubtful.append(token.start)

    def replace_closer(self, token: Token) -> None:
        opened = self.pop().token
        right = CLOSERS[opened.kind]
        message = f"expected `{TEXTS[right]}`, found `{TEXTS[token.kind]}`"
        label = Label(self.layout.span(opened), "opened here")
        self.found.error("RL0011", self.layout.span(token), message, None, label)
        self.out.append(token._replace(kind=right))

    def add_missing_brace(self, closer: Token) -> bool:
        """Open the block that ``closer`` ends, if a head without a brace stands before it."""
        if self.head is None:
            return False
        last = self.out[self.head + 1]
        place, name = last.end, self.layout.span(last).text
        message = f"missing `{{` after `{name}`"
        label = Label(self.layout.span(closer), "closed here")
        span = Span(self.layout.source, place, place)
        self.found.error("RL0011", span, message, None, label)
        self.out.insert(self.head + 2, Token("LBRACE", place, place))
        self.out.append(closer)
        self.head = None
        return True

    def pop(self) -> _Open:
        entry = self.open.pop()
        self.counts[entry.token.kind] -= 1
        return entry

    def close(self) -> None:
        """Close the innermost bracket: before a pipeline inside it, or at the end so far."""
        entry = self.pop()
        index = len(self.out) if entry.pipe is None else entry.pipe
        place = self.out[index - 1].end
        closer = CLOSERS[entry.token.kind]
        self.out.insert(index, Token(closer, place, place))
        if self.open or closer != "RBRACE":  # a block stays good, a value was guessed
            self.doubtful.append(entry.token.start)
        opened = self.layout.span(entry.token)
        self.found.error(
            "RL0011",
            Span(self.layout.source, place, place),
            f"missing `{TEXTS[closer]}`",
            None,
            Label(opened, "opened here"),
        )

    def close_by_layout(self, tokens: Sequence[Token], index: int) -> None:
        """Close what cannot be open any more before ``tokens[index]``."""
        token = tokens[index]
        if token.kind != "NAME":
            return
        kinds = [entry.kind for entry in tokens[index + 1 : index + 3]]
        first, column = self.layout.is_first(token), self.layout.column(token)
        is_block = kinds == ["NAME", "LBRACE"]
        is_head = is_block or kinds[:1] == ["STRING"]
        is_head = is_head or kinds in (["NAME", "EQUAL"], ["NAME", "COLON"])
        if is_block or (is_head and first and column <= self.indent(0)):
            while self.open:
                self.close()
        elif first and kinds[:1] in (["EQUAL"], ["COLON"]):
            while self.is_ended_by_field(token):
                self.close()

    def is_ended_by_field(self, token: Token) -> bool:
        """Whether a field at the start of this line says that the innermost bracket is over."""
        if not self.open or self.open[-1].token.kind == "LBRACE":
            return False
        opened_before = self.layout.line(self.open[-1].token) < self.layout.line(token)
        return opened_before and self.layout.column(token) <= self.indent(-1)

    def indent(self, which: int) -> int:
        return self.layout.indent(self.open[which].token)
