"""Graphs of strangers: what is not on the list is refused, and nothing else goes wrong."""

from __future__ import annotations

import builtins
import json
import operator
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from loss_graphs import INPUTS, OUTSIDE, OUTSIDE_METHODS, graphs
from paths import ROOT
from tinker import types

from rlc.service.engine import custom_operations as operations
from rlc.service.engine.custom_graph import MOST_INPUTS, MOST_NODES
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.interface import ServiceError

T = TypeVar("T")
GIVEN = [types.CustomLossInput.model_validate(given) for given in INPUTS]


def read(graph: dict[str, Any]) -> CustomLoss:
    parsed = types.CustomLossGraph.model_validate_json(json.dumps(graph))
    return CustomLoss.read("fuzzed", GIVEN, parsed)


def refusal(work: Callable[[], T]) -> T | str:
    """What it returns, or the message of the ServiceError that it raises."""
    try:
        return work()
    except ServiceError as error:
        return str(error)


def computed(loss: CustomLoss, seed: int, whole_numbers: bool = False) -> Any:
    """Loss, metrics and gradient over three datums; the message if that is not possible."""
    rng = np.random.default_rng(seed)
    lengths, datums = rng.integers(1, 6, 3), []
    for length in lengths:
        numbers: Any = rng.normal(size=length).astype(np.float32)
        if whole_numbers:
            numbers = rng.choice([0, 1, -1, 2**62, -(2**63)], length).astype(np.int64)
        scalar = np.array(rng.integers(-1, 2), dtype=np.int64 if whole_numbers else np.float32)
        targets = np.zeros(length, dtype=np.int64)
        datums.append({"target_tokens": targets, "a": numbers, "s": scalar})
    lp_M = torch.from_numpy(rng.normal(size=int(lengths.sum()))).requires_grad_()
    told = refusal(lambda: loss.total(lp_M, datums, range(3)))
    if isinstance(told, str):
        return told
    summed, metrics = told
    (gradient_M,) = torch.autograd.grad(summed, lp_M)
    assert torch.isfinite(summed)
    assert torch.isfinite(gradient_M).all()
    return float(summed.detach()), metrics, gradient_M.numpy()


@given(graphs(), st.integers(0, 3), st.booleans())
def test_random_graphs_are_computed_or_refused(
    graph: dict[str, Any], seed: int, whole_numbers: bool
) -> None:
    loss = refusal(lambda: read(graph))
    if isinstance(loss, str):
        assert loss.startswith("The custom loss 'fuzzed'")
        assert len(loss) < 600
        return
    called = {node["target"] for node in graph["nodes"]}
    assert not called & {*OUTSIDE, *OUTSIDE_METHODS}
    told = computed(loss, seed, whole_numbers)
    assert not isinstance(told, str) or len(told) < 600


@given(graphs(hostile=False), st.integers(0, 3))
def test_random_graphs_give_joined_what_they_give_alone(graph: dict[str, Any], seed: int) -> None:
    loss = refusal(lambda: read(graph))
    if isinstance(loss, CustomLoss) and loss.facts.joinable:
        alone = evolve(loss, facts=evolve(loss.facts, joinable=False))
        joined, single = computed(loss, seed), computed(alone, seed)
        if isinstance(joined, str) or isinstance(single, str):
            assert joined == single
        else:
            np.testing.assert_allclose(joined[0], single[0], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(joined[2], single[2], rtol=1e-6, atol=1e-6)
            assert joined[1] == pytest.approx(single[1], rel=1e-6, abs=1e-6, nan_ok=True)


FORBIDDEN = """
zeros ones empty full arange linspace logspace eye tril_indices expand repeat tile
repeat_interleave broadcast_to broadcast_tensors outer ger kron cartesian_prod combinations
meshgrid mm bmm einsum tensordot conv1d pad rand randn randint rand_like randn_like
normal bernoulli multinomial poisson dropout item tolist numpy data grad backward
register_hook set_ share_memory_ pin_memory cuda cpu load save compile from_numpy from_file
as_strided frombuffer tensor as_tensor set_default_dtype set_num_threads manual_seed
apply_ map_ storage untyped_storage data_ptr new_zeros new_full new_tensor resize_ vander
index_put scatter diff constant_pad_nd bincount histc one_hot embedding nonzero unique
"""


def test_nothing_outside_of_the_list_is_found() -> None:
    """Of all that torch, its tensors, operator and Python have."""
    reachable = {
        ("call_method", name): operations.find("call_method", name) for name in dir(torch.Tensor)
    }
    for prefix, module in {
        "torch.": torch,
        "torch.nn.functional.": torch.nn.functional,
        "torch._C._nn.": torch._C._nn,
        "torch.special.": torch.special,
        "torch.Tensor.": torch.Tensor,
        "operator.": operator,
        "_operator.": operator,
        "builtins.": builtins,
        "": builtins,
    }.items():
        for name in dir(module):
            reachable["call_function", prefix + name] = operations.find(
                "call_function", prefix + name
            )
    found = {target for (_, target), operation in reachable.items() if operation is not None}
    names = {target.rpartition(".")[2] for target in found}
    assert not names & set(FORBIDDEN.split())
    assert not any(name.startswith("__") for name in names)
    assert {name for name in names if name.endswith("_")} == {"and_", "or_"}
    assert {target for target in found if "." not in target} & set(dir(builtins)) <= {
        "getattr",
        *dir(torch.Tensor),
    }
    assert len(found) > 200
    assert not any(target.startswith(("builtins.", "math.", "torch.Tensor.")) for target in found)


def test_the_list_is_documented() -> None:
    text = (ROOT / "docs" / "custom-losses.md").read_text(encoding="utf-8")
    blocks = [block.split() for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)]
    known = (
        operations.FUNCTIONS,
        operations.METHODS,
        operations.FUNCTIONAL,
        operations.ATTRIBUTES,
    )
    assert blocks == [sorted(names) for names in known]
    for number in (MOST_NODES, MOST_INPUTS):
        assert f" {number} " in text


