"""Rewards that compare the members of a group, against NumPy and by what has to hold of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pytest

from rlc.algo import AlgorithmError, ExpressionReader, Floats, Program, differs_in_group
from rlc.algo.shaping import shaped_rewards
from rlc.lang import BlockDecl, Source
from rlc.lang.syntax import parse

Group = dict[str, Floats]  # the inputs of the members, by name
GROUPS = 100  # of each formula


def reward(text: str) -> Program:
    """The program of an expression."""
    recipe, found = parse(Source("reward", f"advantage text {{ episode = {text} }}"))
    assert not found
    (decl,) = recipe.decls
    assert isinstance(decl, BlockDecl)
    reader = ExpressionReader("reward", ("correct",))
    node = reader.node(decl.fields[0].value)
    assert node is not None
    return reader.builder.program(node)


def drawn(rng: np.random.Generator) -> Group:
    """A group with ties, and often one of equal rewards or lengths."""
    size, most = int(rng.integers(1, 10)), int(rng.choice([1, 3, 1_000]))
    levels = rng.choice([0.0, 0.1, 0.5, 1.0], size=int(rng.integers(1, 4)))
    return {
        "total": rng.choice(levels, size),
        "tokens": rng.integers(1, most + 1, size).astype(np.float64),
        "correct": rng.normal(size=size),
    }


def members(group: Mapping[str, npt.ArrayLike]) -> list[dict[str, float]]:
    rows = zip(*(np.asarray(column).tolist() for column in group.values()), strict=True)
    return [dict(zip(group, row, strict=True)) for row in rows]


def mean_of_others(x_R: Floats) -> Floats:
    if len(x_R) == 1:
        return x_R
    return np.array([np.delete(x_R, at).mean() for at in range(len(x_R))])


def deviation(x_R: Floats) -> float:
    return float(x_R.std(ddof=1)) if len(x_R) > 1 else 0.0


def ranks_of_solved(g: Group) -> Floats:
    """Those that are not solved come after all that are, with the mean of their ranks."""
    compared = np.where(g["total"] >= 1, g["tokens"], np.inf)
    return np.array([(compared < x).sum() + ((compared == x).sum() + 1) / 2 for x in compared])


def short_of_longest(g: Group) -> Floats:
    """The length reward of Kimi k1.5 (arXiv 2501.12599), for replies that are right."""
    low, high = g["tokens"].min(), g["tokens"].max()
    spread = np.zeros_like(g["tokens"]) if low == high else (g["tokens"] - low) / (high - low)
    return 0.5 - spread


REFERENCE: dict[str, Callable[[Group], Floats]] = {
    "total - 0.2 * mean(where(total >= 1, 1, 0), over = group) * tokens / 1024": lambda g: (
        g["total"] - 0.2 * (g["total"] >= 1).mean() * g["tokens"] / 1024
    ),
    "total - 0.1 * rank(tokens, over = group, weight = total >= 1)": lambda g: (
        g["total"] - 0.1 * ranks_of_solved(g)
    ),
    "total * (1 - 0.5 * clip((tokens - mean(tokens, over = group)) / 1000, 0, 1))": lambda g: (
        g["total"] * (1 - 0.5 * np.clip((g["tokens"] - g["tokens"].mean()) / 1000, 0, 1))
    ),
    "correct - mean(correct, over = others)": lambda g: g["correct"] - mean_of_others(g["correct"]),
    "total + where(max(tokens, over = group) == min(tokens, over = group), 0.5, 0.5 - (tokens - "
    "min(tokens, over = group)) / (max(tokens, over = group) - min(tokens, over = group)))": (
        lambda g: g["total"] + short_of_longest(g)
    ),
    "(correct - mean(correct, over = group)) / (std(correct, over = group) + 0.1)": lambda g: (
        (g["correct"] - g["correct"].mean()) / (deviation(g["correct"]) + 0.1)
    ),
    "correct - quantile(correct, 0.5, over = group)": lambda g: (
        g["correct"] - np.median(g["correct"])
    ),
    "total / sum(tokens, over = group)": lambda g: g["total"] / g["tokens"].sum(),
    "total * count(total, over = group, weight = total > 0)": lambda g: (
        g["total"] * (g["total"] > 0).sum()
    ),
    "correct + rms(total, over = group, ddof = 0, singleton = total)": lambda g: (
        g["correct"] + (np.sqrt((g["total"] ** 2).mean()) if len(g["total"]) > 1 else g["total"])
    ),
}


@pytest.mark.parametrize("text", REFERENCE)
def test_it_is_what_numpy_computes_in_any_order(text: str) -> None:
    program, rng = reward(text), np.random.default_rng(1)
    for _ in range(GROUPS):
        group = drawn(rng)
        found = shaped_rewards(program, members(group))
        np.testing.assert_allclose(found, REFERENCE[text](group), rtol=1e-12, atol=1e-12)
        order = rng.permutation(len(found))
        again = shaped_rewards(program, members({n: x[order] for n, x in group.items()}))
        assert again == np.array(found)[order].tolist()


@pytest.mark.parametrize("text", REFERENCE)
def test_equal_members_get_the_same_to_the_bit(text: str) -> None:
    rng = np.random.default_rng(2)
    for size in range(1, 17):
        equal = {n: float(rng.normal()) for n in ("correct", "total")} | {"tokens": 7.0}
        assert len(set(shaped_rewards(reward(text), [equal] * size))) == 1


def test_what_is_only_compared_with_its_equals_is_exactly_0() -> None:
    apart = reward("(total - mean(total, over = group)) / std(total, over = group)")
    others = reward("total - mean(total, over = others)")
    for total in (0.1, 1 / 3, 1e-300, 1e300):
        for size in (1, 3, 7):
            group = [{"total": total, "tokens": float(n)} for n in range(size)]
            assert shaped_rewards(apart, group) == [0.0] * size
            assert shaped_rewards(others, group) == [0.0] * size


def test_a_role_is_compared_with_its_like() -> None:
    group = [{"total": total} for total in (1.0, 0.0, 0.5, 0.25)]
    roles = ["solver", "judge", "solver", "judge"]
    by_role = reward("total - mean(total, over = role)")
    assert shaped_rewards(by_role, group, roles) == [0.25, -0.125, -0.25, 0.125]
    assert shaped_rewards(by_role, group) == [0.5625, -0.4375, 0.0625, -0.1875]  # all have one


def test_no_member_no_reward() -> None:
    assert shaped_rewards(reward("total - mean(total, over = group)"), []) == []


def test_what_is_not_finite_or_not_there_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"the shaped reward is inf where total = 1, tokens"):
        shaped_rewards(
            reward("total / (tokens - mean(tokens, over = group))"), [{"total": 1.0, "tokens": 3.0}]
        )
    with pytest.raises(AlgorithmError, match="the reward reads `correct`, and the episode has t"):
        shaped_rewards(
            reward("correct - mean(correct, over = group)"),
            [{"correct": 1.0, "total": 1.0}, {"total": 1.0}],
        )


@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("mean(total, over = group)", False),
        ("max(tokens, over = group) / count(total, over = group)", False),
        ("rank(mean(total, over = group), over = group)", False),
        ("mean(total, over = group) + 0.1 * tokens", True),
        ("rank(total, over = group)", True),
        ("mean(total, over = others)", True),
        ("total", True),
    ],
)
def test_what_all_members_share_does_not_tell_them_apart(text: str, differs: bool) -> None:
    assert differs_in_group(reward(text)) is differs
