"""The inputs and operations of expressions, each declared once, and what follows of them for a
program: its shapes, its values in pure Python, and which of its nodes have a gradient.

Shapes, from narrow to wide: a ``number`` is the same everywhere, a value of a ``sequence`` is the
same on all its tokens, one of a ``token`` belongs to that token alone. An operation on several
shapes has the widest of them; ``mean`` and ``sum`` make a sequence of tokens. A comparison has a
condition for its result, which `where` reads and nothing else does. What is called ``batch_…`` is
computed once over the sampled tokens of a whole step, before any gradient
(:func:`~rlc.algo.expressions.evaluate.batch_values`), and is then an input of the loss, as the
advantages are: what computes the loss of a sequence knows nothing of others.

Only sampled tokens exist in a loss: no input has a value elsewhere, and ``mean``, ``sum`` and
``length`` do not count what was not sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, TypeVar

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.program import INPUT, NUMBER, Kind, OperationNode, Program, Shape
from rlc.records import evolve, frozen

SHAPES: tuple[Shape, ...] = ("number", "sequence", "token")  # each fits where a later one does


@frozen(eq=False)
class Input:
    """An input of an expression.

    ``symbol`` is what formulas call it. ``low`` and ``high`` bound its values. ``flag``: it is 1
    or 0, and stands for a condition where one is needed.
    """

    name: str
    shape: Shape
    doc: str
    symbol: str
    low: float = -math.inf
    high: float = math.inf
    flag: bool = False


@frozen(eq=False)
class Operation:
    """An operation of an expression.

    ``params`` name the arguments; the last of a ``variadic`` one may be repeated. ``of`` computes
    it for floats, by the rules of IEEE 754: it never raises. ``reduces``: over the tokens of a
    sequence, so that ``of`` takes a list. ``condition``: its result is a condition, and ``of``
    returns a bool. ``commutes``: the order of its arguments does not matter. ``batch``: the shape
    of the result of one over all sampled tokens of a step; ``of`` takes those of one sequence for
    all of them, or chooses none.
    """

    name: str
    params: tuple[str, ...]
    doc: str
    of: Callable[..., float]
    variadic: bool = False
    reduces: bool = False
    condition: bool = False
    commutes: bool = False
    batch: Shape | None = None

    @property
    def usage(self) -> str:
        """The notation of recipes: ``clip(x, low, high)``, ``a + b``."""
        if self.name == "neg":
            return f"-{self.params[0]}"
        if not self.name.isidentifier():
            return f"{self.params[0]} {self.name} {self.params[1]}"
        more = ", …" if self.variadic else ""
        return f"{self.name}({', '.join(self.params)}{more})"

    def shape(self, args: Sequence[Shape]) -> Shape:
        """Return the shape of the result, from those of the arguments."""
        if self.batch is not None:
            return self.batch
        return "sequence" if self.reduces else max(args, key=SHAPES.index)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log(x: float) -> float:
    if x > 0:
        return math.log(x)
    return -math.inf if x == 0 else math.nan


def _divide(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _sigmoid(x: float) -> float:
    small = math.exp(-abs(x))
    return (1.0 if x >= 0 else small) / (1.0 + small) if x == x else x


def _minimum(a: float, b: float) -> float:
    return a if a <= b or a != a else b  # NaN wins, as in numpy and torch


def _maximum(a: float, b: float) -> float:
    return a if a >= b or a != a else b


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # of infinities with both signs
        return sum(values)


def _mean(values: Sequence[float]) -> float:
    return _sum(values) / len(values)


def _chosen(*_: float) -> float:
    """Return 0: a token alone is never chosen."""
    return 0.0


_AB = ("a", "b")
_X = ("x",)
SHARE = "share"  # a parameter that takes a number, the share of the tokens that are chosen

E = TypeVar("E", Input, Operation)


def _table(*entries: E) -> MappingProxyType[str, E]:
    return MappingProxyType({entry.name: entry for entry in entries})


OPERATIONS = _table(
    Operation("+", _AB, "sum", lambda a, b: a + b, commutes=True),
    Operation("-", _AB, "difference", lambda a, b: a - b),
    Operation("*", _AB, "product", lambda a, b: a * b, commutes=True),
    Operation("/", _AB, "quotient", _divide),
    Operation("neg", _X, "the negative", lambda x: -x),
    Operation("<", _AB, "less", lambda a, b: a < b, condition=True),
    Operation("<=", _AB, "less or equal", lambda a, b: a <= b, condition=True),
    Operation(">", _AB, "greater", lambda a, b: a > b, condition=True),
    Operation(">=", _AB, "greater or equal", lambda a, b: a >= b, condition=True),
    Operation("==", _AB, "equal", lambda a, b: a == b, condition=True, commutes=True),
    Operation("!=", _AB, "not equal", lambda a, b: a != b, condition=True, commutes=True),
    Operation(
        "where",
        ("condition", "a", "b"),
        "`a` where the condition holds, else `b`; the value that is not chosen has "
        "no effect, even if it is not a number",
        lambda condition, a, b: a if condition else b,
    ),
    Operation(
        "min",
        _AB,
        "the smallest; where two are equal, each has half of the gradient",
        _minimum,
        variadic=True,
        commutes=True,
    ),
    Operation(
        "max",
        _AB,
        "the largest; where two are equal, each has half of the gradient",
        _maximum,
        variadic=True,
        commutes=True,
    ),
    Operation(
        "clip",
        ("x", "low", "high"),
        "`x` limited to `low` … `high`; its gradient is 0 beyond them, not at them",
        lambda x, low, high: _minimum(_maximum(x, low), high),
    ),
    Operation("exp", _X, "e to the power of `x`", _exp),
    Operation("log", _X, "natural logarithm", _log),
    Operation("sqrt", _X, "square root", lambda x: math.sqrt(x) if x >= 0 or x != x else math.nan),
    Operation("abs", _X, "`x` without its sign; at 0 its gradient is 0", abs),
    Operation("sigmoid", _X, "1 / (1 + exp(-x))", _sigmoid),
    Operation(
        "softplus",
        _X,
        "log(1 + exp(x))",
        lambda x: _maximum(x, 0.0) + math.log1p(math.exp(-abs(x))),
    ),
    Operation("stop", _X, "`x` as a constant: no gradient passes", lambda x: x),
    Operation("mean", _X, "mean over the sampled tokens of the sequence", _mean, reduces=True),
    Operation("sum", _X, "sum over the sampled tokens of the sequence", _sum, reduces=True),
    Operation(
        "batch_mean",
        _X,
        "mean over the sampled tokens of the whole batch, without a gradient",
        _mean,
        batch="sequence",
    ),
    Operation(
        "batch_top",
        ("x", SHARE),
        "1 for the tokens with the largest `x`, a share of all sampled tokens of the batch "
        "and at least one; else 0",
        _chosen,
        batch="token",
    ),
    Operation(
        "batch_draw",
        ("x", SHARE),
        "1 for tokens that are sampled at random from those whose `x` is not 0, at most a "
        "share of all sampled tokens of the batch, or one; else 0",
        _chosen,
        batch="token",
    ),
)

RATIO = "ratio"  # not an input of its own: a Builder writes exp(logp - logq)

INPUTS: MappingProxyType[Kind, MappingProxyType[str, Input]] = MappingProxyType(
    {
        "loss": _table(
            Input(
                "logp",
                "token",
                "the trainer's logprob of the token, the only input with a gradient",
                "log p_t",
                high=0,
            ),
            Input("logq", "token", "the sampler's logprob of the token", "log q_t", high=0),
            Input(RATIO, "token", "`exp(logp - logq)`", "ρ_t", low=0),
            Input("adv", "token", "the advantage of the token", "A_t"),
            Input(
                "ref",
                "token",
                "the logprob of the token under the reference or teacher",
                "log p_ref,t",
                high=0,
            ),
            Input("length", "sequence", "how many tokens of the sequence were sampled", "n", low=1),
        ),
        "reward": _table(
            Input("total", "number", "the reward so far", "total"),
            Input("tokens", "number", "sampled tokens of the episode", "tokens", low=0),
            Input("turns", "number", "turns of the episode", "turns", low=1),
            Input(
                "truncated",
                "number",
                "1 if the episode was cut off, else 0",
                "truncated",
                low=0,
                high=1,
                flag=True,
            ),
        ),
    }
)


def input_of(kind: Kind, name: str) -> Input:
    """Return what is known of an input: of a reward a component, which is any number, of a loss a
    value over the batch that has been computed, such as ``batch_mean_1``."""
    if (known := INPUTS[kind].get(name)) is not None:
        return known
    operation = OPERATIONS.get(name.rpartition("_")[0])
    if kind == "loss" and operation is not None and operation.batch is not None:
        return Input(name, operation.batch, operation.doc, name)
    return Input(name, "number", f"the reward component `{name}`", name)


def shapes(program: Program) -> tuple[Shape, ...]:
    """Return the shape of every node."""
    found: list[Shape] = []
    for node in program.nodes:
        if node.op == NUMBER:
            found.append("number")
        elif node.op == INPUT:
            found.append(input_of(program.kind, node.name or "").shape)
        else:
            found.append(OPERATIONS[node.op].shape([found[arg] for arg in node.args]))
    return tuple(found)


def differentiable(program: Program) -> list[bool]:
    """Return for each node whether it depends on ``logp`` in a way that has a gradient: not through
    ``stop``, a condition, what is computed over a batch, or a product with 0 alone."""
    found: list[bool] = []
    for node in program.nodes:
        if node.op in OPERATIONS:
            operation = OPERATIONS[node.op]
            passes = node.op != "stop" and not operation.condition and operation.batch is None
            if node.op == "*":  # by a number that is 0
                passes = all(program.nodes[arg].value != 0 for arg in node.args)
            found.append(passes and any(found[arg] for arg in node.args))
        else:
            found.append(node.op == INPUT and node.name == "logp")
    return found


def batch_nodes(program: Program) -> dict[int, str]:
    """Return the nodes that are computed over a batch, in order, with the names of the inputs that
    they become: ``batch_mean_1``."""
    found: dict[int, str] = {}
    for position, node in enumerate(program.nodes):
        if node.op in OPERATIONS and OPERATIONS[node.op].batch is not None:
            found[position] = f"{node.op}_{len(found) + 1}"
    return found


def needs_batch(program: Program) -> bool:
    """Return whether something of a program is computed over a batch."""
    return bool(batch_nodes(program))


def reads_trainer(program: Program) -> bool:
    """Return whether what is computed over a batch reads the trainer's logprobs."""
    needed = _needed(program, batch_nodes(program))
    return any(program.nodes[position].name == "logp" for position in needed)


