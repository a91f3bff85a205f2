"""A recipe's own loss at a service: its function, traced once for a stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlc.algo.expressions.python import torch_function
from rlc.catalog.index import loss_traits
from rlc.plan.records import SftPlan, TrainPlan
from rlc.runtime.concurrency import in_thread
from rlc.service.interface import LossHandle, ServiceClient


async def open_loss(
    service: ServiceClient, stage: TrainPlan | SftPlan, note: Callable[[str], None]
) -> LossHandle | None:
    """Return the loss that a stage's recipe brings, as the service takes it; None if it brings
    none. Raise ServiceError if the service refuses it."""
    if isinstance(stage, SftPlan) or stage.loss.program is None:
        return None
    written = torch_function(stage.loss.program, stage.loss.name, loss_traits(stage.loss).weighted)
    function = await in_thread(_compiled, written.source, written.name)
    loss = await service.create_custom_loss(function, written.ranks)
    if loss.in_client:
        note(
            f"the service has no custom losses: `{stage.loss.name}` is computed here, after a "
            "forward pass of its own, half as much work again"
        )
    return loss


def _compiled(source: str, name: str) -> Callable[..., Any]:
    """Return the function of a text that was written for it."""
    import torch

    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, f"<loss {name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
