"""What can still be read from a recipe with syntax errors.

0. ``rlc.lang.syntax.foreign`` puts blocks in braces that are written as in another language.
1. ``rlc.lang.syntax.balance`` pairs the brackets, guided by the layout where they do not match.
2. With brackets paired, declarations and the fields of a block can be told apart without
   parsing them, so each is read alone and a mistake in one cannot hide a mistake in another.
3. In a piece that does not parse, single-token edits are tried where the parse got stuck. Edits
   that make it parse name its mistakes ("missing `,`"); without them it is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from rlc.lang.ast import BlockDecl, Decl, Field, Recipe
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source, Span
from rlc.lang.syntax.balance import balance
from rlc.lang.syntax.build import TreeBuilder
from rlc.lang.syntax.errors import Edit, in_call, report_edit, report_stuck
from rlc.lang.syntax.foreign import FOREIGN_TYPES, with_braces
from rlc.lang.syntax.lalr import Stuck, Token, expected, run
from rlc.lang.syntax.layout import CLOSE, JOINERS, LITERALS, OPEN, Layout
from rlc.lang.syntax.lexed import MAX_FINDINGS, TokenStream
from rlc.lang.syntax.tables import Tables
from rlc.records import evolve, frozen

MAX_EDITS = 4  # in one piece; with more it is guesswork
MAX_EDITED = 2_000  # tokens; the search parses a piece about ten times for each edit


def recover(source: Source, tables: Tables, lexed: TokenStream) -> tuple[Recipe, Diagnostics]:
    """Every declaration and field of a text that does not parse as a whole, and why not."""
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
        """The declarations in ``tokens[start:stop]``: one, or none where it cannot be read."""
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
        """The fields in ``tokens[start:stop]`` and the names of those that cannot be read."""
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
        """What might be the names of fields in ``tokens[first:last]``."""
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
        """The edit where the parse got stuck that lets it go furthest, if any does."""
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
        """The edits to try before ``piece[index]``, the most likely first."""
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
    """Where the block of ``kind name { … }`` opens, also if the head is malformed."""
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
