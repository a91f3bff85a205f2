"""Losses of a client's own: kept for the session that sent them, and used by their ids."""

from __future__ import annotations

from collections.abc import Mapping

from tinker import types

from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.http.backend import Backend
from rlc.service.http.sessions import Session
from rlc.service.interface import ServiceError

CUSTOM = "custom"  # the name that stands for all of them
_MOST = 256  # that a session may have


def create_custom_loss(
    backend: Backend, request: types.CreateCustomLossRequest
) -> types.UntypedAPIFuture:
    """Check a traced loss and keep it. A loss that is refused fails its promise; a repeated number
    is a repeated request."""
    session = backend.sessions.session(request.session_id)
    loss_id = f"{session.id}:loss:{request.custom_loss_seq_id}"

    async def create() -> types.CreateCustomLossResponse:
        if not backend.custom_losses:
            raise ServiceError("This server computes no custom losses; the SDK does it instead.")
        if loss_id not in session.losses:
            if len(session.losses) >= _MOST:
                raise ServiceError(f"A session has at most {_MOST} custom losses.")
            session.losses[loss_id] = CustomLoss.read(request.name, request.inputs, request.graph)
        return types.CreateCustomLossResponse(loss_id=loss_id)

    promised = backend.promise(loss_id, create, "create_custom_loss")
    return types.UntypedAPIFuture(request_id=promised.request_id)


def find(session: Session, config: Mapping[str, float | str] | None) -> CustomLoss:
    """Return the loss that a request means. Raise ServiceError if its session has none such."""
    given = dict(config or {})
    loss_id = given.pop("loss_id", None)
    if given or not isinstance(loss_id, str):
        raise ServiceError(
            f"{CUSTOM} takes one setting, the loss_id that create_custom_loss returned."
        )
    if loss_id not in session.losses:
        raise ServiceError(
            f"This session has no custom loss {loss_id!r}: a loss can be used in the session that "
            "created it, and not after a restart of the server."
        )
    return session.losses[loss_id]
