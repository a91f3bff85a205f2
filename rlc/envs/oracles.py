"""Players that know the answer: an environment's own, or one of those for games of GEM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlc.envs.gem.oracles import (
    binary_search,
    boxed,
    consistent_code,
    spell_backward,
    sudoku_move,
)
from rlc.plan.records import EnvPlan

# From the observations of an episode so far to the next reply.
Oracle = Callable[[Sequence[str]], str]

_OF_GEM: dict[str, Oracle] = {
    "game:GuessTheNumber": binary_search,
    "game:Mastermind": consistent_code,
    "game:Sudoku": sudoku_move,
    "rg:spell_backward": spell_backward,
}


def find_oracle(env: EnvPlan) -> Oracle | None:
    """The player that knows the answers of an environment; None where there is none."""
    answer = _OF_GEM.get(env.id.partition("-v")[0]) if env.source == "gem" else None
    if answer is None:
        return None
    return lambda texts: boxed(answer(texts))
