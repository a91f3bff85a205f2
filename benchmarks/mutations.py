"""How well `rlc check` finds planted mistakes: recall and precision within one line.

    python benchmarks/mutations.py [--seeds 8] [--show 5] [--only KIND] [--layout LAYOUT]

Every recipe of `recipes/` gets one or five mistakes of a kind, is written in one of several layouts
and checked. A mistake is found if a diagnostic points within one line of it; a diagnostic is right
if it points within one line of a mistake. Lines are those of the recipe as it was written before it
was laid out, so that a file on three lines is not easier than one on forty. Valid recipes in every
layout count false alarms.

It also applies the safe fixes (`rlc check --fix`) and says how often they bring the recipe back:
the same syntax tree as before, how often they leave a valid recipe that is another one, and how
often one with more errors, or one that is fixed further when they are applied again.
"""

from __future__ import annotations

import argparse
import re
import sys
import traceback
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from attrs import define, evolve, field, frozen

from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Diagnostic, Diagnostics, Severity
from rlc.lang.fixes import fix_all
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables

RECIPES = Path(__file__).parents[1] / "recipes"
AIMS = {1: 97.0, 5: 94.0}


@frozen
class Word:
    """A token, the white space and comments before it, and the line it was written on."""

    text: str
    kind: str
    gap: str
    line: int


Words = list[Word]


def words_of(source: Source) -> Words:
    words, end = [], 0
    for token in lex(source, load_tables()).tokens:
        text, gap = source.text[token.start : token.end], source.text[end : token.start]
        words.append(Word(text, token.kind, gap, source.position(token.start)[0]))
        end = token.end
    return words


# Mistakes. Each kind says where it can be made and what then stands there: the words in place of
# `words[index]`. All are mistakes wherever they are made: none leaves a valid recipe.


@frozen
class Kind:
    name: str
    fits: Callable[[Words, int], bool]
    make: Callable[[Word, Random], list[Word]]


