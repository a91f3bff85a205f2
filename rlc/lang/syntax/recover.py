"""Recovery: reading the correct parts of a recipe with syntax errors.

0. ``rlc.lang.syntax.foreign`` puts blocks in braces that are written as in another language.
1. ``rlc.lang.syntax.balance`` pairs the brackets, guided by the layout where they do not match.
2. With brackets paired, declarations and the fields of a block can be told apart without
   parsing them, so each is read alone and a mistake in one cannot hide a mistake in another.
3. In a piece that does not parse, single-token edits are tried where the parse got stuck. Edits
   that make it parse name its mistakes ("missing `,`"); without them it is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from rlc.lang.ast import BlockDecl, Decl, Field, Recipe
from rlc.lang.diagnostics import Diagnostics, Fix, replace
from rlc.lang.source import Source, Span
from rlc.lang.syntax.balance import balance
from rlc.lang.syntax.build import TreeBuilder
from rlc.lang.syntax.foreign import FOREIGN_TYPES, with_braces
from rlc.lang.syntax.lalr import (
    MAX_DEPTH,
    MAX_FINDINGS,
    Stuck,
    Token,
    TokenStream,
    expected,
    run,
    shortened,
)
from rlc.lang.syntax.layout import CLOSE, JOINERS, LITERALS, OPEN, Layout
from rlc.lang.syntax.tables import END, Tables
from rlc.records import evolve, frozen

_CODE = "RL0010"
_NO_CONDITIONS = "there is no `if`: losses and rewards have `where(condition, value, otherwise)`"
_EXPECTATION = "expect main.cost.high < $20"  # an example
_VALUES = {"NUMBER", "MONEY", "DURATION", "PERCENT", "STRING", "TRUE", "FALSE"}
_STARTS_OF_VALUES = {"NAME", "LPAR", "LSQB", "LBRACE", "MINUS", *_VALUES}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH", "PIPE", "THEN", "DOT", "LPAR", "LBRACE", "COMPARE"}


@frozen
class Edit:
    """A change of one token: drop ``tokens[index]`` or not, then put a token of ``kind`` there."""

    index: int
    drop: bool
    kind: str | None

    def apply(self, tokens: Sequence[Token]) -> list[Token]:
        edited = list(tokens)
        place = tokens[self.index - 1].end if self.index else tokens[0].start
        added = [] if self.kind is None else [Token(self.kind, place, place)]
        edited[self.index : self.index + self.drop] = added
        return edited


def report_edit(
    source: Source, tables: Tables, tokens: Sequence[Token], edit: Edit, found: Diagnostics
) -> None:
    """Report the mistake in ``tokens`` that an edit corrects."""
    place, word = _found(source, tokens, edit.index)
    fix = _fix(source, tables, tokens, edit)
    if edit.kind is None and [t.kind for t in tokens[edit.index :][:2]] == ["NAME", "NAME"]:
        span = Span(source, tokens[edit.index].start, tokens[edit.index + 1].end)
        of, name = (source.text[t.start : t.end] for t in tokens[edit.index : edit.index + 2])
        meant = f"{name}: {FOREIGN_TYPES[of]}"
        fix = replace(span, meant, f"write `{meant}`")
        message, advice = "the type of a parameter stands after its name", f"write `{meant}`"
        found.error(_CODE, span, message, advice, fix=fix)
    elif edit.kind is None:
        advice = "leave it out" if fix.safe or word != "`*`" else "a power is a product: `x * x`"
        found.error(_CODE, place, f"unexpected {word}", advice, fix=fix)
    elif edit.kind == "COMMA" and not edit.drop:
        end = Span(source, tokens[edit.index - 1].end, tokens[edit.index - 1].end)
        found.error(_CODE, end, f"missing `,` before {word}", fix=fix)
    elif edit.index and _text(source, tokens[edit.index - 1]) == "if":
        found.error(_CODE, place, f"unexpected {word}", _NO_CONDITIONS)
    else:
        joined = {"EQUAL": "a name and its value are", "COLON": "a parameter and its type are"}
        advice = f"{joined[edit.kind]} joined by `{tables.words[edit.kind]}`"
        message = f"expected `{tables.words[edit.kind]}`, found {word}"
        found.error(_CODE, place, message, advice, fix=fix)


def _fix(source: Source, tables: Tables, tokens: Sequence[Token], edit: Edit) -> Fix:
    """Return the edit as a fix; safe unless it drops a word that may have a meaning."""
    token = tokens[min(edit.index, len(tokens) - 1)]
    span = Span(source, token.start, token.end)
    if edit.kind is None:
        around = tokens[max(0, edit.index - 1) : edit.index + 2]
        doubled = sum(source.text[t.start : t.end] == span.text for t in around) > 1
        doubled &= token.kind != "STAR"  # a power elsewhere: a product is another number
        return replace(span, "", f"remove `{span.text}`", safe=doubled or token.kind == "COMMA")
    word = tables.words[edit.kind]
    if edit.drop:
        spaced = source.text[max(0, span.start - 1) : span.start].isspace()
        return replace(span, word if spaced else f" {word}", f"write `{word}`")
    end = tokens[edit.index - 1].end
    added = f" {word}" if edit.kind == "EQUAL" else word
    # A value without a name may be the next argument, or what is left of a longer one.
    kinds = [entry.kind for entry in tokens[edit.index - 1 : edit.index + 2]]
    unnamed = edit.kind == "COMMA" and kinds[1:] != ["NAME", "EQUAL"]
    unclear = (unnamed or kinds[:2] == ["NAME", "NAME"]) and in_call(tokens, edit.index)
    return replace(Span(source, end, end), added, f"add `{word}`", safe=not unclear)


def in_call(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the innermost bracket around ``tokens[index]`` is that of a call."""
    depth = 0
    for place in range(index - 1, 0, -1):
        depth += (tokens[place].kind in CLOSE) - (tokens[place].kind in OPEN)
        if depth < 0:
            return tokens[place].kind == "LPAR" and tokens[place - 1].kind == "NAME"
    return False


