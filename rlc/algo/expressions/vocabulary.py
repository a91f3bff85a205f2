"""The inputs and operations of expressions, each declared once, and what follows of them for a
program: its shapes, its values in pure Python, and which of its nodes have a gradient.

Shapes of a loss, from narrow to wide: a ``number`` is the same everywhere, a value of a
``sequence`` is the same on all its tokens, one of a ``token`` belongs to that token alone. An
operation on several shapes has the narrowest that all of them fit; ``mean`` and ``sum`` make a
sequence of tokens. A comparison has a condition for its result, which `where` reads and nothing
else does. What is called ``batch_…`` is computed once over the sampled tokens of a whole step,
before any gradient (:func:`~rlc.algo.expressions.evaluate.batch_values`), and is then an input of
the loss, as the advantages are: what computes the loss of a sequence knows nothing of others.

Only sampled tokens exist in a loss: no input has a value elsewhere, and ``mean``, ``sum`` and
``length`` do not count what was not sampled.

Shapes of an advantage: a value of an ``episode`` is the same in all its turns, one of a ``turn``
belongs to that turn alone, and both may have one for each ``component`` of the reward; one of a
``turn_token`` belongs to one sampled token. A statistic is taken ``over`` the tokens of a turn, the
turns of an episode, which are all its tokens where there is a value for each, or the components,
which makes one value of them, or over a scope, all of whose members then have it
(:mod:`rlc.algo.advantages`).

A reward has one value for each ``episode``. It may be compared with the others of its group, the
widest scope whose rewards are known when it is computed (:mod:`rlc.algo.shaping`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from rlc.algo.expressions.inputs import OF_REPLIES, OF_TOKENS, TRAINED, Input, flag, table, widest
from rlc.algo.expressions.program import INPUT, NUMBER, Kind, OperationNode, Program, Shape
from rlc.records import evolve, frozen

# Axes: a statistic over one leaves it out.
TOKENS, TURNS, COMPONENTS = "tokens", "turns", "components"
SCOPES = ("group", "role", "env", "batch_role", "batch")
IN_TASK = ("group", "role")  # those of one task
OF_REWARDS = SCOPES[:2]  # scopes that a reward can be compared in
_WITHOUT: Mapping[str, Mapping[Shape, Shape]] = {
    TOKENS: {"turn_token": "turn"},
    TURNS: {"turn": "episode", "turn_component": "component", "turn_token": "episode"},
    COMPONENTS: {"component": "episode", "turn_component": "turn"},
}


def task_scope(scope: str) -> str:
    """Return the scope of one task that a scope compares in: of one role of it, if of roles."""
    return "role" if scope in ("role", "batch_role") else "group"


def others_of(over: str | None) -> str | None:
    """Return the scope of ``others(scope)``; None for another."""
    return over[7:-1] if over is not None and over.startswith("others(") else None


@frozen(eq=False)
class Operation:
    """An operation of an expression.

    ``params`` name the arguments; the last of a ``variadic`` one may be repeated. ``of`` computes
    it for floats, by the rules of IEEE 754: it never raises. ``reduces``: over the tokens of a
    sequence, so that ``of`` takes a list. ``condition``: its result is a condition, and ``of``
    returns a bool. ``commutes``: the order of its arguments does not matter. ``batch``: the shape
    of the result of one over all sampled tokens of a step; ``of`` takes those of one sequence for
    all of them, or chooses none.

    ``kinds``: the expressions that it can stand in. ``over``: a statistic over the turns of an
    episode, over a scope, or over either. ``named``: its last parameters, which are written with
    their names, and what each is if it is left out; None: the first argument.
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
    kinds: tuple[Kind, ...] = ("loss", "reward", "advantage", "preference")
    over: tuple[str, ...] = ()
    named: Mapping[str, float | None] = MappingProxyType({})

    @property
    def word(self) -> str:
        """What recipes call it: ``mean`` for ``mean over``."""
        return self.name.removesuffix(_OVER)

    @property
    def usage(self) -> str:
        """The notation of recipes: ``clip(x, low, high)``, ``a + b``."""
        if self.name == "neg":
            return f"-{self.params[0]}"
        if not self.word.isidentifier():
            return f"{self.params[0]} {self.name} {self.params[1]}"
        written = [param for param in self.params if param not in self.named]
        written += ["over = group"] if SCOPES[0] in self.over else []
        written += ["…"] if self.variadic else []
        return f"{self.word}({', '.join(written)})"

    def taken_over(self, kind: Kind) -> tuple[str, ...]:
        """Return what a statistic can be taken over in a kind of expressions."""
        return self.over if kind == "advantage" else tuple(s for s in self.over if s in OF_REWARDS)

    def shape(self, args: Sequence[Shape], over: str | None = None) -> Shape:
        """Return the shape of the result, from those of the arguments, which go together."""
        if self.batch is not None:
            return self.batch if args[0] == "token" else "number"
        if self.reduces:
            return OF_TOKENS[args[0]]
        if over is not None and over in _WITHOUT:
            return _WITHOUT[over].get(args[0], args[0])
        wide = args[0] if over or self.name in _KEEPING else widest(args)
        assert wide is not None
        return wide


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
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


