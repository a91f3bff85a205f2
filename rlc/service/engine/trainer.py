"""Forward, backward and AdamW step of one adapter, on the engine's thread; and its saved state.

Dimensions: N stream tokens, M tokens of all datums, P adapter parameters, V vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field
from tinker import types
from torch import Tensor

from rlc.service.engine.attention import IntArray, micro_batches
from rlc.service.engine.base_model import BaseModel
from rlc.service.engine.checkpoints import (
    Arrays,
    Checkpoint,
    CheckpointStore,
    Description,
    Kind,
    peft_key,
)
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraAdapter
from rlc.service.engine.losses import BuiltinLoss, combined
from rlc.service.interface import ServiceError


@define(eq=False)
class AdamW:
    """AdamW with decoupled weight decay: parameters, gradient and moments as flat vectors."""

    parameters_P: Tensor
    gradient_P: Tensor = field(init=False)
    mean_P: Tensor = field(init=False)
    square_P: Tensor = field(init=False)
    steps: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        zeros = (torch.zeros_like(self.parameters_P) for _ in range(3))
        self.gradient_P, self.mean_P, self.square_P = zeros

    @torch.no_grad()
    def step(self, params: types.AdamParams) -> float:
        """Step, clear the gradient, and return its norm before clipping. Clipping multiplies by
        ``min(1, max_norm / (norm + 1e-6))``, as PyTorch's does. Raise ServiceError if the gradient
        is not finite: it is cleared then, and nothing else changes."""
        norm = float(self.gradient_P.double().norm())
        if not math.isfinite(norm):
            self.gradient_P.zero_()
            raise ServiceError("The gradient is not finite, so no optimiser step was taken.")
        if params.grad_clip_norm > 0:
            self.gradient_P.mul_(min(1.0, params.grad_clip_norm / (norm + 1e-6)))
        self.steps += 1
        self.mean_P.lerp_(self.gradient_P, 1 - params.beta1)
        self.square_P.mul_(params.beta2).addcmul_(
            self.gradient_P, self.gradient_P, value=1 - params.beta2
        )
        unbiased_mean = 1 - params.beta1**self.steps
        unbiased_square = math.sqrt(1 - params.beta2**self.steps)
        spread_P = self.square_P.sqrt().div_(unbiased_square).add_(params.eps)
        self.parameters_P.mul_(1 - params.learning_rate * params.weight_decay)
        self.parameters_P.addcdiv_(
            self.mean_P, spread_P, value=-params.learning_rate / unbiased_mean
        )
        self.gradient_P.zero_()
        return norm


Float32 = npt.NDArray[np.float32]
BatchLoss = BuiltinLoss | CustomLoss


@define(eq=False)
class Trainer:
    base: BaseModel
    adapter: LoraAdapter  # leaves: gradients accumulate in views of `optimizer.gradient_P`
    optimizer: AdamW
    token_budget: int
    has_gradient: bool = field(default=False, init=False)

    @classmethod
    def of(cls, base: BaseModel, adapter: LoraAdapter, token_budget: int) -> Trainer:
        """Start training ``adapter``, whose vector is from now on changed in place."""
        optimizer = AdamW(adapter.flat_P)
        leaves = LoraAdapter.over(base.layers, adapter.spec, adapter.flat_P)
        gradients = LoraAdapter.over(base.layers, adapter.spec, optimizer.gradient_P)
        for name, pair in leaves.pairs.items():
            for leaf, gradient in zip(pair, gradients.pairs[name], strict=True):
                leaf.requires_grad_().grad = gradient
        return cls(base, leaves, optimizer, token_budget)

    def run(
        self, data: Sequence[types.Datum], loss: BatchLoss, backward: bool
    ) -> types.ForwardBackwardOutput:
        """Compute logprobs and summed loss of ``data``; with ``backward`` add its gradient. Raise
        ServiceError for bad input or if the loss is not finite; the accumulated gradient is then
        what it was before."""
        sequences, arrays = self._read(data, loss)
        moving = [backward and loss.has_gradient(a) for a in arrays]
        before_P = self.optimizer.gradient_P.clone() if backward else None
        self.base.use_adapter(self.adapter)
        logprobs: list[Float32] = [np.empty(0, dtype=np.float32)] * len(data)
        sums: defaultdict[str, float] = defaultdict(float)
        try:
            for gradient in (True, False):
                chosen = [i for i, moves in enumerate(moving) if moves == gradient]
                for run in micro_batches([sequences[i] for i in chosen], self.token_budget):
                    batch = [chosen[j] for j in run]
                    targets = [arrays[i]["target_tokens"] for i in batch]
                    with torch.set_grad_enabled(gradient):
                        lp_M = packed_logprobs(self.base, [sequences[i] for i in batch], targets)
                        summed, metrics = loss.total(lp_M, [arrays[i] for i in batch], batch)
                    if gradient:
                        summed.backward()  # type: ignore[no-untyped-call]
                    for key, value in {"loss:sum": float(summed.detach()), **metrics}.items():
                        sums[key] += value
                    for i, lp in zip(batch, split_targets(lp_M, targets), strict=True):
                        logprobs[i] = lp.reshape(arrays[i]["target_tokens"].shape)
        except BaseException:
            if before_P is not None:
                self.optimizer.gradient_P.copy_(before_P)
            raise
        self.has_gradient |= backward
        outputs = [{"logprobs": types.TensorData.from_numpy(lp)} for lp in logprobs]
        return types.ForwardBackwardOutput("logprobs", outputs, combined(sums, len(data)))

    def _read(
        self, data: Sequence[types.Datum], loss: BatchLoss
    ) -> tuple[list[IntArray], list[dict[str, np.ndarray]]]:
        if not data:
            raise ServiceError("There is no data to compute a loss on.")
        sequences, arrays, size = [], [], self.base.vocabulary
        for i, datum in enumerate(data):
            where = f"Datum {i}"
            sequences.append(self.base.token_ids(datum.model_input, where))
            arrays.append(loss.read_inputs(datum, where))
            targets = arrays[-1]["target_tokens"]
            if targets.min() < 0 or targets.max() >= size:
                problem = f"a target token is outside the vocabulary of {size} tokens."
                raise ServiceError(f"{where}: {problem}")
        return sequences, arrays

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        """Take one AdamW step on the accumulated gradient, and clear it. Without a forward_backward
        since the last step nothing changes, moments included, and ``grad_norm`` is 0. Raise
        ServiceError if a setting is out of range, or as `AdamW.step`."""
        rules = {
            "learning_rate": params.learning_rate >= 0,
            "beta1": 0 <= params.beta1 < 1,
            "beta2": 0 <= params.beta2 < 1,
            "eps": params.eps > 0,
            "weight_decay": params.weight_decay >= 0,
            "grad_clip_norm": params.grad_clip_norm >= 0,
        }
        for name, holds in rules.items():
            value = getattr(params, name)
            if not (holds and math.isfinite(value)):
                raise ServiceError(f"AdamParams: {name} = {value} is out of range.")
        norm = self.optimizer.step(params) if self.has_gradient else 0.0
        self.has_gradient = False
        return types.OptimStepResponse(metrics={"grad_norm": norm})


def split_targets(lp_M: Tensor, targets: Sequence[IntArray]) -> list[Float32]:
    lengths = [target.size for target in targets]
    return np.split(lp_M.detach().cpu().numpy(), np.cumsum(lengths)[:-1])


def packed_logprobs(
    base: BaseModel, sequences: Sequence[IntArray], targets: Sequence[IntArray]
) -> Tensor:
    """Return the log-probability of each target after its sequence's tokens so far, concatenated.
    Targets are [T], or [T, K] for K at each position; these follow one another. The softmax is
    computed once for each stream token, however many sequences share it."""
    logits_NV, paths = base.packed_logits(sequences)
    logprobs_NV = torch.log_softmax(logits_NV.float(), dim=-1)
    rows = [
        np.repeat(path, target.size // len(path))
        for path, target in zip(paths, targets, strict=True)
    ]
    tokens_M = np.concatenate([target.ravel() for target in targets])
    at_M = np.concatenate(rows) * logprobs_NV.shape[1] + tokens_M
    return logprobs_NV.flatten().index_select(0, torch.from_numpy(at_M).to(base.device))


def state_arrays(
    trainer: Trainer, kind: Kind, expires_at: float | None, user_metadata: dict[str, str] | None
) -> tuple[Arrays, Description]:
    """Return a trainer's adapter, and for ``weights`` Adam's moments, as arrays by name: for
    ``external_weights`` that of Hugging Face PEFT."""
    base, optimizer, spec = trainer.base, trainer.optimizer, trainer.adapter.spec
    vectors = {"adapter": optimizer.parameters_P}
    if kind == "weights":
        vectors |= {"adam_mean": optimizer.mean_P, "adam_square": optimizer.square_P}
    arrays = {}
    for label, vector_P in vectors.items():
        for name, pair in LoraAdapter.over(base.layers, spec, vector_P).pairs.items():
            for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
                is_export = kind == "external_weights"
                key = peft_key(name, part) if is_export else f"{label}/{name}.{part}"
                arrays[key] = view.cpu().numpy()
    steps = optimizer.steps if kind == "weights" else None
    return arrays, Description(base.name, base.fingerprint, spec, steps, expires_at, user_metadata)


def restored_adapter(base: BaseModel, checkpoint: Checkpoint) -> LoraAdapter:
    """Return the adapter of a checkpoint. Raise ServiceError if it is of another base model."""
    description = checkpoint.description
    if "/external_weights/" in checkpoint.path:
        raise ServiceError(
            f"{checkpoint.path} is an export for other programs; load the weights of its run."
        )
    if base.fingerprint != description.fingerprint:
        raise ServiceError(
            f"{checkpoint.path} was saved over another version of the base model "
            f"{description.base_model!r}."
        )
    return _read_adapter(base, checkpoint, "adapter")


def restore_optimizer(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Restore Adam's moments. Raise ServiceError if the checkpoint has none."""
    steps, optimizer = checkpoint.description.optimizer_steps, trainer.optimizer
    if steps is None:
        problem = "holds weights for sampling, not an optimiser's state."
        raise ServiceError(f"{checkpoint.path} {problem}")
    mean = _read_adapter(trainer.base, checkpoint, "adam_mean")
    square = _read_adapter(trainer.base, checkpoint, "adam_square")
    optimizer.mean_P.copy_(mean.flat_P)
    optimizer.square_P.copy_(square.flat_P)
    optimizer.steps = steps


