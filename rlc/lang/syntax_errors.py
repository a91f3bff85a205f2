"""The wording of syntax errors: what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.lalr import MAX_DEPTH, Stuck, Token, expected
from rlc.lang.source import Source, Span
from rlc.lang.tables import END, Tables
from rlc.record import frozen

_CODE = "RL0010"
_VALUES = {"NUMBER", "MONEY", "DURATION", "PERCENT", "STRING", "TRUE", "FALSE"}
_STARTS_OF_VALUES = {"NAME", "LPAR", "LSQB", "LBRACE", "MINUS", *_VALUES}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH", "PIPE", "THEN", "DOT", "LPAR"}


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
    """Say what is wrong with ``tokens``, given the edit that puts them right."""
    place, word = _found(source, tokens, edit.index)
    if edit.kind is None:
        found.error(_CODE, place, f"unexpected {word}", "leave it out")
    elif edit.kind == "COMMA" and not edit.drop:
        end = Span(source, tokens[edit.index - 1].end, tokens[edit.index - 1].end)
        found.error(_CODE, end, f"missing `,` before {word}")
    else:
        advice = "a name and its value are joined by `=`" if edit.kind == "EQUAL" else None
        message = f"expected `{tables.words[edit.kind]}`, found {word}"
        found.error(_CODE, place, message, advice)


def report_stuck(
    source: Source,
    tables: Tables,
    start: str,
    tokens: Sequence[Token],
    stuck: Stuck,
    found: Diagnostics,
) -> None:
    """Say why ``tokens`` cannot be read, where no single edit puts them right."""
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
    found.error(_CODE, place, message, _help(tokens, stuck.index, source))


def _found(source: Source, tokens: Sequence[Token], index: int) -> tuple[Span, str]:
    """The place of a token and its text; just after the last one for the end."""
    if index == len(tokens):
        end = tokens[-1].end
        return Span(source, end, end), "the end"
    token = tokens[index]
    text = _text(source, token)
    return Span(source, token.start, token.end), f"`{text}`" if text else "the end"


def _text(source: Source, token: Token) -> str:
    text = source.text[token.start : token.end]
    return text if len(text) <= 40 else f"{text[:39]}…"


def _wanted(tables: Tables, kinds: set[str]) -> str:
    """What may come next in words; empty where too much may, after a complete value."""
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
    return (
        words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}" if words else ""
    )


def _help(tokens: Sequence[Token], index: int, source: Source) -> str | None:
    """Advice for the mistakes that are made most."""
    kinds = [token.kind for token in tokens]
    kind = kinds[index] if index < len(kinds) else END
    if kind == "PIPE" and {"PLUS", "MINUS", "STAR", "SLASH"} & set(kinds[:index]):
        return "a pipeline inside arithmetic takes parentheses: `3 * (a |> f())`"
    if kind in ("PLUS", "MINUS", "STAR", "SLASH") and "PIPE" in kinds[:index]:
        return "a pipeline inside arithmetic takes parentheses: `(a |> f()) + b`"
    if kind == "MINUS" and index and kinds[index - 1 : index + 2] == ["NAME", "MINUS", "NAME"]:
        first, last = (_text(source, tokens[index + step]) for step in (-1, 1))
        return f"names use `_`: `{first}_{last}`"
    if kind == "DOT":
        return "`.` follows a name only: `policy.base`"
    return None
