"""Forward, backward and optimiser step of one adapter; synchronous, on the engine's thread.

Dimensions: N stream tokens, M tokens of all datums, P adapter parameters, V vocabulary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from attrs import define, field
from tinker import types
from torch import Tensor

from rlc.service.errors import ServiceError
from rlc.service.local.model.base_model import BaseModel, Snapshot
from rlc.service.local.model.lora import Adapter
from rlc.service.local.model.packing import IntArray, micro_batches
from rlc.service.local.training.losses import BatchLoss, combined
from rlc.service.local.training.optimizer import AdamW, check

Float32 = npt.NDArray[np.float32]


@define(eq=False)
class Trainer:
    """An adapter with its gradient and its optimiser."""

    base: BaseModel
    adapter: Adapter  # leaves: gradients accumulate in views of `optimizer.gradient_P`
    optimizer: AdamW
    token_budget: int
    has_gradient: bool = field(default=False, init=False)

    @classmethod
    def of(cls, base: BaseModel, adapter: Adapter, token_budget: int) -> Trainer:
        """Start training ``adapter``, whose vector is from now on changed in place."""
        optimizer = AdamW.over(adapter.flat_P)
        leaves = Adapter.over(base.layers, adapter.spec, adapter.flat_P)
        gradients = Adapter.over(base.layers, adapter.spec, optimizer.gradient_P)
        for name, pair in leaves.pairs.items():
            for leaf, gradient in zip(pair, gradients.pairs[name], strict=True):
                leaf.requires_grad_().grad = gradient
        return cls(base, leaves, optimizer, token_budget)

    def run(
        self,
        data: Sequence[types.Datum],
        loss: BatchLoss,
        backward: bool,
    ) -> types.ForwardBackwardOutput:
        """Compute logprobs and summed loss of ``data``; with ``backward`` add its gradient.

        Raise ServiceError for bad input or if the loss is not finite; the accumulated gradient
        is then what it was before.
        """
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
                        summed, told = loss.total(lp_M, [arrays[i] for i in batch], batch)
                    if gradient:
                        summed.backward()  # type: ignore[no-untyped-call]
                    for key, value in {"loss:sum": float(summed.detach()), **told}.items():
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
        sequences, arrays = [], []
        for i, datum in enumerate(data):
            where = f"Datum {i}"
            sequences.append(self.base.token_ids(datum.model_input, where))
            arrays.append(loss.read_inputs(datum, where))
            targets = arrays[-1]["target_tokens"]
            if targets.min() < 0 or targets.max() >= self.base.vocabulary:
                raise ServiceError(
                    f"{where}: a target token is outside the vocabulary of "
                    f"{self.base.vocabulary} tokens."
                )
        return sequences, arrays

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        """Take one AdamW step on the accumulated gradient, and clear it.

        Without a forward_backward since the last step nothing changes, moments included, and
        ``grad_norm`` is 0. Raise ServiceError if a setting is out of range, or as `AdamW.step`.
        """
        check(params)
        norm = self.optimizer.step(params) if self.has_gradient else 0.0
        self.has_gradient = False
        return types.OptimStepResponse(metrics={"grad_norm": norm})

    def snapshot(self) -> Snapshot:
        """Return the weights as they are now."""
        return self.base.snapshot(self.adapter)


def split_targets(lp_M: Tensor, targets: Sequence[IntArray]) -> list[Float32]:
    """Split the logprobs of `packed_logprobs` into an array for each sequence."""
    lengths = [target.size for target in targets]
    return np.split(lp_M.detach().cpu().numpy(), np.cumsum(lengths)[:-1])


def packed_logprobs(
    base: BaseModel, sequences: Sequence[IntArray], targets: Sequence[IntArray]
) -> Tensor:
    """Return the log-probability of each target after its sequence's tokens so far, concatenated.

    Targets are [T], or [T, K] for K at each position; these follow one another. The softmax is
    computed once for each stream token, however many sequences share it.
    """
    logits_NV, paths = base.packed_logits(sequences)
    logprobs_NV = torch.log_softmax(logits_NV.float(), dim=-1)
    rows = [
        np.repeat(path, target.size // len(path))
        for path, target in zip(paths, targets, strict=True)
    ]
    tokens_M = np.concatenate([target.ravel() for target in targets])
    at_M = np.concatenate(rows) * logprobs_NV.shape[1] + tokens_M
    return logprobs_NV.flatten().index_select(0, torch.from_numpy(at_M).to(base.device))
