"""Programs in pure Python: the same as in NumPy, and the rewards of episodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from expression_strategies import Columns, columns, programs
from expressions import program
from hypothesis import assume, given
from hypothesis import strategies as st

from rlc.algo import OPERATIONS, AlgorithmError, Program, shaped_reward
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.expressions.vocabulary import evaluate


@given(loss=programs(), data=columns())
def test_python_and_numpy_agree(loss: Program, data: Columns) -> None:
    try:
        value, _ = loss_and_grad(loss, data)
    except AlgorithmError:
        assume(False)
    found = evaluate(loss, {name: column.tolist() for name, column in data.items()})
    assert np.sum(found) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "op",
    [o.name for o in OPERATIONS.values() if not (o.reduces or o.batch) and o.name != "where"],
)
@given(x=st.lists(st.floats(), min_size=3, max_size=3))
def test_nothing_raises(op: str, x: list[float]) -> None:
    """Infinity and NaN come out instead, as IEEE 754 has it, and NaN where one goes in."""
    operation = OPERATIONS[op]
    args = x[: len(operation.params)]
    result = operation.of(*args)
    if any(map(math.isnan, args)) and not operation.condition:
        assert math.isnan(result)


def test_a_reward_that_cannot_be_computed_is_refused() -> None:
    shaped = program("total / turns + style", kind="reward", components=("style",))
    assert shaped_reward(shaped, {"total": 1.0, "turns": 2.0, "style": 0.25}) == 0.75
    with pytest.raises(AlgorithmError, match="the reward reads `style`, and the episode has total"):
        shaped_reward(shaped, {"total": 1.0, "turns": 2.0})
    with pytest.raises(AlgorithmError, match="the shaped reward is inf where total = 1, turns = 0"):
        shaped_reward(shaped, {"total": 1.0, "turns": 0.0, "style": 0.0})
