"""Expressions that are a loss of the service by another name, and those that are not."""

from __future__ import annotations

import pytest
from expressions import program
from hypothesis import given, settings
from hypothesis import strategies as st

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import INPUT, NUMBER, Program
from rlc.catalog.index import known_loss

LOW, HIGH = "clip_low_threshold", "clip_high_threshold"
SPELLINGS: list[tuple[str, str, dict[str, float]]] = [
    ("importance_sampling", "-ratio * adv", {}),
    ("importance_sampling", "-adv * exp(logp) / exp(logq)", {}),
    ("importance_sampling", "-adv * stop(ratio) * exp(logp - stop(logp))", {}),
    ("cross_entropy", "-adv * logp", {}),
    ("cross_entropy", "where(adv > 0, -adv * logp, abs(adv) * logp)", {}),
    ("ppo", "-min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)", {LOW: 0.8, HIGH: 1.2}),
    ("ppo", "max(-ratio * adv, -adv * clip(ratio, 1 - 0.3, 1 + 0.28))", {LOW: 0.7, HIGH: 1.28}),
    ("ppo", "-min(ratio * adv, min(max(ratio, 0.5), 2) * adv)", {LOW: 0.5, HIGH: 2.0}),
    ("ppo", "-where(adv > 0, min(ratio, 1.2), max(ratio, 0.8)) * adv", {LOW: 0.8, HIGH: 1.2}),
    ("cispo", "-stop(clip(ratio, 0.5, 4)) * logp * adv", {LOW: 0.5, HIGH: 4.0}),
    ("cispo", "-stop(min(ratio, 2)) * adv * logp", {LOW: 0.0, HIGH: 2.0}),
    ("dro", "-(logp * adv - 0.05 / 2 * (logp - logq) * (logp - logq))", {"beta": 0.05}),
    ("dro", "0.3 * (logp - logq) * (logp - logq) / 2 - adv * logp", {"beta": 0.3}),
    (
        "gspo",
        "s = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))\n"
        "-min(s * adv, clip(s, 0.9997, 1.0004) * adv)",
        {LOW: 0.9997, HIGH: 1.0004},
    ),
    (
        "gspo",
        "d = stop(mean(logp) - mean(logq)) + logp - stop(logp)\n"
        "max(-exp(d) * adv, -clip(exp(d), 0.9, 1.1) * adv)",
        {LOW: 0.9, HIGH: 1.1},
    ),
]


@pytest.mark.parametrize(("name", "text", "config"), SPELLINGS)
def test_a_builtin_loss_by_another_name(name: str, text: str, config: dict[str, float]) -> None:
    found = known_loss(program(text))
    assert found is not None
    assert (found.name, found.mean, found.one_advantage) == (name, False, False)
    assert found.config == pytest.approx(config, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "text", "one_advantage"),
    [
        ("importance_sampling", "-mean(ratio * adv)", False),
        (
            "gspo",
            "s = exp(mean(logp - logq))\n-min(s * mean(adv), clip(s, 0.9997, 1.0004) * mean(adv))",
            True,
        ),
    ],
)
def test_a_sequence_loss_is_a_mean_over_tokens(name: str, text: str, one_advantage: bool) -> None:
    found = known_loss(program(text))
    assert found is not None
    assert (found.name, found.mean, found.one_advantage) == (name, True, one_advantage)


@pytest.mark.parametrize(
    "text",
    [
        "-2 * ratio * adv",
        "ratio * adv",
        "-ratio * adv + 1",
        "-(ratio - 1) * adv",
        "-ratio * adv + 1e-9 * logp",
        "-stop(ratio) * adv",
        "-adv * logq",
        "-exp(clip(logp - logq, -20, 20)) * adv",
        "-where(adv > -5, ratio * adv, 0)",
        "-min(ratio * adv, clip(ratio, 0.8, 1.2) * adv) + 0.1 * logp",
        "-max(ratio * adv, clip(ratio, 0.8, 1.2) * adv)",
        "-clip(ratio, 0.8, 1.2) * adv",
        "-min(ratio, clip(ratio, 0.8, 1.2)) * adv",
        "-where(adv < 0, max(3 * adv, min(ratio * adv, clip(ratio, 0.8, 1.2) * adv)), "
        "min(ratio * adv, clip(ratio, 0.8, 1.2) * adv))",
        "-clip(ratio, 0, 4) * logp * adv",
        "-sum(ratio) * adv",
        "s = exp(mean(logp - logq))\n-min(s * adv, clip(s, 0.9, 1.1) * adv)",
        "tau = where(adv > 0, 1, 1.05)\n-4 / tau * sigmoid(tau * (ratio - 1)) * adv",
        "-ratio * adv * where(ref < -1, 1, 1.001)",
    ],
)
def test_a_loss_of_its_own(text: str) -> None:
    assert known_loss(program(text)) is None


def rewritten(loss: Program, draw: st.DataObject) -> Program:
    """The same function of the inputs, by random identities."""
    builder = Builder()
    made: list[int] = []

    def one_of(*ways: int) -> int:
        return draw.draw(st.sampled_from(ways))

    for node in loss.nodes:
        args = [made[arg] for arg in node.args]
        if node.op == NUMBER:
            made.append(builder.number(node.value or 0.0))
            continue
        if node.op == INPUT:
            made.append(builder.input(node.name or ""))
            continue
        plain = builder.apply(node.op, *args)
        if builder.is_condition(plain):
            made.append(plain)
            continue
        less = [builder.apply("neg", arg) for arg in args if not builder.is_condition(arg)]
        one = builder.apply("exp", builder.apply("-", args[-1], args[-1]))
        ways = [plain, builder.apply("neg", builder.apply("neg", plain))]
        ways.append(builder.apply("*", plain, one))
        if node.op == "min":
            ways.append(builder.apply("neg", builder.apply("max", *less)))
            ways.append(builder.apply("where", builder.apply("<", *args), *args))
        elif node.op == "clip":
            low, high = args[1:]
            ways.append(builder.apply("min", builder.apply("max", args[0], low), high))
            ways.append(builder.apply("max", low, builder.apply("min", args[0], high)))
        elif node.op == "*":
            ways.append(builder.apply("*", *reversed(args)))
        elif node.op == "-":
            ways.append(builder.apply("+", less[1], args[0]))
        made.append(one_of(*ways))
    return builder.program(made[-1])


@settings(max_examples=60)
@given(data=st.data(), which=st.sampled_from(range(len(SPELLINGS))))
def test_rewriting_changes_nothing(data: st.DataObject, which: int) -> None:
    name, text, config = SPELLINGS[which]
    found = known_loss(rewritten(program(text), data))
    assert found is not None
    assert found.name == name
    assert found.config == pytest.approx(config, rel=1e-12)
