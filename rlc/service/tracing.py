"""A function of torch as a graph, as Tinker's SDK (0.38) traces custom losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch.fx

from rlc.catalog.packages import CUSTOM_LOSSES, described, lacking
from rlc.service.interface import ServiceError

if TYPE_CHECKING:
    from tinker.lib.public_interfaces.custom_loss import LossHandle


class _WatchfulTracer(torch.fx.Tracer):
    """Notes whether something is computed without a gradient, which a graph does not record."""

    ungraded = False

    def create_node(self, *args: Any, **kwargs: Any) -> torch.fx.Node:
        self.ungraded |= not torch.is_grad_enabled()
        return super().create_node(*args, **kwargs)


def trace(fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]) -> LossHandle:
    """Trace a custom loss, which belongs to no session yet. Raise ServiceError if that cannot be.
    Tracing changes torch's modules for a moment: nothing else may be traced or computed with them
    meanwhile."""
    if wrong := lacking(CUSTOM_LOSSES):
        raise ServiceError(f"a loss of one's own needs {described(CUSTOM_LOSSES, wrong)}")
    from tinker.lib.public_interfaces.custom_loss import trace_loss

    try:
        handle = trace_loss(fn, input_ranks, session_id="")
    except (ValueError, TypeError) as error:  # TypeError: of what has no signature
        raise ServiceError(f"{str(error).rstrip('.')}.") from error
    tracer = _WatchfulTracer()
    with torch.enable_grad():
        tracer.trace(fn)
    if tracer.ungraded:
        raise ServiceError(
            f"create_custom_loss: {handle.name} uses torch.no_grad, which is not traced: its "
            "gradient would be another one. Say x.detach() instead."
        )
    return handle
