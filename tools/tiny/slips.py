"""Careless players: an oracle's answer turned into mistakes that training can undo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from attrs import frozen

from rlc.envs.gem.oracles import boxed, number_range, possible_codes, read_board, word_to_spell


@frozen
class Slips:
    """How often a careless player goes wrong, as chances that sum to at most 1."""

    forget_box: float = 0.0
    out_of_range: float = 0.0
    heedless: float = 0.0  # an answer that ignores the hints, or the word as it stands
    wrong_letter: float = 0.0  # for each letter, when nothing else went wrong


def slip(env_id: str, answer: str, texts: Sequence[str], slips: Slips, rng: Random) -> str:
    """Return the reply of a player who knows ``answer`` and is as careless as ``slips`` says."""
    draw = rng.random()
    if draw < slips.forget_box:
        return answer
    draw -= slips.forget_box
    if draw < slips.out_of_range:
        return boxed(re.sub(r"\d+", lambda digits: digits[0] + str(rng.randrange(10)), answer))
    draw -= slips.out_of_range
    if draw < slips.heedless:
        if "GuessTheNumber" in env_id:
            return boxed(str(rng.randint(*number_range(texts[0]))))
        if "spell_backward" in env_id:
            return boxed(word_to_spell(texts[0]))
        if "Mastermind" in env_id:
            return boxed(" ".join(map(str, rng.choice(possible_codes(texts[:1])))))
        size = len(read_board(texts[-1]))
        return boxed(" ".join(str(rng.randint(1, size)) for _ in range(3)))
    letters = "abcdefghijklmnopqrstuvwxyz"
    changed = [rng.choice(letters) if rng.random() < slips.wrong_letter else c for c in answer]
    return boxed("".join(changed))
