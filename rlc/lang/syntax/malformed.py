"""Malformed words: each is reported and, if its meaning can be guessed, read as that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from rlc.lang.ast import Binary
from rlc.lang.diagnostics import Diagnostics, Fix, replace
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import BAD, QUOTES, Token, TokenStream, shortened
from rlc.lang.syntax.layout import BEFORE_VALUE, CLOSE, LITERALS, OPEN
from rlc.records import evolve, field, frozen

MAX_LINE = 4_000  # characters; beyond, a line is no recipe's
MAX_CUTS = 12  # places where a text may have started or ended
_EXTRA_COST = 0.5  # a quote is forgotten more often than typed twice
EXTRA, NO_OPENING, NO_CLOSING = "extra", "no opening", "no closing"

_QUOTE = re.compile(r'\\.|"')
_COMMENT = re.compile(r"(?:^|\s)#")
# Code before an opening quote, after a closing one, and all through.
_BEFORE_TEXT = re.compile(r"(?:^|[=(\[,+*]|\bimport)\s*$")
_AFTER_TEXT = re.compile(
    r"\s*(?:$|[)\]},|+*]|then\b)|\s+[A-Za-z_]\w*(?:\s*=|\s+[A-Za-z_]\w*\s*[={:]|\s*$)"
)
_WRONG_IN_CODE = re.compile(
    r"[\\/!?;]|\.(?!\w)|\b[A-Za-z_]\w*(?:\s+[A-Za-z_]\w*){3}|\w:\S|[A-Za-z_]-[A-Za-z_]"
)
_WRONG_IN_TEXT = re.compile(r"\w\s*=\s*|\|>|^[\s,)\]}]|[\s({\[,]$|^[\d._]*(?:[eE]-?\d+)?$")
# Where a text without a closing quote ends, and one without an opening quote starts.
END_OF_TEXT = re.compile(r"(?=\s*(?:[),\]]|\|>|\}|$))|(?=\s+[A-Za-z_]\w*\s*=)")
_START_OF_TEXT = re.compile(r"(?:[=(\[,]|\bimport\b)\s*")


@frozen
class Misquote:
    """One mistake in a line.

    An extra quote stands at ``start``; else the text without one of its quotes is
    ``[start, end)`` with the quote that it has. It is ``clear`` if no other reading of the line is
    as likely.
    """

    kind: str
    start: int
    end: int
    clear: bool = True


def misquote(line: str) -> Misquote | None:
    """Return the most likely mistake in a line with an odd number of quotes; None in any other."""
    comment = _COMMENT.search(line)
    code = line[: comment.start()].rstrip() if comment else line.rstrip()
    places = [match.start() for match in _QUOTE.finditer(code) if match[0] == '"']
    if len(places) % 2 == 0 or len(line) > MAX_LINE:
        return None
    readings = list(_Readings(code, [-1, *places, len(code)]).all())
    least, best = min(readings, key=lambda reading: reading[0])
    starts = {found.start for cost, found in readings if (cost, found.kind) == (least, NO_OPENING)}
    return evolve(best, clear=len(starts) < 2)


_Reading = tuple[float, Misquote]  # with what it costs


class _Readings:
    """The ways to read a line with one quote less or more.

    ``bounds`` are the places of the quotes, with one before the line and one at its end. Segment i
    is text if i is odd, up to the mistake; after it, if i is even.
    """

    def __init__(self, line: str, bounds: list[int]) -> None:
        self.line, self.bounds = line, bounds
        segments = [line[start + 1 : end] for start, end in pairwise(bounds)]
        self.last = len(segments) - 1

        def cost(index: int, is_text: bool) -> float:
            return _cost(segments[index], is_text, index == 0, index == self.last)

        indices = range(len(segments))
        self.before = [0.0, *accumulate(cost(i, i % 2 == 1) for i in indices)]
        self.after = [0.0, *accumulate(cost(i, i % 2 == 0) for i in reversed(indices))][::-1]

    def all(self) -> Iterator[_Reading]:
        for index in range(self.last + 1):
            yield from self.without_closing(index) if index % 2 else self.without_opening(index)
            if index < self.last:
                yield self.with_extra(index)

    def without_closing(self, index: int) -> Iterator[_Reading]:
        """Yield readings where the text of segment ``index`` ends before the next quote."""
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        cuts = [match.start() for match in END_OF_TEXT.finditer(self.line, start, end)]
        for cut in cuts[:MAX_CUTS] or [end]:
            yield self.split(index, cut, Misquote(NO_CLOSING, start - 1, cut))

    def without_opening(self, index: int) -> Iterator[_Reading]:
        """Yield readings where the text before the next quote starts within segment ``index``."""
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        if index == self.last:
            return
        # The latest first: of equal readings it is the shortest text.
        cuts = [match.end() for match in _START_OF_TEXT.finditer(self.line, start, end)][::-1]
        for cut in cuts[:MAX_CUTS] or [start]:
            yield self.split(index, cut, Misquote(NO_OPENING, cut, end + 1))

    def split(self, index: int, cut: int, found: Misquote) -> _Reading:
        start, end = self.bounds[index] + 1, self.bounds[index + 1]
        cost = self.before[index] + self.after[index + 1]
        cost += _cost(self.line[start:cut], index % 2 == 1, index == 0, False)
        cost += _cost(self.line[cut:end], index % 2 == 0, False, index == self.last)
        return cost, found

    def with_extra(self, index: int) -> _Reading:
        """Return the reading without the quote between segment ``index`` and the next."""
        place = self.bounds[index + 1]
        joined = self.line[self.bounds[index] + 1 : self.bounds[index + 2]].replace('"', " ")
        cost = _cost(joined, index % 2 == 1, index == 0, index + 1 == self.last)
        cost += self.before[index] + self.after[index + 2] + _EXTRA_COST
        return cost, Misquote(EXTRA, place, place + 1)


def _cost(segment: str, is_text: bool, is_first: bool, is_last: bool) -> float:
    """Return how unlikely a segment is as text, or as code."""
    if is_text:
        brackets = sum(segment.count(a) != segment.count(b) for a, b in ("()", "[]", "{}"))
        return len(_WRONG_IN_TEXT.findall(segment)) + brackets
    cost = 2.0 * len(_WRONG_IN_CODE.findall(segment))
    if not is_last and not (is_first and not segment.strip()):
        cost += 2 * (_BEFORE_TEXT.search(segment) is None)
    if not is_first:
        cost += 2 * (_AFTER_TEXT.match(segment) is None)
    return cost


@frozen
class Quotes:
    """Lines whose quotes do not match, read again as if the most likely mistake were not there."""

    source: Source
    ends: dict[int, int] = field(factory=dict)  # of strings that lack a quote, by their start
    lines: set[int] = field(factory=set)  # that were read again

    def read_again(self, text: str, start: int, lexed: TokenStream) -> tuple[str, int]:
        """Report the mistake in the line of the open string at ``start``.

        Return the text and the offset to continue with: an extra quote is replaced by a space, and
        the tokens of the line are dropped.
        """
        line, stop = _line_around(text, start)
        found = None if line in self.lines else misquote(text[line:stop])
        self.lines.add(line)
        if found is None:  # past help: the string ends with the line
            end = line + len(text[line:stop].rstrip())
            _report_quote(NO_CLOSING, Span(self.source, start, end), lexed)
            self.ends[start] = end
            return text, start
        for words in (lexed.tokens, lexed.comments):
            while words and words[-1].start >= line:
                words.pop()
        lexed.doubtful[:] = [start for start in lexed.doubtful if start < line]
        lexed.diagnostics[:] = [d for d in lexed.diagnostics if d.span and d.span.start < line]
        where = Span(self.source, line + found.start, line + found.end)
        _report_quote(found.kind, where, lexed, found.clear)
        if found.kind == EXTRA:
            return f"{text[: where.start]} {text[where.end :]}", line
        self.ends[where.start] = where.end
        return text, line


def _report_quote(kind: str, span: Span, lexed: TokenStream, clear: bool = True) -> None:
    fix: Fix | None
    if kind == EXTRA:
        message, advice = "this quote is one too many", "leave it out"
        fix = replace(span, "", "remove the quote")
    elif kind == NO_CLOSING:
        message = "this string has no closing quote on its line"
        advice = 'end it with `"`; a line break inside a string is written `\\n`'
        fix = None
        if span.text.startswith('"'):
            fix = replace(Span(span.source, span.end, span.end), '"', "add the closing quote")
        elif len(span.text) > 1 and not {'"', "\\"} & {*span.text}:
            fix = replace(span, f'"{span.text[1:]}"', "write double quotes")
    else:
        message, advice = "this string has no opening quote", 'start it with `"`'
        # Of two spaces before it, one may have been within.
        clear = clear and not span.source.text[: span.start].endswith("  ")
        where = Span(span.source, span.start, span.start)
        fix = replace(where, '"', "add the opening quote", safe=clear)
    if kind != EXTRA:
        lexed.doubtful.append(span.start)
    lexed.diagnostics.error("RL0012", span, message, advice, fix=fix)


_UNITS = {
    **dict.fromkeys(["sec", "secs", "second", "seconds"], "s"),
    **dict.fromkeys(["min", "mins", "minute", "minutes"], "m"),
    **dict.fromkeys(["hr", "hrs", "hour", "hours"], "h"),
    **dict.fromkeys(["day", "days"], "d"),
}


MAX_ARGUMENTS = 200  # tokens that are looked through for the bracket around a number

# Text without its quotes, as a name or a path is written: `Qwen/Qwen3-8B`, `./data.jsonl`.
_AROUND = re.compile(r"[\w./:~@+-]*$")
_NAME_OR_PATH = re.compile(r"[A-Za-z][\w.-]*[/:]+[A-Za-z.][\w./:~@+-]*")


def _check_unquoted(span: Span, lexed: TokenStream) -> Token:
    """Read text without quotes; `a:b-c` is text only where a value begins."""
    before = span.source.text[: span.start].rstrip()[-1:]
    word = re.match(r"\w+(?=:\w)", span.text)
    if word and before not in "=([,*+":
        return Token("NAME", span.start, span.start + word.end())
    return _report_unquoted(span, lexed)


def _report_unquoted(span: Span, lexed: TokenStream) -> Token:
    """Report text without quotes, of which some words may have been read before."""
    while lexed.tokens and lexed.tokens[-1].start >= span.start:
        lexed.tokens.pop()
    meant = f'"{span.text}"'
    fix = replace(span, meant, "write double quotes")
    message = f"the text `{shortened(span.text)}` has no quotes"
    lexed.diagnostics.error("RL0012", span, message, f"write `{shortened(meant)}`", fix=fix)
    lexed.doubtful.append(span.start)
    return Token(BAD, span.start, span.end)


def _check_thousands(span: Span, lexed: TokenStream) -> Token:
    """Read ``1,024``: one number, or two arguments that stand close together."""
    inside, depth = "", 0
    for token in reversed(lexed.tokens[-MAX_ARGUMENTS:]):
        depth += (token.kind in CLOSE) - (token.kind in OPEN)
        if depth < 0:
            inside = token.kind
            break
    first, *groups = span.text.split(",")
    meant = "_".join([first, *groups])
    message = f"`{span.text}` is not one number"
    is_one = first.startswith("$") or any(group.startswith("0") for group in groups)
    if is_one or inside not in ("LPAR", "LSQB"):
        fix = replace(span, meant, f"write `{meant}`")
        advice = f"thousands are joined by `_`: `{meant}`"
        lexed.diagnostics.error("RL0017", span, message, advice, fix=fix)
        lexed.doubtful.append(span.start)
        return Token(BAD, span.start, span.end)
    if inside == "LPAR":
        advice = f"write `{meant}` if it is meant as one; else a space after each comma"
        lexed.diagnostics.warning("RL0017", span, message, advice)
    return Token("NUMBER", span.start, span.start + len(first))


def _check_number(span: Span, lexed: TokenStream) -> Token:
    text, whole = span.text, span.source.text
    around = _AROUND.search(whole, max(0, span.start - 100), span.start)
    first = around.start() if around else span.start
    name = _NAME_OR_PATH.match(whole, first)
    if name and name.end() >= span.end:
        return _report_unquoted(Span(span.source, first, name.end()), lexed)
    meant, advice = _number_meant(text), None
    if meant is not None:
        advice = f"write `{meant}`"
    elif not text.startswith("$") and re.fullmatch(r"[0-9._]+[A-Za-z]+", text):
        advice = "the units are s m h d, as in `90s` and `7d`, and %, as in `10%`"
    lexed.diagnostics.error(
        "RL0014",
        span,
        f"`{shortened(text)}` is not a number",
        advice or "numbers look like `128`, `1_000`, `0.5`, `4e-5`, `$25`, `90s`, `10%`",
        fix=replace(span, meant, f"write `{meant}`") if meant else None,
    )
    lexed.doubtful.append(span.start)
    return Token(BAD, span.start, span.end)


def _number_meant(text: str) -> str | None:
    """Return ``0.5`` for ``.5``, ``5.0`` for ``5.``, ``90s`` for ``90sec``; None if unclear."""
    if re.fullmatch(r"\.[0-9]+(?:[eE][+-]?[0-9]+)?%?", text):
        return f"0{text}"
    if re.fullmatch(r"\$?[0-9]+\.", text):
        return f"{text}0"
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]+)", text)
    unit = _UNITS.get(match[2].lower()) if match else None
    return f"{match[1]}{unit}" if match and unit else None


def _check_name(span: Span, lexed: TokenStream) -> Token:
    message = f"the name `{shortened(span.text)}` has letters that names cannot have"
    lexed.diagnostics.error("RL0015", span, message, "names use a to z, A to Z, digits and `_`")
    return Token("NAME", span.start, span.end)


_QUOTING = re.compile(r"(?<!\w)'|'(?!\w)")


def _check_quotes(span: Span, lexed: TokenStream) -> Token:
    """Read a string in other quotes, or one of them alone."""
    whole = span.source.text
    if span.text[0] == "'" and whole[span.start - 1 : span.start].isalpha():
        return _check_apostrophe(span, lexed)
    line, stop = _line_around(whole, span.start)
    # The apostrophes of the line as quotes, so that the most likely mistake among them is found.
    found = misquote(_QUOTING.sub('"', whole[line:stop]))
    is_open = span.end - span.start < 2 or span.text[-1] not in QUOTES
    if is_open or (found and (found.kind, line + found.start) == (NO_CLOSING, span.start)):
        end = END_OF_TEXT.search(whole, span.start + 1, stop)
        span = Span(span.source, span.start, end.start() if end else stop)
        _report_quote(NO_CLOSING, span, lexed)
        return Token("STRING", span.start, span.end)
    body, after = span.text[1:-1], whole[span.end : span.end + 1]
    plain = not set(body) & {'"', "\\"} and not after.isalnum()
    fix = replace(span, f'"{body}"', "write double quotes") if plain else None
    advice = f'write `"{shortened(body)}"`'
    lexed.diagnostics.error("RL0012", span, "strings are written in double quotes", advice, fix=fix)
    return Token("STRING", span.start, span.end)


def _line_around(text: str, offset: int) -> tuple[int, int]:
    """Return the start and the end of the line of an offset."""
    stop = text.find("\n", offset)
    return text.rfind("\n", 0, offset) + 1, len(text) if stop < 0 else stop


def _check_apostrophe(span: Span, lexed: TokenStream) -> Token:
    """Read ``Don't think``, a text without quotes."""
    start = span.start
    while lexed.tokens and lexed.tokens[-1].kind == "NAME" and lexed.tokens[-1].end == start:
        start = lexed.tokens.pop().start
    whole = span.source.text
    _, stop = _line_around(whole, start)
    word, text = re.compile(r"[\w']+").match(whole, start), END_OF_TEXT.search(whole, start, stop)
    assert word is not None
    shown = shortened(whole[start : text.start() if text else stop])
    place = Span(span.source, start, word.end())
    message = f"`{shortened(place.text)}` is not in quotes"
    lexed.diagnostics.error("RL0012", place, message, f'text is written in quotes: `"{shown}"`')
    lexed.doubtful.append(start)
    return Token(BAD, start, word.end())


