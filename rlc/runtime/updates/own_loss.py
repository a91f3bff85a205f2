"""A recipe's own loss at a service: its function, traced once for a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlc.algo import TorchFunction, torch_function
from rlc.catalog import loss_traits
from rlc.plan import Training
from rlc.runtime.concurrency import in_thread
from rlc.service import LossHandle, ServiceClient


async def open_loss(
    service: ServiceClient, stage: Training, note: Callable[[str], None]
) -> LossHandle | None:
    """Return the loss that a stage's recipe brings, as the service takes it; None if it brings
    none. Raise ServiceError if the service refuses it."""
    objective = stage.policy_gradient
    if objective is None or (program := objective.loss.program) is None:
        return None
    written = torch_function(program, objective.loss.name, loss_traits(objective.loss).weighted)
    loss = await service.create_custom_loss(*await in_thread(compiled, written))
    if loss.in_client:
        note(
            f"the service has no custom losses: `{objective.loss.name}` is computed here, after a "
            "forward pass of its own, half as much work again"
        )
    return loss


def compiled(written: TorchFunction) -> tuple[Callable[..., Any], dict[str, Literal[0, 1, 2]]]:
    """Return a function, and the ranks of its arguments, as services trace them."""
    import torch

    scope: dict[str, Any] = {"torch": torch}
    exec(compile(written.source, f"<loss {written.name}>", "exec"), scope)
    return scope[written.name], written.ranks
