"""The value and the gradient of a loss on one sequence, in float64, by reverse accumulation.

Services are checked against this, for their own losses by :mod:`rlc.algo.served`. Conventions where
a derivative does not exist are those of torch, which computes it everywhere else:

- ``min`` and ``max`` give each of two equal arguments half of the gradient (``torch.minimum``);
- ``clip`` passes the gradient on at its bounds (``torch.clamp``); ``abs`` has none at 0;
- comparisons and ``stop`` have none.

A preference loss is computed for all pairs of a batch at once, and its gradient from the program
of its derivative.

Unlike torch's, a gradient never comes out of the branch of a `where` that was not chosen, even if
that branch is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import fsum
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Floats
from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.behaviour import derivative
from rlc.algo.expressions.inputs import LENGTHS, OF_TOKENS
from rlc.algo.expressions.program import INPUT, NUMBER, OperationNode, Program, Shape
from rlc.algo.expressions.vocabulary import (
    OPERATIONS,
    after_batch,
    batch_nodes,
    differentiable,
    input_of,
    shapes,
    trained,
)
from rlc.records import evolve

_Values = Any  # one float64, or an array of one for each sampled token


def loss_and_grad(
    program: Program,
    inputs: Mapping[str, npt.ArrayLike],
    mask_T: npt.ArrayLike | None = None,
    weights: npt.ArrayLike = 1.0,
    marked_T: npt.ArrayLike | None = None,
) -> tuple[float, Floats]:
    """Return the loss of one sequence and its gradient by the trainer's logprobs.

    Args:
        program: a loss.
        inputs: ``logp`` and what else the program reads (``logq``, ``adv``, ``ref``), each of
            shape (T,), and what :func:`batch_values` returned. ``ratio`` and ``length`` follow
            from them.
        mask_T: positive where the token was sampled; None: everywhere. Other tokens have neither
            a loss nor a gradient, and nothing is read there.
        weights: what the loss is multiplied by: one number, or for a token loss one a token.
        marked_T: how much each token counts in a ``mean`` that no gradient passes through; None:
            the sampled ones count alike.

    Returns:
        The weighted sum of the token losses, or the weighted loss of the sequence; and its
        gradient, shape (T,). Both are 0 for a sequence without a sampled token.

    Raises:
        AlgorithmError: a missing input, one of another length, or a loss that is not finite.
    """
    program = after_batch(program)
    logp_T = np.asarray(inputs["logp"], dtype=np.float64)
    mask = np.ones(len(logp_T), bool) if mask_T is None else np.asarray(mask_T) > 0
    if mask.shape != logp_T.shape:
        raise AlgorithmError(f"the mask has shape {mask.shape}, logp has {logp_T.shape}")
    grad_T = np.zeros(len(logp_T))
    if not mask.any():
        return 0.0, grad_T
    sampled = _sampled(program, inputs, mask)
    scale = np.asarray(weights, dtype=np.float64)
    if scale.shape and (program.shape != "token" or scale.shape != mask.shape):
        raise AlgorithmError(f"weights of shape {scale.shape} do not fit a {program.shape} loss")
    scale = scale[mask] if scale.shape else scale
    marked_S = None if marked_T is None else np.asarray(marked_T, dtype=np.float64)[mask]
    with np.errstate(all="ignore"):  # what is not finite is refused below
        values = _forward(program, sampled, marked_S)
        loss = values[program.output] * scale
        grad_S = _backward(program, values, scale, int(mask.sum()))
    if not (np.isfinite(loss).all() and np.isfinite(grad_S).all()):
        raise AlgorithmError(_what_is_not_finite(loss, grad_S, sampled, np.flatnonzero(mask)))
    grad_T[mask] = grad_S
    return float(np.sum(loss)), grad_T


def changed_share(
    program: Program, other: Program, sequences: Sequence[Mapping[str, npt.ArrayLike]]
) -> float | None:
    """Return the share of the sampled tokens on which the gradients of two losses differ; None if
    there are none. ``sequences`` are as for :func:`batch_values`, with ``logp`` and its results."""
    program, other = after_batch(program), after_batch(other)
    words = {word for node in (*program.nodes, *other.nodes) for word in (node.op, node.name)}
    if sequences and words.isdisjoint(("mean", "sum", "length")):
        # Token by token: all sequences can be one.
        columns = {name: [row[name] for row in sequences] for name in sequences[0]}
        sequences = [
            {name: np.concatenate(c) if np.ndim(c[0]) else c[0] for name, c in columns.items()}
        ]
    changed, tokens = 0, 0
    for inputs in sequences:
        mask = np.ones(len(np.asarray(inputs["logp"])), bool)
        if len(mask):
            with np.errstate(all="ignore"):
                one, two = (
                    _backward(
                        loss, _forward(loss, _sampled(loss, inputs, mask)), np.ones(()), len(mask)
                    )
                    for loss in (program, other)
                )
            changed += int((~np.isclose(one, two, rtol=1e-9, atol=0.0)).sum())
        tokens += len(mask)
    return changed / tokens if tokens else None


def batch_values(
    program: Program,
    sequences: Sequence[Mapping[str, npt.ArrayLike]],
    orders: Sequence[npt.ArrayLike],
) -> list[dict[str, float | Floats]]:
    """Return the values over a batch that a loss reads: the inputs of ``after_batch(program)``.

    A share of n tokens is ``floor(share n)`` of them, and at least one.

    Args:
        program: a loss.
        sequences: for each sequence what the values are computed from (``logp``, ``logq``, ``adv``,
            ``ref``), one value for each sampled token, shape (S,).
        orders: for each sequence a number for each sampled token, shape (S,). Tokens are sampled,
            and ties at the top broken, by the smallest: random numbers that belong to the tokens
            choose at random, whatever the order of the sequences.

    Returns:
        For each sequence ``{"batch_mean_1": 0.2, "batch_top_2": array of shape (S,)}``.

    Raises:
        AlgorithmError: a missing input, or a value that is not finite.
    """
    if not sequences:
        return []
    lengths = [len(np.asarray(order)) for order in orders]
    order_A = np.concatenate([np.asarray(order, np.float64) for order in orders])
    found: list[dict[str, Any]] = [{} for _ in sequences]
    for position, name in batch_nodes(program).items():
        node = program.nodes[position]
        values_A = np.concatenate(
            [
                _token_values(program, node.args[0], {**inputs, **known}, length)
                for inputs, known, length in zip(sequences, found, lengths, strict=True)
            ]
        )
        if not np.isfinite(values_A).all():
            raise AlgorithmError(f"what `{node.op}` is computed from is not finite everywhere")
        if node.op == "batch_mean":
            # The same in any order, and the value itself where there is only one.
            mean = fsum(values_A) / len(values_A)
            mean = min(max(mean, values_A.min()), values_A.max())
            for known in found:
                known[name] = mean
            continue
        if node.op == "batch_top":
            ranked_A = np.lexsort((order_A, -values_A))
        else:
            ranked_A = np.argsort(order_A, kind="stable")
            ranked_A = ranked_A[values_A[ranked_A] != 0]
        share = program.nodes[node.args[1]].value or 0.0
        chosen_A = np.zeros(len(values_A))
        chosen_A[ranked_A[: max(int(share * len(values_A)), 1)]] = 1.0
        pieces = np.split(chosen_A, np.cumsum(lengths)[:-1])
        for known, piece in zip(found, pieces, strict=True):
            known[name] = piece
    return found


def _token_values(
    program: Program, of: int, inputs: Mapping[str, npt.ArrayLike], length: int
) -> Floats:
    """Return the values of a node on each sampled token of a sequence, shape (S,)."""
    part = after_batch(evolve(program, output=of))
    with np.errstate(all="ignore"):
        values = _forward(part, _sampled(part, inputs, np.ones(length, bool)))
    return np.asarray(values[part.output], np.float64) * np.ones(length)


def preference_loss_and_grad(
    program: Program, inputs: Mapping[str, Any]
) -> tuple[float, dict[str, Floats]]:
    """Return the mean loss of the pairs, or labelled replies, of a batch, and its gradient.

    Args:
        program: a preference loss.
        inputs: what it reads, and the lengths: one value for each pair or reply, shape (P,), or
            for a token input the values of its tokens, one array for each. A share of the batch,
            such as ``chosen_nll``, is the same for all.

    Returns:
        The loss, and by each input with a gradient the derivative of the loss, of each pair or
        reply, shape (P,), or of the tokens of all of them, one after the other.

    Raises:
        AlgorithmError: a missing input, or a loss or gradient that is not finite.
    """
    batch = _PreferenceBatch(program, inputs)
    with np.errstate(all="ignore"):  # what is not finite is refused below
        loss_P = batch.values(program, program.shape)
        grads = {
            name: batch.values(slope, input_of(program.kind, name).shape) / len(loss_P)
            for name, slope in _slopes(program).items()
        }
    if not (np.isfinite(loss_P).all() and all(np.isfinite(grad).all() for grad in grads.values())):
        at = int(np.argmin(np.isfinite(loss_P)))
        read = ", ".join(f"{name} = {value:.6g}" for name, value in batch.example(at))
        raise AlgorithmError(f"the preference loss or its gradient is not finite, where {read}")
    return float(np.mean(loss_P)), grads


@lru_cache(maxsize=64)
def _slopes(program: Program) -> Mapping[str, Program]:
    return {name: derivative(program, by=name) for name in trained(program)}


class _PreferenceBatch:
    """The inputs of a preference loss, with those of tokens one after the other."""

    def __init__(self, program: Program, inputs: Mapping[str, Any]) -> None:
        if missing := [name for name in program.inputs if name not in inputs]:
            raise AlgorithmError(f"the preference loss reads `{missing[0]}`, which is not there")
        lengths = {shape: name for shape, name in LENGTHS.items() if name in inputs}
        self.inputs: dict[str, Floats] = {}
        for name in {*program.inputs, *lengths.values()}:
            is_token = input_of(program.kind, name).shape in OF_TOKENS
            self.inputs[name] = np.concatenate(inputs[name]) if is_token else np.array(inputs[name])
        self.counts = {shape: np.asarray(inputs[name], int) for shape, name in lengths.items()}
        self.size = len(next(iter(self.counts.values())))

    def example(self, at: int) -> Iterator[tuple[str, float]]:
        """Yield the inputs of one pair or reply, but those of its tokens."""
        for name, column in sorted(self.inputs.items()):
            if input_of("preference", name).shape not in OF_TOKENS:
                yield name, column[at]

    def values(self, program: Program, shape: Shape) -> Floats:
        """Return the result of a program, a value for each that has a shape."""
        found, of = list[_Values](), shapes(program)
        for position, node in enumerate(program.nodes):
            if node.op == NUMBER:
                found.append(np.float64(node.value or 0.0))
            elif node.op == INPUT:
                found.append(self.inputs[node.name or ""])
            elif node.op == "batch_mean":
                found.append(np.mean(found[node.args[0]]))
            elif OPERATIONS[node.op].reduces:
                arg = node.args[0]
                parts = np.split(found[arg], np.cumsum(self.counts[of[arg]])[:-1])
                found.append(np.array([FORWARD[node.op](part) for part in parts]))
            else:
                given = (self.spread(found[arg], of[arg], of[position]) for arg in node.args)
                found.append(FORWARD[node.op](*given))
        result = self.spread(found[program.output], program.shape, shape)
        size = self.counts[shape].sum() if shape in OF_TOKENS else self.size
        made: Floats = np.zeros(size) + result
        return made

    def spread(self, values: _Values, shape: Shape, to: Shape) -> _Values:
        """Return a value for each token, where there is one for each pair or reply."""
        if to in OF_TOKENS and shape == OF_TOKENS[to]:
            return np.repeat(values, self.counts[to])
        return values


def _sampled(
    program: Program, inputs: Mapping[str, npt.ArrayLike], mask: npt.NDArray[np.bool_]
) -> dict[str, _Values]:
    """Return the inputs of the sampled tokens, by name."""
    found: dict[str, _Values] = {"length": np.float64(mask.sum())}
    for name in program.inputs:
        if name in found:
            continue
        if name not in inputs:
            raise AlgorithmError(f"the loss reads `{name}`, which is not there")
        column_T = np.asarray(inputs[name], dtype=np.float64)
        if input_of(program.kind, name).shape != "token" and not column_T.shape:
            found[name] = column_T
            continue
        if column_T.shape != mask.shape:
            raise AlgorithmError(f"{name} has shape {column_T.shape}, logp has {mask.shape}")
        found[name] = column_T[mask]
    return found


def _forward(
    program: Program, inputs: Mapping[str, _Values], marked_S: Floats | None = None
) -> list[_Values]:
    values: list[_Values] = []
    for node in program.nodes:
        if node.op == NUMBER:
            values.append(np.float64(node.value or 0.0))
        elif node.op == INPUT:
            values.append(inputs[node.name or ""])
        elif node.op == "mean" and marked_S is not None:
            total = np.sum(values[node.args[0]] * marked_S)
            values.append(total / max(np.sum(marked_S), 1.0))
        else:
            values.append(FORWARD[node.op](*(values[arg] for arg in node.args)))
    return values


FORWARD: Mapping[str, Callable[..., _Values]] = MappingProxyType(
    {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.divide,
        "neg": np.negative,
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
        "where": np.where,
        "min": np.minimum,
        "max": np.maximum,
        "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
        "exp": np.exp,
        "expm1": np.expm1,
        "log": np.log,
        "sqrt": np.sqrt,
        "abs": np.abs,
        "sigmoid": lambda x: np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x))),
        "softplus": lambda x: np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))),
        "stop": lambda x: x,
        "mean": np.mean,
        "sum": np.sum,
    }
)


_CHOOSES = ("where", "min", "max", "clip")


def _backward(program: Program, values: list[_Values], seed: Floats, length: int) -> Floats:
    """Return the gradient by ``logp`` on each sampled token, of the result times ``seed``."""
    active, of = differentiable(program), shapes(program)
    gradients: dict[int, _Values] = {program.output: seed + _zero(program.shape, length)}
    logp = np.zeros(length)
    for position in range(program.output, -1, -1):
        node = program.nodes[position]
        if position not in gradients or not active[position]:
            continue
        gradient = gradients.pop(position)
        if node.op == INPUT:
            logp = logp + gradient
            continue
        given = [values[arg] for arg in node.args]
        for place, arg in enumerate(node.args):
            if not active[arg]:
                continue
            slope = _slope(node, place, given, values[position], length)
            # Nothing times an infinite slope is nothing, and so is what was not chosen.
            nothing = (gradient == 0) | ((slope == 0) & (node.op in _CHOOSES))
            passed = np.where(nothing, 0.0, gradient * slope)
            if of[position] == "token" and of[arg] != "token":
                passed = np.sum(passed)  # one value that all tokens share
            gradients[arg] = gradients.get(arg, _zero(of[arg], length)) + passed
    return logp


def _zero(shape: Shape, length: int) -> _Values:
    return np.zeros(length if shape == "token" else ())


def _slope(
    node: OperationNode, place: int, given: Sequence[_Values], result: _Values, length: int
) -> _Values:
    """Return the derivative of an operation by one of its arguments."""
    match node.op, given:
        case "+" | "sum", _:
            return 1.0
        case "-", _:
            return -1.0 if place else 1.0
        case "*", _:
            return given[1 - place]
        case "/", (_, b):
            return -result / b if place else 1.0 / b
        case "neg", _:
            return -1.0
        case "where", (condition, *_):
            return np.where(condition, 1.0, 0.0) if place == 1 else np.where(condition, 0.0, 1.0)
        case "min" | "max", _:
            a, b = given[place], given[1 - place]
            return np.where(a == b, 0.5, (a < b) if node.op == "min" else (a > b))
        case "clip", (x, low, high):
            inside = (low <= x) & (x <= high)
            return (inside, (x < low) & (low < high), (x > high) | (high < low))[place] * 1.0
        case "exp", _:
            return result
        case "log", (x,):
            return 1.0 / x
        case "sqrt", _:
            return 0.5 / result
        case "abs", (x,):
            return np.sign(x)
        case "sigmoid", _:
            return result * (1.0 - result)
        case "softplus", (x,):
            return FORWARD["sigmoid"](x)
        case "mean", _:
            return 1.0 / length
    raise AlgorithmError(f"`{node.op}` has no derivative")


def _what_is_not_finite(
    loss: _Values, grad_S: Floats, sampled: Mapping[str, _Values], tokens_S: npt.NDArray[np.int64]
) -> str:
    """Return the token at which a loss is not finite, with its inputs there."""
    wrong_S = ~np.isfinite(np.broadcast_to(loss, grad_S.shape)) | ~np.isfinite(grad_S)
    at = int(np.argmax(wrong_S))
    read = ", ".join(
        f"{name} = {column[at]:.6g}" for name, column in sampled.items() if np.ndim(column)
    )
    return f"the loss or its gradient is not finite at token {tokens_S[at]}, where {read}"
