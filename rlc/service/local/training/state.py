"""An adapter and its optimiser as a checkpoint's arrays, and back. P adapter parameters."""

from __future__ import annotations

import torch

from rlc.service.errors import ServiceError
from rlc.service.local.checkpoints import Arrays, Checkpoint, CheckpointStore, Description, Kind
from rlc.service.local.model.base_model import BaseModel
from rlc.service.local.model.lora import Adapter
from rlc.service.local.peft import peft_key
from rlc.service.local.training.trainer import Trainer


def state_arrays(
    trainer: Trainer, kind: Kind, expires_at: float | None, user_metadata: dict[str, str] | None
) -> tuple[Arrays, Description]:
    """Return a trainer's adapter, and for ``weights`` Adam's moments, as named arrays.

    For ``external_weights`` they have the names of Hugging Face PEFT.
    """
    base, optimizer, spec = trainer.base, trainer.optimizer, trainer.adapter.spec
    vectors = {"adapter": optimizer.parameters_P}
    if kind == "weights":
        vectors |= {"adam_mean": optimizer.mean_P, "adam_square": optimizer.square_P}
    arrays = {}
    for label, vector_P in vectors.items():
        for name, pair in Adapter.over(base.layers, spec, vector_P).pairs.items():
            for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
                key = f"{label}/{name}.{part}"
                if kind == "external_weights":
                    key = peft_key(name, part)
                arrays[key] = view.cpu().numpy()
    steps = optimizer.steps if kind == "weights" else None
    return arrays, Description(base.name, base.fingerprint, spec, steps, expires_at, user_metadata)


def restored_adapter(base: BaseModel, checkpoint: Checkpoint) -> Adapter:
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
    """Take over Adam's moments. Raise ServiceError if the checkpoint has none."""
    steps, optimizer = checkpoint.description.optimizer_steps, trainer.optimizer
    if steps is None:
        raise ServiceError(
            f"{checkpoint.path} holds weights for sampling, not an optimiser's state."
        )
    mean = _read_adapter(trainer.base, checkpoint, "adam_mean")
    square = _read_adapter(trainer.base, checkpoint, "adam_square")
    optimizer.mean_P.copy_(mean.flat_P)
    optimizer.square_P.copy_(square.flat_P)
    optimizer.steps = steps


def restore(trainer: Trainer, store: CheckpointStore, path: str, optimizer: bool) -> None:
    """Replace a trainer's state by a checkpoint's, and drop its gradient.

    Without ``optimizer`` Adam starts afresh. Raise ServiceError, and change nothing, if the
    checkpoint is missing, or is of another base model or adapter.
    """
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


def _read_adapter(base: BaseModel, checkpoint: Checkpoint, label: str) -> Adapter:
    """Return a checkpoint's arrays of one label, in the shape of the adapter."""
    adapter = Adapter.zeros(base.layers, checkpoint.description.lora)
    for name, pair in adapter.pairs.items():
        for part, view in zip(("lora_A", "lora_B"), pair, strict=True):
            array = checkpoint.arrays.get(f"{label}/{name}.{part}")
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"The checkpoint {checkpoint.path} does not fit its base model.")
            view.copy_(torch.from_numpy(array))
    return adapter
