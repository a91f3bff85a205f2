"""Low-rank adapters: ``W + (32 / rank) · B·A`` on the linear layers of a frozen model.

The constant 32 is Tinker's: a learning rate then means the same at every rank. ``B`` starts
at zero, so a fresh adapter is the base model exactly. All of an adapter's numbers lie in one
vector, of which every ``A`` and ``B`` is a view: the optimiser, a snapshot and a checkpoint
each handle a single tensor.

An adapter is in float32 whatever the model is in. Over a model in bfloat16 its products are of
copies in bfloat16, and its gradients are summed in float32, as in mixed-precision training
(arXiv 1710.03740). Such an adapter is not merged to sample: a step of training changes a weight by
less than the last bit of bfloat16, and the sampler would not see it. Logits are always in float32
(a reason that sampler and trainer disagree, arXiv 2506.13585).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor, nn
from torch.nn.functional import linear

from rlc.catalog import layer_kind
from rlc.service.interface import ServiceError

ALPHA = 32.0
ATTENTION, MLP, UNEMBED = "attn", "mlp", "unembed"


@frozen
class LoraSpec:
    rank: int
    train_mlp: bool = True
    train_attn: bool = True
    train_unembed: bool = True

    def __attrs_post_init__(self) -> None:
        if self.rank < 1 or self.rank & (self.rank - 1):
            raise ServiceError(f"The LoRA rank must be a positive power of two, not {self.rank}.")
        if not self.kinds:
            raise ServiceError(
                "A LoRA adapter must train something: "
                "set at least one of train_mlp, train_attn and train_unembed."
            )

    @property
    def kinds(self) -> frozenset[str]:
        wanted = {ATTENTION: self.train_attn, MLP: self.train_mlp, UNEMBED: self.train_unembed}
        return frozenset(kind for kind, on in wanted.items() if on)

    @property
    def scale(self) -> float:
        return ALPHA / self.rank


class _LowRankLinear(torch.autograd.Function):
    """``x·Wᵀ + bias + scale·(x·Aᵀ)·Bᵀ`` of [N, in] inputs, W frozen. Autograd would keep and
    multiply more, and choose a slow order for the thin products: this backward pass is about a
    third faster on a CPU."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        a: Tensor,
        b: Tensor,
        scale: float,
        in_float32: bool,
    ) -> Tensor:
        a, b = a.to(x.dtype), b.to(x.dtype)
        low = x @ a.t()
        ctx.save_for_backward(x, low, weight, a, b)
        ctx.scale = scale
        if in_float32 and x.dtype != torch.float32:
            return linear_float32(x, weight, bias).add_(product_float32(low, b.t()), alpha=scale)
        return linear(x, weight, bias).addmm_(low, b.t(), alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, low, weight, a, b = ctx.saved_tensors
        grad = grad.to(x.dtype)
        grad_low = (grad @ b).mul_(ctx.scale)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (grad @ weight).addmm_(grad_low, a)
        grad_b = product_float32(low.t(), grad).mul_(ctx.scale).t()
        return grad_x, None, None, product_float32(grad_low.t(), x), grad_b, None, None


class _Float32Linear(torch.autograd.Function):
    """``x·Wᵀ + bias`` in float32, of inputs and a frozen W that may be in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return linear_float32(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return grad.to(x.dtype) @ weight, None, None


def linear_float32(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = product_float32(x, weight.t())
    return out if bias is None else out.add_(bias)


def product_float32(x: Tensor, y: Tensor) -> Tensor:
    """Return ``x·y`` in float32, summed in float32, of matrices that may be in bfloat16."""
    if x.is_cuda and x.dtype != torch.float32:
        return torch.mm(x, y, out_dtype=torch.float32)
    return x.float() @ y.float()


class LoraLinear(nn.Module):
    """A frozen linear layer that an adapter, or a merged weight, can be switched into."""

    def __init__(self, base: nn.Linear, kind: str) -> None:
        super().__init__()
        self.base = base
        self.kind = kind
        self.merged: Tensor | None = None
        self.pair: tuple[Tensor, Tensor] | None = None
        self.scale = 0.0

    @property
    def weight(self) -> Tensor:
        """The base weight, which some models read to tie embeddings or for its dtype."""
        return self.base.weight

    def forward(self, x: Tensor) -> Tensor:
        weight = self.base.weight if self.merged is None else self.merged
        in_float32 = self.kind == UNEMBED
        if self.pair is None and (x.dtype == torch.float32 or not in_float32):
            return linear(x, weight, self.base.bias)
        given = (x.flatten(0, -2), weight, self.base.bias)
        if self.pair is None:
            out = _Float32Linear.apply(*given)  # type: ignore[no-untyped-call]
        else:
            adapted = (*self.pair, self.scale, in_float32)
            out = _LowRankLinear.apply(*given, *adapted)  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:-1], -1)  # type: ignore[no-any-return]


def install(model: Any) -> dict[str, LoraLinear]:
    """Wrap every linear layer of a model, and return them by name; the weights stay shared."""
    unembed = model.get_output_embeddings()
    wrapped: dict[str, LoraLinear] = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, child = name.rpartition(".")
            wrapped[name] = LoraLinear(module, UNEMBED if module is unembed else layer_kind(name))
            setattr(model.get_submodule(parent), child, wrapped[name])
    return wrapped


@frozen(eq=False)
class LoraAdapter:
    """One LoRA adapter: a flat vector of ``P`` numbers and the pairs (A, B) that view it."""

    spec: LoraSpec
    flat_P: Tensor
    pairs: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)

    @classmethod
    def over(cls, layers: Mapping[str, LoraLinear], spec: LoraSpec, flat_P: Tensor) -> LoraAdapter:
        """View a vector as the pairs of the layers that ``spec`` trains."""
        pairs, used = {}, 0
        for name, (out_size, in_size) in trained_shapes(layers, spec).items():
            middle = used + spec.rank * in_size
            end = middle + out_size * spec.rank
            a = flat_P[used:middle].view(spec.rank, in_size)
            b = flat_P[middle:end].view(out_size, spec.rank)
            pairs[name] = (a, b)
            used = end
        return cls(spec, flat_P, pairs)

    @classmethod
    def zeros(cls, layers: Mapping[str, LoraLinear], spec: LoraSpec) -> LoraAdapter:
        shapes = trained_shapes(layers, spec).values()
        numbers = sum(spec.rank * (out_size + in_size) for out_size, in_size in shapes)
        device = next(iter(layers.values())).weight.device
        return cls.over(layers, spec, torch.zeros(numbers, device=device))

    @classmethod
    def fresh(
        cls, layers: Mapping[str, LoraLinear], spec: LoraSpec, seed: int | None
    ) -> LoraAdapter:
        """Return an adapter with A uniform in ±1/√inputs and B zero, which depends on the seed
        alone."""
        generator = torch.Generator()
        generator.manual_seed(generator.seed() if seed is None else seed)
        adapter = cls.zeros(layers, spec)
        for a, _ in adapter.pairs.values():
            bound = 1 / math.sqrt(a.shape[1])
            a.copy_(torch.empty(a.shape).uniform_(-bound, bound, generator=generator))
        return adapter


def trained_shapes(layers: Mapping[str, LoraLinear], spec: LoraSpec) -> dict[str, tuple[int, int]]:
    """Return (outputs, inputs) of each layer that ``spec`` trains, in the model's order. Raise
    ServiceError if the model has no layer of a kind that ``spec`` asks for."""
    trained = spec.kinds
    missing = trained - {layer.kind for layer in layers.values()}
    if missing:
        raise ServiceError(
            f"This model has no linear layers to train as {', '.join(sorted(missing))}; "
            f"set {', '.join(f'train_{kind} = false' for kind in sorted(missing))}."
        )
    return {
        name: (layer.weight.shape[0], layer.weight.shape[1])
        for name, layer in layers.items()
        if layer.kind in trained
    }
