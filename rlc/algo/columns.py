"""Advantages as Python functions of NumPy, written from the programs of a scheme.

They read what scripts of `rlc emit` keep of episodes, the turns of each with rewards and tokens,
and take statistics from :mod:`rlc.algo.episode_statistics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rlc.algo.expressions.behaviour import derivative
from rlc.algo.expressions.inputs import LENGTHS, OF_TOKENS
from rlc.algo.expressions.program import OperationNode, Program, Shape
from rlc.algo.expressions.vocabulary import (
    OPERATIONS,
    RUNNING,
    SPREADS,
    TURNS,
    compares,
    others_of,
    shapes,
    spreads,
    trained,
)
from rlc.algo.scheme import AdvantageScheme, scope_of

_SCOPES = {  # by what a script compares: it plays no roles
    "group": "group",
    "role": "group",
    "env": "env",
    "batch": "batch",
    "batch_role": "batch",
}
_LABELS = {
    "group": "labels((one.env, one.task) for one in episodes)",
    "env": "labels(one.env for one in episodes)",
    "batch": "labels(0 for _ in episodes)",
}
_INPUTS = {
    "turns": "[len(one.turns) for one in episodes]",
    "reward": "np.array([turn.reward for one in episodes for turn in one.turns])",
    "tokens": "np.array([float(len(turn.tokens)) for one in episodes for turn in one.turns])",
    "length": "per_episode(np.sum, tokens, turns)",
}
_STATISTICS = {
    "mean over": "mean",
    "min over": "np.min",
    "max over": "np.max",
    "std over": "std",
    "rms over": "rms",
}
_OF_OTHERS = ("mean", "max", "std")
_TURNS = {"sum over": "lambda own: sum(own[::-1])", "first over": "lambda own: own[0]"}
_TURNS |= {"last over": "lambda own: own[-1]", "max over": "np.max", "min over": "np.min"}
_CALLS = {"min": "np.minimum", "max": "np.maximum", "where": "np.where", "clip": "np.clip"}
_CALLS |= {name: f"np.{name}" for name in ("exp", "expm1", "log", "sqrt", "abs")}
_CALLS |= {name: name for name in ("sigmoid", "softplus")}
_WIDTH = 100  # of a line
_LONG = 50  # characters from which a part gets a line of its own
_SUM, _PRODUCT, _UNARY, _ATOM = range(1, 5)  # how tightly a text binds
_LEVELS = {"+": _SUM, "-": _SUM, "*": _PRODUCT}


def unwritten(scheme: AdvantageScheme) -> Iterator[str]:
    """Yield what a scheme has that a script does not compute."""
    for program in filter(None, (scheme.keep, scheme.require, scheme.result)):
        yield from (name for name in program.inputs if name not in _INPUTS)
        for node, shape in zip(program.nodes, shapes(program), strict=True):
            word = OPERATIONS[node.op].word if node.args else node.op
            if node.over == TURNS:
                known = node.op in _TURNS
            elif others_of(node.over) is not None:
                known = word in _OF_OTHERS
            elif scope_of(node) is not None:
                known = node.op in _STATISTICS or word == "count"
            else:
                known = node.over is None and (node.op != RUNNING or shape == "episode")
            if not known:
                yield word


def advantage_functions(scheme: AdvantageScheme) -> Iterator[str]:
    """Yield the functions of a scheme: its advantages, and which episodes it keeps or requires."""
    if scheme.keep is not None:
        yield from _function(
            "kept", scheme.keep, f"Not 0 for the episodes that {scheme.name} keeps."
        )
        yield from ("", "")
    if scheme.require is not None:
        yield from _function("required", scheme.require, "0 for an episode without an advantage.")
        yield from ("", "")
    yield from _function(
        "advantages",
        scheme.result,
        f"The advantage of each episode, or of its turns: {scheme.name}.",
    )


def pair_functions(program: Program) -> Iterator[str]:
    """Yield the functions of a loss of pairs, or of labelled replies: its value, and its slopes by
    the logprobs that it reads. What they read of tokens is one after the other for all replies."""
    parts = {"loss": program}
    parts |= {f"slope_of_{name}": derivative(program, by=name) for name in trained(program)}
    for name, part in parts.items():
        writer = _Writer(part)
        names = dict.fromkeys([*part.inputs, *sorted(writer.used)])
        yield from ("", "") if part is not program else ()
        given = [*(["*"] if names else []), *(f"{one}: Array" for one in names), "**_: Array"]
        yield from _head(name, given)
        yield from (f"    {line}" for line in writer.lines)
        yield f"    return {writer.text(part.output)}"


def _head(name: str, given: Sequence[str]) -> Iterator[str]:
    """Yield the first lines of a function, as formatters write them."""
    line = ", ".join(given)
    if len(f"def {name}({line}) -> Any:") <= _WIDTH:
        yield f"def {name}({line}) -> Any:"
        return
    yield f"def {name}("
    yield from [f"    {line}"] if len(line) + 4 <= _WIDTH else [f"    {one}," for one in given]
    yield ") -> Any:"


def _function(name: str, program: Program, doc: str) -> Iterator[str]:
    writer = _Writer(program)
    given = "list[Array]" if program.shape == "turn" else "Array"
    yield f"def {name}(episodes: list[Episode]) -> {given}:"
    yield f'    """{doc}"""'
    result = writer.text(program.output)
    if program.shape == "number":
        result = f"np.full(len(episodes), {result})"
    elif program.shape == "turn":
        writer.read("turns")
        result = f"split({result}, turns)"
    yield from (f"    {line}" for line in writer.preamble())
    yield from (f"    {line}" for line in writer.lines)
    yield f"    return {result}"


def reward_function(name: str, program: Program) -> Iterator[str]:
    """Yield the function that shapes the rewards of the episodes of a task."""
    writer = _Writer(program)
    given = [f"{one}: Array" for one in dict.fromkeys(["total", *program.inputs])]
    yield from _head(name, ["*", *given, "**_: Array"])
    yield from (f"    {scope} = np.zeros(len(total))" for scope in _LABELS if scope in writer.used)
    yield from (f"    {line}" for line in writer.lines)
    yield f"    return np.broadcast_to({writer.text(program.output)}, total.shape)"


class _Writer:
    """Writes the nodes of a program: those with a name, or more than one reader, on lines of their
    own, before the nodes that read them."""

    def __init__(self, program: Program) -> None:
        self.program, self.shapes, self.spreads = program, shapes(program), spreads(program)
        self.lines: list[str] = []
        self.texts: list[tuple[str, int]] = []
        self.used: set[str] = set()
        readers = Counter(arg for node in program.nodes for arg in node.args)
        for position, node in enumerate(program.nodes):
            text, level = self._node(position, node)
            known = not node.args or position == program.output
            if not known and (
                node.name or readers[position] > 1 or node.op in SPREADS or len(text) > _LONG
            ):
                name = self._name(node.name or ("spread" if node.op in SPREADS else "u1"))
                self.lines.append(f"{name} = {text}")
                text, level = name, _ATOM
            self.texts.append((text, level))

    def _name(self, name: str) -> str:
        name, count = name if name not in _TAKEN else f"{name}_", 1
        known = {line.partition(" = ")[0] for line in self.lines}
        while name in known:
            count += 1
            name = f"{name.rstrip('0123456789')}{count}"
        return name

    def text(self, position: int) -> str:
        return self.texts[position][0]

    def read(self, *names: str) -> None:
        self.used |= set(names)

    def preamble(self) -> Iterator[str]:
        """Yield what the lines read of the episodes."""
        if "length" in self.used:
            self.read("tokens", "turns")
        repeated = {f"{scope}_of_turn": f"np.repeat({scope}, turns)" for scope in _LABELS}
        for name, text in {**_INPUTS, **_LABELS, **repeated}.items():
            if name in self.used:
                yield f"{name} = {text}"

    def wide(self, position: int, shape: Shape, least: int = 0) -> str:
        """Return the text of a node in a shape that it fits."""
        text, level = self.texts[position]
        own = self.shapes[position]
        if shape in OF_TOKENS and own in OF_TOKENS.values():
            self.read(LENGTHS[shape])
            return f"np.repeat({text}, {LENGTHS[shape]})"
        if own == "episode" and shape == "turn":
            self.read("turns")
            return f"np.repeat({text}, turns)"
        return text if level >= least else f"({text})"

    def _node(self, position: int, node: OperationNode) -> tuple[str, int]:
        shape, args = self.shapes[position], node.args
        if node.op == "number":
            return repr(node.value), _ATOM if (node.value or 0.0) >= 0 else _UNARY
        if node.op == "input":
            if node.name != "reward":
                self.read(str(node.name))
            return str(node.name), _ATOM
        if node.op == "batch_mean":
            return f"np.mean({self.text(args[0])})", _ATOM
        if node.over is None and OPERATIONS[node.op].reduces:
            length = LENGTHS[self.shapes[args[0]]]
            self.read(length)
            return f"per_episode(np.{node.op}, {self.text(args[0])}, {length})", _ATOM
        if node.op == RUNNING:
            return (
                f"running({position}, {self.text(args[0])}, {self.text(args[1])}, episodes)",
                _ATOM,
            )
        if node.op == "discounted":
            self.read("turns", "reward")
            return f"to_go({self.text(args[0])}, {self.text(args[1])}, turns)", _ATOM
        if node.over == TURNS and node.op == "sum over" and self.text(args[0]) == "reward":
            return "np.array([one.reward for one in episodes])", _ATOM
        if node.over == TURNS:
            self.read("turns", *(name for name in _INPUTS if name == self.text(args[0])))
            return f"per_episode({_TURNS[node.op]}, {self.text(args[0])}, turns)", _ATOM
        if node.over is not None:
            return self._statistic(node, shape), _ATOM
        if node.op == "/" and not (self.program.kind == "advantage" or compares(self.program)):
            left, right = self.wide(args[0], shape, _PRODUCT), self.wide(args[1], shape, _UNARY)
            return f"{left} / {right}", _PRODUCT
        if node.op == "/":
            return self._quotient(args, shape), _ATOM
        if node.op == "stop":
            return self.texts[args[0]]
        if node.op == "neg":
            return f"-{self.wide(args[0], shape, _UNARY)}", _UNARY
        if (level := _LEVELS.get(node.op)) is not None:
            left, right = self.wide(args[0], shape, level), self.wide(args[1], shape, level + 1)
            return f"{left} {node.op} {right}", level
        if node.op in _CALLS:
            return f"{_CALLS[node.op]}({', '.join(self.wide(arg, shape) for arg in args)})", _ATOM
        return " ".join(
            (self.wide(args[0], shape, _SUM), node.op, self.wide(args[1], shape, _SUM))
        ), 0

    def _statistic(self, node: OperationNode, shape: Shape) -> str:
        others, scope = others_of(node.over) is not None, _SCOPES[str(scope_of(node))]
        self.read(scope)
        label, word = scope, OPERATIONS[node.op].word
        if shape == "turn":
            label = f"{scope}_of_turn"
            self.read("turns", label)
        x, weight, *rest = (self.wide(arg, shape) for arg in node.args)
        if word == "count":
            return (
                f"each(np.sum, {label}, {weight} > 0)"
                if weight != "1.0"
                else f"each(len, {label}, {x})"
            )
        name = f"{word}_of_others" if others else _STATISTICS[node.op]
        weights = [] if name.startswith("np.") else [weight, *rest[:-1]]
        made = f"each({', '.join([name, label, x, *weights])})"
        usual = {"mean": x, "min": x, "max": x, "std": "0.0", "rms": "0.0"}[word]
        return made if rest[-1] == usual else f"where_alone({rest[-1]}, {label}, {made})"

    def _quotient(self, args: Sequence[int], shape: Shape) -> str:
        given = [self.wide(arg, shape) for arg in args]
        if self.spreads[args[1]]:
            given += [self._spread(args[1], shape)]
        return f"over({', '.join(given)})"

    def _spread(self, position: int, shape: Shape) -> str:
        """Return the text of what is 0 where a node is made of spreads that are all 0."""
        node = self.program.nodes[position]
        if node.op in SPREADS:
            return self.wide(position, shape)
        found = dict.fromkeys(self._spread(a, shape) for a in node.args if self.spreads[a])
        return " + ".join(found)


_TAKEN = {
    *_INPUTS,
    *_LABELS,
    "total",
    "truncated",
    "mean",
    "std",
    "rms",
    "each",
    "over",
    "split",
    "episodes",
    "np",
}
