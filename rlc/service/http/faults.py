"""Injected faults, by rate and seed: the bad days of a hosted service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from attrs import define, field, fields, frozen
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlc.service.errors import ServiceError
from rlc.service.http.latency import Dice

# Requests that a client sends in the background, or before it can handle a failure.
_SPARED = ("client/", "auth/", "telemetry", "healthz", "session_heartbeat")
_RETRY_SOON = {"retry-after-ms": "50"}

RequestFault = Literal["too_many", "errors", "drops", "restarts"]


@frozen
class Faults:
    """Rates between 0 and 1. The first four are of requests, the others of promises.

    ``too_many``: HTTP 429. ``errors``: HTTP 500. ``drops``: the connection is closed, half of
    the time after the request was carried out. ``restarts``: everything in memory is forgotten;
    checkpoints remain. ``slow``: an answer comes ``slow_seconds`` late. ``lost``: the promise of a
    sample is forgotten, so that the SDK has to ask anew. ``stuck``: an answer never comes.
    ``paused``: a poll for an answer reports that the queue is full, and to ask again.
    """

    too_many: float = 0.0
    errors: float = 0.0
    drops: float = 0.0
    restarts: float = 0.0
    slow: float = 0.0
    lost: float = 0.0
    slow_seconds: float = 1.0
    stuck: float = 0.0
    paused: float = 0.0
    seed: int = 0

    @property
    def of_requests(self) -> dict[RequestFault, float]:
        return {fault: getattr(self, fault) for fault in get_args(RequestFault)}


def parse_faults(text: str, seed: int) -> Faults:
    """Parse ``too_many=5%,drops=0.05,slow_seconds=2``. Raise ServiceError for an unknown fault or
    a value that is not a rate."""
    known = {f.name for f in fields(Faults)} - {"seed"}
    given: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if name not in known:
            raise ServiceError(f"there is no fault `{name}`: there are {', '.join(sorted(known))}")
        if number < 0 or (name != "slow_seconds" and number > 1):
            raise ServiceError(f"`{part}` is no rate: give for instance {name}=5%")
        given[name] = number
    faults = Faults(**given, seed=seed)
    if sum(faults.of_requests.values()) > 1:
        raise ServiceError(f"the rates of {', '.join(faults.of_requests)} exceed 100 % together")
    return faults


@define(eq=False)
class FaultyApp:
    """An ASGI application with faults before and after it."""

    app: ASGIApp
    faults: Faults
    restart: Callable[[], None]  # forgets everything in memory
    _dice: Dice = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._dice = Dice(self.faults.seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._draw(scope["path"]) if scope["type"] == "http" else None
        if fault == "restarts":
            self.restart()
        app: ASGIApp = self.app
        if fault == "too_many":
            app = JSONResponse({"detail": "Too many requests."}, 429, _RETRY_SOON)
        elif fault == "errors":
            app = JSONResponse({"detail": "An injected fault."}, 500, _RETRY_SOON)
        elif fault == "drops":
            app = self._drop
        await app(scope, receive, send)

    def _draw(self, path: str) -> RequestFault | None:
        if path.removeprefix("/api/v1/").startswith(_SPARED):
            return None
        left = self._dice.throw("request")
        for fault, rate in self.faults.of_requests.items():
            if left < rate:
                return fault
            left -= rate
        return None

    async def _drop(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Close the connection in the middle of an answer, which the ASGI server does when an
        application stops after the headers."""
        if self._dice.throw("after") < 0.5:

            async def discard(message: Message) -> None:
                """The client does not see the answer."""

            await self.app(scope, receive, discard)
        headers = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