def _check_double_equal(span: Span, lexed: TokenStream) -> Token:
    """Read ``==`` as a comparison, unless it follows the name of a field."""
    before = ["", "", "", *(token.kind for token in lexed.tokens[-3:])][-3:]
    after_value = before[1] in {"LBRACE", *LITERALS, *CLOSE}
    after_value |= before[1] == "NAME" and before[0] in BEFORE_VALUE | {"DOT"}
    after_value |= before[1] == "COLON"  # of a parameter, whose type stands there
    if span.text == "==" and not (before[2] == "NAME" and after_value):
        return Token("COMPARE", span.start, span.end)
    _report_equals(span, lexed.diagnostics)
    return Token("EQUAL", span.start, span.end)


def _report_equals(span: Span, found: Diagnostics) -> None:
    """Report two or more equals signs where one gives a name its value."""
    message = f"expected `=`, found `{shortened(span.text)}`"
    advice = "one `=` gives a name its value, two compare"
    found.error("RL0010", span, message, advice, fix=replace(span, "=", "write `=`"))


def report_comparison(comparison: Binary, found: Diagnostics) -> None:
    """Report ``name == value`` where the name was to be given the value."""
    source, end = comparison.span.source, comparison.right.span.start
    start = source.text.find("==", comparison.left.span.end)
    _report_equals(Span(source, start, start + 2) if 0 <= start < end else comparison.span, found)


