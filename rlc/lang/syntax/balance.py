"""Pairs brackets. If they do not match, the words around tell which one is missing or extra.

A closing bracket left out swallows the rest of the file: what follows still parses, inside the
wrong declaration. So, in a text that cannot be read as it is:

- ``kind name {`` starts a declaration wherever it stands: all that is open before it ends there.
- Up to the next such head, braces are counted. One too few, and the block ends where the words of
  a declaration come next (``env x =``). One too many, and the block ends at the brace before such
  words; another is extra.
- A bracket that is not closed before its block ends is closed before the first field that follows
  a complete value, or before a pipeline: neither stands inside of arguments.
- Where the layout can be trusted, a head or field no deeper than the line of an open bracket
  closes it as well.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from rlc.lang.diagnostics import Diagnostics, Label, replace
from rlc.lang.source import Span
from rlc.lang.syntax.foreign import REST_OF_LINE
from rlc.lang.syntax.lalr import MAX_FINDINGS, Token
from rlc.lang.syntax.layout import BEFORE_VALUE, CLOSE, LITERALS, OPEN, Layout
from rlc.records import define, field

MOST_OF_HEAD = 200  # tokens of a declaration's head that are looked at again
_ARITHMETIC = {"PLUS", "MINUS", "STAR", "SLASH", "COMPARE"}
TEXTS = {"LPAR": "(", "RPAR": ")", "LSQB": "[", "RSQB": "]", "LBRACE": "{", "RBRACE": "}"}


def balance(layout: Layout) -> tuple[list[Token], list[int], Diagnostics]:
    """Add and drop brackets until they match, up to MAX_FINDINGS.

    Return the tokens, none if that is not enough; the starts of doubtful brackets, as in
    ``Lexed``; and a diagnostic for each change.
    """
    pairing = _Pairing(layout, _unclosed(layout), _surplus(layout))
    for index in range(len(layout.tokens)):
        if len(pairing.found) >= MAX_FINDINGS:
            return [], [], pairing.found
        pairing.take(index)
    while pairing.open and len(pairing.found) < MAX_FINDINGS:
        pairing.close()
    return pairing.out, pairing.doubtful, pairing.found


def _unclosed(layout: Layout) -> set[int]:
    """Return the starts of parentheses and square brackets that are not closed in their block."""
    unclosed: set[int] = set()
    stack: list[Token] = []
    counts: Counter[str] = Counter()
    for index, token in enumerate(layout.tokens):
        if layout.is_block_head(index):
            unclosed.update(entry.start for entry in stack)
            stack, counts = [], Counter()
        if token.kind in OPEN:
            stack.append(token)
            counts[token.kind] += 1
        elif counts[opener := CLOSE.get(token.kind, "")]:
            while (entry := stack.pop()).kind != opener:
                counts[entry.kind] -= 1
                unclosed.add(entry.start)
            counts[opener] -= 1
    unclosed.update(entry.start for entry in stack)
    return unclosed


def _surplus(layout: Layout) -> dict[int, int]:
    """Return for each block head, and the start, closing less opening braces up to the next."""
    surplus, region = {0: 0}, 0
    for index, token in enumerate(layout.tokens):
        if layout.is_block_head(index):
            region = index
            surplus[region] = 0
        surplus[region] += (token.kind == "RBRACE") - (token.kind == "LBRACE")
    return surplus


@define
class _Pairing:
    """One pass over the tokens, with the open brackets and the tokens read so far."""

    layout: Layout
    unclosed: set[int]
    surpluses: dict[int, int]
    surplus: int = 0  # closing braces too many up to the next block head
    out: list[Token] = field(factory=list)
    open: list[Token] = field(factory=list)
    braces: int = 0  # of the brackets that are open
    doubtful: list[int] = field(factory=list)
    found: Diagnostics = field(factory=Diagnostics)
    head: Token | None = None  # name in the last block head without a brace

    def take(self, index: int) -> None:
        """Take one token, first closing brackets that cannot be open any more."""
        self.surplus = self.surpluses.get(index, self.surplus)
        token = self.layout.tokens[index]
        if self.open and token.kind in ("NAME", "PIPE"):
            self.close_before(index)
        if not self.open:
            self.open_block(index)
        if token.kind == "LBRACE" and not self.may_open(index):
            self.surplus += 1
            self.drop(token, "opens nothing here")
        elif self.is_doubled(index):
            self.drop(token, "is one too many")
        elif token.kind in OPEN:
            self.push(token)
            self.out.append(token)
        elif token.kind == "RBRACE":
            self.take_brace(index)
        elif token.kind in CLOSE:
            self.take_closer(token)
        else:
            self.out.append(token)

    def push(self, token: Token) -> None:
        self.open.append(token)
        self.braces += token.kind == "LBRACE"

    def pop(self) -> Token:
        token = self.open.pop()
        self.braces -= token.kind == "LBRACE"
        return token

    def open_block(self, index: int) -> None:
        """Remember ``kind name field =``: another field after it tells that a brace is missing."""
        layout = self.layout
        if self.head is None and self.is_inner_field(index) and self.ends_head():
            self.head = self.out[-1]
        if self.head is not None and layout.is_field(index) and layout.is_after_value(index):
            self.push(self.add_missing_brace(None))
            return
        starts = layout.is_after_value(index) or layout.is_first(layout.tokens[index])
        if starts and layout.lacks_brace(index):
            self.head = self.layout.tokens[index + 1]
        elif self.layout.is_head(index):
            self.head = None

    def is_inner_field(self, index: int) -> bool:
        """Return whether a field stands at the start of a line, deeper than declarations do."""
        layout, token = self.layout, self.layout.tokens[index]
        if not (layout.is_field(index) and layout.is_first(token) and layout.has_columns):
            return False
        outer = [layout.indent(layout.tokens[head]) for head in layout.heads[:1]]
        return bool(outer) and layout.column(token) > outer[0]

    def ends_head(self) -> bool:
        """Return whether ``out`` ends with ``kind name(parameters)`` or ``kind name = base``."""
        kinds, depth = [token.kind for token in self.out[-MOST_OF_HEAD:]], 0
        for place in range(len(kinds) - 1, -1, -1):
            kind = kinds[place]
            depth += (kind == "RPAR") - (kind == "LPAR")
            if depth == 0 and kinds[place : place + 2] == ["NAME", "NAME"]:
                return kinds[place + 2 : place + 3] == ["LPAR"]
            if depth == 0 and kind not in ("NAME", "DOT", "LPAR"):
                return kind == "EQUAL"
        return False

    def close_before(self, index: int) -> None:
        """Close the brackets that ``tokens[index]`` cannot stand in."""
        layout, token = self.layout, self.layout.tokens[index]
        if layout.is_block_head(index) or self.is_overdue(index):
            while self.open:
                self.close()
        elif token.kind == "PIPE":
            while self.open and self.open[-1].kind == "LPAR" and self.is_unclosed(-1):
                self.close()
        elif layout.is_field(index):
            while self.open and self.open[-1].kind != "LBRACE" and self.is_over(index):
                self.close()

    def is_overdue(self, index: int) -> bool:
        """Return whether all open brackets should have been closed before this head."""
        layout, token = self.layout, self.layout.tokens[index]
        if layout.has_columns and layout.is_first(token):
            deeper = layout.column(token) > layout.indent(self.open[0])
            return not deeper and (layout.reads_as_head(index) or layout.lacks_brace(index))
        may_be_late = self.surplus < 0 or self.open[0].kind != "LBRACE"
        return may_be_late and layout.is_head(index)

    def is_over(self, index: int) -> bool:
        """Return whether the innermost bracket must be closed before the field at ``index``."""
        layout, token, opened = self.layout, self.layout.tokens[index], self.open[-1]
        if layout.has_columns and layout.is_first(token):
            deeper = layout.column(token) > layout.indent(opened)
            late = layout.is_after_value(index) or self.is_unclosed(-1)
            return late and not deeper and layout.line(opened) < layout.line(token)
        return self.is_unclosed(-1) and (opened.kind == "LSQB" or layout.is_after_value(index))

    def is_unclosed(self, which: int) -> bool:
        return self.open[which].start in self.unclosed

    def may_open(self, index: int) -> bool:
        """Return whether an opening brace starts a block or a record."""
        if self.surplus >= 0:  # it is closed: if it should not be there, neither should the other
            return True
        before, after = self.layout.kinds(max(0, index - 1), 1), self.layout.kinds(index + 1, 2)
        if index and before[0] in BEFORE_VALUE:
            return after[:1] == ["RBRACE"] or after in (["NAME", "EQUAL"], ["NAME", "COLON"])
        return not self.open and before in (["NAME"], ["RPAR"])

    def is_doubled(self, index: int) -> bool:
        """Return whether a bracket is not closed because it is typed twice."""
        token, *after = self.layout.tokens[index : index + 2]
        doubled = bool(after) and after[0].kind == token.kind != "LBRACE"
        return doubled and token.start in self.unclosed and after[0].start not in self.unclosed

    def take_brace(self, index: int) -> None:
        """Take a closing brace: the end of a record or block, or one too many."""
        token, after = self.layout.tokens[index], self.layout.kinds(index + 1, 2)
        may_end = after in ([], ["NAME", "NAME"], ["NAME", "STRING"]) or after[0] == "RBRACE"
        if self.surplus > 0 and self.braces == 1 and not may_end:
            self.surplus -= 1
            self.drop(token, "closes nothing")
        elif self.braces:
            while self.open[-1].kind != "LBRACE":
                self.close()
            self.pop()
            self.out.append(token)
        elif self.head is not None and not self.open:
            self.add_missing_brace(token)
            self.out.append(token)
        else:
            self.drop(token, "closes nothing")

    def take_closer(self, token: Token) -> None:
        """Take a closing parenthesis or square bracket, inside of the innermost braces."""
        opener = CLOSE[token.kind]
        inside = []
        for entry in reversed(self.open):
            inside.append(entry.kind)
            if entry.kind == opener or (entry.kind == "LBRACE" and len(inside) > 1):
                break
        if opener in inside:
            while self.open[-1].kind != opener:
                self.close()
            self.pop()
            self.out.append(token)
        elif inside and inside[0] != "LBRACE" and self.is_unclosed(-1):
            self.replace_closer(token)
        elif (place := self.missing_opener(opener)) is not None:
            self.add_opener(token, place)
        elif inside and inside[0] != "LBRACE":
            self.replace_closer(token)
        else:
            self.drop(token, "closes nothing")

    def missing_opener(self, opener: str) -> int | None:
        """Return the place in ``out`` of the missing opening bracket of a stray closing one.

        A parenthesis belongs after the last name that another value follows, ``groups 16)``; a
        square bracket at the start of the field's value.
        """
        depth, is_list = 0, False
        for place in range(len(self.out), 1, -1):
            last, before = self.out[place - 1], self.out[place - 2]
            depth += (last.kind in CLOSE) - (last.kind in OPEN)
            if depth < 0:
                return None
            is_list |= depth == 0 and last.kind == "COMMA"
            if depth == 0 and last.kind == "EQUAL" and self.starts_field(place - 2):
                return place if opener == "LSQB" and is_list else None
            after = self.out[place].kind if place < len(self.out) else "RPAR"
            is_value = last.kind == "NAME" and before.kind in BEFORE_VALUE
            is_apart = after in LITERALS | {"NAME", "RPAR", "LSQB"}
            if depth == 0 and opener == "LPAR" and is_value and is_apart:
                return place
        return None

    def starts_field(self, place: int) -> bool:
        """Return whether ``out[place]`` is the name of a field, not of an argument."""
        kinds = [token.kind for token in self.out[max(0, place - 1) : place + 2]]
        return kinds[-2:] == ["NAME", "EQUAL"] and kinds[0] not in ("COMMA", "LPAR")

    def add_opener(self, closer: Token, place: int) -> None:
        """Put the bracket that ``closer`` closes into ``out``."""
        before, kind = self.out[place - 1], CLOSE[closer.kind]
        offset = before.end if kind == "LPAR" else self.out[place].start
        message = f"missing `{TEXTS[kind]}` after `{self.layout.span(before).text}`"
        label = Label(self.layout.span(closer), "closed here")
        span = Span(self.layout.source, offset, offset)
        fix = replace(span, TEXTS[kind], f"add `{TEXTS[kind]}`")
        self.found.error("RL0011", span, message, None, label, fix=fix)
        self.out.insert(place, Token(kind, offset, offset))
        self.out.append(closer)

    def drop(self, token: Token, why: str) -> None:
        """Leave a bracket out; the fix is a proposal if its partner may be missing instead."""
        span = self.layout.span(token)
        message = f"`{TEXTS[token.kind]}` {why}"
        after_another = bool(self.out) and self.out[-1].kind in CLOSE
        kinds = [opened.kind for opened in self.open]
        ends_record = kinds[-1:] == ["LBRACE"] and "LPAR" in kinds  # and a later brace does so now
        clear = after_another or (token.kind not in ("RPAR", "RSQB") and not ends_record)
        if clear and token.kind == "RPAR":
            line = [one for one in self.out if self.layout.line(one) == span.line]
            clear = not _has_operator(line)
        fix = replace(span, "", f"remove `{TEXTS[token.kind]}`", safe=clear)
        self.found.error("RL0011", span, message, "leave it out", fix=fix)
        self.doubtful.append(token.start)

    def replace_closer(self, token: Token) -> None:
        opened = self.pop()
        right, span = OPEN[opened.kind], self.layout.span(token)
        message = f"expected `{TEXTS[right]}`, found `{TEXTS[token.kind]}`"
        label = Label(self.layout.span(opened), "opened here")
        fix = replace(span, TEXTS[right], f"write `{TEXTS[right]}`")
        self.found.error("RL0011", span, message, None, label, fix=fix)
        self.out.append(token._replace(kind=right))

    def add_missing_brace(self, closer: Token | None) -> Token:
        """Open a block after the last head; ``closer`` is the brace that ends it, if known."""
        assert self.head is not None
        name, place = self.layout.span(self.head), self.head.end
        labels = [Label(self.layout.span(closer), "closed here")] if closer else []
        span = Span(self.layout.source, place, place)
        fix = replace(span, " {", "add `{`")
        message = f"missing `{{` after `{name.text}`"
        self.found.error("RL0011", span, message, None, *labels, fix=fix)
        index = next(i for i in range(len(self.out), 0, -1) if self.out[i - 1] == self.head)
        brace = Token("LBRACE", place, place)
        self.out.insert(index, brace)
        self.head, self.surplus = None, self.surplus - 1
        return brace

    def close(self) -> None:
        """Close the innermost bracket at the end of ``out``."""
        opened = self.pop()
        place, closer = self.out[-1].end, OPEN[opened.kind]
        self.out.append(Token(closer, place, place))
        if opened.start in self.unclosed and self.out[-2].start == opened.start:
            self.doubtful.append(opened.start)
        span = Span(self.layout.source, place, place)
        label = Label(self.layout.span(opened), "opened here")
        text, rest = TEXTS[closer], REST_OF_LINE.match(self.layout.source.text, place)
        clear = opened.kind != "LPAR"
        if not clear and len(self.found) < MAX_FINDINGS:  # more are not shown
            inside = [token for token in self.out[:-1] if token.start > opened.start]
            clear = not _may_end_sooner(inside)
        fix = replace(span, text, f"add `{text}`", clear)
        if opened.kind == "LBRACE" and self.layout.line(opened) < span.line and rest:
            # A block's brace gets a line of its own.
            added = f"\n{' ' * (self.layout.indent(opened) - 1)}{text}"
            fix = replace(Span(span.source, rest.end(), rest.end()), added, fix.title)
        self.found.error("RL0011", span, f"missing `{text}`", None, label, fix=fix)


def _has_operator(tokens: list[Token]) -> bool:
    """Return whether a sum, a product or a comparison is among these tokens."""
    pairs = pairwise(tokens)  # a minus after no value is a sign
    return any(one.kind in _ARITHMETIC and before.kind not in BEFORE_VALUE for before, one in pairs)


def _may_end_sooner(tokens: list[Token]) -> bool:
    """Return whether a parenthesis around these tokens may end before their end, with another
    meaning: before a block, an operator, or in an inner call, whose next argument is the outer
    one's."""
    if tokens and tokens[0].kind == "LBRACE":
        return True
    inner: list[str] = []
    for index, token in enumerate(tokens):
        if token.kind in OPEN:
            inner.append(token.kind)
        elif token.kind in CLOSE:
            inner.pop()
        elif token.kind == "COMMA" and inner[-1:] == ["LPAR"]:
            after = [one.kind for one in tokens[index + 1 : index + 3]]
            if after != ["NAME", "EQUAL"]:
                return True
    return _has_operator(tokens)
