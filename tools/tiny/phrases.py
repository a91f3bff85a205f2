"""The fixed phrases of the environments' texts, found by playing them.

Two texts of one game differ in its numbers and board cells; what stands between those is a
phrase, and becomes one token. An episode of GuessTheNumber then has some 60 tokens instead of
well over a thousand bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product, takewhile

from attrs import frozen

from tools.tiny.chatml import BOXED, FRAMES, ROLES
from tools.tiny.games import Game

# The parts of a text that vary: numbers and empty cells (a lone dot). The row and column labels
# of a board do not; those in a sentence ("at R1 C2,") do.
_VARIABLE = re.compile(
    r"(?<=at R)\d+|(?<= C)\d+(?=,)|(?<![RC\d])\d+|(?<![^ ])\.(?=[ \n]|$)",
)
_SEEDS = range(6)
_MIN_EPISODES = 3  # a piece seen in fewer is a word of the task, not of the template


@frozen
class Family:
    """Variants of one game that share their sentences, and plays that draw out its replies."""

    env_ids: tuple[str, ...]
    plays: tuple[tuple[str, ...], ...] = ((),)


_FAMILIES = (
    Family(
        tuple(f"game:GuessTheNumber-v0-{level}" for level in ("easy", "hard", "random")),
        (("1", "1", "99"), ("10", "9", "50")),
    ),
    Family(
        ("game:Mastermind-v0-easy", "game:Mastermind-v0-hard"),
        (("1 2", "1 2", "1 9", "1", "3 4 5 6"),),
    ),
    Family(("game:Sudoku-v0-easy",), (("1 1 1", "1 1 2", "1 1 3", "1 1 4", "1 1 1", "9 9 9"),)),
    Family(("game:Sudoku-v0-hard",), (tuple(f"1 1 {digit}" for digit in (*range(1, 10), 1)),)),
    Family(("rg:spell_backward",)),
)


def find_phrases() -> list[str]:
    """Return every phrase that becomes a token, in a fixed order. Plays a few dozen episodes."""
    found = [f"{role}\n" for role in ROLES] + ["\\boxed{", "\n" + BOXED]
    for frame in FRAMES.values():
        found += frame
    for family in _FAMILIES:
        found += _family_phrases(family)
    return list(dict.fromkeys(found))


def _family_phrases(family: Family) -> list[str]:
    turns, histories = _episodes(family, concat=False), _episodes(family, concat=True)
    openings = [
        _common_prefix([texts[0] for texts in turns]),
        _common_prefix([text for texts in histories for text in texts]),
    ]
    seen: Counter[str] = Counter()
    for texts in turns + histories:
        pieces = dict[str, None]()
        for text in texts:
            opening = next((o for o in openings if text.startswith(o)), "")
            pieces |= dict.fromkeys(_VARIABLE.split(text[len(opening) :]))
        seen.update(pieces.keys())
    common = [piece for piece, count in seen.items() if count >= _MIN_EPISODES and len(piece) > 1]
    return openings + common


def _common_prefix(texts: Sequence[str]) -> str:
    """Compare the first and the last in order: they differ where any two do."""
    pairs = zip(min(texts), max(texts), strict=False)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _episodes(family: Family, concat: bool) -> list[list[str]]:
    """Return the observations of an episode for each variant, seed and play."""
    found = []
    games = [Game(env_id, concat=concat) for env_id in family.env_ids]
    for game, seed, play in product(games, _SEEDS, family.plays):
        texts = [game.reset(seed)]
        for move in play:
            seen = game.step(f"\\boxed{{{move}}}")
            if seen.done:
                break
            texts.append(seen.text)
        found.append(texts)
    return found