def chain(*nodes: dict[str, Any]) -> dict[str, Any]:
    """A graph of nodes of which each may refer to the one before it as n0, n1, …; the last is the
    loss."""
    given = [{"op": "placeholder", "name": name["name"], "target": name["name"]} for name in INPUTS]
    named = [
        {"op": "call_function", **node, "name": f"n{number}"} for number, node in enumerate(nodes)
    ]
    result = {"tuple": [{"ref": f"n{len(nodes) - 1}"}, {"dict": {}}]}
    output = {"op": "output", "name": "output", "target": "output", "args": [result]}
    return {"nodes": [*given, *named, output]}


def test_plain_numbers_cannot_grow() -> None:
    """The length of a tensor, squared again and again."""
    length = {"op": "call_method", "target": "numel", "args": [{"ref": "logprobs"}]}
    two = {"target": "operator.add", "args": [{"ref": "n0"}, 1]}
    squares = [
        {"target": "operator.mul", "args": [{"ref": f"n{i}"}, {"ref": f"n{i}"}]}
        for i in range(1, 200)
    ]
    last = {"target": "operator.mul", "args": [{"ref": "logprobs"}, {"ref": "n200"}]}
    total = {"op": "call_method", "target": "sum", "args": [{"ref": "n201"}]}
    loss = read(chain(length, two, *squares, last, total))
    assert "is not finite" in computed(loss, 0)
    alone = evolve(loss, facts=evolve(loss.facts, joinable=False))
    assert "a plain number became too large" in computed(alone, 0)


def test_a_shape_is_not_repeated() -> None:
    """In Python a tuple times a number is a longer tuple."""
    shape = {"target": "getattr", "args": [{"ref": "logprobs"}, "shape"]}
    long = {"target": "operator.mul", "args": [{"ref": "n0"}, 10**9]}
    part = {"target": "operator.getitem", "args": [{"ref": "n1"}, 5]}
    scaled = {"target": "operator.mul", "args": [{"ref": "logprobs"}, {"ref": "n2"}]}
    total = {"op": "call_method", "target": "sum", "args": [{"ref": "n3"}]}
    loss = read(chain(shape, long, part, scaled, total))
    with pytest.raises(ServiceError, match="it takes tensors and numbers"):
        loss.total(
            torch.zeros(2, requires_grad=True),
            [{"target_tokens": np.zeros(2), "a": np.zeros(2), "s": np.zeros(())}],
            [0],
        )


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"target": "torch.exmp", "args": [{"ref": "a"}]}, "did you mean torch.exp?"),
        ({"target": "torch.exp", "args": [{"ref": "later"}]}, "'later', which no earlier node"),
        ({"target": "torch.exp", "args": [{"ref": "n0"}]}, "'n0', which no earlier node"),
        ({"target": "torch.add", "args": [{"ref": "a"}, 2**70]}, "whole number that float64"),
        (
            {"target": "torch.exp", "args": [{"ref": "a"}], "kwargs": {"out": {"ref": "a"}}},
            "the argument 'out'",
        ),
        (
            {"target": "torch.relu", "args": [{"ref": "a"}], "kwargs": {"inplace": True}},
            "the argument 'inplace'",
        ),
        (
            {"op": "call_method", "target": "to", "args": [{"ref": "a"}, {"dtype": "float16"}]},
            "there are float32, float64, int64 and bool",
        ),
        ({"target": "getattr", "args": [{"ref": "a"}, "data"]}, "the argument 'data'"),
        ({"target": "torch.sum", "args": [{"ref": "a"}]}, "no gradient reaches logprobs"),
        ({"target": "torch.exp", "args": [{"ref": "logprobs"}]}, "its loss is a value for each"),
    ],
)
def test_a_refusal_says_what_and_where(node: dict[str, Any], says: str) -> None:
    with pytest.raises(ServiceError) as raised:
        read(chain(node))
    assert says in str(raised.value)