def report_stuck(
    source: Source,
    tables: Tables,
    start: str,
    tokens: Sequence[Token],
    stuck: Stuck,
    found: Diagnostics,
) -> None:
    """Report why ``tokens`` cannot be read, if no single edit corrects them."""
    place, word = _found(source, tokens, stuck.index)
    if stuck.too_deep:
        advice = f"at most {MAX_DEPTH} levels are read; a sum counts one level for each term"
        found.error("RL0016", place, "this expression is nested too deeply", advice)
        return
    before = tokens[: stuck.index]
    kinds = expected(tables, start, before)
    wanted = _wanted(tables, kinds)
    if not wanted:
        message = f"unexpected {word}"
    elif stuck.index == len(tokens):
        message = f"expected {wanted} after `{_text(source, tokens[-1])}`"
    else:
        message = f"expected {wanted}, found {word}"
    conditions = [i for i in range(stuck.index, len(tokens)) if _is_condition(tokens, i)]
    if conditions[:1] == [stuck.index]:
        advice = "an argument has one name; a condition is written with `==`"
        for index in conditions:
            span, _ = _found(source, tokens, index)
            found.error(_CODE, span, message, advice, fix=replace(span, "==", "write `==`"))
        return
    hyphened = _hyphened(tokens, stuck.index, source)
    if hyphened is None:
        expects = bool(tokens) and _text(source, tokens[0]) == "expect"
        example = f"a path is compared with a number: `{_EXPECTATION}`" if expects else None
        found.error(_CODE, place, message, _help(source, tokens, stuck.index) or example)
        return
    name = hyphened.text.replace("-", "_")
    fix = replace(hyphened, name, f"write `{name}`")
    found.error(_CODE, place, message, f"names use `_`: `{name}`", fix=fix)


