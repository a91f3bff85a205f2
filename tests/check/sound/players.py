"""An opponent in a tug of war."""

from __future__ import annotations

import random


def pull(seed: int, history: tuple[tuple[str, str], ...], letter: str) -> str:
    return letter * random.Random(seed).randint(1, 3 + len(history))