def _of_many(*_: float) -> float:
    """Return NaN: of one number there is no statistic."""
    return math.nan


SPREADS = ("std over", "rms over")
_OF_SPREADS = ("+", "-", "*", "/", "max", "min", "sqrt", "abs")
SMALL = 0.1  # a number that keeps a quotient finite, and no more
_AB = ("a", "b")
_X = ("x",)
_OVER = " over"
DISCOUNTED, RUNNING = "discounted", "running"
_KEEPING = (DISCOUNTED, RUNNING)  # their result has the shape of the first argument
_IN_LOSS: tuple[Kind, ...] = ("loss",)
_IN_PREFERENCE: tuple[Kind, ...] = ("preference",)
_IN_LOSSES: tuple[Kind, ...] = (*_IN_LOSS, *_IN_PREFERENCE)
_IN_ADVANTAGE: tuple[Kind, ...] = ("advantage",)
COMPARING: tuple[Kind, ...] = ("reward", "advantage")  # the kinds that have scopes
SHARE = "share"  # a parameter that takes a number, the share of the tokens that are chosen


def _statistic(
    word: str,
    doc: str,
    *named: tuple[str, float | None],
    params: tuple[str, ...] = _X,
    over: tuple[str, ...] = (TOKENS, TURNS, COMPONENTS, *SCOPES),
) -> Operation:
    return Operation(
        f"{word}{_OVER}",
        (*params, *dict(named)),
        doc,
        _of_many,
        kinds=COMPARING if SCOPES[0] in over else _IN_ADVANTAGE,
        over=over,
        named=MappingProxyType(dict(named)),
    )


# What a statistic of a scope counts, and what it is in a scope of one value.
_WEIGHT: tuple[str, float | None] = ("weight", 1.0)
_ITSELF: tuple[str, float | None] = ("singleton", None)
_SPREAD: tuple[tuple[str, float | None], ...] = (_WEIGHT, ("ddof", 1.0), ("singleton", 0.0))