def _check_slash_comment(span: Span, lexed: TokenStream) -> None:
    advice = "comments start with `#` and run to the end of the line"
    mark = Span(span.source, span.start, span.start + 2)
    start, _ = _line_around(span.source.text, span.start)
    # `10 // 3` may be a quotient; two words that follow each other are no value.
    clear = (
        re.search(r"[a-z] +[a-z]", span.text) or not span.source.text[start : mark.start].strip()
    )
    fix = replace(mark, "#", "write `#`", safe=bool(clear)) if mark.text == "//" else None
    lexed.diagnostics.error(
        "RL0015", mark, f"`{mark.text}` does not start a comment", advice, fix=fix
    )


_CHARACTER_HELP = {
    ";": "nothing ends with `;`: leave it out",
    "%": "a percentage is written without a space: `10%`",
    "$": "a price is written without a space: `$25`",
    "|": "a pipeline is written with `|>`",
    "?": "losses and rewards have `where(condition, value, otherwise)`",
}


def _check_character(span: Span, lexed: TokenStream) -> Token | None:
    shown = shortened(span.text)
    # An invisible character is named by its number.
    shown = f"`{shown}`" if shown.isprintable() else f"the character U+{ord(span.text[0]):04X}"
    lexed.diagnostics.error(
        "RL0015",
        span,
        f"{shown} has no meaning in a recipe",
        _CHARACTER_HELP.get(span.text, "leave it out, or put it in a string or a comment"),
        fix=_without(span),
    )
    if span.text == "|":
        return Token("PIPE", span.start, span.end)
    if span.text != ";" and not _is_space(span.text):
        lexed.doubtful.append(span.start)
    return None


