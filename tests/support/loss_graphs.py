"""Random graphs of custom losses as clients may send them: some right, many wrong, some hostile."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

FUNCTIONS = [
    *("torch.exp", "torch.log", "torch.clamp", "torch.where", "torch.minimum", "torch.max"),
    *("torch.sum", "torch.mean", "torch.stack", "torch.cat", "torch.softmax", "torch.cumsum"),
    *("torch.gather", "torch.sort", "torch.logsumexp", "torch.norm", "torch.std", "torch.dot"),
    *("torch.nn.functional.softplus", "torch._C._nn.log_sigmoid", "torch.special.expm1"),
    *("torch.nn.functional.huber_loss", "torch.floor_divide", "torch.zeros_like", "torch.flip"),
    *("operator.add", "operator.mul", "operator.truediv", "operator.floordiv", "operator.mod"),
    *("operator.pow", "operator.getitem", "operator.and_", "operator.invert", "operator.lt"),
    "getattr",
]
METHODS = [
    *("exp", "sum", "mean", "detach", "to", "float", "long", "bool", "max", "size", "numel", "dim"),
    *("unsqueeze", "reshape", "view", "squeeze", "where", "clamp", "amax", "masked_fill", "flip"),
    *("permute", "transpose", "flatten", "type_as", "prod", "argmax", "median", "any", "round"),
]
OUTSIDE = [
    *("torch.zeros", "torch.arange", "torch.rand_like", "torch.load", "torch.ops.aten.add"),
    *("torch.Tensor.exp", "torch.nn.functional.dropout", "torch.save", "torch.outer"),
    *("operator.iadd", "operator.methodcaller", "operator.attrgetter", "builtins.eval", "eval"),
    *("os.system", "torch.compile", "torch._C._nn.__class__", "torch.__builtins__", "", "torch."),
    *("torch.jit.script", "torch.from_file", "torch.utils.cpp_extension.load", "math.exp"),
]
OUTSIDE_METHODS = [
    *("add_", "exp_", "backward", "item", "numpy", "tolist", "expand", "repeat", "__getitem__"),
    *("__class__", "__reduce_ex__", "cuda", "data_ptr", "register_hook", "storage", "new_zeros"),
    *("apply_", "map_", "requires_grad_", "share_memory_", "index_put_", "set_", "outer", ""),
]
_NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**31, -(2**31), 2**53, 2**63, 2**70, -(10**40), 10**300]),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from([0.0, -0.5, 1e308]),
)
_WORDS = st.sampled_from(["shape", "dtype", "values", "device", "grad", "__class__", "sum", "cuda"])
_PLAIN = st.one_of(st.none(), st.booleans(), _NUMBERS, _WORDS, st.text(max_size=3))


def _encoded(names: list[str]) -> st.SearchStrategy[Any]:
    """An argument; half of them refer to something."""
    refs = st.sampled_from([*names, "later", "output"]).map(lambda name: {"ref": name})
    known = st.sampled_from(names).map(lambda name: {"ref": name})
    special = st.sampled_from(
        [
            {"ellipsis": True},
            {"float": "nan"},
            {"float": "1e5"},
            {"dtype": "float32"},
            {"dtype": "bool"},
            {"dtype": "complex64"},
            {"device": "cuda"},
            {"layout": "strided"},
            {"memory_format": "preserve_format"},
            {"slice": [1, None, None]},
            {"slice": [None, -1]},
            {"slice": 3},
            {"dict": {"a": 1}},
            {"ref": 3},
            {"ref": None},
            {"tuple": {"a": 1}},
            {"a": 1, "b": 2},
            {},
        ]
    )
    leaf = st.one_of(known, known, known, refs, _PLAIN, special)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(lambda parts: {"tuple": parts}),
            st.lists(inner, min_size=3, max_size=3).map(lambda parts: {"slice": parts}),
        ),
        max_leaves=5,
    )


@st.composite
def graphs(draw: st.DrawFn, hostile: bool = True) -> dict[str, Any]:
    """A graph over logprobs, a (both of rank 1) and s (of rank 0)."""
    names = ["logprobs", "a", "s"]
    nodes: list[dict[str, Any]] = [
        {"op": "placeholder", "name": name, "target": name} for name in names
    ]
    outside = OUTSIDE if hostile and draw(st.booleans()) else []
    outside_methods = OUTSIDE_METHODS if outside else []
    for number in range(draw(st.integers(1, 8))):
        is_method = draw(st.booleans())
        targets = METHODS + outside_methods if is_method else FUNCTIONS + outside
        usual = st.lists(
            st.sampled_from(names).map(lambda name: {"ref": name}), min_size=1, max_size=2
        )
        keywords = ["dim", "keepdim", "dtype", "min", "max", "other", "out", "device", "alpha"]
        node: dict[str, Any] = {
            "op": "call_method" if is_method else "call_function",
            "name": f"n{number}",
            "target": draw(st.sampled_from(targets)),
            "args": draw(st.one_of(usual, st.lists(_encoded(names), max_size=3))),
        }
        if draw(st.integers(0, 3)) == 0:
            node["kwargs"] = draw(
                st.dictionaries(st.sampled_from(keywords), _encoded(names), max_size=2)
            )
        nodes.append(node)
        names.append(node["name"])
    last = {"ref": names[-1]}
    if draw(st.booleans()):
        result = {"op": "call_function", "name": "result", "target": "torch.sum", "args": [last]}
        nodes.append(result)
        last = {"ref": "result"}
    metrics = {"custom/last:sum": last} if draw(st.booleans()) else {}
    output: dict[str, Any] = {"op": "output", "name": "output", "target": "output"}
    nodes.append({**output, "args": [{"tuple": [last, {"dict": metrics}]}]})
    return {"nodes": nodes}


INPUTS = [
    {"name": "logprobs", "rank": 1},
    {"name": "a", "rank": 1},
    {"name": "s", "rank": 0},
]
