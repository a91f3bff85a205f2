"""Advantage schemes: what makes advantages of the rewards of episodes.

A scheme is a formula, or several: programs without arrays, so that the compiler can hold and print
one without numpy; :mod:`rlc.algo.advantages` computes it. It is written in the language
(``formulas/``, or a recipe's own); steps can follow it: :func:`with_step`.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import (
    INPUT,
    ExpressionError,
    OperationNode,
    Program,
    Shape,
)
from rlc.algo.expressions.vocabulary import (
    COMPONENTS,
    DISCOUNTED,
    OPERATIONS,
    RUNNING,
    SCOPES,
    SMALL,
    TURNS,
    others_of,
    task_scope,
)
from rlc.records import IF_ANY, Record, evolve, field, frozen

Scope = Literal["group", "role", "env", "batch_role", "batch"]
"""The values that are compared: those of one task (``group``), of one task in one role (``role``:
a rollout's part, such as the solver's or the judge's), of one environment, of one role in all tasks
(``batch_role``), or all."""


@frozen
class AdvantageScheme(Record):
    """An advantage scheme.

    ``result`` is one value for each episode, turn or sampled token. Episodes for which ``keep`` is
    0 are left out, of the statistics of the result too. Where ``require`` is 0 there is no
    advantage, and the run stops. ``args`` are the arguments of a builtin, and ``steps`` those that
    were applied to it, in order; the programs have them all. In place of programs a ``function`` of
    the user's own, with these ``args``, may give the advantages.
    """

    name: str
    result: Program
    keep: Program | None = field(default=None, metadata={IF_ANY: True})
    require: Program | None = field(default=None, metadata={IF_ANY: True})
    args: dict[str, Any] = field(factory=dict)
    steps: tuple[AdvantageStep, ...] = ()
    function: str | None = field(default=None, metadata={IF_ANY: True})

    @property
    def by_turn(self) -> bool:
        """Whether each turn may have an advantage of its own."""
        return self.function is not None or self.result.shape in ("turn", "turn_token")

    @property
    def by_token(self) -> bool:
        """Whether each sampled token may have an advantage of its own."""
        return self.result.shape == "turn_token"

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(one for one in (self.keep, self.require, self.result) if one is not None)


# The parts that a declaration ends with, and their shapes.
RESULTS: dict[str, Shape] = {"episode": "episode", "turn": "turn", "token": "turn_token"}
CONDITIONS = ("keep", "require")  # the parts that say which episodes have an advantage


def scheme_of(
    name: str, builder: Builder, parts: dict[str, int | None], args: dict[str, Any] | None = None
) -> AdvantageScheme:
    """Return the scheme of a declaration's parts. Raise ExpressionError if the result is a
    condition, or one of another shape."""
    word = next(name for name in RESULTS if name in parts)
    result = parts[word]
    for part, node in parts.items():
        wanted = RESULTS[part] if part == word else "episode"
        if node is not None and part in (word, *CONDITIONS):
            builder.require_shape(node, wanted, part)
    programs: dict[str, Program | None] = {}
    for condition in CONDITIONS:
        node = parts.get(condition)
        if node is not None and builder.is_condition(node):
            node = builder.apply("where", node, builder.number(1), builder.number(0))
        known = node is None or builder.value(node) not in (None, 0.0)  # it always holds
        program = None if known else builder.program(cast(int, node))
        if program is not None and running_nodes(program):
            message = f"`{condition}` cannot read a moving average: only the advantage has them"
            raise ExpressionError(message, RUNNING)
        programs[condition] = program
    keep, require = (programs[condition] for condition in CONDITIONS)
    return AdvantageScheme(name, builder.program(cast(int, result)), keep, require, args or {})


def reads(scheme: AdvantageScheme, *names: str) -> bool:
    """Return whether a scheme reads an input of one of these names."""
    return any(name in program.inputs for program in scheme.programs for name in names)


def statistics(scheme: AdvantageScheme) -> list[tuple[str, OperationNode]]:
    """Return what a scheme takes over scopes, in order, each with the path of what says the scope
    in the plan of a stage: a step, an argument, or the advantage itself."""
    steps = enumerate(getattr(step, "over", None) for step in scheme.steps)
    said = {over: f"advantage.steps.{index}.over" for index, over in steps}
    said |= {over: f"advantage.args.{name}" for name, over in scheme.args.items() if over in SCOPES}
    found = (
        node for program in scheme.programs for node in program.nodes if scope_of(node) is not None
    )
    return [(said.get(scope_of(node), "advantage"), node) for node in found]


def keeps_single(program: Program, node: OperationNode) -> bool:
    """Return whether a statistic says what a scope of one value gets, other than as if it were
    compared with itself."""
    operation = OPERATIONS[node.op]
    if "singleton" not in operation.named:
        return True
    single, usual = node.args[operation.params.index("singleton")], operation.named["singleton"]
    as_usual = single == node.args[0] if usual is None else program.nodes[single].value == usual
    return not as_usual


def scope_of(node: OperationNode) -> Scope | None:
    """Return the scope that a statistic is taken over; None for another operation."""
    over = others_of(node.over) or node.over
    return cast(Scope, over) if over in SCOPES else None


def divides_by_mean(program: Program) -> bool:
    """Return whether something is divided by a mean of values that can be negative."""
    nodes = program.nodes
    found: list[bool] = []
    for node in nodes:
        is_mean = node.op == "mean over" and nodes[node.args[0]].op != "where"
        found.append(is_mean or (node.op == "+" and any(found[arg] for arg in node.args)))
    return any(node.op == "/" and found[node.args[1]] for node in nodes)


def running_nodes(program: Program) -> list[int]:
    """Return the positions of the moving averages of a program."""
    return [at for at, node in enumerate(program.nodes) if node.op == RUNNING]


def running_decays(program: Program) -> dict[int, float]:
    """Return the decay of each moving average of a program, by its position."""
    nodes = program.nodes
    return {at: nodes[nodes[at].args[1]].value or 0.0 for at in running_nodes(program)}


def has_running(scheme: AdvantageScheme) -> bool:
    """Return whether a scheme subtracts or reads a moving average of earlier steps."""
    return bool(running_nodes(scheme.result))


# Steps


@frozen
class Returns(Record):
    """``episode``: the sum of the rewards, one value a rollout. ``turn``: discounted reward-to-go
    ``G_t = r_t + gamma G_{t+1}``, one value a turn."""

    unit: Literal["episode", "turn"]
    gamma: float


@frozen
class Baseline(Record):
    """Subtract a baseline computed ``over`` a scope.

    ``weight = tokens`` counts each value as often as it has action tokens; ``length_weighted``
    always does, ``best_of_others`` (the largest of the other values) never.
    ``singleton`` says what a scope with a single value gets.
    """

    kind: Literal["mean", "leave_one_out", "length_weighted", "best_of_others"]
    over: Scope
    weight: Literal["value", "tokens"]
    singleton: Literal["zero", "raw", "drop", "error"]


@frozen
class Scale(Record):
    """Divide by a size ``s`` computed ``over`` a scope.

    ``std``: the standard deviation; ``std_of_others``: that of the other values, and where these
    are all equal nothing is divided; ``rms``: the root of the mean square; ``mean``: the mean
    (MaxRL); ``nonzero_share``: the share of values that are not zero (GPG).

    The size is ``of`` the values as they are now, or of the returns that they began as.
    ``eps_place``: ``outside`` divides by ``s + eps``, ``inside`` by ``sqrt(s² + eps)``, ``clamp``
    by ``sqrt(max(s², eps))``. A size of at most ``tolerance`` gives exact zeros, and so does the
    ``std`` of equal values.
    """

    kind: Literal["std", "std_of_others", "rms", "mean", "nonzero_share"]
    over: Scope
    weight: Literal["value", "tokens"]
    ddof: int
    eps: float
    eps_place: Literal["outside", "inside", "clamp"]
    of: Literal["values", "returns"] = "values"
    tolerance: float = 0.0


@frozen
class Clip(Record):
    """Limit the values; None: no limit on that side."""

    low: float | None
    high: float | None


@frozen
class WeightedSum(Record):
    """Add up the components of the reward, each times its weight: the steps before it are applied
    to each component by itself, those after it to the sum (GDPO, arXiv 2601.05242)."""


@frozen
class RunningBaseline(Record):
    """Subtract a moving average of the returns of earlier steps, one for each role of each
    environment, which is 0 before the first (RAE, arXiv 2506.24119)."""

    decay: float


AdvantageStep = Baseline | Scale | Clip | WeightedSum | RunningBaseline


def no_advantage() -> AdvantageScheme:
    """Return the scheme in which every advantage is 0."""
    builder = Builder("advantage")
    return AdvantageScheme("none", builder.program(builder.number(0)))


def scheme_of_function(name: str, function: str, args: dict[str, Any]) -> AdvantageScheme:
    """Return the scheme whose advantages a function of the user's own gives."""
    return evolve(no_advantage(), name=name, function=function, args=args)


def scheme_of_returns(
    name: str, returns: Returns, constant: Literal["keep", "drop"] = "keep"
) -> AdvantageScheme:
    """Return the scheme of returns alone. ``constant = drop`` leaves out the tasks whose returns
    are all equal."""
    b = Builder("advantage")
    value = _credit(b, returns)
    b.name(value, "togo" if returns.unit == "turn" else "total")
    parts: dict[str, int | None] = {returns.unit: value}
    if constant == "drop":
        parts["keep"] = _spans(b, value, returns.unit == "turn", "group")
    return scheme_of(name, b, parts)


def _credit(b: Builder, returns: Returns) -> int:
    reward = b.input("reward")
    if returns.unit == "episode" and returns.gamma == 1:
        return b.apply("sum over", reward, b.number(1), over=TURNS)
    togo = b.apply(DISCOUNTED, reward, b.number(returns.gamma))
    return togo if returns.unit == "turn" else b.apply("first over", togo, over=TURNS)


def _spans(b: Builder, value: int, by_turn: bool, scope: str) -> int:
    """Return how far apart the values of a scope are; 1 for a single one."""
    one = b.number(1)
    most, least = (b.apply(f"{end} over", value, one, value, over=scope) for end in ("max", "min"))
    several = b.apply(">", b.apply("count over", value, one, over=scope), one)
    spans = b.apply("where", several, b.apply("-", most, least), one)
    return b.apply("last over", spans, over=TURNS) if by_turn else spans


def with_step(scheme: AdvantageScheme, step: AdvantageStep) -> AdvantageScheme:
    """Return a scheme followed by one more step. Raise ExpressionError if it cannot follow."""
    if scheme.function is not None:
        own = f"no step can follow `{scheme.function}`"
        message = f"{own}: a function gives the advantages as they are"
        raise ExpressionError(message, "", hint="do it in the function")
    if scheme.by_token:
        own = f"no step can follow `{scheme.name}`"
        message = f"{own}: a step is taken of one value an episode or a turn"
        raise ExpressionError(message, "", hint="write it in the formula")
    if isinstance(step, WeightedSum) and reads(scheme, "parts"):
        raise ExpressionError("the components of the reward are added up before this", "")
    made = _Following(scheme, step)
    followed = scheme_of(scheme.name, made.b, made.parts, scheme.args)
    return evolve(followed, steps=(*scheme.steps, step))


def _by_role(program: Program) -> Program:
    """Return a program that compares within each role of a task where it did within the task."""
    nodes = (evolve(node, over="role") if node.over == "group" else node for node in program.nodes)
    return evolve(program, nodes=tuple(nodes))


class _Following:
    """Writes a step behind the formula of a scheme. ``value`` is the node of what there is."""

    def __init__(self, scheme: AdvantageScheme, step: AdvantageStep) -> None:
        self.b, self.turn = Builder("advantage"), scheme.by_turn
        self.apart = isinstance(step, WeightedSum)
        self.value = self._copied(scheme.result)
        self.returns = self._returns(scheme)
        self.raw = set[str]()
        for before in scheme.steps:
            if isinstance(before, WeightedSum):
                self.raw.clear()
            elif isinstance(before, Baseline) and before.singleton == "raw":
                self.raw.add(before.over)
        self.parts: dict[str, int | None] = {}
        for name in CONDITIONS:
            program: Program | None = getattr(scheme, name)
            if program is not None:
                if task_scope(getattr(step, "over", "group")) == "role":
                    program = _by_role(program)
                node = self._copied(program)
                if self.apart:
                    args = (node, self.b.number(1), node)
                    node = self.b.apply("max over", *args, over=COMPONENTS)
                self.parts[name] = node
        if (after := self.added(step)) != self.value:
            self.b.name(after, "advantage")
        self.parts["turn" if self.turn else "episode"] = after

    def _copied(self, program: Program, before: str = "reward", after: str = "parts") -> int:
        """Add a program; one that is applied to each component of the reward reads these."""
        if self.apart or before == "parts":
            nodes = (
                evolve(node, name=after) if node.op == INPUT and node.name == before else node
                for node in program.nodes
            )
            program = evolve(program, nodes=tuple(nodes))
        return self.b.copy(program)[program.output]

    def _returns(self, scheme: AdvantageScheme) -> int:
        """Return the returns that the values began as: what the reward is first made into."""
        made = scheme.result
        for at, node in enumerate(made.nodes):
            if node.op == DISCOUNTED if self.turn else node.over == TURNS:
                first = self.b.part(self.b.copy(evolve(made, output=at))[at])
                if "weights" not in first.inputs:
                    return self._copied(first, "parts", "reward")
        return self.value

    def require(self, condition: str, node: int) -> None:
        node = self.b.apply("last over", node, over=TURNS) if self.turn else node
        before = self.parts.get(condition)
        self.parts[condition] = node if before is None else self.b.apply("*", before, node)

    def added(self, step: AdvantageStep) -> int:
        """Return the value after a step."""
        value, b = self.value, self.b
        match step:
            case Baseline():
                return self._less(step)
            case Scale():
                return self._divided(step)
            case Clip(low=low, high=high):
                value = value if low is None else b.apply("max", value, b.number(low))
                return value if high is None else b.apply("min", value, b.number(high))
            case RunningBaseline(decay=decay):
                return b.apply("-", value, b.apply(RUNNING, self.returns, b.number(decay)))
            case WeightedSum():
                weighted = b.apply("*", b.input("weights"), value)
                return b.apply("sum over", weighted, b.number(1), over=COMPONENTS)

    def _weight(self, by_tokens: bool) -> int:
        if not by_tokens:
            return self.b.number(1)
        return self.b.input("tokens" if self.turn else "length")

    def _less(self, step: Baseline) -> int:
        b, value, over = self.b, self.value, str(step.over)
        best = step.kind == "best_of_others"
        by_tokens = step.kind == "length_weighted" or (step.weight == "tokens" and not best)
        weight = self._weight(by_tokens)
        count = b.apply("count over", value, b.number(1), over=over)
        if step.singleton in ("drop", "error"):
            condition = "keep" if step.singleton == "drop" else "require"
            self.require(condition, b.apply("-", count, b.number(1)))
        alone = b.number(0) if step.singleton == "raw" else value
        others = f"others({over})" if best or step.kind == "leave_one_out" else over
        word = "max over" if best else "mean over"
        centred = b.apply("-", value, b.apply(word, value, weight, alone, over=others))
        if by_tokens:
            centred = self._where_tokens(weight, centred)
        if step.singleton == "raw" and by_tokens:
            single = b.apply("<=", count, b.number(1))
            centred = b.apply("where", single, value, centred)
        return centred

    def _where_tokens(self, weight: int, value: int) -> int:
        """Return 0 in place of a value without tokens, where tokens are counted."""
        zero = self.b.number(0)
        return self.b.apply("where", self.b.apply(">", weight, zero), value, zero)

    def _divided(self, step: Scale) -> int:
        b, over, number = self.b, str(step.over), self.b.number
        measured = self.returns if step.of == "returns" else self.value
        weight, by_tokens = self._weight(step.weight == "tokens"), step.weight == "tokens"
        raw = any(over == one or over in _WITHIN[one] for one in self.raw)
        if step.kind in ("mean", "nonzero_share"):
            if step.kind == "nonzero_share":
                there = b.apply("!=", measured, number(0))
                measured = b.apply("where", there, number(1), number(0))
            size = b.apply("mean over", measured, weight, measured, over=over)
        else:
            alone = number(1 if raw and step.kind == "std" else 0)
            if step.kind == "rms":
                alone = number(1) if step.ddof else b.apply("abs", measured)
            word = "rms over" if step.kind == "rms" else "std over"
            of = f"others({over})" if step.kind == "std_of_others" else over
            size = b.apply(word, measured, weight, number(step.ddof), alone, over=of)
        scaled = b.apply("/", self.value, self._divisor(step, size))
        if step.kind == "std_of_others":
            scaled = b.apply("where", b.apply(">", size, number(0)), scaled, self.value)
        elif step.kind in ("mean", "nonzero_share") or step.tolerance or step.eps >= SMALL**2:
            # With a larger eps, or the root of it, the divisor is no spread that makes zeros.
            least = number(step.tolerance)
            scaled = b.apply("where", b.apply(">", size, least), scaled, number(0))
        if raw and step.kind == "mean":
            count = b.apply("count over", self.value, number(1), over=over)
            scaled = b.apply("where", b.apply(">", count, number(1)), scaled, self.value)
        return self._where_tokens(weight, scaled) if by_tokens else scaled

    def _divisor(self, step: Scale, size: int) -> int:
        b = self.b
        match step.eps_place:
            case "outside":
                return b.apply("+", size, b.number(step.eps))
            case "inside":
                square = b.apply("*", size, size)
                return b.apply("sqrt", b.apply("+", square, b.number(step.eps)))
            case "clamp":
                return b.apply("max", size, b.number(step.eps**0.5))


# Who is alone in one of these scopes is alone in the first too.
_WITHIN: dict[str, tuple[str, ...]] = {
    "role": ("group", "env", "batch_role", "batch"),
    "group": ("env", "batch"),
    "env": ("batch",),
    "batch_role": ("batch",),
    "batch": (),
}