def _without(span: Span) -> Fix | None:
    """Return the fix of a character without a meaning, if it is clear."""
    text, before, after = span.source.text, span.start, span.end
    if span.text == "|":
        return replace(span, "|>", "write `|>`")
    if span.text == ";":
        return replace(span, "", "remove `;`")
    if _is_space(span.text):
        return replace(span, " ", "write a space")
    if span.text == "$" and (gap := re.compile(r"[ \t]+(?=[0-9])").match(text, after)):
        return replace(Span(span.source, after, gap.end()), "", "remove the space")
    if span.text == "%" and (
        gap := re.search(r"(?<=[0-9])[ \t]+$", text[max(0, before - 9) : before])
    ):
        start = before - len(gap[0])
        remainder = re.compile(r"[ \t]*(?![\w ]+=)[\w$(]").match(text, after)  # `20 % 3`
        return replace(Span(span.source, start, before), "", "remove the space", not remainder)
    return None


def _is_space(text: str) -> bool:
    """Return whether a text looks like a space or like nothing, as copied from a web page."""
    return all(char.isspace() or char in "\u200b\u200c\u200d\u2060\ufeff" for char in text)


# Each reports a malformed word and returns the token to go on with, None to go on without.
CHECKS: dict[str, Callable[[Span, TokenStream], Token | None]] = {
    "BAD_NUMBER": _check_number,
    "POINT_FIRST": _check_number,
    "THOUSANDS": _check_thousands,
    "UNQUOTED": _check_unquoted,
    "BAD_NAME": _check_name,
    "BAD_QUOTES": _check_quotes,
    "DOUBLE_EQUAL": _check_double_equal,
    "SLASH_COMMENT": _check_slash_comment,
    "UNKNOWN": _check_character,
}
