"""From a checkpoint's arrays back to an adapter and its optimiser. P adapter parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from rlc.service.errors import ServiceError
from rlc.service.local.checkpoints import Arrays, CheckpointStore, Description
from rlc.service.local.model.base import BaseModel
from rlc.service.local.model.lora import Adapter, LoraSpec, size
from rlc.service.local.training.optimizer import AdamW
from rlc.service.local.training.trainer import Trainer


def check_base(base: BaseModel, description: Description, path: str) -> None:
    """Raise ServiceError if the checkpoint was saved over other base weights."""
    if base.fingerprint != description.fingerprint:
        raise ServiceError(
            f"{path} was saved over another version of the base model {description.base_model!r}."
        )


def restored_adapter(
    base: BaseModel, arrays: Arrays, description: Description, path: str
) -> Adapter:
    """The adapter of a checkpoint. Raises ServiceError if it does not fit the base model."""
    flat_P = _vector(base, description.lora, "adapter", arrays, path)
    return Adapter.over(base.layers, description.lora, flat_P)


def restore_optimizer(
    optimizer: AdamW, base: BaseModel, arrays: Arrays, description: Description, path: str
) -> None:
    """Take over Adam's moments. Raises ServiceError for a checkpoint that has none."""
    if description.optimizer_steps is None:
        raise ServiceError(f"{path} holds weights for sampling, not an optimiser's state.")
    mean_P = _vector(base, description.lora, "adam_mean", arrays, path)
    square_P = _vector(base, description.lora, "adam_square", arrays, path)
    optimizer.mean_P.copy_(mean_P)
    optimizer.square_P.copy_(square_P)
    optimizer.steps = description.optimizer_steps


def restore(trainer: Trainer, store: CheckpointStore, path: str, optimizer: bool) -> None:
    """Put a checkpoint's state in the place of a trainer's; its gradient is dropped.

    Without ``optimizer`` Adam starts afresh. Raises ServiceError, and changes nothing, for a
    checkpoint that is missing, or of another base model or adapter.
    """
    arrays, description = store.load(path)
    check_base(trainer.base, description, path)
    if description.lora != trainer.adapter.spec:
        raise ServiceError(
            f"{path} is of an adapter of another shape (rank {description.lora.rank}); "
            "create a training client from the state instead."
        )
    adapter = restored_adapter(trainer.base, arrays, description, path)
    if optimizer:
        restore_optimizer(trainer.optimizer, trainer.base, arrays, description, path)
    else:
        trainer.optimizer.reset()
    trainer.optimizer.parameters_P.copy_(adapter.flat_P)
    trainer.drop_gradient()


def _vector(base: BaseModel, spec: LoraSpec, label: str, arrays: Arrays, path: str) -> Tensor:
    """A checkpoint's arrays as one flat vector [P]."""
    flat_P = torch.zeros(size(base.layers, spec), device=base.device)
    for name, pair in Adapter.over(base.layers, spec, flat_P).pairs.items():
        for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
            array = arrays.get(f"{label}/{name}.{part}")
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"The checkpoint {path} does not fit its base model.")
            view.copy_(torch.from_numpy(array))
    return flat_P
