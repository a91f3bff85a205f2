"""Programs: what a Builder shares, folds and refuses; as values, as JSON, and in pure Python."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from cattrs import Converter
from expression_strategies import Columns, columns, programs
from expressions import program
from hypothesis import assume, given
from hypothesis import strategies as st
from paths import ROOT

from rlc.algo import OPERATIONS, AlgorithmError, shaped_reward
from rlc.algo.expressions.build import Builder, validate
from rlc.algo.expressions.evaluate import loss_and_grad
from rlc.algo.expressions.interpret import evaluate
from rlc.algo.expressions.program import ExpressionError, OperationNode, Program
from rlc.algo.expressions.vocabulary import shapes


def test_equal_parts_are_one_node() -> None:
    once = program("x = ratio * adv\n min(x, clip(x, 0, 1))")
    twice = program("min(ratio * adv, clip(adv * exp(logp - logq), 0, 2 - 1))")
    assert [node.op for node in once.nodes] == [node.op for node in twice.nodes]
    assert [node.op for node in once.nodes].count("*") == 1


@pytest.mark.parametrize(
    ("text", "simpler"),
    [
        ("adv * logp * 1", "adv * logp"),
        ("1 * logp / 1 + 0", "logp"),
        ("0 + logp - 0", "logp"),
        ("-(-logp)", "logp"),
        ("-1 * logp", "-logp"),
        ("(-adv) * logp", "-(adv * logp)"),
        ("(-adv) * (-logp)", "adv * logp"),
        ("adv + (-logp)", "adv - logp"),
        ("adv - (-logp)", "adv + logp"),
        ("where(1 < 2, logp, adv)", "logp"),
        ("where(adv > 0, logp, logp)", "logp"),
        ("max(logp, logp)", "logp"),
        ("logp * (2 * 3 + 1)", "logp * 7"),
        ("stop(stop(adv)) * logp", "stop(adv) * logp"),
    ],
)
def test_what_is_the_same_for_every_float_is_simplified(text: str, simpler: str) -> None:
    assert program(text) == program(simpler)


@pytest.mark.parametrize("text", ["logp * (1 / 0)", "logp * exp(1000)", "logp * log(0)"])
def test_no_infinity_is_folded(text: str) -> None:
    assert any(node.op in ("/", "exp", "log") for node in program(text).nodes)


def test_shapes() -> None:
    of = program("s = exp(mean(logp - logq))\n s * mean(adv) + length * 2")
    assert of.shape == "sequence"
    assert {"token", "sequence", "number"} == set(shapes(of))
    assert program("mean(logp) * adv").shape == "token"
    assert (
        program("total - 0.001 * tokens + style", kind="reward", components=("style",)).shape
        == "episode"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mean(mean(logp))", "`mean(x)` is over the tokens of a sequence, and this is one value a"),
        ("sum(1) * logp", "`sum(x)` is over the tokens of a sequence, and this is a number"),
        ("where(adv, 1, 2) * logp", "`where` decides by a comparison, and this is a value"),
        ("(adv > 0) * logp", "`a * b` takes a value for `a`, not a condition"),
        ("adv > 0", "the result is a condition, not a value"),
        ("exp(1)", "the loss is a constant"),
        ("clip(ratio, 2)", "`clip(x, low, high)` takes three arguments, not 2"),
        ("clip(ratio, 2, 1)", "`clip` from 2 to 1 has its bounds the wrong way round"),
        ("max(ratio)", "`max(a, b, …)` takes at least two arguments, not 1"),
        ("tanh(logp)", "there is no function `tanh`"),
        ("reward * logp", "a loss cannot read `reward`"),
        ("1e999 * logp", "inf is no number to compute with"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, says: str) -> None:
    with pytest.raises(ExpressionError) as error:
        program(text)
    assert says in str(error.value)


def test_an_error_names_the_argument() -> None:
    builder = Builder()
    with pytest.raises(ExpressionError) as error:
        builder.apply("mean", builder.input("length"))
    assert (error.value.op, error.value.argument) == ("mean", 0)
    assert (error.value.expected, error.value.found) == (
        "one value a token",
        "one value a sequence",
    )


def test_a_flag_is_a_condition_where_one_is_needed() -> None:
    shaped = program("where(truncated, -1, total)", kind="reward")
    assert shaped == program("where(truncated != 0, -1, total)", kind="reward")


def test_what_is_not_needed_is_left_out() -> None:
    builder = Builder()
    used, unused = builder.input("ratio"), builder.apply("exp", builder.input("adv"))
    builder.name(used, "r")
    builder.name(unused, "temper")
    assert builder.program(used).inputs == ("logp", "logq")
    assert builder.program(used).nodes[-1].name == "r"


def test_a_name_is_kept_where_signs_are_simplified() -> None:
    named = program("gate = -(ratio - 1)\nloss = gate * adv - gate\n-loss")
    assert [node.name for node in named.nodes if node.args and node.name] == ["gate", "loss"]


def test_size_is_bounded() -> None:
    builder = Builder()
    node = builder.input("logp")
    for _ in range(199):
        node = builder.apply("exp", node)
    assert len(builder.program(node).nodes) == 200
    with pytest.raises(ExpressionError, match=r"at most 1,000 parts, at most 200 within one"):
        builder.apply("exp", node)
    with pytest.raises(ExpressionError, match=r"at most 1,000 parts"):
        builder.apply("max", *map(builder.number, range(1_000)))


def test_a_program_is_a_value_and_json() -> None:
    text = "tau = where(adv > 0, 1.0, 1.05)\n -4 / tau * sigmoid(tau * (ratio - 1)) * adv"
    made = program(text)
    converter = Converter(forbid_extra_keys=True)
    back = converter.structure(json.loads(json.dumps(converter.unstructure(made))), Program)
    assert back == made
    assert hash(back) == hash(made)
    assert len({back, made, program(text + " * 2")}) == 2
    validate(back)


@pytest.mark.parametrize(
    "broken",
    [
        Program((OperationNode("exp", (0,)),), 0, "token"),
        Program((OperationNode("input", name="logp"), OperationNode("eval", (0,))), 1, "token"),
        Program((OperationNode("input", name="logp"), OperationNode("mean", (0,))), 1, "token"),
        Program((OperationNode("input", name="total"),), 0, "token"),
        Program((OperationNode("number"),), 0, "number"),
        Program((), 0, "token"),
    ],
)
def test_a_program_from_elsewhere_is_validated(broken: Program) -> None:
    with pytest.raises(ExpressionError):
        validate(broken)


def test_what_check_reads_is_pure_python() -> None:
    """Everything but the evaluation of arrays, and all that it takes to recognise a loss."""
    package = ROOT / "rlc" / "algo" / "expressions"
    names = [
        path.stem for path in package.glob("*.py") if path.stem not in ("__init__", "evaluate")
    ]
    code = (
        "import sys\n"
        + "".join(f"import rlc.algo.expressions.{name}\n" for name in names)
        + "from rlc.algo.expressions.build import Builder\n"
        "from rlc.catalog.index import known_loss\n"
        "b = Builder()\n"
        "known_loss(b.program(b.apply('*', b.input('ratio'), b.input('adv'))))\n"
        "assert not {'numpy', 'torch', 'cattrs'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@given(loss=programs(), data=columns())
def test_python_and_numpy_agree(loss: Program, data: Columns) -> None:
    try:
        value, _ = loss_and_grad(loss, data)
    except AlgorithmError:
        assume(False)
    found = evaluate(loss, {name: column.tolist() for name, column in data.items()})
    assert np.sum(found) == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "op",
    [o.name for o in OPERATIONS.values() if not (o.reduces or o.batch) and o.name != "where"],
)
@given(x=st.lists(st.floats(), min_size=3, max_size=3))
def test_nothing_raises(op: str, x: list[float]) -> None:
    """Infinity and NaN come out instead, as IEEE 754 has it, and NaN where one goes in."""
    operation = OPERATIONS[op]
    args = x[: len(operation.params)]
    result = operation.of(*args)
    if any(map(math.isnan, args)) and not operation.condition:
        assert math.isnan(result)


def test_a_reward_that_cannot_be_computed_is_refused() -> None:
    shaped = program("total / turns + style", kind="reward", components=("style",))
    assert shaped_reward(shaped, {"total": 1.0, "turns": 2.0, "style": 0.25}) == 0.75
    with pytest.raises(AlgorithmError, match="the reward reads `style`, and the episode has total"):
        shaped_reward(shaped, {"total": 1.0, "turns": 2.0})
    with pytest.raises(AlgorithmError, match="the shaped reward is inf where total = 1, turns = 0"):
        shaped_reward(shaped, {"total": 1.0, "turns": 0.0, "style": 0.0})