OPERATIONS = table(
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
    Operation("expm1", _X, "`exp(x) - 1`, exact near 0", _expm1, kinds=_IN_PREFERENCE),
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
    Operation(
        "stop",
        _X,
        "`x` as a constant: no gradient passes",
        lambda x: x,
        kinds=("loss", "reward", "preference"),
    ),
    Operation(
        "mean",
        _X,
        "mean over the sampled tokens of the sequence, or of a reply",
        _mean,
        reduces=True,
        kinds=_IN_LOSSES,
    ),
    Operation(
        "sum",
        _X,
        "sum over the sampled tokens of the sequence, or of a reply",
        _sum,
        reduces=True,
        kinds=_IN_LOSSES,
    ),
    Operation(
        "batch_mean",
        _X,
        "mean over the sampled tokens of the whole batch, or its pairs or replies, without a "
        "gradient",
        _mean,
        batch="sequence",
        kinds=_IN_LOSSES,
    ),
    Operation(
        "batch_top",
        ("x", SHARE),
        "1 for the tokens with the largest `x`, a share of all sampled tokens of the batch "
        "and at least one; else 0",
        _chosen,
        batch="token",
        kinds=_IN_LOSS,
    ),
    Operation(
        "batch_draw",
        ("x", SHARE),
        "1 for tokens that are sampled at random from those whose `x` is not 0, at most a "
        "share of all sampled tokens of the batch, or one; else 0",
        _chosen,
        batch="token",
        kinds=_IN_LOSS,
    ),
    _statistic("mean", "mean of `x`, each value as often as its `weight` says", _WEIGHT, _ITSELF),
    _statistic("sum", "sum of `x`", _WEIGHT),
    _statistic("min", "the smallest `x`", _WEIGHT, _ITSELF),
    _statistic("max", "the largest `x`", _WEIGHT, _ITSELF),
    _statistic("count", "how many values of `x` there are", _WEIGHT),
    _statistic("first", "`x` in the first turn, or of the first token", over=(TOKENS, TURNS)),
    _statistic("last", "`x` in the last turn, or of the last token", over=(TOKENS, TURNS)),
    _statistic(
        "std",
        "standard deviation of `x`, exactly 0 where all are equal; what is divided by one that is "
        "0 is 0",
        *_SPREAD,
        over=SCOPES,
    ),
    _statistic("rms", "root of the mean square of `x`", *_SPREAD, over=SCOPES),
    _statistic(
        "rank", "1 for the smallest `x`, and so on; equals share theirs", _WEIGHT, over=SCOPES
    ),
    _statistic(
        "quantile",
        "the value that a share `q` of `x` is below, between two of them if need be",
        _WEIGHT,
        _ITSELF,
        params=("x", "q"),
        over=SCOPES,
    ),
    Operation(
        DISCOUNTED,
        ("x", "gamma"),
        "of each turn, or each token of the episode: its `x` and what follows, discounted by "
        "`gamma` a turn, or a token",
        _of_many,
        kinds=_IN_ADVANTAGE,
    ),
    Operation(
        RUNNING,
        ("x", "decay"),
        "moving average of `x` in earlier steps, one for each role of each environment, 0 before "
        "the first; of n values a step leaves `decay`ⁿ of it",
        _of_many,
        kinds=_IN_ADVANTAGE,
    ),
)


LOGQ, PROCESS = "logq", "process"
# The inputs of an advantage that other models give, by the node that asks these.
SCORED: Mapping[str, str] = {"ref": "reference", "teacher": "teacher"}
RATIO = "ratio"  # not an input of its own: a Builder writes exp(logp - logq)

