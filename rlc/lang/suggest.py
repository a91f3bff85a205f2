"""The nearest known word to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate a user most likely meant, or None.

    Equal but for case, hyphens and underscores comes first. Otherwise at most two letters are
    wrong, missing, added or swapped with a neighbour (one in words of up to three letters).
    """
    return next(iter(_all_nearest(word, candidates)), None)


def sole_nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The nearest candidate, if no other is as near."""
    near = _all_nearest(word, candidates)
    return near[0] if len(near) == 1 else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The suggestion as a diagnostic's help, or None."""
    match = nearest(word, candidates)
    return f"did you mean `{match}`?" if match else None


def _all_nearest(word: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that are nearest and near enough, sorted."""
    plain, lower, limit = _plain(word), word.lower(), 2 if len(word) > 3 else 1
    # All letters of a very short word would change: that is another word.
    least, best = min(limit, len(word) - 1), list[str]()
    for candidate in sorted(set(candidates)):
        equal = _plain(candidate) == plain
        distance = -1 if equal else edit_distance(lower, candidate.lower(), limit)
        if distance < least:
            least, best = distance, []
        if distance == least:
            best.append(candidate)
    return best


def edit_distance(a: str, b: str, limit: int) -> int:
    """Restricted Damerau-Levenshtein distance (optimal string alignment), cut off above ``limit``.

    Counts insertions, deletions, substitutions and swaps of neighbours, no part edited twice.
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
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
