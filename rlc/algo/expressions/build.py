"""Building programs: node by node, simplified on the way.

Equal expressions become one node, constants are folded, and identities that hold for every float
are applied (``x * 1``, ``x + 0``, ``--x``, ``(-a) * b = -(a * b)``); a fold that would give
infinity or NaN is left as it stands. ::

    b = Builder("loss")
    surrogate = b.apply("min", b.apply("*", b.input("ratio"), b.input("adv")), …)
    b.name(surrogate, "surrogate")
    program = b.program(b.apply("neg", surrogate))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial, reduce

from rlc.algo.expressions.inputs import OF_BATCH, OF_TOKENS, WIDER, widest
from rlc.algo.expressions.program import (
    INPUT,
    MOST_NESTED,
    MOST_NODES,
    NUMBER,
    ExpressionError,
    Kind,
    OperationNode,
    Program,
    Shape,
)
from rlc.algo.expressions.vocabulary import (
    COMPARING,
    COMPONENTS,
    DISCOUNTED,
    INPUTS,
    LABELS,
    OPERATIONS,
    PART,
    RATIO,
    RUNNING,
    SCOPES,
    SHARE,
    TOKENS,
    TURNS,
    Operation,
    functions_of,
    input_of,
    others_of,
)
from rlc.records import evolve

_COUNTS = {1: "one argument", 2: "two arguments", 3: "three arguments"}
_SHAPES: dict[Shape, str] = {
    "number": "a number",
    "sequence": "one value a sequence",
    "token": "one value a token",
    "episode": "one value an episode",
    "turn": "one value a turn",
    "component": "one value a component of the reward",
    "turn_component": "one value a turn and component of the reward",
    "turn_token": "one value a token",
    "pair": "one value a pair",
    "chosen_token": "one value a token of the better reply",
    "rejected_token": "one value a token of the worse reply",
    "reply": "one value a reply",
    "reply_token": "one value a token of the reply",
}
_INSTEAD = {"mean": "it is its own mean", "sum": "multiply it by the number of tokens"}
_COMPARED: Mapping[Kind, str] = {"preference": "chosen > rejected"}
_APART = "`sum(…)` or `mean(…)` makes one value of those of the tokens of a reply"
_MEMBERS: tuple[Shape, ...] = ("episode", "turn", "component", "turn_component")
# The shapes of what is taken over turns, and of the first argument of some operations.
_TAKES: Mapping[str, tuple[Shape, ...]] = {
    TOKENS: ("turn_token",),
    TURNS: ("turn", "turn_component", "turn_token"),
    COMPONENTS: ("component", "turn_component"),
    DISCOUNTED: ("turn", "turn_component", "turn_token"),
    RUNNING: ("episode", "turn"),
}
_NARROWER = (
    "`sum(…)` or `last(…)` makes one value of those of the turns or tokens, with `over = "
    "components` one of those of the components"
)
_OF_EPISODES = (
    "episodes and turns are compared: `sum(…)` makes one value an episode of those of its tokens, "
    "with `over = tokens` one a turn"
)
_GROUP_ALONE = (
    "a reward is computed once its group is over: compare with more in an `advantage` of your own"
)
_NOT_IN_REWARDS: Mapping[str | None, str] = {  # what to write instead
    TURNS: "`total` is one value for all turns already",
    COMPONENTS: "write out what is made of the components, by their names",
    **dict.fromkeys(SCOPES, _GROUP_ALONE),
}
_OF_ALL = ("rank over", "quantile over")  # never of the others in a scope
_CONSTANTS = ("ddof", "q", "decay")  # parameters that take a number which the recipe says


class Builder:
    """Makes the nodes of one program. Nodes are named by their positions.

    ``components`` can be read like inputs, one number each: those of a reward, by name.
    An expression that is ``bounded`` has at most 1,000 nodes, 200 within one another.
    ``positions`` are those of the nodes in the program that was made last, so that a finding in a
    program leads back to the text of its node.
    """

    def __init__(
        self, kind: Kind = "loss", components: Iterable[str] = (), bounded: bool = True
    ) -> None:
        self._kind = kind
        self.names = (*INPUTS[kind], *components)  # what `input` takes
        self._nodes: list[OperationNode] = []
        self._shapes: list[Shape] = []
        self._depths: list[int] = []
        self._bounded = bounded
        self._known: dict[tuple[object, ...], int] = {}
        self._called: dict[int, str] = {}
        self.positions: dict[int, int] = {}

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    def shape(self, node: int) -> Shape:
        return self._shapes[node]

    def is_condition(self, node: int) -> bool:
        operation = OPERATIONS.get(self._nodes[node].op)
        return operation is not None and operation.condition

    def require_shape(self, node: int, shape: Shape, called: str) -> None:
        """Raise ExpressionError if what is ``called`` something does not fit a shape."""
        found = self._shapes[node]
        if found != shape and shape not in WIDER[found]:
            message = f"`{called}` is {_SHAPES[shape]}, and this is {_SHAPES[found]}"
            raise ExpressionError(message, "", None, _SHAPES[shape], _SHAPES[found], _NARROWER)

    def node(self, node: int) -> OperationNode:
        """Return the record of a node, with its name."""
        record, name = self._nodes[node], self._called.get(node)
        return record if name is None else evolve(record, name=name)

    def value(self, node: int) -> float | None:
        """Return the value of a node that is a number; None if it depends on an input."""
        return self._nodes[node].value

    def number(self, value: float) -> int:
        """Return the node of a number. Raise ExpressionError if it is not finite."""
        if not math.isfinite(value):
            raise ExpressionError(f"{value} is no number to compute with", NUMBER)
        return self._add(OperationNode(NUMBER, value=float(value) + 0.0), "number")  # no -0.0

    def input(self, name: str) -> int:
        """Return the node of an input. Raise ExpressionError if there is none of that name."""
        if name not in self.names and not self._is_named(name):
            message, known = f"a {self._kind} cannot read `{name}`", ", ".join(self.names)
            raise ExpressionError(message, INPUT, expected=known, found=name)
        if name == RATIO and self._kind == "loss":
            return self.apply("exp", self.apply("-", self.input("logp"), self.input("logq")))
        return self._add(OperationNode(INPUT, name=name), input_of(self._kind, name).shape)

    def _is_named(self, name: str) -> bool:
        """Return whether an input of an advantage is a component, or whether a label is one."""
        is_label = name.partition(" == ")[0] in LABELS
        return self._kind == "advantage" and (is_label or name.startswith(PART))

    def name(self, node: int, name: str) -> None:
        """Give the result of a node a name of the recipe. The first name counts; inputs and numbers
        keep theirs."""
        if self._nodes[node].op not in (NUMBER, INPUT):
            self._called.setdefault(node, name)

    def apply(self, op: str, *args: int, over: str | None = None) -> int:
        """Return the node of an operation on other nodes; of a statistic, ``over`` turns or a
        scope.

        Raise ExpressionError if there is no such operation, or the arguments do not fit: their
        number, a condition where a value is needed, a value where a condition is, a mean of what
        is no token.
        """
        args = self._checked(op, args, over)
        if op in ("min", "max") and len(args) > 2:
            return reduce(partial(self.apply, op), args)
        if (simpler := self._simplified(op, args)) is not None:
            return simpler
        shape = OPERATIONS[op].shape([self._shapes[arg] for arg in args], over)
        return self._add(OperationNode(op, args, over=over), shape)

    def copy(self, program: Program) -> list[int]:
        """Add the nodes of a program, with their names; return the new position of each.

        Raise ExpressionError if the program is not one that a Builder makes.
        """
        made: list[int] = []
        for node in program.nodes:
            if any(not 0 <= arg < len(made) for arg in node.args):
                message = f"`{node.op}` reads a node that does not come before it"
                raise ExpressionError(message, node.op)
            if node.op == NUMBER:
                made.append(self.number(math.nan if node.value is None else node.value))
            elif node.op == INPUT:
                made.append(self.input(node.name or ""))
            else:
                made.append(self.apply(node.op, *(made[arg] for arg in node.args), over=node.over))
                if node.name is not None:
                    self.name(made[-1], node.name)
        return made

    def program(self, output: int) -> Program:
        """Return the program of a node's result, without what it does not need.

        Raise ExpressionError if the result is a condition, or a loss that is the same whatever
        its sequence, pair or reply. Afterwards :attr:`positions` says where the nodes went.
        """
        if self.is_condition(output):
            raise ExpressionError("the result is a condition, not a value", self._nodes[output].op)
        shape = self.shape(output)
        if self._kind == "loss" and shape == "number":
            raise ExpressionError(
                "the loss is a constant",
                self._nodes[output].op,
                expected="one value a token or a sequence",
                found="a number",
                hint="it has to depend on `logp`",
            )
        if self._kind == "preference" and shape not in OF_BATCH["preference"]:
            expected = " or ".join(_SHAPES[one] for one in OF_BATCH["preference"])
            message = f"a preference loss is {expected}, and this is {_SHAPES[shape]}"
            hint = "it has to depend on `chosen` and `rejected`" if shape == "number" else _APART
            output_op = self._nodes[output].op
            raise ExpressionError(message, output_op, None, expected, _SHAPES[shape], hint)
        return self.part(output)

    def part(self, output: int) -> Program:
        """Return the program of any node's result."""
        position: dict[int, int] = {}
        nodes: list[OperationNode] = []
        waiting = [output]
        while waiting:  # in the order in which the result reads them, however they were made
            old = waiting.pop()
            missing = [arg for arg in reversed(self._nodes[old].args) if arg not in position]
            if missing:
                waiting += [old, *missing]
            elif old not in position:
                node, position[old] = self._nodes[old], len(nodes)
                name = node.name if node.op == INPUT else self._called.get(old)
                args = tuple(position[arg] for arg in node.args)
                nodes.append(evolve(node, args=args, name=name))
        self.positions = position
        return Program(tuple(nodes), position[output], self.shape(output), self._kind)

    def _add(self, node: OperationNode, shape: Shape) -> int:
        commutes = node.op in OPERATIONS and OPERATIONS[node.op].commutes
        args = tuple(sorted(node.args)) if commutes else node.args
        key = (node.op, args, node.value, node.name, node.over)
        if key not in self._known:
            depth = 1 + max((self._depths[arg] for arg in node.args), default=0)
            if self._bounded and (len(self._nodes) >= MOST_NODES or depth > MOST_NESTED):
                most = f"{MOST_NODES:,} parts, at most {MOST_NESTED} within one another"
                raise ExpressionError(f"an expression has at most {most}", node.op)
            self._known[key] = len(self._nodes)
            self._nodes.append(node)
            self._shapes.append(shape)
            self._depths.append(depth)
        return self._known[key]

    def _checked(self, op: str, args: tuple[int, ...], over: str | None) -> tuple[int, ...]:
        """Return the arguments, flags as conditions where one is needed. Raise ExpressionError if
        they do not fit."""
        operation = OPERATIONS.get(op)
        if operation is None or self._kind not in operation.kinds:
            known = ", ".join(functions_of(self._kind))
            raise ExpressionError(f"there is no function `{op}`", op, expected=known, found=op)
        wanted = len(operation.params)
        if len(args) < wanted or (len(args) > wanted and not operation.variadic):
            expected = ("at least " if operation.variadic else "") + _COUNTS[wanted]
            message = f"`{operation.usage}` takes {expected}, not {len(args)}"
            raise ExpressionError(message, op, expected=expected, found=str(len(args)))
        checked = list(args)
        for position, arg in enumerate(args):
            param = operation.params[min(position, wanted - 1)]
            if param == "condition" and not self.is_condition(arg):
                checked[position] = self._as_condition(op, position, arg)
            elif param == "weight" and self.is_condition(arg):
                checked[position] = self.apply("where", arg, self.number(1), self.number(0))
            elif param in _CONSTANTS and self.value(arg) is None:
                message = f"`{operation.usage}` takes a number for `{param}`"
                raise ExpressionError(message, op, position, "a number", _SHAPES[self.shape(arg)])
            elif param != "condition" and self.is_condition(arg):
                raise ExpressionError(
                    f"`{operation.usage}` takes a value for `{param}`, not a condition",
                    op,
                    position,
                    "a value",
                    "a condition",
                    "`where(condition, 1, 0)` makes a value of a condition",
                )
            if param == SHARE:
                if not 0 < (self.value(arg) or 0.0) <= 1:
                    expected = "a number above 0, at most 1"
                    message = f"`{operation.usage}` takes {expected} for `{param}`"
                    raise ExpressionError(message, op, position, expected)
            elif operation.reduces or operation.batch:
                self._require_reducible(operation, position, self._shapes[arg])
        if self._kind in COMPARING:
            self._require_values(op, args[0], over)
            self._require_together(operation, args, over)
        elif self._kind == "preference" and widest(self._shapes[arg] for arg in args) is None:
            shown = " and ".join(dict.fromkeys(_SHAPES[self._shapes[arg]] for arg in args))
            expected = "values that belong together"
            message = f"`{operation.usage}` takes {expected}, and these are {shown}"
            of_pairs = {OF_TOKENS.get(self._shapes[arg], self._shapes[arg]) for arg in args}
            hint = (
                _APART if "reply" not in of_pairs else "a loss is of pairs, or of labelled replies"
            )
            raise ExpressionError(message, op, None, expected, shown, hint)
        if op == "clip" and (low := self.value(args[1])) is not None:
            high = self.value(args[2])
            if high is not None and low > high:
                message = f"`clip` from {low:g} to {high:g} has its bounds the wrong way round"
                raise ExpressionError(message, op, 1, f"at most {high:g}", f"{low:g}")
        return tuple(checked)

    def _require_reducible(self, operation: Operation, position: int, shape: Shape) -> None:
        """Raise ExpressionError if nothing is reduced over what has a shape: what is no token, or
        in a batch no member of it."""
        takes = tuple(OF_TOKENS) if operation.reduces else OF_BATCH[self._kind]
        if shape in takes:
            return
        of = "the tokens of a sequence" if self._kind == "loss" else "tokens"
        if not operation.reduces:
            of = f"the {'tokens' if self._kind == 'loss' else 'pairs or replies'} of a batch"
        message = f"`{operation.usage}` is over {of}, and this is {_SHAPES[shape]}"
        hint = _INSTEAD.get(operation.name)
        raise ExpressionError(
            message, operation.name, position, _SHAPES[takes[0]], _SHAPES[shape], hint
        )

    def _require_together(
        self, operation: Operation, args: tuple[int, ...], over: str | None
    ) -> None:
        """Raise ExpressionError for values of components beside those of tokens, and for a
        parameter of a statistic, such as a weight, that differs where the first is one value."""
        shapes = [self._shapes[arg] for arg in args]
        if widest(shapes) is None:
            shown = " and ".join(dict.fromkeys(_SHAPES[one] for one in shapes))
            expected = "values that belong together"
            message = f"`{operation.usage}` takes {expected}, and these are {shown}"
            hint = "`sum(…, over = components)` makes one value of those of the components"
            raise ExpressionError(message, operation.name, None, expected, shown, hint)
        fit = shapes[0] if over is not None else "number"
        for place, (param, shape) in enumerate(zip(operation.params, shapes, strict=False)):
            beside = over is not None or operation.name == DISCOUNTED
            if place and beside and shape != fit and fit not in WIDER[shape]:
                message = (
                    f"`{param}` of `{operation.word}` is {_SHAPES[fit]} here, not {_SHAPES[shape]}"
                )
                expected, found = _SHAPES[fit], _SHAPES[shape]
                raise ExpressionError(message, operation.name, place, expected, found, _NARROWER)

    def _require_values(self, op: str, arg: int, over: str | None) -> None:
        """Raise ExpressionError if an operation cannot be taken over what it is, or of that."""
        operation, shape = OPERATIONS[op], self._shapes[arg]
        scopes = operation.taken_over(self._kind)
        if (others_of(over) or over or "") not in (scopes or ("",)) or (
            others_of(over) is not None and operation.name in _OF_ALL
        ):
            known = ", ".join(scopes) or "nothing"
            message = f"`{operation.word}` is taken over {known}, not over {over}"
            hint = _NOT_IN_REWARDS.get(over) if self._kind == "reward" else None
            raise ExpressionError(message, op, None, known, str(over), hint)
        takes = _TAKES.get(over or op)
        if takes is None and over is not None:
            takes = _MEMBERS
        if takes is not None and shape not in takes:
            message = f"`{operation.usage}` takes {_SHAPES[takes[0]]}, and this is {_SHAPES[shape]}"
            hint = "it is one value already" if over in (TOKENS, TURNS) else None
            if takes == _MEMBERS and shape == "turn_token":
                hint = _OF_EPISODES
            raise ExpressionError(message, op, 0, _SHAPES[takes[0]], _SHAPES[shape], hint)

    def _as_condition(self, op: str, position: int, arg: int) -> int:
        node = self._nodes[arg]
        if node.op == INPUT and input_of(self._kind, node.name or "").flag:
            return self.apply("!=", arg, self.number(0))
        raise ExpressionError(
            f"`{op}` decides by a comparison, and this is a value",
            op,
            position,
            "a condition",
            "a value",
            f"compare it with something, such as `{_COMPARED.get(self._kind, 'adv > 0')}`",
        )

    def _simplified(self, op: str, args: tuple[int, ...]) -> int | None:
        """Return a simpler node with the same value and gradient for every float; None without."""
        values = [self._nodes[arg].value for arg in args]
        operation = OPERATIONS[op]
        if None not in values and not operation.condition:
            folded = operation.of(*values)
            return self.number(folded) if math.isfinite(folded) else None
        inner = [  # what is negative, and has no name to keep
            node.args[0] if node.op == "neg" and arg not in self._called else None
            for arg, node in ((arg, self._nodes[arg]) for arg in args)
        ]
        match op, args, values:
            case ("+", (x, _), (_, 0.0)) | ("+", (_, x), (0.0, _)) | ("-", (x, _), (_, 0.0)):
                return x
            case ("*", (x, _), (_, 1.0)) | ("*", (_, x), (1.0, _)) | ("/", (x, _), (_, 1.0)):
                return x
            case ("*", (x, _), (_, -1.0)) | ("*", (_, x), (-1.0, _)) | ("-", (_, x), (0.0, _)):
                return self.apply("neg", x)
            case ("neg", _, _):
                return inner[0]
            case ("+", (a, b), _) if inner[1] is not None:
                return self.apply("-", a, inner[1])
            case ("-", (a, b), _) if inner[1] is not None:
                return self.apply("+", a, inner[1])
            case ("*" | "/", (a, b), _) if inner[0] is not None or inner[1] is not None:
                positive = [
                    arg if within is None else within
                    for arg, within in zip(args, inner, strict=True)
                ]
                made = self.apply(op, *positive)
                return made if None not in inner else self.apply("neg", made)
            case ("min" | "max", (a, b), _) if a == b:
                return a
            case ("where", (_, a, b), _) if a == b:
                return a
            case ("where", (condition, a, b), _):
                compared = self._nodes[condition]
                sides = [self._nodes[side].value for side in compared.args]
                if None not in sides:
                    return a if OPERATIONS[compared.op].of(*sides) else b
            case ("stop", (x,), _) if self._nodes[x].op == "stop":
                return x
        return None


def validate(program: Program) -> None:
    """Raise ExpressionError if a program, such as that of a saved plan, is not one that a Builder
    makes: an operation or input that does not exist, arguments that do not fit."""
    builder = Builder(program.kind, program.inputs if program.kind == "reward" else ())
    made = builder.copy(program)
    if not 0 <= program.output < len(made):
        raise ExpressionError(f"a program has no node {program.output}", NUMBER)
    if (shape := builder.program(made[program.output]).shape) != program.shape:
        raise ExpressionError(f"the program's shape is {shape}, not {program.shape}", NUMBER)
