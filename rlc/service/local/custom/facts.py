"""What can be known of a custom loss before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from attrs import frozen

from rlc.service.errors import ServiceError
from rlc.service.local.custom.graph import Graph, Node, Ref


class Shape(Enum):
    """What a value is for each datum, if it is one of the shapes that datums can share."""

    TOKENS = "a value for each token"
    SCALAR = "one value"
    LENGTH = "the number of tokens, or a plain number computed from it"
    SIZES = "the shape of a value for each token"
    SAME = "the same for all datums"


@frozen
class Facts:
    """``shapes`` of all inputs and nodes, where they are known; ``joinable``: whether they all are.
    If one of the inputs ``zeroed_by`` is 0 everywhere, so are the loss and its gradient."""

    shapes: tuple[Shape | None, ...]
    joinable: bool
    zeroed_by: frozenset[str]


def facts_of(graph: Graph) -> Facts:
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


def _shape(node: Node, shapes: Sequence[Shape | None]) -> Shape | None:
    """What a node computes; None if datums cannot share its shape, or it is not known."""
    first = shapes[node.args[0].index] if node.args and isinstance(node.args[0], Ref) else None
    is_tensor = first in (Shape.TOKENS, Shape.SCALAR)
    rest = (*node.args[1:], *(value for value in node.kwargs.values() if value is not None))
    kind, along_tokens = node.operation.kind, rest in ((0,), (-1,))
    if is_pointwise(node):
        plain = not any(isinstance(arg, (list, tuple, slice)) for arg in (*node.args, *rest))
        return _pointwise_shape(node, {shapes[ref] for ref in node.refs()}) if plain else None
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


def _pointwise_shape(node: Node, of: set[Shape | None]) -> Shape | None:
    if of - {Shape.TOKENS, Shape.SCALAR, Shape.LENGTH, Shape.SAME}:
        return None
    for shape in (Shape.TOKENS, Shape.SCALAR):
        if shape in of:
            return shape
    return Shape.LENGTH if node.operation.plain and Shape.LENGTH in of else None


def is_pointwise(node: Node) -> bool:
    """Whether it computes each value from those at its place, as ``max`` of two tensors does."""
    if node.operation.kind == "extreme":
        return isinstance(node.kwargs.get("other", (*node.args, None, None)[1]), Ref)
    return node.operation.kind == "pointwise"


def _zeroed(
    node: Node, zeroed: Sequence[frozenset[str]], everything: frozenset[str]
) -> frozenset[str]:
    """The inputs that make a node 0 where they are; they do so with a plain 0, whatever it is."""

    def of(arg: Any) -> frozenset[str]:
        if isinstance(arg, Ref):
            return zeroed[arg.index]
        return everything if isinstance(arg, (int, float)) and arg == 0 else frozenset()

    args = [of(arg) for arg in node.args]
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
