"""What a custom loss may compute: pure operations whose results are no larger than their inputs,
but for broadcasting and indexing, whose results are measured before they are computed.

Not on the list: whatever allocates by number (``zeros``, ``expand``, ``repeat``, outer products),
draws random numbers, changes a tensor in place, leaves torch or moves to a device. Floating numbers
are float64, whole numbers int64, whatever their tensors were.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from attrs import evolve, frozen
from torch import Tensor
from torch.nn import functional

# pointwise: each value from the values at its place; cast: to another dtype; reduction: over all
# places, or one dimension; extreme: a reduction, or pointwise of two tensors; attribute: of a
# tensor, by name; length, size, rank: of a tensor; item: of a tensor or a tuple.
Kind = Literal[
    "pointwise",
    "cast",
    "reduction",
    "extreme",
    "attribute",
    "length",
    "size",
    "rank",
    "item",
    "other",
]


@frozen
class TensorOperation:
    """``run`` takes tensors, numbers, dtypes and results of other operations; if ``plain``, all may
    be numbers, such as the lengths of tensors. ``segment`` is torch's name of a reduction.
    ``smooth``: a gradient passes through. ``vanishes``: the result and its gradient are 0 if the
    arguments are, ``any`` of them, ``all``, the ``first`` or the ``branches`` of a condition."""

    run: Callable[..., Any]
    kind: Kind = "pointwise"
    plain: bool = False
    segment: str = ""
    smooth: bool = True
    vanishes: Literal["any", "all", "first", "branches"] | None = None


DTYPES = {
    **dict.fromkeys(("float", "double", "float32", "float64"), torch.float64),
    **dict.fromkeys(("int", "long", "int32", "int64"), torch.int64),
    "bool": torch.bool,
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    """Return a table that is written as ``key=value`` words."""
    return dict(pair.split("=") for pair in text.split())


WORDS = frozenset({"none", "sum", "mean"})  # strings that are arguments
KEYWORDS = _words(
    "input self other dim axis keepdim dtype min max alpha beta threshold value mask condition "
    "exponent unbiased correction nan posinf neginf p eps weight end dims index "
    "tensors descending stable rtol atol equal_nan tensor1 tensor2 reduction delta shape "
    "start_dim end_dim dim0 dim1 target size_average reduce k largest sorted"
)


def _cast(x: Tensor, to: Any) -> Tensor:
    if isinstance(to, Tensor):
        to = to.dtype
    return x.to(to) if isinstance(to, torch.dtype) else x  # a device is where the loss is computed


def _to(dtype: torch.dtype) -> TensorOperation:
    return TensorOperation(
        lambda x: x.to(dtype), "cast", smooth=dtype.is_floating_point, vanishes="first"
    )


def _of_floats(run: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a division with remainder, which for whole numbers ends the process if the result does
    not fit."""
    return lambda a, b: run(*(x.double() if isinstance(x, Tensor) else x for x in (a, b)))


def _item(x: Any, index: Any) -> Any:
    if isinstance(x, tuple) and not isinstance(index, int):
        raise TypeError("a tuple is indexed by a number")
    return x[index]


def _attribute(x: Any, name: str) -> Any:
    wanted = Tensor if name in _OF_TENSORS else tuple
    if not isinstance(x, wanted) or (wanted is tuple and not hasattr(x, name)):
        raise TypeError(f"what it is taken from has no {name}")
    return getattr(x, name)


