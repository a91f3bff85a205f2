"""The wording of syntax errors: what was found, what was expected, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlc.lang.diagnostics import Diagnostics, Fix, replace
from rlc.lang.source import Source, Span
from rlc.lang.syntax.foreign import FOREIGN_TYPES
from rlc.lang.syntax.lalr import MAX_DEPTH, Stuck, Token, expected
from rlc.lang.syntax.layout import CLOSE, OPEN
from rlc.lang.syntax.lexed import shortened
from rlc.lang.syntax.tables import END, Tables
from rlc.records import frozen

_CODE = "RL0010"
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
    """Say what is wrong with ``tokens``, given the edit that puts them right."""
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
    else:
        joined = {"EQUAL": "a name and its value are", "COLON": "a parameter and its type are"}
        advice = f"{joined[edit.kind]} joined by `{tables.words[edit.kind]}`"
        message = f"expected `{tables.words[edit.kind]}`, found {word}"
        found.error(_CODE, place, message, advice, fix=fix)


def _fix(source: Source, tables: Tables, tokens: Sequence[Token], edit: Edit) -> Fix:
    """The edit as a change of the text; safe unless it drops a word that may have had a meaning."""
    token = tokens[min(edit.index, len(tokens) - 1)]
    span = Span(source, token.start, token.end)
    if edit.kind is None:
        around = tokens[max(0, edit.index - 1) : edit.index + 2]
        doubled = sum(other.kind == token.kind for other in around) > 1
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
    """Whether the innermost bracket around ``tokens[index]`` is that of a call."""
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
    hyphened = _hyphened(tokens, stuck.index, source)
    if hyphened is None:
        expects = bool(tokens) and _text(source, tokens[0]) == "expect"
        example = f"a path is compared with a number: `{_EXPECTATION}`" if expects else None
        found.error(_CODE, place, message, _help(tokens, stuck.index) or example)
        return
    name = hyphened.text.replace("-", "_")
    fix = replace(hyphened, name, f"write `{name}`")
    found.error(_CODE, place, message, f"names use `_`: `{name}`", fix=fix)


def _found(source: Source, tokens: Sequence[Token], index: int) -> tuple[Span, str]:
    """The place of a token and its text; just after the last one for the end."""
    if index == len(tokens):
        end = tokens[-1].end
        return Span(source, end, end), "the end"
    token = tokens[index]
    text = _text(source, token)
    return Span(source, token.start, token.end), f"`{text}`" if text else "the end"


def _text(source: Source, token: Token) -> str:
    return shortened(source.text[token.start : token.end])


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
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _hyphened(tokens: Sequence[Token], index: int, source: Source) -> Span | None:
    """``lora-rank``, where the parse got stuck on a hyphen in it."""
    last = index - 1
    if last < 0 or tokens[last].kind != "NAME":
        return None
    while [token.kind for token in tokens[last + 1 : last + 3]] == ["MINUS", "NAME"]:
        last += 2
    span = Span(source, tokens[index - 1].start, tokens[last].end)
    return None if last < index or re.search(r"\s", span.text) else span


def _help(tokens: Sequence[Token], index: int) -> str | None:
    """Advice for the mistakes that are made most."""
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