INPUTS: MappingProxyType[Kind, MappingProxyType[str, Input]] = MappingProxyType(
    {
        "loss": table(
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
        "reward": table(
            Input("total", "episode", "the reward so far", "total"),
            Input("tokens", "episode", "sampled tokens of the episode", "tokens", low=0),
            Input("turns", "episode", "turns of the episode", "turns", low=1),
            flag("truncated", "episode", "1 if the episode was cut off, else 0"),
        ),
        "advantage": table(
            Input("reward", "turn", "the reward of the turn", "r_t"),
            Input("parts", "turn_component", "each component of the reward of the turn", "r_tk"),
            Input("weights", "component", "what each component of the reward weighs", "w_k"),
            Input("tokens", "turn", "how many tokens of the turn were sampled", "n_t", low=0),
            Input("length", "episode", "how many tokens of the episode were sampled", "n", low=0),
            Input("turns", "episode", "turns of the episode", "T", low=1),
            flag("truncated", "episode", "1 if the episode was cut off, else 0"),
            flag("failed", "episode", "1 if the episode failed and has a penalty, else 0"),
            Input("step", "number", "the number of the step, from 1 on", "step", low=1),
            Input("position", "turn_token", "which token of its turn it is, from 1 on", "i", low=1),
            Input(LOGQ, "turn_token", "the sampler's logprob of the token", "log q_i", high=0),
            Input(
                "ref",
                "turn_token",
                "the logprob of the token under the reference of `kl`",
                "log p_ref,i",
                high=0,
            ),
            Input(
                "teacher",
                "turn_token",
                "the logprob of the token under the teacher of its environment",
                "log p_teacher,i",
                high=0,
            ),
            Input(
                PROCESS,
                "turn_token",
                "the process reward of what ends with the token, 0 if nothing does",
                "s_i",
            ),
        ),
        "preference": OF_REPLIES,
    }
)
LABELS = ("role", "env")  # inputs that are names: each can be compared with one
PART = "parts."  # what the input of one component of the reward is called


def is_reward(name: str) -> bool:
    """Return whether an input of an advantage is a reward, or a part of one."""
    return name in ("reward", "parts", PROCESS) or name.startswith(PART)


def spreads(program: Program) -> list[bool]:
    """Return for each node whether it is a spread, or one with a factor or a small number beside
    it: what is divided by one that is 0 is 0."""
    found: list[bool] = []
    for node in program.nodes:
        numbers = [program.nodes[arg].value for arg in node.args if not found[arg]]
        scales = node.op in ("*", "/") or all(abs(x or 0.0) < SMALL for x in numbers)
        made = node.op in _OF_SPREADS and None not in numbers and len(numbers) < len(node.args)
        found.append(node.op in SPREADS or (made and scales))
    return found


def compares(reward: Program) -> bool:
    """Return whether a reward compares an episode with its group."""
    return any(node.over is not None for node in reward.nodes)


def differs_in_group(reward: Program) -> bool:
    """Return whether the members of a group can have different rewards: not where a reward is made
    of statistics that all of them share."""
    found: list[bool] = []
    for node in reward.nodes:
        shared = node.over in SCOPES and node.op != "rank over"
        given = () if shared else node.args
        found.append(node.op == INPUT or any(found[arg] for arg in given))
    return found[reward.output]


def functions_of(kind: Kind) -> dict[str, Operation]:
    """Return the operations of a kind of expressions that are called, by what recipes call them;
    where it is both a statistic and an operation of several values, the latter."""
    own = [one for one in OPERATIONS.values() if kind in one.kinds and one.word.isidentifier()]
    found = {one.word: one for one in reversed(own)}
    return {one.word: found[one.word] for one in own if one.name != "neg"}


def input_of(kind: Kind, name: str) -> Input:
    """Return what is known of an input: of a reward a component, which is any number, of a loss a
    value over the batch that has been computed, such as ``batch_mean_1``; of an advantage whether
    the role is one, such as ``role == "judge"``, or a component."""
    if (known := INPUTS[kind].get(name)) is not None:
        return known
    if kind == "advantage":
        if name.endswith('"'):
            return flag(name, "episode", f"1 where {name}, else 0")
        if name.startswith(PART):
            return Input(name, "turn", f"the component `{name[len(PART) :]}` of the reward", name)
    operation = OPERATIONS.get(name.rpartition("_")[0])
    if kind == "loss" and operation is not None and operation.batch is not None:
        return Input(name, operation.batch, operation.doc, name)
    shape: Shape = "episode" if kind == "reward" else "number"
    return Input(name, shape, f"the reward component `{name}`", name)


def shapes(program: Program) -> tuple[Shape, ...]:
    """Return the shape of every node."""
    found: list[Shape] = []
    for node in program.nodes:
        if node.op == NUMBER:
            found.append("number")
        elif node.op == INPUT:
            found.append(input_of(program.kind, node.name or "").shape)
        else:
            of = [found[arg] for arg in node.args]
            found.append(OPERATIONS[node.op].shape(of, node.over))
    return tuple(found)


def trained(program: Program) -> tuple[str, ...]:
    """Return the inputs with a gradient that a program reads."""
    return tuple(name for name in TRAINED.get(program.kind, ()) if name in program.inputs)


def differentiable(program: Program, by: str | None = None) -> list[bool]:
    """Return for each node whether it depends on an input with a gradient, or the one that is
    named, in a way that has a gradient: not through ``stop``, a condition, what is computed over a
    batch, or a product with 0 alone."""
    found: list[bool] = []
    sources = TRAINED.get(program.kind, ()) if by is None else (by,)
    for node in program.nodes:
        if node.op in OPERATIONS:
            operation = OPERATIONS[node.op]
            passes = node.op != "stop" and not operation.condition and operation.batch is None
            if node.op == "*":  # by a number that is 0
                passes = all(program.nodes[arg].value != 0 for arg in node.args)
            found.append(passes and any(found[arg] for arg in node.args))
        else:
            found.append(node.op == INPUT and node.name in sources)
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
        evolve(node, args=tuple(place[arg] for arg in node.args))
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
