"""An adapter and its optimiser as a checkpoint's arrays, and back. P adapter parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from rlc.service.errors import ServiceError
from rlc.service.local.checkpoints import Arrays, CheckpointStore, Description, Kind
from rlc.service.local.model.base_model import BaseModel
from rlc.service.local.model.lora import Adapter, LoraSpec, size
from rlc.service.local.training.optimizer import AdamW
from rlc.service.local.training.trainer import Trainer


def state_arrays(
    trainer: Trainer, kind: Kind, expires_at: float | None, user_metadata: dict[str, str] | None
) -> tuple[Arrays, Description]:
    """Return a trainer's adapter, and for ``weights`` Adam's moments, as named arrays."""
    base, optimizer, spec = trainer.base, trainer.optimizer, trainer.adapter.spec
    vectors = {"adapter": optimizer.parameters_P}
    if kind == "weights":
        vectors |= {"adam_mean": optimizer.mean_P, "adam_square": optimizer.square_P}
    arrays = {}
    for label, vector_P in vectors.items():
        for name, (a, b) in Adapter.over(base.layers, spec, vector_P).pairs.items():
            arrays[f"{label}/{name}.lora_A"] = a.cpu().numpy()
            arrays[f"{label}/{name}.lora_B"] = b.cpu().numpy()
    steps = optimizer.steps if kind == "weights" else None
    return arrays, Description(base.name, base.fingerprint, spec, steps, expires_at, user_metadata)


def check_base(base: BaseModel, description: Description, path: str) -> None:
    """Raise ServiceError if the checkpoint was saved over other base weights."""
    if base.fingerprint != description.fingerprint:
        raise ServiceError(
            f"{path} was saved over another version of the base model {description.base_model!r}."
        )


def restored_adapter(
    base: BaseModel, arrays: Arrays, description: Description, path: str
) -> Adapter:
    """Return the adapter of a checkpoint. Raise ServiceError if it does not fit the base model."""
    flat_P = _vector(base, description.lora, "adapter", arrays, path)
    return Adapter.over(base.layers, description.lora, flat_P)


def restore_optimizer(
    optimizer: AdamW, base: BaseModel, arrays: Arrays, description: Description, path: str
) -> None:
    """Take over Adam's moments. Raise ServiceError if the checkpoint has none."""
    if description.optimizer_steps is None:
        raise ServiceError(f"{path} holds weights for sampling, not an optimiser's state.")
    mean_P = _vector(base, description.lora, "adam_mean", arrays, path)
    square_P = _vector(base, description.lora, "adam_square", arrays, path)
    optimizer.mean_P.copy_(mean_P)
    optimizer.square_P.copy_(square_P)
    optimizer.steps = description.optimizer_steps


def restore(trainer: Trainer, store: CheckpointStore, path: str, optimizer: bool) -> None:
    """Replace a trainer's state by a checkpoint's, and drop its gradient.

    Without ``optimizer`` Adam starts afresh. Raise ServiceError, and change nothing, if the
    checkpoint is missing, or is of another base model or adapter.
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
    """Return a checkpoint's arrays as one flat vector [P]."""
    flat_P = torch.zeros(size(base.layers, spec), device=base.device)
    for name, pair in Adapter.over(base.layers, spec, flat_P).pairs.items():
        for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
            array = arrays.get(f"{label}/{name}.{part}")
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"The checkpoint {path} does not fit its base model.")
            view.copy_(torch.from_numpy(array))
    return flat_P