def _size(x: Tensor, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def _where(condition: Tensor, input: Any, other: Any) -> Tensor:
    return torch.where(condition, input, other)  # of the condition alone it would be indices


def _norm(input: Tensor, p: float = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    return torch.linalg.vector_norm(input, p, dim, keepdim)  # type: ignore[no-any-return]


_OF_TENSORS = frozenset({"shape", "dtype", "device", "ndim"})
ATTRIBUTES = _OF_TENSORS | {"values", "indices"}

# Their gradient is 0, or there is none.
_STEPS = _words(
    "sign sgn floor ceil round trunc isnan isfinite isinf logical_not logical_and logical_or "
    "logical_xor eq ne lt le gt ge isclose zeros_like ones_like bitwise_and bitwise_or bitwise_xor "
    "bitwise_not detach"
)
_POINTWISE = (
    "abs neg positive sign sgn exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal "
    "sigmoid logit tanh sinh cosh asinh sin cos tan atan asin acos erf erfc relu floor ceil trunc "
    "frac isnan isfinite isinf logical_not logical_and logical_or logical_xor zeros_like ones_like "
    "nan_to_num add sub mul div true_divide pow minimum maximum fmin fmax atan2 clamp clamp_min "
    "clamp_max lerp eq ne lt le gt ge isclose logaddexp logaddexp2 xlogy addcmul addcdiv "
    "copysign hypot masked_fill bitwise_and bitwise_or bitwise_xor bitwise_not detach"
)
_REDUCTIONS = _pairs("sum=sum mean=mean amax=max amin=min max=max min=min")
_OTHERS = (
    "prod std var logsumexp median all any argmax argmin count_nonzero nansum nanmean softmax "
    "log_softmax cumsum cumprod logcumsumexp flip sort topk unsqueeze squeeze reshape flatten "
    "transpose permute cat stack gather dot"
)
# Other names of the same thing: of torch, of its special and functional modules, of operators.
_ALIASES = _pairs(
    "absolute=abs negative=neg clip=clamp multiply=mul subtract=sub divide=div truediv=div "
    "floordiv=floor_divide mod=remainder pos=positive and_=bitwise_and or_=bitwise_or "
    "xor=bitwise_xor invert=bitwise_not greater=gt greater_equal=ge less=lt less_equal=le "
    "not_equal=ne log_sigmoid=logsigmoid expit=sigmoid"
)
_VANISHING: dict[str, Literal["any", "all", "first", "branches"]] = {
    "mul": "any",
    "where": "branches",
    **dict.fromkeys(_words("add sub minimum maximum max min"), "all"),
    **dict.fromkeys(_words("neg abs div true_divide sum mean detach relu square tanh"), "first"),
}


def _shared() -> dict[str, TensorOperation]:
    found = {
        name: TensorOperation(getattr(torch, name), smooth=name not in _STEPS)
        for name in _POINTWISE.split()
    }
    for name, segment in _REDUCTIONS.items():
        kind: Kind = "extreme" if name in ("max", "min") else "reduction"
        found[name] = TensorOperation(getattr(torch, name), kind, segment=segment)
    found |= {name: TensorOperation(getattr(torch, name), "other") for name in _OTHERS.split()}
    for name in ("argmax", "argmin", "all", "any", "count_nonzero"):
        found[name] = evolve(found[name], smooth=False)
    found |= {
        "round": TensorOperation(lambda x: torch.round(x), smooth=False),
        "floor_divide": TensorOperation(_of_floats(torch.floor_divide), smooth=False),
        "remainder": TensorOperation(_of_floats(torch.remainder)),
        "fmod": TensorOperation(_of_floats(torch.fmod)),
        "norm": TensorOperation(_norm, "other"),
        "where": TensorOperation(_where),
        "numel": TensorOperation(lambda x: x.numel(), "length", smooth=False),
    }
    for name, vanishes in _VANISHING.items():
        found[name] = evolve(found[name], vanishes=vanishes)
    return found


def _operators(shared: Mapping[str, TensorOperation]) -> dict[str, TensorOperation]:
    """Return Python's operators. Unlike torch's functions they take numbers on either side."""
    found = {
        "getitem": TensorOperation(_item, "item"),
        "matmul": TensorOperation(torch.dot, "other"),
    }
    for name in _OPERATORS:
        same, run = shared[_ALIASES.get(name, name)], getattr(operator, name)
        found[name] = evolve(same, run=run, plain=name in _ARITHMETIC)
    for name in ("floordiv", "mod"):
        found[name] = evolve(found[name], run=_of_floats(getattr(operator, name)))
    return found


_ARITHMETIC = _words("add sub mul truediv floordiv mod neg pos abs")
_OPERATORS = _ARITHMETIC | _words("pow lt le eq ne gt ge and_ or_ xor invert")
FUNCTIONS = _shared()
OPERATORS = _operators(FUNCTIONS)
_GETATTR = TensorOperation(_attribute, "attribute")
METHODS = {
    **{name: _to(DTYPES[name]) for name in ("float", "double", "int", "long", "bool")},
    "to": TensorOperation(_cast, "cast", vanishes="first"),
    "type_as": TensorOperation(_cast, "cast", vanishes="first"),
    "expand_as": TensorOperation(lambda x, other: x.expand(other.shape), vanishes="first"),
    "where": TensorOperation(lambda x, condition, other: _where(condition, x, other)),
    "view": TensorOperation(Tensor.reshape, "other"),
    "reshape": TensorOperation(Tensor.reshape, "other"),
    "permute": TensorOperation(Tensor.permute, "other"),
    "size": TensorOperation(_size, "size", smooth=False),
    "dim": TensorOperation(lambda x: x.ndim, "rank", smooth=False),
}
FUNCTIONAL = {
    "softplus": TensorOperation(functional.softplus),
    "logsigmoid": TensorOperation(functional.logsigmoid),
    "silu": TensorOperation(lambda x: functional.silu(x)),
    **{
        name: TensorOperation(getattr(functional, name), "other")
        for name in ("huber_loss", "smooth_l1_loss", "mse_loss", "l1_loss")
    },
}
_IN_BOTH = _words("relu sigmoid tanh softmax log_softmax")  # torch and torch.nn.functional
# Where the functions are that have these names; torch's versions differ in it.
_MODULES = _pairs(
    "torch._C._special.special_=torch torch.special.=torch torch._C._nn.=functional "
    "torch.nn.functional.=functional torch.functional.=torch torch.=torch operator.=operator "
    "_operator.=operator"
)


def find(op: str, target: str) -> TensorOperation | None:
    """Return the operation of a node; None if it is not on the list."""
    if op == "call_method":
        return METHODS.get(target) or FUNCTIONS.get(_ALIASES.get(target, target))
    if target == "getattr":
        return _GETATTR
    prefix = next((prefix for prefix in _MODULES if target.startswith(prefix)), None)
    if prefix is None:
        return None
    module, name = _MODULES[prefix], target.removeprefix(prefix)
    if module == "operator":
        return OPERATORS.get(name)
    name = _ALIASES.get(name, name)
    if name in FUNCTIONAL:
        return FUNCTIONAL[name]
    return FUNCTIONS.get(name) if module == "torch" or name in _IN_BOTH else None


def spellings(op: str) -> list[str]:
    if op == "call_method":
        return [*METHODS, *FUNCTIONS, *_ALIASES]
    names = [f"torch.{name}" for name in (*FUNCTIONS, *FUNCTIONAL, *_ALIASES)]
    return [name for name in names if find(op, name)] + [f"operator.{name}" for name in OPERATORS]