def _text(words: Words, index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""


def _is_head(words: Words, index: int) -> bool:
    """Whether a word is the kind of a declaration."""
    if words[index].kind != "NAME":
        return False
    has_parameters = words[index + 1].kind == "NAME" and _text(words, index + 2) == "("
    return has_parameters or _text(words, index + 2) in ("{", "=", ":")


def _is_field(words: Words, index: int) -> bool:
    name = words[index].kind == "NAME" and _text(words, index + 1) == "="
    return name and words[index - 1].kind != "NAME" and _text(words, index - 1) != ":"


def _is_call(words: Words, index: int) -> bool:
    return words[index].kind == "NAME" and _text(words, index + 1) == "("


def _is_reference(words: Words, index: int) -> bool:
    """Whether a word is the name of a model, environment or stage, in a field."""
    return (
        words[index].kind == "NAME"
        and _text(words, index - 1) == "="
        and _text(words, index - 2) in ("model", "env")
        and words[index - 3].kind != "NAME"
    )


def _is_inner_comma(words: Words, index: int) -> bool:
    return words[index].text == "," and _text(words, index + 1) not in (")", "]", "")


def _typo(word: Word, random: Random) -> list[Word]:
    """One letter doubled, dropped, exchanged with its neighbour or for another."""
    text = word.text
    place = random.randrange(max(1, len(text) - 1))
    first, second, rest = text[place], text[place + 1 : place + 2], text[place + 2 :]
    options = [first * 2 + second, second, second + first, first + random.choice("qxz")]
    changed = text[:place] + random.choice(options) + rest
    return [evolve(word, text=changed if changed != text else f"{text}x")]


def _dropped(_: Word, __: Random) -> list[Word]:
    return []


def _doubled(word: Word, random: Random) -> list[Word]:
    return [word, evolve(word, gap=random.choice(["", " "]))]


def _becomes(*texts: str) -> Callable[[Word, Random], list[Word]]:
    def make(word: Word, random: Random) -> list[Word]:
        return [evolve(word, text=random.choice(texts))]

    return make


def _followed_by(*texts: str) -> Callable[[Word, Random], list[Word]]:
    def make(word: Word, random: Random) -> list[Word]:
        return [word, Word(random.choice(texts), "MARK", random.choice(["", " "]), word.line)]

    return make


def _without_quote(word: Word, random: Random) -> list[Word]:
    return [evolve(word, text=random.choice([word.text[1:], word.text[:-1]]))]


def _with_quote(word: Word, random: Random) -> list[Word]:
    return [evolve(word, text=random.choice([f'"{word.text}', f'{word.text}"']))]


def _is(*texts: str) -> Callable[[Words, int], bool]:
    return lambda words, index: words[index].text in texts


def _of_kind(*kinds: str) -> Callable[[Words, int], bool]:
    return lambda words, index: words[index].kind in kinds


def _any(*tests: Callable[[Words, int], bool]) -> Callable[[Words, int], bool]:
    return lambda words, index: any(test(words, index) for test in tests)


def _is_typeable(words: Words, index: int) -> bool:
    """Whether a literal is a value of its own: not a factor, nor free text."""
    around = _text(words, index - 1), _text(words, index + 1)
    if words[index].kind == "STRING":
        return around[0] == "=" and _text(words, index - 2) == "base"
    return words[index].kind == "NUMBER" and around[0] in ("=", "(") and around[1] != "*"


def _other_type(word: Word, random: Random) -> list[Word]:
    choices = ["true", '"seven"', "[1, 2]"] if word.kind == "NUMBER" else ["7", "true", "[1]"]
    return [evolve(word, text=random.choice(choices))]


KINDS = (
    Kind("keyword typo", _any(_is_head, _is_field, _is_call), _typo),
    Kind("brace dropped", _is("{", "}"), _dropped),
    Kind("brace extra", _any(_is("{", "}"), _of_kind("NUMBER", "STRING")), _followed_by("{", "}")),
    Kind("parenthesis dropped", _is("(", ")", "[", "]"), _dropped),
    Kind("parenthesis extra", _is("(", ")", "[", "]"), _doubled),
    Kind("quote dropped", _of_kind("STRING"), _without_quote),
    Kind("quote extra", _of_kind("STRING", "NUMBER"), _with_quote),
    Kind("equals dropped", _is("="), _dropped),
    Kind("equals extra", _is("="), _doubled),
    Kind("colon for equals", _is("="), _becomes(":")),
    Kind("colon dropped", _is(":"), _dropped),
    Kind("comma dropped", _is_inner_comma, _dropped),
    Kind("comma extra", _any(_is_inner_comma, _is("(", "=", "|>")), _followed_by(",")),
    Kind("wrong type", _is_typeable, _other_type),
    Kind("unknown name", _any(_is_reference, _is_call), _becomes("frobnicate", "zzz_9")),
)


def mutated(words: Words, kinds: Sequence[Kind], random: Random) -> tuple[Words, list[int]] | None:
    """The words with one mistake of each kind, none near another, and the lines of the mistakes."""
    changes: dict[int, list[Word]] = {}
    lines: list[int] = []
    for kind in kinds:
        free = [
            index
            for index, word in enumerate(words)
            if kind.fits(words, index) and all(abs(word.line - line) > 1 for line in lines)
        ]
        if not free:
            return None
        index = random.choice(free)
        lines.append(words[index].line)
        changes[index] = kind.make(words[index], random)
    result: Words = []
    carried = ""  # white space of a dropped word
    for index, word in enumerate(words):
        for new in changes.get(index, [word]):
            result.append(evolve(new, gap=carried + new.gap))
            carried = ""
        if not changes.get(index, [word]):
            carried += word.gap
    return result, lines


# Layouts: what stands between two words.


def _as_written(gap: str, _: Random) -> str:
    return gap


def _windows(gap: str, _: Random) -> str:
    return gap.replace("\n", "\r\n")


def _tabs(gap: str, _: Random) -> str:
    return re.sub(r"\n +", lambda m: "\n" + "\t" * (len(m[0]) // 2), gap).replace("  ", "\t")


def _ragged(gap: str, random: Random) -> str:
    """Any indentation at all."""
    return re.sub(r"\n *(?=[^\n]|$)", lambda _: "\n" + " " * random.randrange(12), gap)


def _flat(gap: str, _: Random) -> str:
    """No indentation at all."""
    return re.sub(r"\n *", "\n", gap)


def _few_lines(gap: str, random: Random) -> str:
    """Everything on few lines, broken anywhere."""
    if not gap:
        return ""
    return "\n" if random.random() < 0.04 else " "


LAYOUTS: dict[str, Callable[[str, Random], str]] = {
    "as written": _as_written,
    "windows": _windows,
    "tabs": _tabs,
    "flat": _flat,
    "ragged": _ragged,
    "few lines": _few_lines,
}


@frozen
class Text:
    """The text of words in a layout, and where each word starts in it."""

    source: Source
    starts: list[int]
    lines: list[int]

    def line(self, offset: int) -> int:
        """The line on which the word at or before an offset was written."""
        index = bisect_right(self.starts, offset) - 1
        return self.lines[max(index, 0)]


def laid_out(name: str, words: Words, layout: str, random: Random) -> Text:
    text, starts = "", []
    for index, word in enumerate(words):
        gap = LAYOUTS[layout](word.gap, random) if index else ""
        text += gap
        starts.append(len(text))
        text += word.text
    return Text(Source(name, text + "\n"), starts, [word.line for word in words])


# Measuring.


COUNTS = (
    *("planted", "caught", "reported", "right", "files"),
    *("restored", "changed", "worse", "crashed"),
)


@define
class Score:
    planted: int = 0
    caught: int = 0
    reported: int = 0
    right: int = 0
    files: int = 0
    restored: int = 0  # by the safe fixes, to the same syntax tree
    changed: int = 0  # to a valid recipe that is another one
    worse: int = 0  # to a recipe with more errors, or to one that is fixed further when run again
    crashed: int = 0
    misses: list[str] = field(factory=list)

    def __iadd__(self, other: Score) -> Score:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.misses += other.misses
        return self

    @property
    def recall(self) -> float:
        return 100 * self.caught / max(1, self.planted)

    @property
    def precision(self) -> float:
        return 100 * self.right / max(1, self.reported)


def check(source: Source) -> Diagnostics:
    return compile_source(source).diagnostics


def measure(original: Text, text: Text, lines: list[int], title: str) -> Score:
    """How one file fares; an exception is no finding, whatever caused it."""
    try:
        return _measure(original, text, lines, title)
    except Exception:
        report = f"--- {title}\n{text.source.text}\n{traceback.format_exc()}"
        return Score(planted=len(lines), files=1, crashed=1, misses=[report])


def _measure(original: Text, text: Text, lines: list[int], title: str) -> Score:
    known = {(item.code, item.message) for item in check(original.source)}
    found = [item for item in check(text.source) if (item.code, item.message) not in known]
    places = [text.line(item.span.start) for item in found if item.span]
    score = Score(planted=len(lines), reported=len(places), files=1)
    score.caught = sum(any(abs(line - place) <= 1 for place in places) for line in lines)
    score.right = sum(any(abs(line - place) <= 1 for line in lines) for place in places)
    score.restored, score.changed, score.worse = _fixed(original, text)
    if score.caught < score.planted or score.right < score.reported:
        score.misses.append(_report(title, text, lines, found))
    return score


def _fixed(original: Text, text: Text) -> tuple[int, int, int]:
    """Whether the fixes restore the recipe, make another valid one of it, or make it worse."""

    def errors(found: Diagnostics) -> int:
        return sum(item.severity is Severity.ERROR for item in found)

    fixed = fix_all(text.source, check)
    again = fix_all(fixed.source, check)
    settled = again.source.text == fixed.source.text
    worse = errors(fixed.remaining) > errors(check(text.source)) or not settled
    if fixed.remaining.has_errors:
        return 0, 0, int(worse)
    same = parse(fixed.source)[0] == parse(original.source)[0]
    return int(same), int(not same), int(worse)


def _report(title: str, text: Text, lines: list[int], found: list[Diagnostic]) -> str:
    shown = render_human(found, color=False)
    return f"--- {title}; planted on lines {lines}\n{text.source.text}\n{shown}"


def originals() -> Iterator[tuple[Path, Words]]:
    for path in sorted(RECIPES.rglob("*.rl")):
        yield path, words_of(Source(str(path), path.read_text(encoding="utf-8")))


def trials(
    count: int, seeds: int, only: str | None
) -> Iterator[tuple[str, Path, Words, Words, list[int]]]:
    """Mutated recipes: with ``count`` mistakes of one kind where ``count`` is 1, else of any."""
    for path, words in originals():
        for kind in KINDS:
            if only and only != kind.name:
                continue
            for seed in range(seeds):
                random = Random(f"{path.name} {kind.name} {count} {seed}")
                kinds = [kind, *(random.choice(KINDS) for _ in range(count - 1))]
                result = mutated(words, kinds, random)
                if result is not None:
                    yield kind.name, path, words, *result


def false_alarms(layout: str) -> int:
    """Errors in valid recipes, and warnings that only the layout brings about."""
    count = 0
    for path, words in originals():
        known = len(check(Source(str(path), path.read_text(encoding="utf-8"))))
        text = laid_out(str(path), words, layout, Random(path.name))
        count += abs(len(check(text.source)) - known)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8, help="mutations of each recipe and kind")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N bad cases")
    parser.add_argument("--only", choices=[kind.name for kind in KINDS])
    parser.add_argument("--layout", choices=LAYOUTS)
    args = parser.parse_args()
    layouts = [args.layout] if args.layout else list(LAYOUTS)
    missed = False
    for count in AIMS:
        print(f"\n{count} mistake{'s' * (count > 1)} a file", end="")
        by_kind, by_layout = run_trials(count, args.seeds, args.only, layouts)
        for title, scores in (("kind", by_kind), ("layout", by_layout)):
            print(
                f"\n{title:<22}{'files':>7}{'recall':>9}{'precision':>11}{'fixed':>8}{'astray':>8}"
            )
            for name, score in scores.items():
                print_row(name, score)
        total = sum_of(by_layout)
        print_row("all", total)
        if total.crashed:
            print(f"{total.crashed} files made rlc crash (--show prints them first)")
        missed |= min(total.recall, total.precision) < AIMS[count]
        if total.worse:
            print(f"{total.worse} files were made worse by the fixes")
        missed |= total.changed + total.worse + total.crashed > 0
        Random(args.seeds).shuffle(total.misses)
        total.misses.sort(key=lambda report: "Traceback" not in report)
        print("\n".join(total.misses[: args.show]))
    for layout in layouts:
        alarms = false_alarms(layout)
        missed |= alarms > 0
        print(f"false alarms, {layout}: {alarms}")
    return int(missed)


def run_trials(
    count: int, seeds: int, only: str | None, layouts: list[str]
) -> tuple[dict[str, Score], dict[str, Score]]:
    """Scores by kind (of the first mistake in a file) and by layout."""
    by_kind: dict[str, Score] = defaultdict(Score)
    by_layout: dict[str, Score] = defaultdict(Score)
    for number, (kind, path, words, changed, lines) in enumerate(trials(count, seeds, only)):
        layout = layouts[number % len(layouts)] if len(layouts) > 1 else layouts[0]
        original = laid_out(str(path), words, layout, Random(number))
        text = laid_out(str(path), changed, layout, Random(number))
        score = measure(original, text, lines, f"{kind}, {path.name}, {layout}")
        by_kind[kind] += score
        by_layout[layout] += evolve(score, misses=[*score.misses])
    return by_kind, by_layout


def sum_of(scores: dict[str, Score]) -> Score:
    total = Score()
    for score in scores.values():
        total += score
    return total


def print_row(name: str, score: Score) -> None:
    fixed, astray = (100 * n / max(1, score.files) for n in (score.restored, score.changed))
    print(
        f"{name:<22}{score.files:>7}{score.recall:>8.1f}%{score.precision:>10.1f}%"
        f"{fixed:>7.0f}%{astray:>7.0f}%"
    )


if __name__ == "__main__":
    sys.exit(main())
