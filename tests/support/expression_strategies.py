"""Random programs and sequences to evaluate them on."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from rlc.algo import Program, differentiable
from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.interpret import evaluate

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
SMOOTH = ("exp", "log", "sqrt", "sigmoid", "softplus")
Columns = dict[str, np.ndarray]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A loss with a gradient, of any operations; some of its values may be undefined."""
    builder = Builder()
    pool = [builder.input(name) for name in ("logp", "logq", "ratio", "adv", "ref", "length")]
    pool += [builder.number(value) for value in (0.0, 1.0, -1.0, 0.5, 3.0)]

    def some() -> int:
        return draw(st.sampled_from(pool[-6:] + pool))

    for _ in range(draw(st.integers(2, 12))):
        kind = draw(st.integers(0, 6))
        if kind <= 1:
            pool.append(builder.apply(draw(st.sampled_from("+-*/")), some(), some()))
        elif kind == 2:
            pool.append(builder.apply(draw(st.sampled_from(SMOOTH)), some()))
        elif kind == 3:
            pool.append(builder.apply(draw(st.sampled_from(("neg", "abs", "stop"))), some()))
        elif kind == 4:
            pool.append(builder.apply(draw(st.sampled_from(("min", "max"))), some(), some()))
        elif kind == 5:
            condition = builder.apply(draw(st.sampled_from(COMPARISONS)), some(), some())
            pool.append(builder.apply("where", condition, some(), some()))
        else:
            tokens = [node for node in pool if builder.shape(node) == "token"]
            inner = draw(st.sampled_from(tokens))
            pool.append(builder.apply(draw(st.sampled_from(("mean", "sum"))), inner))
            low, high = sorted(draw(st.tuples(st.floats(-2, 2), st.floats(-2, 2))))
            bounds = builder.number(low), builder.number(high)
            if draw(st.booleans()):
                bounds = some(), some()
            if all(b is not None for b in map(builder.value, bounds)):
                bounds = tuple(sorted(bounds, key=lambda b: builder.value(b) or 0.0))  # type: ignore
            pool.append(builder.apply("clip", some(), *bounds))
    usable = [node for node in pool if builder.shape(node) != "number"]
    reached = [node for node in usable if differentiable(builder.part(node))[-1]]
    return builder.program(reached[-1])


@st.composite
def columns(draw: st.DrawFn, most: int = 4) -> Columns:
    """Inputs of the sampled tokens, with ratios of exactly 1 and advantages of 0 among them."""
    size = draw(st.integers(1, most))

    def column(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)))

    def within(low: float, high: float) -> st.SearchStrategy[float]:
        return st.floats(low, high).map(lambda x: round(x, 4))

    logq_T = column(within(-3, -0.01))
    drift_T = column(st.just(0.0) | within(-1, 1))
    return {
        "logq": logq_T,
        "logp": logq_T + drift_T,
        "adv": column(st.sampled_from([0.0, 1.0, -1.0]) | within(-2, 2)),
        "ref": column(within(-3, -0.01)),
    }


def is_finite(loss: Program, data: Columns) -> bool:
    """Whether every part of a loss is, those that a `where` does not choose included."""
    inputs = {name: column.tolist() for name, column in data.items()}
    parts = (Program(loss.nodes[: end + 1], end, "token") for end in range(len(loss.nodes)))
    return all(np.isfinite(np.asarray(evaluate(part, inputs), float)).all() for part in parts)
