"""Programs as text for people, in the notation of the catalogue's formulas.

Products are written side by side, ``ρ_t A_t``; ``sg`` is a value without gradient; an index ``_t``
marks what each token has for itself. Parts keep the names that a recipe gives them, and a large
part that is read more than once gets one (``u1``), so that no text is longer than its program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from rlc.algo.expressions.behaviour import derivative
from rlc.algo.expressions.inputs import OF_TOKENS
from rlc.algo.expressions.program import INPUT, NUMBER, OperationNode, Program, Shape
from rlc.algo.expressions.vocabulary import (
    COMPONENTS,
    DISCOUNTED,
    INPUTS,
    OPERATIONS,
    RATIO,
    TOKENS,
    TURNS,
    input_of,
    others_of,
    shapes,
)
from rlc.records import evolve

_INDEX: Mapping[Shape, str] = {
    **dict.fromkeys(OF_TOKENS, "_t"),
    "turn": "_t",
    "component": "_k",
    "turn_component": "_tk",
    "turn_token": "_i",
}
_NAMED = {"weight": "weighted by", "ddof": "ddof", "singleton": "a single one:"}
_COMPARED = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "=", "!=": "≠"}
_SIGNS = {"ρ_t": "ρ_t = p_t / q_t", "sg(": "sg: no gradient"}
_FUNCTIONS = {"stop": "sg", "mean": "mean_t", "sum": "sum_t"}
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LONG, _TOO_LONG = 32, 200  # characters from which a part that is read again gets a name, or any

# How tightly a text binds.
_COMPARISON, _SUM, _QUOTIENT, _PRODUCT, _WORDS, _ATOM = range(6)


def formula(program: Program) -> tuple[str, ...]:
    """Return the formula: its named parts, one a line, then the result, ``L = …``."""
    writer = _Writer(_named(program))
    text, level = writer.text(program.output, whole=True)
    if program.kind == "reward":
        result = f"reward = {text}"
    elif program.kind == "advantage":
        result = f"A{_INDEX.get(program.shape, '')} = {text}"
    elif program.shape != "token":
        result = f"L = {text}"
    elif (node := program.nodes[program.output]).op == "neg":
        result = f"L = − Σ_t {writer.enclosed(node.args[0], _QUOTIENT)}"
    else:
        result = f"L = Σ_t {text if level >= _QUOTIENT else f'({text})'}"
    return (*writer.parts(), result)


def derivative_formula(program: Program, by: str = "logp") -> tuple[str, ...]:
    """Return ``∂L/∂log p_t = …``, or that ``by`` another input of a preference loss, after the
    large parts of it that :func:`formula` does not have.

    It holds except at boundaries, where two sides of a ``min`` or ``max`` are equal.
    """
    named = _named(program)
    known = {node.name for node in named.nodes if node.op != INPUT}
    slope = _named(derivative(named, ties=False, by=by), "v")
    writer = _Writer(slope)
    result = writer.text(slope.output, whole=True)[0]
    return (*writer.parts(known), f"∂L/∂{INPUTS[program.kind][by].symbol} = {result}")


def signs(lines: Iterable[str]) -> list[str]:
    """Return what some signs in formulas mean."""
    text = " ".join(lines)
    return [meaning for sign, meaning in _SIGNS.items() if sign in text]


def number(value: float) -> str:
    """Return a number as formulas show it: ``1``, ``0.8``, ``1e-5``, ``−2``."""
    text = f"{abs(value):.10g}"
    if "e" in text:
        digits, exponent = text.split("e")
        text = f"{digits}e{int(exponent)}"
    return f"−{text}" if value < 0 else text


def _named(program: Program, letter: str = "u") -> Program:
    """Name every large part that is read more than once, and all whose text is too long for a line
    or two."""
    nodes = list(program.nodes)
    if (result := nodes[program.output]).args:
        nodes[program.output] = evolve(result, name=None)  # the loss itself is `L`
    readers = Counter(arg for node in nodes for arg in node.args)
    used = {node.name for node in nodes}
    names = (f"{letter}{count}" for count in range(1, len(nodes) + 1))
    for position, node in enumerate(nodes):
        if node.name is None and node.args and position != program.output:
            size = len(_Writer(evolve(program, nodes=tuple(nodes))).text(position)[0])
            if size >= (_LONG if readers[position] > 1 else _TOO_LONG):
                name = next(name for name in names if name not in used)
                nodes[position] = evolve(node, name=name)
    return evolve(program, nodes=tuple(nodes))


class _Writer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.shapes = shapes(program)

    def parts(self, known: Set[str | None] = frozenset()) -> list[str]:
        """Return the definitions of the named parts, except those known and the result's."""
        return [
            f"{self.text(position)[0]} = {self.text(position, whole=True)[0]}"
            for position, node in enumerate(self.program.nodes)
            if node.name is not None
            and node.op != INPUT
            and node.name not in known
            and position != self.program.output
        ]

    def enclosed(self, position: int, least: int) -> str:
        """Return the text of a node, in parentheses if it binds less tightly than ``least``."""
        text, level = self.text(position)
        return text if level >= least else f"({text})"

    def text(self, position: int, whole: bool = False) -> tuple[str, int]:
        """Return the text of a node and how tightly it binds; its name, unless ``whole``."""
        node = self.program.nodes[position]
        if node.op == NUMBER:
            value = node.value or 0.0
            return number(value), _ATOM if value >= 0 else _SUM
        if node.op == INPUT:
            symbol = input_of(self.program.kind, node.name or "").symbol
            return symbol, _WORDS if " " in symbol else _ATOM
        if node.name is not None and not whole:
            return node.name + _INDEX.get(self.shapes[position], ""), _ATOM
        if node.op == DISCOUNTED and node.name is not None:
            index = "i" if self.shapes[position] == "turn_token" else "t"
            now, later = self.enclosed(node.args[0], _SUM), f"{node.name}_({index}+1)"
            gamma = self.text(node.args[1])[0]
            return f"{now} + {later if gamma == '1' else f'{gamma} {later}'}", _SUM
        return self.statistic(node) if node.over is not None else self.operation(node)

    def statistic(self, node: OperationNode) -> tuple[str, int]:
        """Return a statistic, with what is not as it mostly is: weights, ddof, a single value."""
        operation, nodes = OPERATIONS[node.op], self.program.nodes
        given = dict(zip(operation.params, node.args, strict=True))
        own = [self.text(arg)[0] for name, arg in given.items() if name not in operation.named]
        more = []
        for name, default in operation.named.items():
            usual = given["x"] if default is None else default
            if (given[name] if default is None else nodes[given[name]].value) != usual:
                more.append(f"{_NAMED[name]} {self.text(given[name])[0]}")
        of_all = node.over == TURNS and self.shapes[node.args[0]] == "turn_token"
        axes = {TOKENS: "i", TURNS: "ti" if of_all else "t", COMPONENTS: "k"}
        over = axes.get(node.over or "", node.over or "")
        if (scope := others_of(node.over)) is not None:
            over = f"(others in {scope})"
        if operation.word == "sum" and over in axes.values() and not more:
            return f"Σ_{over} {self.enclosed(node.args[0], _QUOTIENT)}", _PRODUCT
        return f"{operation.word}_{over}({'; '.join([', '.join(own), *more])})", _ATOM

    def operation(self, node: OperationNode) -> tuple[str, int]:
        args = node.args
        match node.op:
            case "+":
                right = self.enclosed(args[1], _SUM)
                sign = "−" if right.startswith("−") else "+"
                return f"{self.enclosed(args[0], _SUM)} {sign} {right.removeprefix('−')}", _SUM
            case "-":
                return f"{self.enclosed(args[0], _SUM)} − {self.enclosed(args[1], _QUOTIENT)}", _SUM
            case "neg":
                return f"−{self.enclosed(args[0], _QUOTIENT)}", _SUM
            case "*":
                return self.product(node)
            case "/":
                over = self.enclosed(args[1], _WORDS)
                return f"{self.enclosed(args[0], _PRODUCT)} / {over}", _QUOTIENT
            case "exp" if self.is_log_ratio(args[0]):
                return INPUTS["loss"][RATIO].symbol, _ATOM
            case "abs":
                return f"|{self.text(args[0])[0]}|", _ATOM
            case "sqrt":
                return f"√{self.enclosed(args[0], _ATOM)}", _WORDS
            case "==" if (within := self.within(*args)) is not None:
                return within, _COMPARISON
            case op if op in _COMPARED:
                left, right = (self.enclosed(arg, _SUM) for arg in args)
                return f"{left} {_COMPARED[op]} {right}", _COMPARISON
        name = _FUNCTIONS.get(node.op, node.op)
        return f"{name}({', '.join(self.text(arg)[0] for arg in args)})", _ATOM

    def product(self, node: OperationNode) -> tuple[str, int]:
        """Return the numbers first, then the factors in order, equal ones as a power."""
        nodes, factors, waiting = self.program.nodes, list[int](), list(node.args)
        while waiting:
            first = nodes[waiting[0]]
            if first.op == "*" and first.name is None:
                waiting[:1] = first.args
            else:
                factors.append(waiting.pop(0))
        numbers = [factor for factor in factors if nodes[factor].op == NUMBER]
        others = [factor for factor in factors if nodes[factor].op != NUMBER]
        texts = [number(nodes[factor].value or 0.0) for factor in numbers]
        for factor in dict.fromkeys(others):
            if (times := others.count(factor)) == 1:
                texts.append(self.enclosed(factor, _PRODUCT))
            else:
                texts.append(self.enclosed(factor, _ATOM) + str(times).translate(_RAISED))
        if len(texts) == 1:
            return texts[0], _WORDS
        return " ".join(texts), _SUM if texts[0].startswith("−") else _PRODUCT

    def is_log_ratio(self, position: int) -> bool:
        nodes = self.program.nodes
        names = [nodes[arg].name for arg in nodes[position].args]
        return nodes[position].op == "-" and names == ["logp", "logq"]

    def within(self, x: int, clipped: int) -> str | None:
        """Return ``low ≤ x ≤ high`` for ``x == clip(x, low, high)``, which derivatives have."""
        node = self.program.nodes[clipped]
        if node.op != "clip" or node.args[0] != x:
            return None
        low, high = (self.enclosed(arg, _SUM) for arg in node.args[1:])
        return f"{low} ≤ {self.enclosed(x, _SUM)} ≤ {high}"