def after_batch(program: Program) -> Program:
    """Return the program in which the values over the batch are inputs, without what only they
    need; the program itself if there are none."""
    names = batch_nodes(program)
    if not names:
        return program
    nodes = list(program.nodes)
    for position, name in names.items():
        nodes[position] = OperationNode(INPUT, name=name)
    whole = evolve(program, nodes=tuple(nodes))
    needed = _needed(whole, [program.output])
    place = {old: new for new, old in enumerate(needed)}
    kept = [
        OperationNode(node.op, tuple(place[arg] for arg in node.args), node.value, node.name)
        for node in (nodes[old] for old in needed)
    ]
    return evolve(program, nodes=tuple(kept), output=place[program.output])


def _needed(program: Program, of: Iterable[int]) -> list[int]:
    """Return the nodes that the nodes ``of`` are computed from, themselves included, in order."""
    needed, waiting = set[int](), list(of)
    while waiting:
        if (position := waiting.pop()) not in needed:
            needed.add(position)
            waiting += program.nodes[position].args
    return sorted(needed)


_Inputs = Mapping[str, float | Sequence[float]]


def evaluate(program: Program, inputs: _Inputs) -> Any:
    """Return the result: a list with one value a token, or one float.

    Args:
        program: a loss, a derivative or a reward.
        inputs: for each input that is read its value, or those of the sampled tokens; ``length``
            follows from them. Nothing is checked.
    """
    return evaluator(program)(inputs)


