"""Advantages as expressions: random formulas of all kinds against an evaluator of their own, which
knows loops over episodes and lists of numbers, and nothing of columns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from rlc.algo import Builder, Episodes, compute_advantages
from rlc.algo.expressions.program import ExpressionError
from rlc.algo.expressions.reader import ExpressionReader
from rlc.algo.scheme import scheme_of
from rlc.lang.ast import BlockDecl
from rlc.lang.source import Source
from rlc.lang.syntax import parse

NAMES = ("right", "brief")
Value = list[list[float]]  # of each turn of each episode


@frozen
class Episode:
    rewards: list[float]
    tokens: list[int]
    group: int
    env: int
    role: int
    parts: dict[str, list[float]]
    truncated: bool


def draw_episodes(draw: random.Random) -> list[Episode]:
    episodes = []
    for group in range(draw.randint(1, 4)):
        levels = draw.choice(([0.0, 1.0], [0.5], [0.1, 0.7, -0.3]))
        for _ in range(draw.choice((1, 2, 3, 4))):
            turns = draw.randint(1, 3)
            episodes.append(
                Episode(
                    [draw.choice(levels) for _ in range(turns)],
                    [draw.randint(1, 9) for _ in range(turns)],
                    group,
                    group % 2,
                    draw.randint(0, 1),
                    {name: [draw.choice(levels) for _ in range(turns)] for name in NAMES},
                    draw.random() < 0.3,
                )
            )
    draw.shuffle(episodes)
    return episodes


def columns(episodes: Sequence[Episode]) -> Episodes:
    made = Episodes.from_rollouts(
        [one.rewards for one in episodes],
        [one.tokens for one in episodes],
        [one.group for one in episodes],
        [one.env for one in episodes],
        [one.role for one in episodes],
        [{name: (1.0, x) for name, x in one.parts.items()} for one in episodes],
    )
    object.__setattr__(made, "truncated_R", np.array([one.truncated for one in episodes]))
    object.__setattr__(made, "roles", ("solver", "judge"))
    return made


# An expression: its text, whether each turn has a value of its own, and what it is of episodes.
Expression = tuple[str, bool, Callable[[list[Episode]], Value]]


def leaf(draw: random.Random, turn: bool) -> Expression:
    if turn:
        return draw.choice(
            [
                ("reward", True, lambda es: [list(e.rewards) for e in es]),
                ("tokens", True, lambda es: [[float(n) for n in e.tokens] for e in es]),
                ("parts.right", True, lambda es: [list(e.parts["right"]) for e in es]),
            ]
        )
    number = draw.choice([0.25, 1.0, 3.0])
    return draw.choice(
        [
            ("length", False, lambda es: same(es, [float(sum(e.tokens)) for e in es])),
            ("turns", False, lambda es: same(es, [float(len(e.tokens)) for e in es])),
            (f"{number}", False, lambda es: same(es, [number] * len(es))),
            (
                'where(role == "judge", 1, 2)',
                False,
                lambda es: same(es, [1.0 if e.role == 1 else 2.0 for e in es]),
            ),
            (
                "where(truncated, 1, 0)",
                False,
                lambda es: same(es, [float(e.truncated) for e in es]),
            ),
        ]
    )


def same(episodes: Sequence[Episode], values: Sequence[float]) -> Value:
    return [[value] * len(one.tokens) for one, value in zip(episodes, values, strict=True)]


def expression(draw: random.Random, turn: bool, depth: int) -> Expression:
    if depth == 0:
        return leaf(draw, turn)
    kind = draw.choice(["operator", "operator", "statistic", "statistic", "choice", "reduce"])
    if kind == "reduce" and not turn:
        return reduced(draw, expression(draw, True, depth - 1))
    if kind == "statistic":
        return statistic(draw, turn, depth)
    a, b = (
        expression(draw, turn, depth - 1),
        expression(draw, draw.random() < 0.5 and turn, depth - 1),
    )
    if kind == "choice":
        text = f"where({a[0]} > {b[0]}, {a[0]}, {b[0]})"
        return text, a[1] or b[1], each(lambda x, y: x if x > y else y, a[2], b[2])
    operators: list[tuple[str, Callable[..., float]]] = [
        ("({} + {})", lambda x, y: x + y),
        ("({} - {})", lambda x, y: x - y),
        ("({} * {})", lambda x, y: x * y),
        ("min({}, {})", min),
        ("({} / (1 + abs({})))", lambda x, y: x / (1 + abs(y))),
    ]
    op, function = draw.choice(operators)
    return op.format(a[0], b[0]), a[1] or b[1], each(function, a[2], b[2])


def each(function: Callable[..., float], *of: Callable[[list[Episode]], Value]) -> Any:
    def compute(episodes: list[Episode]) -> Value:
        sides = [one(episodes) for one in of]
        return [
            [function(*xs) for xs in zip(*rows, strict=True)] for rows in zip(*sides, strict=True)
        ]

    return compute


def reduced(draw: random.Random, x: Expression) -> Expression:
    """A statistic over the turns of an episode."""
    if not x[1]:
        return x
    words: list[tuple[str, Callable[[list[float]], float]]] = [
        ("sum", math.fsum),
        ("mean", fmean),
        ("max", max),
        ("min", min),
        ("first", lambda row: row[0]),
        ("last", lambda row: row[-1]),
    ]
    word, function = draw.choice(words)
    return (
        f"{word}({x[0]})",
        False,
        lambda es: same(es, [function(row) for row in x[2](es)]),
    )


SCOPES: dict[str, Callable[[Episode], object]] = {
    "group": lambda e: e.group,
    "role": lambda e: (e.group, e.role),
    "env": lambda e: e.env,
    "batch_role": lambda e: e.role,
    "batch": lambda _: 0,
}


def std(values: list[float], ddof: int) -> float:
    if max(values) == min(values) or len(values) <= ddof:
        return 0.0
    mean = fmean(values)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - ddof))


def rank(values: list[float], at: int) -> float:
    below = sum(x < values[at] for x in values)
    return below + (1 + sum(x == values[at] for x in values)) / 2


def statistic(draw: random.Random, turn: bool, depth: int) -> Expression:
    x = expression(draw, turn, depth - 1)
    if not x[1] and not any(
        name in x[0] for name in ("length", "turns", "truncated", "sum", "role")
    ):
        return x  # a number has no statistic
    scope, others = draw.choice(list(SCOPES)), draw.random() < 0.3
    by_turn = x[1]
    words: dict[str, tuple[str, Callable[[list[float], int], float]]] = {
        "mean": ("", lambda values, _: fmean(values)),
        "sum": ("", lambda values, _: math.fsum(values)),
        "max": ("", lambda values, _: max(values)),
        "count": ("", lambda values, _: float(len(values))),
        "std": (", ddof = 0", lambda values, _: std(values, 0)),
        "rank": ("", rank),
        "quantile": ("", lambda values, _: float(np.quantile(values, 0.25))),
    }
    word = draw.choice(list(words))
    others = others and word not in ("rank", "quantile")
    more, function = words[word]
    q = ", 0.25" if word == "quantile" else ""
    over = f"others({scope})" if others else scope

    def compute(episodes: list[Episode]) -> Value:
        values = x[2](episodes)
        places = [
            (number, t)
            for number, row in enumerate(values)
            for t in (range(len(row)) if by_turn else [0])
        ]
        found = [[0.0] * len(row) for row in values]
        for number, t in places:
            label = SCOPES[scope](episodes[number])
            peers = [place for place in places if SCOPES[scope](episodes[place[0]]) == label]
            own = peers.index((number, t))
            if others:
                peers = [place for place in peers if place != (number, t)]
            compared = [values[n][u] for n, u in peers]
            if compared:
                result = function(compared, own)
            else:
                result = 0.0 if word in ("sum", "count", "std") else values[number][t]
            for u in [t] if by_turn else range(len(found[number])):
                found[number][u] = result
        return found

    return f"{word}({x[0]}{q}, over = {over}{more})", by_turn, compute


def advantages(text: str, episodes: Sequence[Episode]) -> list[list[float]]:
    recipe, found = parse(Source("test.rl", f"advantage own() {{\n{text}\n}}"))
    assert not found, found[0].message
    (decl,) = recipe.decls
    assert isinstance(decl, BlockDecl)
    reader = ExpressionReader("advantage")
    for field in decl.fields:
        reader.define(field)
    scheme = scheme_of("own", reader.builder, reader.parts)
    rows = compute_advantages(scheme, columns(episodes)).by_rollout()
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("seed", range(20))
def test_random_formulas_are_what_loops_over_episodes_compute(seed: int) -> None:
    draw, compared, read = random.Random(seed), 0, set[str]()
    while compared < 50:
        turn = draw.random() < 0.5
        text, by_turn, expected = expression(draw, turn, draw.randint(1, 4))
        episodes = draw_episodes(draw)
        word = "turn" if by_turn else "episode"
        try:
            found = advantages(f"{word} = {text}", episodes)
        except ExpressionError:  # a statistic of numbers alone
            continue
        compared += 1
        read.add(text)
        wanted = expected(list(episodes))
        for row, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(row, theirs, rtol=1e-12, atol=1e-12, err_msg=text)
    assert len(read) > 30


def test_what_is_kept_decides_before_any_statistic() -> None:
    episodes = [
        Episode([reward], [n], group, 0, 0, {name: [reward] for name in NAMES}, False)
        for reward, n, group in ((1.0, 2, 0), (0.0, 4, 0), (5.0, 1, 1), (5.0, 1, 1))
    ]
    text = """
      total   = sum(reward)
      keep    = max(total, over = group) - min(total, over = group)
      episode = total - mean(total, over = batch)
    """
    assert advantages(text, episodes) == [[0.5], [-0.5], [0.0], [0.0]]


def test_what_is_divided_by_a_spread_of_equals_is_nothing() -> None:
    episodes = [
        Episode([0.1], [1], group, 0, 0, {name: [0.1] for name in NAMES}, False)
        for group in (0, 0, 0, 1)
    ]
    for divisor in ("std(total, over = group)", "(2 * max(std(total, over = group), 0) / 3)"):
        text = f"total = sum(reward)\nepisode = total / {divisor}"
        assert advantages(text, episodes) == [[0.0]] * 4
    whole = "total = sum(reward)\nepisode = total / (std(total, over = group) + 0.01)"
    assert advantages(whole, episodes) == [[0.0]] * 4
    assert advantages("episode = 0 / (sum(reward) - 0.1)", episodes) == [[0.0]] * 4


def test_an_average_of_earlier_steps_is_read_and_observed() -> None:
    b = Builder("advantage")
    total = b.apply("sum over", b.input("reward"), b.number(1), over="turns")
    average = b.apply("running", total, b.number(0.5))
    scheme = scheme_of("own", b, {"episode": b.apply("-", total, average)})
    episodes = columns(
        [Episode([1.0, 2.0], [1, 1], 0, 0, 0, {n: [1.0, 2.0] for n in NAMES}, False)]
    )
    found = compute_advantages(scheme, episodes)
    assert [x.tolist() for x in found.observed.values()] == [[3.0]]
    assert found.advantages_N.tolist() == [3.0, 3.0]
