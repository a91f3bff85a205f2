"""Text to tokens. Never fails: a malformed word is reported, then read as what was meant."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from itertools import islice

from rlc.lang.diagnostics import Diagnostics, replace
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import BAD, MAX_FINDINGS, QUOTES, Token, TokenStream, new_tuple
from rlc.lang.syntax.tables import Tables

ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}

# Malformed words, tried around the grammar's own terminals.
_BEFORE = {
    "SLASH_COMMENT": r"//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?",
    "DOUBLE_EQUAL": r"==+",
    "POINT_FIRST": r"\.[0-9](?:[\w.]|(?<=[eE])[+-])*%?",
    "THOUSANDS": r"(?<![\w.,$])\$?[0-9]{1,3}(?:,[0-9]{3})+(?![\w.%])",
    "UNQUOTED": r"""(?:\.\.?/|~/|[A-Za-z]+://)[^\s,()\[\]{}"']+"""
    r"|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*-[\w.-]*",
}
_AFTER = {
    "BAD_NUMBER": r"\$?[0-9](?:[\w.]|(?<=[eE])[+-])*%?\w*",
    "BAD_NAME": r"[^\W\d]\w*",
    "BAD_QUOTES": r"'(?:[^'\r\n]|(?<=\w)'(?=\w))*'?|[“”][^“”\"\r\n]*[“”\"]?|`[^`\r\n]*`?",
    "BAD_STRING": r'"(?:[^"\\\r\n]|\\[^\r\n])*\\?',
    "UNKNOWN": r"[^\x00-\x7f]+|.",
}

_FREQUENT = {"NAME", "EQUAL", "COMMA", "LPAR", "RPAR", "LBRACE", "RBRACE"}
# What must not follow a word that could be the start of a malformed one, None for any word.
_NOT_BEFORE: dict[str, str | None] = {
    "EQUAL": "=",
    "NAME": r"[\w.]*:\S",
    "DOT": r"[^A-Za-z_]",
    "SLASH": None,
    "COMPARE": None,
    **dict.fromkeys(("NUMBER", "MONEY", "DURATION", "PERCENT"), ",[0-9]"),
}
NUMBERS = {"NUMBER", "MONEY", "DURATION", "PERCENT"}
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # in no file, but in what an editor or program sends


def lex(source: Source, tables: Tables) -> TokenStream:
    """Split a text into tokens and comments, up to MAX_FINDINGS malformed words."""
    lexed = TokenStream([], [], [], Diagnostics())
    # A keyword is a name by its letters: `thené` is not one followed by a letter.
    terminals = tuple(item for item in tables.terminals.items() if item[0] not in tables.soft)
    match_plain = _plain_pattern(terminals).match
    keywords, text, position = tables.keywords, source.text, 0
    plain = {*tables.words, "COMPARE"} - {*keywords.values()}
    for char in islice(_NO_TEXT.finditer(text), MAX_FINDINGS):
        span = Span(source, *char.span())
        message = f"the character U+{ord(char[0]):04X} is in no text"
        lexed.diagnostics.error("RL0003", span, message, "leave it out")
    quotes = None  # made for the first line in which they do not match
    while position < len(text) and len(lexed.diagnostics) < MAX_FINDINGS:
        match = match_plain(text, position) or _pattern(terminals).match(text, position)
        if match is None:
            break
        kind = match.lastgroup or ""
        start, position = match.span(match.lastindex or 0)
        if quotes is not None and start in quotes.ends:
            position = quotes.ends.pop(start)
            kind = "STRING"
        elif kind == "NAME":
            kind = keywords.get(text[start:position], kind)
        elif kind in plain:
            pass
        elif kind == "STRING":
            if text.find("\\", start, position) >= 0:
                _check_escapes(Span(source, start, position), lexed)
        elif kind in NUMBERS:
            if position - start > 20 or "e" in text[start:position].lower():
                kind = _number_kind(kind, Span(source, start, position), lexed)
        elif kind == "COMMENT":
            lexed.comments.append(Token(kind, start, position))
            continue
        elif kind == "SPACE":
            continue
        elif kind == "BAD_STRING":
            from rlc.lang.syntax.malformed import Quotes

            quotes = quotes or Quotes(source)
            text, position = quotes.read_again(text, start, lexed)
            continue
        else:
            from rlc.lang.syntax.malformed import CHECKS

            token = CHECKS[kind](Span(source, start, position), lexed)
            if token is not None:
                lexed.tokens.append(token)
                position = token.end
            continue
        lexed.tokens.append(new_tuple(Token, (kind, start, position)))
    return lexed


_Terminals = tuple[tuple[str, str], ...]


@cache
def _pattern(terminals: _Terminals) -> re.Pattern[str]:
    """Return the pattern of any word, malformed or not."""
    return _compiled((*_BEFORE.items(), *_by_frequency(terminals), *_AFTER.items()))


@cache
def _plain_pattern(terminals: _Terminals) -> re.Pattern[str]:
    """Return the pattern of words that are certainly well-formed. Most recipes have no others, and
    are read without the whole pattern, which takes long to compile."""
    return _compiled(
        (name, f"{pattern}(?!{not_before})" if not_before else pattern)
        for name, pattern in _by_frequency(terminals)
        if (not_before := _NOT_BEFORE.get(name, "")) is not None
    )


def _by_frequency(terminals: _Terminals) -> _Terminals:
    # Alternatives are tried in order, so the frequent ones come first: none of those that they
    # overtake can begin as they do.
    return tuple(sorted(terminals, key=lambda terminal: terminal[0] not in _FREQUENT))


def _compiled(words: Iterable[tuple[str, str]]) -> re.Pattern[str]:
    patterns = dict(words)
    text = "|".join(f"(?P<{name}>{pattern})" for name, pattern in patterns.items())
    # White space before a word goes with it; at the end of the text it is a match of its own.
    return re.compile(f"(?:{patterns['SPACE']})?(?:{text})", re.DOTALL)


def _check_escapes(span: Span, lexed: TokenStream) -> None:
    for match in re.finditer(r"\\(.)", span.text):
        if match.group(1) not in ESCAPES:
            place = Span(span.source, span.start + match.start(), span.start + match.end())
            known = match.group(1) in "'`/0rxuUN"  # escapes of other languages
            lexed.diagnostics.error(
                "RL0013",
                place,
                f"unknown escape `{match.group()}` in a string",
                'the escapes are \\" \\\\ \\n \\t; write `\\\\` for a backslash',
                fix=replace(place, f"\\{match.group()}", "double the backslash", not known),
            )


def _number_kind(kind: str, span: Span, lexed: TokenStream) -> str:
    """Return the kind of a well-formed number; BAD if a float cannot hold it."""
    digits = span.text.lower().strip("$%smhd")
    value = number_value(digits) if len(digits) <= 300 else math.inf
    mantissa = digits.partition("e")[0]
    if math.isinf(value) or (value == 0 and mantissa.strip("0_.")):
        size = "large" if value else "small"
        lexed.diagnostics.error("RL0014", span, f"this number is too {size} to compute with")
        lexed.doubtful.append(span.start)
        return BAD
    return kind


def number_value(text: str) -> int | float:
    """Return the value of a number's digits: an int where they have neither point nor exponent."""
    return int(text) if text.replace("_", "").isdigit() else float(text)


def string_value(text: str) -> str:
    """Return the value of a string with its quotes; an unknown escape keeps its letter."""
    body = text[1:-1] if len(text) > 1 and text[-1] in QUOTES else text[1:]
    if not body.isprintable():
        body = _NO_TEXT.sub("\ufffd", body)
    if "\\" not in body:
        return body
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), body)
