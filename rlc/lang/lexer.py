"""Text to tokens. Never fails: a malformed word is reported, then read as what was meant."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, partial

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.lalr import Token
from rlc.lang.source import Source, Span
from rlc.lang.tables import Tables
from rlc.record import frozen

MAX_FINDINGS = 50  # in one file; one with more is not a recipe, and nobody reads on

_QUOTES = "\"'`“”"
ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}

# Malformed words, tried around the grammar's own terminals.
_BEFORE = {
    "SLASH_COMMENT": r"//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?",
    "DOUBLE_EQUAL": r"==+",
    "POINT_FIRST": r"\.[0-9](?:[\w.]|(?<=[eE])[+-])*%?",
}
_AFTER = {
    "BAD_NUMBER": r"\$?[0-9](?:[\w.]|(?<=[eE])[+-])*%?\w*",
    "BAD_NAME": r"[^\W\d]\w*",
    "BAD_QUOTES": r"'[^'\r\n]*'?|[“”][^“”\"\r\n]*[“”\"]?|`[^`\r\n]*`?",
    "BAD_STRING": r'"(?:[^"\\\r\n]|\\[^\r\n])*\\?',
    "UNKNOWN": r"[^\x00-\x7f]+|.",
}

# A word whose meaning cannot be guessed: it fits nowhere in the grammar.
BAD = "BAD"


@frozen
class Lexed:
    """The tokens and comments of a source, and what was wrong with its words.

    ``doubtful`` holds the starts of words that were guessed or skipped: a syntax error in the
    same field is more likely their consequence than another mistake.
    """

    tokens: list[Token]
    comments: list[Token]
    doubtful: list[int]
    diagnostics: Diagnostics


def lex(source: Source, tables: Tables) -> Lexed:
    """Split a text into tokens and comments, up to MAX_FINDINGS malformed words."""
    lexed = Lexed([], [], [], Diagnostics())
    match_at = _pattern(tuple(tables.terminals.items())).match
    keywords, text, position = tables.keywords, source.text, 0
    while (match := match_at(text, position)) and len(lexed.diagnostics) < MAX_FINDINGS:
        kind = match.lastgroup or ""
        start, position = match.span(kind)
        if kind == "SPACE":
            continue
        if kind == "COMMENT":
            lexed.comments.append(Token(kind, start, position))
        elif kind in _CHECKS:
            token = _CHECKS[kind](Span(source, start, position), lexed)
            if token is not None:
                lexed.tokens.append(token)
                position = token.end
        else:
            kind = keywords.get(match.group(kind), kind) if kind == "NAME" else kind
            lexed.tokens.append(Token(kind, start, position))
    return lexed


@cache
def _pattern(terminals: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    parts = (*_BEFORE.items(), *terminals, *_AFTER.items())
    words = "|".join(f"(?P<{name}>{pattern})" for name, pattern in parts)
    # White space before a word goes with it; at the end of the text it is a match of its own.
    return re.compile(f"(?:{dict(terminals)['SPACE']})?(?:{words})", re.DOTALL)


# Each check sees a word that is or may be malformed, reports it, and returns the token to go on
# with, or None to go on without.


def _check_string(span: Span, lexed: Lexed) -> Token:
    text = span.text
    for match in re.finditer(r"\\(.)", text):
        if match.group(1) not in ESCAPES:
            place = Span(span.source, span.start + match.start(), span.start + match.end())
            lexed.diagnostics.error(
                "RL0013",
                place,
                f"unknown escape `{match.group()}` in a string",
                'the escapes are \\" \\\\ \\n \\t; write `\\\\` for a backslash',
            )
    return Token("STRING", span.start, span.end)


def _check_number(kind: str, span: Span, lexed: Lexed) -> Token:
    digits = span.text.strip("$%smhd")
    value = number_value(digits) if len(digits) <= 300 else math.inf
    mantissa = digits.lower().partition("e")[0]
    if math.isinf(value) or (value == 0 and mantissa.strip("0_.")):
        size = "large" if value else "small"
        lexed.diagnostics.error("RL0014", span, f"this number is too {size} to compute with")
        return _bad(span, lexed)
    return Token(kind, span.start, span.end)


def _check_bad_number(span: Span, lexed: Lexed) -> Token:
    text = span.text
    suggestion = None
    if text.startswith("."):
        suggestion = f"write `0{text}`"
    elif text.endswith("."):
        suggestion = f"write `{text}0`"
    elif not text.startswith("$") and re.fullmatch(r"[0-9._]+[A-Za-z]+", text):
        suggestion = "the units are s m h d, as in `90s` and `7d`, and %, as in `10%`"
    lexed.diagnostics.error(
        "RL0014",
        span,
        f"`{_short(text)}` is not a number",
        suggestion or "numbers look like `128`, `1_000`, `0.5`, `4e-5`, `$25`, `90s`, `10%`",
    )
    return _bad(span, lexed)


def _check_bad_name(span: Span, lexed: Lexed) -> Token:
    message = f"the name `{_short(span.text)}` has letters that names cannot have"
    lexed.diagnostics.error("RL0015", span, message, "names use a to z, A to Z, digits and `_`")
    return Token("NAME", span.start, span.end)


def _check_quotes(span: Span, lexed: Lexed) -> Token:
    if span.end - span.start < 2 or span.text[-1] not in _QUOTES:
        return _check_open_string(span, lexed)
    message = "strings are written in double quotes"
    lexed.diagnostics.error("RL0012", span, message, f'write `"{_short(span.text[1:-1])}"`')
    return Token("STRING", span.start, span.end)


def _check_open_string(span: Span, lexed: Lexed) -> Token:
    lexed.diagnostics.error(
        "RL0012",
        span,
        "this string has no closing quote on its line",
        'end it with `"`; a line break inside a string is written `\\n`',
    )
    lexed.doubtful.append(span.start)
    # Most often the quote is missing before the rest of a call or at the end of the line.
    cut = re.search(r"[),\]]", span.text)
    body = span.text[: cut.start()] if cut else span.text
    return Token("STRING", span.start, span.start + len(body.rstrip()))


def _check_double_equal(span: Span, lexed: Lexed) -> Token:
    advice = "one `=` gives a name its value; a recipe has no comparisons"
    lexed.diagnostics.error("RL0010", span, f"expected `=`, found `{_short(span.text)}`", advice)
    return Token("EQUAL", span.start, span.end)


def _check_slash_comment(span: Span, lexed: Lexed) -> None:
    advice = "comments start with `#` and run to the end of the line"
    mark = Span(span.source, span.start, span.start + 2)
    lexed.diagnostics.error("RL0015", mark, f"`{mark.text}` does not start a comment", advice)


_CHARACTER_HELP = {
    ";": "nothing ends with `;`: leave it out",
    "%": "a percentage is written without a space: `10%`",
    "$": "a price is written without a space: `$25`",
    "|": "a pipeline is written with `|>`",
}


def _check_character(span: Span, lexed: Lexed) -> Token | None:
    lexed.diagnostics.error(
        "RL0015",
        span,
        f"{_visible(span.text)} has no meaning in a recipe",
        _CHARACTER_HELP.get(span.text, "leave it out, or put it in a string or a comment"),
    )
    if span.text == "|":
        return Token("PIPE", span.start, span.end)
    if span.text != ";":
        lexed.doubtful.append(span.start)
    return None


def _bad(span: Span, lexed: Lexed) -> Token:
    lexed.doubtful.append(span.start)
    return Token(BAD, span.start, span.end)


_CHECKS: dict[str, Callable[[Span, Lexed], Token | None]] = {
    "STRING": _check_string,
    "BAD_NUMBER": _check_bad_number,
    "POINT_FIRST": _check_bad_number,
    "BAD_NAME": _check_bad_name,
    "BAD_QUOTES": _check_quotes,
    "BAD_STRING": _check_open_string,
    "DOUBLE_EQUAL": _check_double_equal,
    "SLASH_COMMENT": _check_slash_comment,
    "UNKNOWN": _check_character,
    **{kind: partial(_check_number, kind) for kind in ("NUMBER", "MONEY", "DURATION", "PERCENT")},
}


def number_value(text: str) -> int | float:
    """The value of a number's digits: an int where they have neither point nor exponent."""
    return int(text) if text.replace("_", "").isdigit() else float(text)


def string_value(text: str) -> str:
    """The value of a string as written, quotes included; an unknown escape keeps its letter."""
    body = text[1:-1] if len(text) > 1 and text[-1] in _QUOTES else text[1:]
    if "\\" not in body:
        return body
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[1]), body)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _visible(text: str) -> str:
    """A character as a message can show it; invisible ones by their number."""
    shown = _short(text)
    return f"`{shown}`" if shown.isprintable() else f"the character U+{ord(text[0]):04X}"
