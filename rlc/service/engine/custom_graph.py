"""A custom loss as its client sends it: read, checked against the list of operations, analysed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import define, field, frozen
from tinker import types

from rlc.service.engine import custom_operations as operations
from rlc.service.engine.custom_operations import TensorOperation
from rlc.service.interface import ServiceError

MOST_NODES = 512
MOST_INPUTS = 16  # as the SDK has it
_MOST_METRICS = 64
_MOST_LEAVES = 64  # numbers, words and references in the arguments of a node
_DEEPEST = 4  # lists in lists
_LARGEST = 2**53  # up to it all whole numbers are exact in float64

_INPUT = re.compile(r"[a-z_][a-z0-9_]{0,63}")
_METRIC = re.compile(r"custom/[a-z0-9_./-]{1,64}:(sum|mean)")
_ALLOWED = (
    "a custom loss may use Python's operators and torch's functions of values, reductions and "
    "indexing; nothing that allocates, draws random numbers, changes a tensor or leaves torch"
)


@frozen
class Ref:
    """The value of an input or a node; nodes are numbered after the inputs."""

    index: int


@frozen
class LossNode:
    """One operation. ``label`` names it in messages: its name and what the client called."""

    label: str
    operation: TensorOperation
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def refs(self) -> list[int]:
        """Return the numbers of the values that it takes, in the order of its arguments."""
        return [ref.index for arg in (*self.args, *self.kwargs.values()) for ref in _refs(arg)]


@frozen
class LossGraph:
    """A checked loss: ``nodes`` in order, their values numbered after those of the inputs."""

    name: str
    inputs: tuple[tuple[str, int], ...]  # names and ranks; the first are the logprobs
    nodes: tuple[LossNode, ...]
    loss: int
    metrics: Mapping[str, int]


def read_graph(
    name: str, inputs: Sequence[types.CustomLossInput], graph: types.CustomLossGraph
) -> LossGraph:
    """Check a graph and return it. Raise ServiceError, which names the node, for anything that a
    custom loss may not have."""
    reader = _Reader(_short(name))
    named, nodes = reader.inputs(inputs), graph.nodes
    if len(nodes) > MOST_NODES:
        raise reader.refuse(f"has {len(nodes)} nodes; the most is {MOST_NODES}")
    given = [node for node in nodes if node.op == "placeholder"]
    if list(nodes[: len(given)]) != given or [n.target for n in given] != [n for n, _ in named]:
        raise reader.refuse("must begin with a placeholder for each of its inputs, in order")
    if not nodes or nodes[-1].op != "output":
        raise reader.refuse("must end with its output")
    for node in given:
        reader.where = f", placeholder {_short(node.name)},"
        if node.args or node.kwargs:
            raise reader.refuse("has a default, but every input is required")
        reader.number(node)
    read = [reader.node(node) for node in nodes[len(given) : -1]]
    reader.where = ""
    loss, metrics = reader.output(nodes[-1])
    return LossGraph(reader.name, named, tuple(read), loss, metrics)


def fill(arg: Any, values: Sequence[Any] | Mapping[int, Any]) -> Any:
    """Return an argument with the values that it refers to."""
    if isinstance(arg, Ref):
        return values[arg.index]
    if isinstance(arg, (tuple, list)):
        return type(arg)(fill(part, values) for part in arg)
    if isinstance(arg, slice):
        return slice(*(fill(part, values) for part in (arg.start, arg.stop, arg.step)))
    return arg


def _refs(arg: Any) -> list[Ref]:
    if isinstance(arg, (tuple, list)):
        return [ref for part in arg for ref in _refs(part)]
    if isinstance(arg, slice):
        return _refs((arg.start, arg.stop, arg.step))
    return [arg] if isinstance(arg, Ref) else []


@define
class _Reader:
    name: str
    numbers: dict[str, int] = field(factory=dict)  # of the values so far, by the nodes' names
    where: str = ""
    leaves: int = 0

    def refuse(self, why: str) -> ServiceError:
        return ServiceError(f"The custom loss {self.name}{self.where} {why}.")

    def inputs(self, inputs: Sequence[types.CustomLossInput]) -> tuple[tuple[str, int], ...]:
        named = tuple((given.name, int(given.rank)) for given in inputs)
        if not 1 <= len(named) <= MOST_INPUTS:
            raise self.refuse(f"has {len(named)} inputs; from 1 to {MOST_INPUTS} are possible")
        if named[0][0] != "logprobs" or named[0][1] == 0:
            raise self.refuse("must take logprobs first, of rank 1 ([T]) or 2 ([T, K])")
        for number, (name, _) in enumerate(named):
            if not _INPUT.fullmatch(name) or name in (other for other, _ in named[:number]):
                raise self.refuse(f"has an input {_short(name)}: names are lowercase and unique")
        return named

    def number(self, node: types.CustomLossNode) -> None:
        if node.name in self.numbers:
            raise self.refuse("has the name of an earlier node")
        self.numbers[node.name] = len(self.numbers)

    def node(self, node: types.CustomLossNode) -> LossNode:
        label = f"node {_short(node.name)} ({_short(node.target)})"
        self.where, self.leaves = f", {label},", 0
        if node.op not in ("call_function", "call_method"):
            raise self.refuse(f"is a {node.op}, which it cannot have there")
        operation = operations.find(node.op, node.target)
        if operation is None:
            spelt = {name.rpartition(".")[2]: name for name in operations.spellings(node.op)}
            near = difflib.get_close_matches(node.target.rpartition(".")[2], spelt, 1, 0.75)
            hint = f"did you mean {spelt[near[0]]}? " if near else ""
            raise self.refuse(f"is not possible: {hint}{_ALLOWED}")
        words = operations.ATTRIBUTES if operation.kind == "attribute" else operations.WORDS
        args = tuple(self._value(arg, words) for arg in node.args)
        kwargs = {}
        for key, value in node.kwargs.items():
            if key == "_stacklevel" or (key == "inplace" and value is False):
                continue  # what torch's Python functions add
            if key not in operations.KEYWORDS:
                raise self.refuse(f"has the argument {_short(key)}, which it cannot have there")
            kwargs[key] = self._value(value, words)
        found = LossNode(label, operation, args, kwargs)
        if operation.kind == "attribute" and not (
            len(args) == 2 and isinstance(args[0], Ref) and isinstance(args[1], str) and not kwargs
        ):
            raise self.refuse(f"takes one of {', '.join(sorted(words))} from a tensor")
        if not found.refs():
            raise self.refuse("computes with no input of the loss")
        self.number(node)
        return found

    def _value(self, given: Any, words: frozenset[str], depth: int = 0) -> Any:
        self.leaves += 1
        if self.leaves > _MOST_LEAVES or depth > _DEEPEST:
            raise self.refuse("has too many arguments")
        match given:
            case None | bool() | float():
                return given
            case int():
                if abs(given) > _LARGEST:
                    raise self.refuse("has a whole number that float64 cannot hold")
                return given
            case str():
                if given not in words:
                    raise self.refuse(
                        f"has the argument {_short(given)}, which it cannot have there"
                    )
                return given
            case list():
                return [self._value(part, words, depth + 1) for part in given]
            case {"ref": name} if len(given) == 1:
                return self._ref(name)
            case {"tuple": parts} | {"slice": parts} if len(given) == 1:
                is_slice = "slice" in given
                if not isinstance(parts, list) or (is_slice and len(parts) != 3):
                    raise self.refuse("has an invalid tuple or slice")
                read = [self._value(part, words, depth + 1) for part in parts]
                return slice(*read) if is_slice else tuple(read)
            case {"ellipsis": _} if len(given) == 1:
                return Ellipsis
            case {"float": text} if len(given) == 1:
                if text not in ("inf", "-inf", "nan"):
                    raise self.refuse(f"has {_short(text)}, which is not a number")
                return float(text)
            case {"dtype": name} if len(given) == 1:
                if not isinstance(name, str) or name not in operations.DTYPES:
                    there = "there are float32, float64, int64 and bool"
                    raise self.refuse(f"has the dtype {_short(name)}; {there}")
                return operations.DTYPES[name]
        raise self.refuse("has an argument that a custom loss cannot have here")

    def _ref(self, name: Any) -> Ref:
        if not isinstance(name, str) or name not in self.numbers:
            raise self.refuse(f"refers to {_short(name)}, which no earlier node computes")
        return Ref(self.numbers[name])

    def output(self, node: types.CustomLossNode) -> tuple[int, Mapping[str, int]]:
        wrong = self.refuse("must return (loss, metrics): a tensor, and a dict of tensors")
        match node.args:
            case [{"tuple": [{"ref": loss}, {"dict": dict(metrics)}]}] if not node.kwargs:
                pass
            case [[{"ref": loss}, {"dict": dict(metrics)}]] if not node.kwargs:
                pass
            case _:
                raise wrong
        if len(metrics) > _MOST_METRICS:
            raise self.refuse(f"has {len(metrics)} metrics; the most is {_MOST_METRICS}")
        read = {}
        for key, value in metrics.items():
            if not isinstance(key, str) or not _METRIC.fullmatch(key):
                names = "names are custom/<name>:sum or :mean, in lowercase"
                raise self.refuse(f"has a metric {_short(key)}; {names}")
            if not isinstance(value, dict) or list(value) != ["ref"]:
                raise wrong
            read[key] = self._ref(value["ref"]).index
        return self._ref(loss).index, read


def _short(text: Any) -> str:
    quoted = repr(text) if isinstance(text, str) else type(text).__name__
    return quoted if len(quoted) <= 60 else quoted[:56] + "…" + quoted[-1]


class Shape(Enum):
    """The value for each datum, if it has one of the shapes that datums can share."""

    TOKENS = "a value for each token"
    SCALAR = "one value"
    LENGTH = "the number of tokens, or a plain number computed from it"
    SIZES = "the shape of a value for each token"
    SAME = "the same for all datums"


@frozen
class Facts:
    """The shapes of all inputs and nodes, None if unknown; ``joinable`` if all are known. If one of
    the inputs ``zeroed_by`` is 0 everywhere, so are the loss and its gradient."""

    shapes: tuple[Shape | None, ...]
    joinable: bool
    zeroed_by: frozenset[str]


def facts_of(graph: LossGraph) -> Facts:
    """Analyse a graph. Raise ServiceError for one that cannot be trained with."""
    names = [name for name, _ in graph.inputs]
    shapes = [{0: Shape.SCALAR, 1: Shape.TOKENS}.get(rank) for _, rank in graph.inputs]
    reached = [name == "logprobs" for name in names]
    zeroed = [frozenset({name} - {"logprobs"}) for name in names]
    for node in graph.nodes:
        shapes.append(_shape(node, shapes))
        smooth = node.operation.smooth and (
            node.operation.kind != "attribute" or node.args[1] == "values"
        )
        reached.append(smooth and any(reached[ref] for ref in node.refs()))
        zeroed.append(_zeroed(node, zeroed, frozenset(names)))
    for what, number in {"its loss": graph.loss, **graph.metrics}.items():
        shape = shapes[number]
        if shape not in (Shape.SCALAR, None):
            raise ServiceError(
                f"The custom loss {graph.name} must return scalar tensors, but {what} is "
                f"{shape.value}."
            )
    if not reached[graph.loss]:
        raise ServiceError(
            f"The custom loss {graph.name} would train nothing: no gradient reaches logprobs."
        )
    return Facts(tuple(shapes), None not in shapes, zeroed[graph.loss])


def _shape(node: LossNode, shapes: Sequence[Shape | None]) -> Shape | None:
    """Return the shape of a node's value; None if datums cannot share it, or it is not known."""
    first = shapes[node.args[0].index] if node.args and isinstance(node.args[0], Ref) else None
    is_tensor = first in (Shape.TOKENS, Shape.SCALAR)
    rest = (*node.args[1:], *(value for value in node.kwargs.values() if value is not None))
    kind, along_tokens = node.operation.kind, rest in ((0,), (-1,))
    if is_pointwise(node):
        of = {shapes[ref] for ref in node.refs()}
        known = of <= {Shape.TOKENS, Shape.SCALAR, Shape.LENGTH, Shape.SAME}
        if not known or any(isinstance(arg, (list, tuple, slice)) for arg in (*node.args, *rest)):
            return None
        if of & {Shape.TOKENS, Shape.SCALAR}:
            return Shape.TOKENS if Shape.TOKENS in of else Shape.SCALAR
        return Shape.LENGTH if node.operation.plain and Shape.LENGTH in of else None
    match kind:
        case "cast" if is_tensor:
            return first
        case "reduction" if is_tensor:
            return Shape.SCALAR if not rest or (first is Shape.TOKENS and along_tokens) else None
        case "extreme" if is_tensor:
            return Shape.SCALAR if not rest else None
        case "attribute" if is_tensor and node.args[1] != "shape":
            return Shape.SAME if node.args[1] in ("dtype", "device", "ndim") else None
        case "rank" if is_tensor and not rest:
            return Shape.SAME
        case "attribute" | "size" if first is Shape.TOKENS and (kind == "attribute" or not rest):
            return Shape.SIZES
        case "length" if is_tensor and not rest:
            return Shape.LENGTH if first is Shape.TOKENS else Shape.SAME
        case "size" if first is Shape.TOKENS and along_tokens:
            return Shape.LENGTH
        case "item" if first is Shape.SIZES and along_tokens:
            return Shape.LENGTH
    return None


def is_pointwise(node: LossNode) -> bool:
    """Return whether a node is computed place by place, as ``max`` of two tensors is."""
    if node.operation.kind == "extreme":
        return isinstance(node.kwargs.get("other", (*node.args, None, None)[1]), Ref)
    return node.operation.kind == "pointwise"


def _zeroed(
    node: LossNode, zeroed: Sequence[frozenset[str]], everything: frozenset[str]
) -> frozenset[str]:
    """Return the inputs of which each makes a node 0 where it is 0: of a plain 0 all of them."""
    plain = {True: everything, False: frozenset[str]()}
    args = [
        zeroed[arg.index]
        if isinstance(arg, Ref)
        else plain[isinstance(arg, (int, float)) and arg == 0]
        for arg in node.args
    ]
    match node.operation.vanishes:
        case "any" if args:
            return frozenset().union(*args)
        case "first" if args:
            return args[0]
        case "branches" if len(args) == 3:
            return args[1] & args[2]
        case "all" if len(args) == 2 and not node.kwargs and is_pointwise(node):
            return args[0] & args[1]
        case "all" if len(args) == 1 and node.operation.kind == "extreme":
            return args[0]
    return frozenset()
