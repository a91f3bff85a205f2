"""Simulated delays and failures of a hosted service, the same for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
from attrs import define, field, fields, frozen
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlc.service.engine.decoder import stream_key, uniforms
from rlc.service.interface import ServiceError

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


@frozen
class ConstantDelay:
    seconds: float = 0.0

    def at(self, quantile: float) -> float:  # noqa: ARG002
        return self.seconds


@frozen
class LogNormal:
    """exp(N(ln median, sigma²)): roughly the time of a sampled completion."""

    median: float
    sigma: float

    def at(self, quantile: float) -> float:
        return self.median * math.exp(self.sigma * NormalDist().inv_cdf(max(quantile, 1e-12)))


@frozen
class Pareto:
    """scale · U^(−1/alpha): stragglers without bound; no mean for alpha ≤ 1."""

    scale: float
    alpha: float

    def at(self, quantile: float) -> float:
        return self.scale * math.pow(1.0 - quantile, -1.0 / self.alpha)


Delay = ConstantDelay | LogNormal | Pareto  # distributions, as their quantile functions


@frozen
class Latency:
    """Seconds added to each answer of a kind, after the work is done."""

    sample: Delay = ConstantDelay()
    train: Delay = ConstantDelay()


@define(eq=False)
class Dice:
    """Uniform numbers in [0, 1), a stream for each name, as a function of the seed."""

    seed: int
    _thrown: dict[str, int] = field(factory=dict, init=False)

    def throw(self, name: str) -> float:
        n = self._thrown.get(name, 0)
        self._thrown[name] = n + 1
        key = stream_key(self.seed, int.from_bytes(name.encode(), "little"))
        return float(uniforms(np.array([key], dtype=np.uint64), np.array([n], dtype=np.uint64))[0])


@define(eq=False)
class Disturbances:
    """The faults and delays of a server, sampled with the seed of its faults."""

    faults: Faults = field(factory=Faults)
    latency: Latency = field(factory=Latency)
    dice: Dice = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.dice = Dice(self.faults.seed)

    def strikes(self, fault: str) -> bool:
        rate: float = getattr(self.faults, fault)
        return rate > 0 and self.dice.throw(fault) < rate

    def delay(self, kind: str) -> float:
        """Return the delay of the next answer of a kind, ``sample`` or ``train``, in seconds."""
        delay: Delay = getattr(self.latency, kind)
        is_constant = isinstance(delay, ConstantDelay)
        return delay.at(0.0 if is_constant else self.dice.throw(kind))


@define(eq=False)
class FaultyApp:
    app: ASGIApp
    disturbances: Disturbances
    restart: Callable[[], None]  # forgets everything in memory

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
        left = self.disturbances.dice.throw("request")
        for fault, rate in self.disturbances.faults.of_requests.items():
            if left < rate:
                return fault
            left -= rate
        return None

    async def _drop(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stop after the headers, at which the ASGI server closes the connection."""
        if self.disturbances.dice.throw("after") < 0.5:

            async def discard(message: Message) -> None:
                """The client does not see the answer."""

            await self.app(scope, receive, discard)
        headers = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})


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


def parse_delay(text: str) -> Delay:
    """Parse ``0.5``, ``lognormal:0.5,1`` or ``pareto:0.2,1.5``. Raise ServiceError for others."""
    kind, _, rest = text.rpartition(":")
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        numbers = []
    if all(math.isfinite(n) and n >= 0 for n in numbers):
        match kind, numbers:
            case "", [seconds]:
                return ConstantDelay(seconds)
            case "lognormal", [median, sigma]:
                return LogNormal(median, sigma)
            case "pareto", [scale, alpha] if alpha > 0:
                return Pareto(scale, alpha)
    raise ServiceError(
        f"`{text}` is not a delay: give a number of seconds, lognormal:MEDIAN,SIGMA or "
        "pareto:SCALE,ALPHA"
    )
