"""What can still be read from a recipe with syntax errors.

1. ``rlc.lang.balance`` pairs the brackets, guided by the layout where they do not match.
2. With brackets paired, declarations and the fields of a block can be told apart without
   parsing them, so each is read alone and a mistake in one cannot hide a mistake in another.
3. In a piece that does not parse, single-token edits are tried where the parse got stuck. Edits
   that make it parse name its mistakes ("missing `,`"); without them it is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from rlc.lang.ast import BlockDecl, Decl, Field, Recipe
from rlc.lang.balance import CLOSERS, OPENERS, Layout, balance
from rlc.lang.build import TreeBuilder
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.lalr import Stuck, Token, expected, run
from rlc.lang.lexer import MAX_FINDINGS, Lexed
from rlc.lang.source import Source, Span
from rlc.lang.syntax_errors import Edit, report_edit, report_stuck
from rlc.lang.tables import Tables
from rlc.record import evolve, frozen

MAX_EDITS = 4  # in one piece; with more it is guesswork
MAX_EDITED = 2_000  # tokens; the search parses a piece about ten times for each edit

# A declaration or field does not end before or after one of these.
_ARITHMETIC = {"PLUS", "MINUS", "STAR", "SLASH"}
_JOINERS = {"EQUAL", "COLON", "COMMA", "DOT", "PIPE", "THEN", *_ARITHMETIC, *CLOSERS}


def recover(source: Source, tables: Tables, lexed: Lexed) -> tuple[Recipe, Diagnostics]:
    """Every declaration and field of a text that does not parse as a whole, and why not."""
    layout = Layout(source)
    balanced = balance(layout, lexed.tokens)
    doubtful = sorted([*lexed.doubtful, *balanced.doubtful])
    reader = _Reader(source, tables, TreeBuilder(source), layout, doubtful, balanced.diagnostics)
    decls: list[Decl] = []
    unread: set[str] = set()
    for piece in _pieces(layout, balanced.tokens, _starts_declaration):
        if len(reader.found) >= MAX_FINDINGS:
            break
        read = reader.declarations(piece)
        decls += read
        if not read and [token.kind for token in piece[:2]] == ["NAME", "NAME"]:
            unread.add(layout.span(piece[1]).text)
    whole = Span(source, 0, len(source.text))
    return Recipe(whole, tuple(decls), frozenset(unread)), balanced.diagnostics


@frozen
class _Reader:
    source: Source
    tables: Tables
    build: TreeBuilder
    layout: Layout
    doubtful: list[int]  # ascending
    found: Diagnostics

    def declarations(self, piece: list[Token]) -> Sequence[Decl]:
        """The declarations in a piece: one, or none where it cannot be read."""
        brace = _block_brace(piece)
        if brace is None:
            recipe = self.read("recipe", piece)
            return recipe.decls if isinstance(recipe, Recipe) else ()
        # A block: its head as if it were empty, then its fields one by one.
        end = piece[brace].end
        head = self.read("recipe", [*piece[: brace + 1], Token("RBRACE", end, end)])
        fields, unread = self.fields(piece[brace + 1 : -1])
        if not isinstance(head, Recipe) or not isinstance(head.decls[0], BlockDecl):
            return ()
        span = Span(self.source, piece[0].start, piece[-1].end)
        return (evolve(head.decls[0], span=span, fields=fields, unread=unread),)

    def fields(self, tokens: list[Token]) -> tuple[tuple[Field, ...], frozenset[str]]:
        """The fields of a block and the names of those that cannot be read."""
        fields: list[Field] = []
        unread: set[str] = set()
        for part in _pieces(self.layout, tokens, _starts_field):
            if len(self.found) >= MAX_FINDINGS:
                break
            if len(part) > 1 and part[-1].kind == "COMMA":
                part.pop()
            field = self.read("field", part)
            if isinstance(field, Field):
                fields.append(field)
            elif part[0].kind == "NAME":
                unread.add(self.layout.span(part[0]).text)
        return tuple(fields), frozenset(unread)

    def read(self, start: str, piece: list[Token]) -> object:
        """The value of a piece, edited where that helps; None where nothing does."""
        if self.is_doubtful(piece):
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
        """The edits to try before ``piece[index]``, the likeliest first."""
        allowed = expected(self.tables, start, piece[:index])
        kind = piece[index].kind if index < len(piece) else None
        if kind == "COLON" and "EQUAL" in allowed:
            yield Edit(index, True, "EQUAL")
        if kind is None:
            return
        for added in ("COMMA", "EQUAL", "COLON"):
            if added in allowed:
                yield Edit(index, False, added)
        if kind in _JOINERS - CLOSERS.keys():
            yield Edit(index, True, None)

    def is_doubtful(self, piece: list[Token]) -> bool:
        """Whether a word in the piece was reported and guessed."""
        after = bisect_left(self.doubtful, piece[0].start)
        return after < len(self.doubtful) and self.doubtful[after] < piece[-1].end


def _block_brace(piece: Sequence[Token]) -> int | None:
    """Where the block of ``kind name { … }`` opens, also if the head is malformed."""
    for index, token in enumerate(piece):
        if token.kind == "LBRACE":
            is_value = index and piece[index - 1].kind in _JOINERS
            return None if is_value or piece[-1].kind != "RBRACE" else index
        if token.kind in _JOINERS:
            return None
    return None


def _pieces(
    layout: Layout, tokens: Sequence[Token], starts: Callable[..., bool]
) -> Iterator[list[Token]]:
    """Cut tokens before each one outside brackets that starts a new piece."""
    piece: list[Token] = []
    depth = 0
    for index, token in enumerate(tokens):
        if depth == 0 and piece and starts(layout, tokens, index, len(piece)):
            yield piece
            piece = []
        depth += (token.kind in CLOSERS) - (token.kind in OPENERS)
        piece.append(token)
    if piece:
        yield piece


def _starts_declaration(layout: Layout, tokens: Sequence[Token], index: int, length: int) -> bool:
    token, before = tokens[index], tokens[index - 1]
    first = layout.is_first(token)
    if token.kind in _JOINERS:
        return False
    if before.kind == "RBRACE" or (first and before.kind not in _JOINERS):
        return True
    kinds = [entry.kind for entry in tokens[index : index + 3]]
    is_head = kinds[:2] == ["NAME", "STRING"] or (
        kinds[:2] == ["NAME", "NAME"] and kinds[2:] in (["LBRACE"], ["EQUAL"], ["COLON"])
    )
    # Two names in a row are no value: the value before is what is incomplete.
    is_line = first and kinds[:2] == ["NAME", "NAME"]
    return is_line or (is_head and (first or (length > 2 and before.kind not in _JOINERS)))


def _starts_field(layout: Layout, tokens: Sequence[Token], index: int, _: int) -> bool:
    token, before = tokens[index], tokens[index - 1]
    kinds = [entry.kind for entry in tokens[index : index + 2]]
    if kinds in (["NAME", "EQUAL"], ["NAME", "COLON"]):
        return before.kind not in ("DOT", "MINUS")
    joined = token.kind in _JOINERS or (before.kind in _JOINERS and before.kind != "COMMA")
    return layout.is_first(token) and not joined