def _is_condition(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a call has `policy.lora_rank = 8` with its sign at ``index``."""
    kinds = [token.kind for token in tokens[max(0, index - 2) : index + 1]]
    return kinds == ["DOT", "NAME", "EQUAL"] and in_call(tokens, index)


def _found(source: Source, tokens: Sequence[Token], index: int) -> tuple[Span, str]:
    """Return the place of a token and its text; just after the last one for the end."""
    if index == len(tokens):
        end = tokens[-1].end
        return Span(source, end, end), "the end"
    token = tokens[index]
    text = _text(source, token)
    return Span(source, token.start, token.end), f"`{text}`" if text else "the end"


def _text(source: Source, token: Token) -> str:
    return shortened(source.text[token.start : token.end])


def _wanted(tables: Tables, kinds: set[str]) -> str:
    """Return the kinds that may follow, in words; "" if they are too many or none is needed."""
    words: list[str] = []
    if kinds >= _VALUES:
        words.append("a value")
        kinds = kinds - _STARTS_OF_VALUES
    elif "NAME" in kinds and END not in kinds:
        words.append("a name")
    rest = kinds - _OPERATORS - {END}
    words += sorted(f"`{tables.words[kind]}`" for kind in rest if kind in tables.words)
    if len(words) > 4 or (END in kinds and "a value" not in words):
        return ""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _hyphened(tokens: Sequence[Token], index: int, source: Source) -> Span | None:
    """Return the place of ``lora-rank``, if the parse stopped at a hyphen in it."""
    last = index - 1
    if last < 0 or tokens[last].kind != "NAME":
        return None
    while [token.kind for token in tokens[last + 1 : last + 3]] == ["MINUS", "NAME"]:
        last += 2
    span = Span(source, tokens[index - 1].start, tokens[last].end)
    return None if last < index or re.search(r"\s", span.text) else span


def _help(source: Source, tokens: Sequence[Token], index: int) -> str | None:
    """Return advice for the most common mistakes."""
    if any(_text(source, token) == "if" for token in tokens[max(0, index - 1) : index + 1]):
        return _NO_CONDITIONS
    kinds = [token.kind for token in tokens]
    kind = kinds[index] if index < len(kinds) else END
    if kind == "PIPE" and {"PLUS", "MINUS", "STAR", "SLASH"} & set(kinds[:index]):
        return "a pipeline inside arithmetic takes parentheses: `3 * (a |> f())`"
    if kind in ("PLUS", "MINUS", "STAR", "SLASH") and "PIPE" in kinds[:index]:
        return "a pipeline inside arithmetic takes parentheses: `(a |> f()) + b`"
    if kind == "NAME" and in_call(tokens, index):
        return "arguments are joined by `,`; text stands in quotes"
    if kind == "DOT":
        return "`.` follows a name only: `policy.base`"
    return None


MAX_EDITS = 4  # in one piece; with more it is guesswork
MAX_EDITED = 2_000  # tokens; the search parses a piece about ten times for each edit


def recover(source: Source, tables: Tables, lexed: TokenStream) -> tuple[Recipe, Diagnostics]:
    """Return the declarations and fields of a text that does not parse, and its syntax errors."""
    words, found = with_braces(Layout(source, lexed.tokens))
    tokens, guessed, unbalanced = balance(Layout(source, words))
    found += unbalanced
    layout, doubtful = Layout(source, tokens), sorted([*lexed.doubtful, *guessed])
    reader = _Reader(source, tables, TreeBuilder(source), layout, doubtful, found)
    decls: list[Decl] = []
    unread: set[str] = set()
    for start, stop in _pieces(layout, 0, len(layout.tokens), _starts_declaration):
        if len(found) >= MAX_FINDINGS:
            break
        piece = layout.tokens[start:stop]
        read = reader.declarations(start, stop)
        decls += read
        if not read and [token.kind for token in piece[:2]] == ["NAME", "NAME"]:
            unread.add(layout.span(piece[1]).text)
    return Recipe(Span(source, 0, len(source.text)), tuple(decls), frozenset(unread)), found


@frozen
class _Reader:
    source: Source
    tables: Tables
    build: TreeBuilder
    layout: Layout
    doubtful: list[int]  # ascending
    found: Diagnostics

    def declarations(self, start: int, stop: int) -> Sequence[Decl]:
        """Return the declaration in ``tokens[start:stop]``, none if it cannot be read."""
        piece = list(self.layout.tokens[start:stop])
        brace = _block_brace(piece)
        if brace is None:
            recipe = self.read("recipe", piece)
            return recipe.decls if isinstance(recipe, Recipe) else ()
        # A block: its head as if it were empty, then its fields one by one.
        end = piece[brace].end
        head = self.read("recipe", [*piece[: brace + 1], Token("RBRACE", end, end)])
        fields, unread = self.fields(start + brace + 1, stop - 1)
        if not isinstance(head, Recipe) or not isinstance(head.decls[0], BlockDecl):
            return ()
        span = Span(self.source, piece[0].start, piece[-1].end)
        return (evolve(head.decls[0], span=span, fields=fields, unread=unread),)

    def fields(self, start: int, stop: int) -> tuple[tuple[Field, ...], frozenset[str]]:
        """Return the fields in ``tokens[start:stop]`` and the names of unreadable ones."""
        fields: list[Field] = []
        unread: set[str] = set()
        for first, last in _pieces(self.layout, start, stop, _starts_field):
            if len(self.found) >= MAX_FINDINGS:
                break
            part = list(self.layout.tokens[first:last])
            if len(part) > 1 and part[-1].kind == "COMMA":
                part.pop()
            field = self.read("field", part)
            if isinstance(field, Field):
                fields.append(field)
            else:  # with the names of fields that it may have swallowed
                unread |= self.names(first, last)
        return tuple(fields), frozenset(unread)

    def names(self, first: int, last: int) -> set[str]:
        """Return the possible names of fields in ``tokens[first:last]``."""
        layout = self.layout
        return {
            layout.span(layout.tokens[index]).text
            for index in range(first, last)
            if layout.tokens[index].kind == "NAME" and (index == first or layout.is_field(index))
        }

    def read(self, start: str, piece: list[Token]) -> object:
        """Return the value of a piece, edited if need be; None if no edits make it parse."""
        after = bisect_left(self.doubtful, piece[0].start)
        if after < len(self.doubtful) and self.doubtful[after] < piece[-1].end:
            return None  # already reported: what follows from a guess is no finding
        result = first = run(self.tables, start, piece, self.build)
        edits: list[tuple[list[Token], Edit]] = []
        tokens = piece
        while isinstance(result, Stuck):
            edit = self.best_edit(start, tokens, result) if len(edits) < MAX_EDITS else None
            if edit is None:
                report_stuck(self.source, self.tables, start, piece, first, self.found)
                return None
            edits.append((tokens, edit))
            tokens = edit.apply(tokens)
            result = run(self.tables, start, tokens, self.build)
        for before, edit in edits:
            report_edit(self.source, self.tables, before, edit, self.found)
        return result

    def best_edit(self, start: str, piece: list[Token], stuck: Stuck) -> Edit | None:
        """Return the edit where the parse stopped that lets it go furthest, if any does."""
        if stuck.too_deep or len(piece) > MAX_EDITED:
            return None
        best, reach = None, stuck.index
        for edit in self.candidates(start, piece, stuck.index):
            edited = edit.apply(piece)
            result = run(self.tables, start, edited, self.build)
            # In tokens of the piece before the edit, so that an added token is no progress.
            shift = len(piece) - len(edited)
            got = result.index + shift if isinstance(result, Stuck) else len(piece) + 1
            if got > reach + (edit.kind is None):
                best, reach = edit, got
        return best

    def candidates(self, start: str, piece: list[Token], index: int) -> Iterator[Edit]:
        """Return the edits to try before ``piece[index]``, the most likely first."""
        allowed = expected(self.tables, start, piece[:index])
        kind = piece[index].kind if index < len(piece) else None
        if kind == "COLON" and "EQUAL" in allowed:
            yield Edit(index, True, "EQUAL")
        if kind is None:
            return
        # `of 8` in a call: a name without its `=`, sooner than two arguments without a comma.
        named = kind in LITERALS and index > 1 and piece[index - 2].kind in ("LPAR", "COMMA")
        kinds = [token.kind for token in piece[index - 1 : index + 2]]
        words = kinds[:2] == ["NAME", "NAME"] and kinds[2:] not in (["EQUAL"], ["COLON"])
        is_text = words and in_call(piece, index)  # two words of one, sooner than two arguments
        order = ["EQUAL", "COMMA", "COLON"] if named else ["COMMA", "EQUAL", "COLON"]
        if kinds[:2] == ["NAME", "NAME"]:  # a parameter and its type, where they can stand
            first = piece[index - 1]
            if "COLON" in allowed and self.source.text[first.start : first.end] in FOREIGN_TYPES:
                yield Edit(index - 1, True, None)
            order.insert(0, "COLON")
        for added in order:
            if added in allowed and not (added == "COMMA" and is_text):
                yield Edit(index, False, added)
        if kind in JOINERS - OPEN.keys():
            yield Edit(index, True, None)


def _block_brace(piece: Sequence[Token]) -> int | None:
    """Return the index of the brace in ``kind name { … }``, also if the head is malformed."""
    depth = 0  # in its parameters
    for index, token in enumerate(piece):
        if depth or (index == 2 and token.kind == "LPAR"):
            depth += (token.kind in OPEN) - (token.kind in CLOSE)
            continue
        if token.kind == "LBRACE":
            is_value = index and piece[index - 1].kind in JOINERS
            return None if is_value or piece[-1].kind != "RBRACE" else index
        if token.kind in JOINERS:
            return None
    return None


def _pieces(
    layout: Layout, start: int, stop: int, starts: Callable[[Layout, int], bool]
) -> Iterator[tuple[int, int]]:
    """Cut ``tokens[start:stop]`` before each one outside brackets that starts a new piece."""
    depth, first = 0, start
    for index in range(start, stop):
        kind = layout.tokens[index].kind
        if depth == 0 and index > first and starts(layout, index):
            yield first, index
            first = index
        depth += (kind in OPEN) - (kind in CLOSE)
    if stop > first:
        yield first, stop


def _starts_declaration(layout: Layout, index: int) -> bool:
    token, before = layout.tokens[index], layout.tokens[index - 1]
    if token.kind in JOINERS:
        return False
    if before.kind == "RBRACE" or layout.is_head(index):
        return True
    kinds = layout.kinds(index, 4)
    # What is no value, after one: the `=` is missing.
    if kinds == ["NAME", "NAME", "NAME", "LPAR"] and layout.is_after_value(index):
        return True
    if not layout.has_lines or not layout.is_first(token):
        return False
    # Two names in a row are no value: the value before is what is incomplete.
    return before.kind not in JOINERS or kinds[:2] == ["NAME", "NAME"]


def _starts_field(layout: Layout, index: int) -> bool:
    token, before = layout.tokens[index], layout.tokens[index - 1]
    if layout.is_field(index):
        return before.kind not in ("DOT", "MINUS")
    joined = token.kind in JOINERS or (before.kind in JOINERS and before.kind != "COMMA")
    return layout.has_lines and layout.is_first(token) and not joined
