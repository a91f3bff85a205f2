"""The nearest known word to a misspelt one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate a user most likely meant, or None.

    Equal but for case, hyphens and underscores comes first. Otherwise at most two letters are
    wrong, missing, added or swapped with a neighbour (one in words of up to three letters).
    """
    return next(iter(_all_nearest(word, tuple(candidates))), None)


def sole_nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the nearest candidate; None if another is as near."""
    near = _all_nearest(word, tuple(candidates))
    return near[0] if len(near) == 1 else None


def is_slip(word: str, meant: str, others: bool = False) -> bool:
    """Return whether a word is nothing but a misspelt other one.

    It is if only case, hyphens and underscores differ, or one letter in a part of three or more,
    and no digit: neither `guess1` is `guess2` nor `maths_a` is `maths_b`. Where there may be
    ``others``, which rlc does not know, a short word may be one of them (`crpo`, not `grpo`),
    unless two letters are swapped or one is doubled.
    """
    digits = [[char for char in text if char.isdigit()] for text in (word, meant)]
    if digits[0] != digits[1]:
        return False
    if _plain(word) == _plain(meant):
        return True
    a, b = word.lower(), meant.lower()
    if edit_distance(a, b, 1) > 1:
        return False
    if sorted(a) == sorted(b) or _singly(a) == _singly(b):
        return True
    shorter, longer = sorted((a, b), key=len)
    parts = {*re.split("[^a-z0-9]", longer)} - {*re.split("[^a-z0-9]", shorter)}
    return all(len(part) > 2 for part in parts) and (not others or len(shorter) > 5)


def _singly(word: str) -> str:
    """Return the word with each letter once that follows itself."""
    return re.sub(r"(.)\1", r"\1", word)


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the suggestion as a diagnostic's help, or None."""
    match = nearest(word, candidates)
    return f"did you mean `{match}`?" if match else None


@lru_cache(maxsize=256)  # a message and its fix ask for the same
def _all_nearest(word: str, candidates: tuple[str, ...]) -> list[str]:
    """Return the nearest of the candidates that are near enough, sorted."""
    words = _words(candidates)
    if equal := words.plain.get(_plain(word)):
        return sorted(equal)
    # All letters of a very short word would change: that is another word.
    limit = min(2 if len(word) > 3 else 1, len(word) - 1)
    for distance in range(1, limit + 1):
        likely = words.likely(word, distance)
        lower = word.lower()
        if near := [n for n in likely if edit_distance(lower, n.lower(), distance) <= distance]:
            return sorted(near)
    return []


SCANS = 8  # searches two edits away before an index for them pays


class _Words:
    """Candidates, found without comparing the word with each of them in full.

    ``plain`` maps a candidate's plain form to it, ``shortened[n]`` each of its forms with at most
    ``n`` letters less. Words that differ by ``n`` edits are equal with at most ``n`` letters taken
    out of each.
    """

    def __init__(self, candidates: tuple[str, ...]) -> None:
        self.names = tuple(dict.fromkeys(candidates))
        self.plain = defaultdict[str, set[str]](set)
        self.shortened: dict[int, dict[str, set[str]]] = {}
        self.scans = 0
        for name in self.names:
            self.plain[_plain(name)].add(name)

    def likely(self, word: str, edits: int) -> Iterable[str]:
        """Return the candidates at most so many edits away, and others."""
        if edits > 1 and self.scans < SCANS:
            self.scans += 1
            letters, size = _letters(word), len(word)
            near = [name for name in self.names if abs(len(name) - size) <= edits]
            # An edit changes at most two letters of the set.
            return [n for n in near if (letters ^ _letters(n)).bit_count() <= 2 * edits]
        if edits not in self.shortened:
            index: dict[str, set[str]] = defaultdict(set)
            self.shortened[edits] = index
            for name in self.names:
                for form in _shortened(name, edits):
                    index[form].add(name)
        known = self.shortened[edits]
        return {name for form in _shortened(word, edits) for name in known.get(form, ())}


_words = lru_cache(maxsize=16)(_Words)


def _shortened(word: str, letters: int) -> set[str]:
    """Return the word in lower case with at most so many letters less."""
    forms = new = {word.lower()}
    for _ in range(letters):
        new = {form[:i] + form[i + 1 :] for form in new for i in range(len(form))}
        forms = forms | new
    return forms


def _letters(word: str) -> int:
    """Return the set of letters as bits; rare ones share one."""
    bits = 0
    for char in word.lower():
        bits |= 1 << (ord(char) & 63)
    return bits


def edit_distance(a: str, b: str, limit: int) -> int:
    """Return the restricted Damerau-Levenshtein distance, at most ``limit + 1``.

    It counts insertions, deletions, substitutions and swaps of neighbours, no part edited twice.
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    start, end = 0, 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        current = [i]
        for j, other in enumerate(b, 1):
            cost = min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (char != other))
            if i > 1 and j > 1 and char == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            current.append(cost)
        if min(current) > limit and min(previous) > limit:
            return limit + 1
        before, previous = previous, current
    return min(previous[-1], limit + 1)


def _plain(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "")