def evaluator(program: Program) -> Callable[[_Inputs], Any]:
    """Return :func:`evaluate` of one program, for many inputs."""
    of = shapes(program)
    # Of each operation: what computes it, what it reads, and which of that is the same on all
    # tokens where the result is not; None if the result is one value.
    steps = [
        None
        if node.op in (NUMBER, INPUT)
        else (
            OPERATIONS[node.op].of,
            node.args,
            [of[arg] != "token" for arg in node.args] if of[position] == "token" else None,
        )
        for position, node in enumerate(program.nodes)
    ]

    def compute(inputs: _Inputs) -> Any:
        length = next((len(v) for v in inputs.values() if isinstance(v, (list, tuple))), 1)
        values: list[Any] = []
        for node, step in zip(program.nodes, steps, strict=True):
            if step is None:
                name = node.name or ""
                values.append(node.value if node.op == NUMBER else inputs.get(name, length))
                continue
            function, args, same = step
            if same is None:
                values.append(function(*[values[arg] for arg in args]))
            else:
                columns = [
                    repeat(values[arg], length) if one else values[arg]
                    for arg, one in zip(args, same, strict=True)
                ]
                values.append(list(map(function, *columns)))
        return values[program.output]

    return compute


def shaped_reward(program: Program, inputs: Mapping[str, float]) -> float:
    """Return the reward that a program makes of an episode.

    Raise AlgorithmError if a component that it reads is missing, or the result is not finite.
    """
    for name in program.inputs:
        if name not in inputs:
            known = ", ".join(sorted(inputs))
            raise AlgorithmError(f"the reward reads `{name}`, and the episode has {known}")
    result = float(evaluate(program, inputs))
    if not math.isfinite(result):
        read = ", ".join(f"{name} = {inputs[name]:g}" for name in program.inputs)
        raise AlgorithmError(f"the shaped reward is {result} where {read}")
    return result
