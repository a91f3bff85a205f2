"""What a text declares, read from its words alone: so one that does not parse has it too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import KINDS
from rlc.catalog.records import REQUIRED, SCALARS, Param
from rlc.lang.words import COMMENT, NAMES, read_words, string_value

if TYPE_CHECKING:
    from rlc.lang.source import Source
    from rlc.lang.words import Word

IMPORT = "import"
OPEN = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
CLOSE = {closer: opener for opener, closer in OPEN.items()}
# Between two of these words there is no end of a value.
_JOINERS = {"EQUAL", "COLON", "COMMA", "DOT", "PIPE", "THEN", "COMPARE", "PLUS", "MINUS", "STAR"}
_JOINERS |= {"SLASH", *OPEN}


@frozen
class Written:
    """A default as it is written in a recipe."""

    text: str


@frozen(eq=False)
class Declared:
    """A declaration. ``start`` and ``end`` bound its name; it goes on up to ``stop``. ``doc`` is
    the comment above it; ``parameters`` is None without parentheses."""

    source: Source
    kind: str
    name: str
    start: int
    end: int
    first: int
    stop: int
    doc: str = ""
    parameters: tuple[Param, ...] | None = None

    @property
    def place(self) -> tuple[str, int]:
        """What tells it from any other."""
        return self.source.name, self.start

    @property
    def text(self) -> str:
        """The declaration as it is written."""
        return self.source.text[self.first : self.stop].rstrip()


@frozen(eq=False)
class Outline:
    """The words of a text and its declarations. ``heads`` are the indices of the words that start
    one; ``imports`` the paths that it imports, each with the offsets of its string."""

    source: Source
    words: list[Word]
    heads: Mapping[int, Declared]
    imports: tuple[tuple[str, int, int], ...]


def read_outline(source: Source) -> Outline:
    """Return the declarations of a text, of one with mistakes those that can be recognised."""
    every = read_words(source)
    words = [word for word in every if word.kind != COMMENT]
    starts = list(_heads(source, words))
    ends = [*starts[1:], len(words)][: len(starts)]
    heads, imports = {}, []
    comments = {word.end: word for word in every if word.kind == COMMENT}
    for first, after in zip(starts, ends, strict=True):
        kind, named = words[first], words[first + 1]
        text = source.text[named.start : named.end]
        if named.kind == "STRING":
            imports.append((string_value(text), named.start, named.end))
            continue
        heads[first] = Declared(
            source,
            source.text[kind.start : kind.end],
            text,
            named.start,
            named.end,
            kind.start,
            words[after - 1].end,
            _comment_above(source, kind.start, comments),
            _parameters(source, words, first),
        )
    return Outline(source, words, heads, tuple(imports))


def _heads(source: Source, words: Sequence[Word]) -> Iterator[int]:
    """The indices of the words that start a declaration: ``kind name`` and what follows a name, or
    an import, outside brackets; or a known kind at the start of a line, whatever is open there."""
    depth = 0
    for index, word in enumerate(words):
        if word.kind == "NAME" and _reads_as_head(source, words, index):
            text = source.text[word.start : word.end]
            known = text in DECLARATIONS or text == IMPORT
            at_margin = word.start == 0 or source.text[word.start - 1] == "\n"
            before = words[index - 1].kind if index else None
            if (known and at_margin) or (depth == 0 and before not in _JOINERS):
                depth = 0
                yield index
        depth = max(0, depth + (word.kind in OPEN) - (word.kind in CLOSE))


def _reads_as_head(source: Source, words: Sequence[Word], index: int) -> bool:
    kinds = [word.kind for word in words[index + 1 : index + 3]]
    if kinds[:1] == ["STRING"]:
        return source.text[words[index].start : words[index].end] == IMPORT
    return kinds[:1] == ["NAME"] and kinds[1:] in (["LBRACE"], ["EQUAL"], ["COLON"], ["LPAR"])


def _comment_above(source: Source, start: int, comments: Mapping[int, Word]) -> str:
    """The lines of comment that end on the line before ``start``, without their marks."""
    lines: list[str] = []
    number = source.position(start)[0] - 1
    while number >= 1:
        end = source.line_starts[number - 1] + len(source.line(number))
        comment = comments.get(end)
        if comment is None or source.line(number).strip()[:1] != "#":
            break
        lines.insert(0, source.text[comment.start : end].lstrip("#").strip())
        number -= 1
    return "\n".join(lines)


def _parameters(source: Source, words: Sequence[Word], head: int) -> tuple[Param, ...] | None:
    """The parameters of the declaration that starts at a word; None without parentheses."""
    if head + 2 >= len(words) or words[head + 2].kind != "LPAR":
        return None
    parts: list[list[Word]] = [[]]
    depth = 0
    for word in words[head + 2 :]:
        depth += (word.kind in OPEN) - (word.kind in CLOSE)
        if depth == 0:
            break
        if depth == 1 and word.kind == "COMMA":
            parts.append([])
        elif depth > 1 or word.kind != "LPAR":
            parts[-1].append(word)
    name = source.text[words[head + 1].start : words[head + 1].end]
    return tuple(_parameter(source, part, name) for part in parts if part and part[0].kind in NAMES)


def _parameter(source: Source, part: Sequence[Word], owner: str) -> Param:
    """``size: int(1, 9) = 3`` as what the catalogue says of a parameter."""

    def text(words: Sequence[Word]) -> str:
        return source.text[words[0].start : words[-1].end] if words else ""

    equal = next((i for i, word in enumerate(part) if word.kind == "EQUAL"), len(part))
    typed, default = part[2:equal], part[equal + 1 :]
    name = text(part[:1])
    param = Param(name, "any", f"a parameter of `{owner}`")
    if default:
        param = evolve(param, default=Written(text(default)), optional=text(default) == "none")
    kind = text(typed[:1])
    if kind not in {*SCALARS, *KINDS}:
        return param
    inner = [text([word]) for word in typed[1:] if word.kind in ("NAME", "NUMBER")]
    if kind == "word":
        return evolve(param, type=kind, choices=tuple(inner))
    shown = f"{param.doc}, {text(typed)}" if len(typed) > 1 else param.doc
    return evolve(param, type=kind, doc=shown)


def is_required(param: Param) -> bool:
    return param.default is REQUIRED
