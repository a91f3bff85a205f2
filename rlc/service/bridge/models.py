"""The models of a SkyRL server: their requests in order, and the promises of answers.

SkyRL's engine for JAX averages (``sums``), by a number of datums that is known when the step comes.
So a pass with a gradient is held until then: where the step is asked for at once, both are sent
together; where the answer is awaited first, it is that of a pass without a gradient, which has the
same values, and the gradient is computed with the step.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import define, field, frozen
from starlette.responses import Response
from tinker import types
from tinker.types.try_again_response import TryAgainResponse

from rlc.catalog import LIKELIHOOD
from rlc.service.bridge.skyrl import SkyRL, UnknownError
from rlc.service.bridge.sums import ModelPass, complete, summed, with_sum
from rlc.service.http import JSON, RefusedRequest
from rlc.service.interface import ServiceError, ServiceLostError

_POLL_SECONDS = 25.0  # the SDK gives a poll 45
_KEEP_FETCHED = 60.0  # the connection may break while an answer goes out
_KEEP_UNFETCHED = 900.0  # the SDK asks again within seconds for what it still wants
_SWEEP_SECONDS = 15.0
_GRACE = 0.02  # seconds in which a step follows the passes of it, if they are not awaited
_SPOILED = (
    "a pass of this model's step failed, and the others cannot be taken back from the server",
    "go on from its last saved state, with a new client",
)
_KEPT_SNAPSHOTS = 2  # of a model: the one in use, and the one before it
_RENAMED = {"skyrl.ai/grad_norm": "grad_norm", "total_loss:sum": "loss:sum"}
_log = logging.getLogger(__name__)

# Statuses of errors that the SDK raises at once. 424, a failed dependency: SkyRL itself is lost.
STATUSES = {UnknownError: 404, ServiceLostError: 424}

Reply = tuple[bytes, str]  # a content and its type
Write = Callable[[Any], Reply]


@define(eq=False)
class _Promise:
    """An answer to come, and when (on the loop's clock) it is dropped."""

    task: asyncio.Task[Reply]
    until: float = math.inf

    def keep(self, seconds: float) -> None:
        """Drop it after so many seconds, if not before."""
        self.until = min(self.until, asyncio.get_running_loop().time() + seconds)


@define(eq=False)
class Promises:
    """Answers that are asked for later. They are kept for a while, fetched or not."""

    _open: dict[str, _Promise] = field(factory=dict)
    _made: int = 0
    _swept: float = 0.0

    def make(self, work: Coroutine[Any, Any, Reply], name: str | None = None) -> str:
        self._sweep()
        self._made += 1
        name = name or f"promise-{self._made}"
        promise = self._open[name] = _Promise(asyncio.create_task(work))
        promise.task.add_done_callback(lambda _: promise.keep(_KEEP_UNFETCHED))
        return name

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._swept + _SWEEP_SECONDS:
            self._swept = now
            for name in [name for name, one in self._open.items() if one.until <= now]:
                del self._open[name]

    def __contains__(self, name: str) -> bool:
        return name in self._open

    async def answer(self, name: str) -> Response:
        """Return an answer, HTTP 408 if it is not there yet, and 410 if nobody knows of it.
        Raise the error of one that has a status of its own (`STATUSES`)."""
        if (promise := self._open.get(name)) is None:
            raise RefusedRequest(410, f"There is no promise {name}: it was answered long ago.")
        await asyncio.wait([promise.task], timeout=_POLL_SECONDS)
        if not promise.task.done():
            waiting = TryAgainResponse(request_id=name, queue_state="active")
            return Response(waiting.model_dump_json(), 408, media_type=JSON)
        promise.keep(_KEEP_FETCHED)
        try:
            content, kind = promise.task.result()
        except tuple(STATUSES):
            raise
        except Exception as error:
            content, kind = _failure(error), JSON
        return Response(content, media_type=kind)

    def close(self) -> None:
        for promise in self._open.values():
            promise.task.cancel()


def _failure(error: Exception) -> bytes:
    """Return an error as the SDK raises it at once."""
    mine = not isinstance(error, ServiceError | RefusedRequest)
    if mine:
        _log.error("a request failed", exc_info=error)
    text = f"{type(error).__name__}: {error}" if mine else sentence(error)
    category = types.RequestErrorCategory.Server if mine else types.RequestErrorCategory.User
    return types.RequestFailedResponse(error=text, category=category).model_dump_json().encode()


def sentence(error: Any) -> str:
    """Return an error and its hint."""
    return f"{error.message} ({error.hint})" if error.hint else str(error.message)


@frozen(eq=False)
class OrderedRequest:
    """A request in the order of its model. ``send`` sends it, and returns its answer to come;
    ``passed`` are the datums of one whose gradient counts, ``steps`` marks the step itself."""

    send: Callable[[], Awaitable[Awaitable[Any]]]
    passed: ModelPass | None = None
    steps: bool = False
    answer: asyncio.Future[Any] = field(
        factory=lambda: asyncio.get_running_loop().create_future(), init=False
    )

    def follow(self, coming: Awaitable[Any]) -> None:
        """Answer with what is to come."""

        async def wait() -> None:
            try:
                result = await coming
            except Exception as error:
                self.fail(error)
            else:
                if not self.answer.done():
                    self.answer.set_result(result)

        _keep(asyncio.ensure_future(wait()))

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


_RUNNING: set[asyncio.Future[Any]] = set()  # the event loop itself keeps none


def _keep(task: asyncio.Future[Any]) -> asyncio.Future[Any]:
    _RUNNING.add(task)
    task.add_done_callback(_RUNNING.discard)
    return task


@define(eq=False)
class BridgedModel:
    """A model of the SDK, SkyRL's id of it, and the passes that wait for their step."""

    name: str
    theirs: str
    session: str
    turns: asyncio.Queue[OrderedRequest] = field(factory=asyncio.Queue, init=False)
    held: list[ModelPass] = field(factory=list, init=False)
    snapshots: list[str] = field(factory=list, init=False)  # names, the newest last
    worker: asyncio.Future[Any] | None = field(default=None, init=False)
    spoiled: bool = field(default=False, init=False)  # a part of a gradient cannot be taken back
    _sent: int = field(default=0, init=False)

    def number(self) -> int:
        """Return the next of SkyRL's own numbers of requests."""
        self._sent += 1
        return self._sent


@define(eq=False)
class Bridge:
    """The state of the requests to one server. ``averages``: its engine does so; None until it has
    answered a pass."""

    skyrl: SkyRL
    promises: Promises = field(factory=Promises, init=False)
    models: dict[str, BridgedModel] = field(factory=dict, init=False)
    averages: bool | None = field(default=None, init=False)
    _looking: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _known: bool = field(default=False, init=False)

    async def close(self) -> None:
        """End what is under way, and the connections to the server."""
        self.promises.close()
        for model in self.models.values():
            if model.worker is not None:
                model.worker.cancel()
        self.skyrl.connections.close()

    async def ready(self) -> None:
        """Look at the server, unless it is known. Raise ServiceError if it is not SkyRL's."""
        if not self._known:
            async with self._looking:
                if not self._known:
                    await self.skyrl.look()
                    self._known = True

    def model(self, name: str) -> BridgedModel:
        if name not in self.models:
            raise RefusedRequest(404, f"This bridge knows no model {name}: it was started anew.")
        return self.models[name]

    def add(self, name: str, theirs: str, session: str) -> None:
        model = BridgedModel(name, theirs, session)
        model.worker = _keep(asyncio.ensure_future(self._work(model)))
        self.models[name] = self.models[theirs] = model

    async def forget(self, session: str) -> None:
        """Free the models of a session, of which the server has few."""
        for name in [name for name, one in self.models.items() if one.session == session]:
            model = self.models.pop(name)
            if name != model.theirs:
                continue
            if model.worker is not None:
                model.worker.cancel()
            await self.unload(model.theirs)

    async def unload(self, theirs: str) -> None:
        with suppress(ServiceError):  # it is freed after 300 s in any case
            await self.skyrl.ask("POST", "/unload_model", {"model_id": theirs})

    async def replace(self, model: BridgedModel, theirs: str) -> None:
        """Put another model of the server behind a model, in place of the one that was."""
        old, model.theirs = model.theirs, theirs
        self.models[theirs] = model
        model.held, model.spoiled = [], False
        await self.unload(old)

    def in_turn(
        self, model: BridgedModel, number: int | None, turn: OrderedRequest, reply: Write
    ) -> str:
        """Promise the answer to a request in the order of its model. A number that is repeated is
        a repeated request."""
        name = None if number is None else f"{model.name}/{number}"
        if name is not None and name in self.promises:
            return name
        model.turns.put_nowait(turn)
        return self.promises.make(_written(turn.answer, reply), name)

    async def _work(self, model: BridgedModel) -> None:
        """Send a model's requests, each when those before it have been sent."""
        following: OrderedRequest | None = None
        while True:
            turn = following or await model.turns.get()
            try:
                following = await self._take(model, turn)
            except Exception as error:
                turn.fail(error)
                following = None

    async def _take(self, model: BridgedModel, turn: OrderedRequest) -> OrderedRequest | None:
        """Send a request, or hold it; return one after it that was taken out of the queue."""
        if model.spoiled and (turn.steps or turn.passed is not None):
            raise ServiceError(*_SPOILED)
        if turn.passed is not None and await self._is_averaged(model):
            return await self._hold(model, turn)
        if turn.steps and model.held:
            await self._send_held(model, [], turn)
        else:
            await _send(turn)
        return None

    async def _is_averaged(self, model: BridgedModel) -> bool:
        """Return whether the engine averages: that for JAX, which tells the loss of each target."""
        if self.averages is None:
            datum = types.Datum(
                types.ModelInput.from_ints([1, 2]),
                {"target_tokens": types.TensorData(data=[2, 3], dtype="int64", shape=[2])},
            )
            tried = ModelPass(LIKELIHOOD.name, None, [datum])
            made = await self.skyrl.pass_data(model.theirs, model.number(), tried, False)
            output = await self.skyrl.passed(made)
            self.averages = "elementwise_loss" in output.loss_fn_outputs[0]
        return self.averages

    async def _hold(self, model: BridgedModel, first: OrderedRequest) -> OrderedRequest | None:
        """Hold passes until their step; return the request after them, if it is there."""
        waiting, following = [first], None
        while following is None or following.passed is not None:
            waiting += [] if following is None else [following]
            following = await _soon(model.turns)
            if following is None:
                break
        for turn in waiting:
            assert turn.passed is not None
            model.held.append(turn.passed)
        if following is not None and following.steps:
            await self._send_held(model, waiting, following)
            return None
        for turn in waiting:
            assert turn.passed is not None
            turn.answer.add_done_callback(partial(_let_go, model, turn.passed))
            forward = partial(self.forward, model, turn.passed)
            await _send(OrderedRequest(forward), turn)
        return following

    async def _send_held(
        self, model: BridgedModel, waiting: list[OrderedRequest], step: OrderedRequest
    ) -> None:
        """Send the passes of a step, of which those ``waiting`` have no answer yet, and the step
        when they are done. If one of them fails, the step does, too: half a gradient is none."""
        held, model.held = model.held, []
        datums = sum(len(one.data) for one in held)
        answered = len(held) - len(waiting)
        coming = list[asyncio.Future[Any]]()
        try:
            for given, wanted in [(one, summed(one, datums)) for one in held]:
                made = await self.skyrl.pass_data(model.theirs, model.number(), wanted, True)
                later = self._averaged(made, given, datums)
                coming.append(_keep(asyncio.ensure_future(later)))
            for turn, one in zip(waiting, coming[answered:], strict=True):
                turn.follow(one)
            await asyncio.gather(*coming)
        except Exception as error:
            model.spoiled = bool(coming) or isinstance(error, ServiceLostError)
            for turn in [*waiting, step]:
                turn.fail(error)
            for one in coming:
                one.cancel()
            return
        await _send(step)

    async def _averaged(
        self, promise: str, given: ModelPass, datums: int
    ) -> types.ForwardBackwardOutput:
        return with_sum(await self.skyrl.passed(promise), given, datums)

    async def forward(self, model: BridgedModel, given: ModelPass) -> Awaitable[Any]:
        """Ask for a pass without a gradient."""
        averaged = await self._is_averaged(model)
        wanted = summed(given, 1) if averaged else complete(given)
        made = await self.skyrl.pass_data(model.theirs, model.number(), wanted, False)
        return self._averaged(made, given, 1) if averaged else self._plain(made)

    async def backward(self, model: BridgedModel, given: ModelPass) -> Awaitable[Any]:
        return self._plain(
            await self.skyrl.pass_data(model.theirs, model.number(), complete(given), backward=True)
        )

    async def _plain(self, promise: str) -> types.ForwardBackwardOutput:
        output = await self.skyrl.passed(promise)
        return types.ForwardBackwardOutput(
            loss_fn_output_type=output.loss_fn_output_type,
            loss_fn_outputs=output.loss_fn_outputs,
            metrics=renamed(output.metrics),
        )

    async def superseded(self, model: BridgedModel, name: str) -> None:
        """Delete the snapshots that are older than the one in use, if the server does that."""
        model.snapshots.append(name)
        while len(model.snapshots) > _KEPT_SNAPSHOTS:
            old = model.snapshots.pop(0)
            if self.skyrl.deletes:
                path = f"/training_runs/{model.theirs}/checkpoints/sampler_weights/{old}"
                with suppress(ServiceError):
                    await self.skyrl.ask("DELETE", path)


def _let_go(model: BridgedModel, passed: ModelPass, answer: asyncio.Future[Any]) -> None:
    """Leave a pass out of its step if it was refused."""
    if not answer.cancelled() and answer.exception() is not None and passed in model.held:
        model.held.remove(passed)


async def _soon(turns: asyncio.Queue[OrderedRequest]) -> OrderedRequest | None:
    """Return the next request, if it comes within the time of one that was not waited for."""
    try:
        async with asyncio.timeout(_GRACE):
            return await turns.get()
    except TimeoutError:
        return None


async def _send(turn: OrderedRequest, answering: OrderedRequest | None = None) -> None:
    """Send a request; its answer is that of ``answering``, by default its own."""
    answering = answering or turn
    try:
        answering.follow(await turn.send())
    except Exception as error:
        answering.fail(error)


async def _written(answer: Awaitable[Any], write: Write) -> Reply:
    return write(await answer)


def renamed(metrics: Mapping[str, float] | None) -> dict[str, float]:
    """Return metrics with those that the SDK's programs know under their names there, too."""
    known = dict(metrics or {})
    return known | {ours: known[theirs] for theirs, ours in _RENAMED.items() if theirs in known}