def restore(trainer: Trainer, store: CheckpointStore, path: str, optimizer: bool) -> None:
    """Replace a trainer's state by a checkpoint's, and clear its gradient. Without ``optimizer``
    Adam starts afresh. Raise ServiceError, and change nothing, if the checkpoint is missing, or is
    of another base model or adapter."""
    checkpoint = store.load(path)
    adapter = restored_adapter(trainer.base, checkpoint)
    if adapter.spec != trainer.adapter.spec:
        raise ServiceError(
            f"{path} is of an adapter of another shape (rank {adapter.spec.rank}); "
            "create a training client from the state instead."
        )
    adam = trainer.optimizer
    if optimizer:
        restore_optimizer(trainer, checkpoint)
    else:
        adam.mean_P.zero_()
        adam.square_P.zero_()
        adam.steps = 0
    adam.parameters_P.copy_(adapter.flat_P)
    adam.gradient_P.zero_()
    trainer.has_gradient = False


def _read_adapter(base: BaseModel, checkpoint: Checkpoint, label: str) -> LoraAdapter:
    adapter = LoraAdapter.zeros(base.layers, checkpoint.description.lora)
    for name, pair in adapter.pairs.items():
        for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
            array = checkpoint.arrays.get(f"{label}/{name}.{part}")
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"The checkpoint {checkpoint.path} does not fit its base model.")
            view.copy_(torch.from_numpy(array))
    return adapter
