"""SkyRL's Tinker server as it is: what its version takes, its promises, its failures."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
from attrs import Factory, define, field
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import (
    deserialize_forward_backward_output,
    deserialize_sample_response,
)

from rlc.service.bridge.connections import Answer, BrokenError, Connections, UnreachedError
from rlc.service.bridge.sums import ModelPass
from rlc.service.http import JSON
from rlc.service.interface import ServiceError, ServiceLostError
from rlc.service.server.wire import PROTOBUF

API = "/api/v1"
_PAUSE = 0.5  # seconds between two attempts
_ATTEMPTS = 5  # at a request that fails in the server
_POLL_SECONDS = 330.0  # it holds a poll for 300
_ANSWER_SECONDS = 120.0
_NO_ROUTE = "Not Found"  # what FastAPI says of a path
_FORGOTTEN = (
    "it was started anew without its database, or the session was silent for 300 s",
    "the run can be resumed from its last checkpoint, if that is still there",
)


class UnknownError(ServiceError):
    """Something saved that the server does not have, or no longer."""


@define(eq=False)
class SkyRL:
    """A server at ``url``. ``in_protobuf``: it takes and gives passes and samples as the SDK does,
    as of 0.4; ``deletes``: it deletes checkpoints, as of 0.4, too."""

    url: str
    in_protobuf: bool = field(init=False)
    deletes: bool = field(init=False)
    connections: Connections = field(
        default=Factory(lambda self: Connections(self.url), takes_self=True), init=False
    )

    async def look(self) -> None:
        """Find out what this version takes. Raise ServiceError if the server is not SkyRL's."""
        try:
            paths = (await self.ask("GET", "/openapi.json", root="")).json()["paths"]
            passes, checkpoints = f"{API}/forward_backward", f"{API}/training_runs/{{unique_id}}"
            self.in_protobuf = "requestBody" not in paths[passes]["post"]
            self.deletes = any("delete" in paths[p] for p in paths if p.startswith(checkpoints))
        except ServiceLostError:
            raise
        except (ServiceError, ValueError, KeyError, TypeError) as error:
            hint = "for another server of Tinker's API leave `--service skyrl` out"
            raise ServiceError(f"there is no server of SkyRL at {self.url}", hint) from error

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        root: str = API,
        content: bytes | None = None,
        seconds: float = _ANSWER_SECONDS,
        repeatable: bool = True,
    ) -> Answer:
        """Return an answer with a status below 400. Wait for a server that cannot be reached, as
        the SDK does; the program decides for how long. Raise ServiceError if it refuses the
        request, and ServiceLostError if it fails at it again and again, or may have done what is
        not ``repeatable``."""
        kind = PROTOBUF if content else JSON
        if content is None:
            content = b"" if body is None else orjson.dumps(body)
        failures = 0
        while True:
            try:
                answer = await self.connections.ask(method, root + path, content, kind, seconds)
            except UnreachedError:
                pass
            except BrokenError as error:
                if not repeatable:
                    raise ServiceLostError(
                        f"the connection to SkyRL broke at `{path[1:]}`, which it may have done",
                        "the run can be resumed from its last checkpoint",
                    ) from error
            else:
                if answer.status < 500:
                    return _accepted(answer, method, path)
                failures += 1
                if failures == _ATTEMPTS:
                    why = f"SkyRL failed {failures} times at `{path[1:]}`: {_detail(answer)}"
                    raise ServiceLostError(why, "its own log may say more")
            await asyncio.sleep(_PAUSE)

    async def promised(self, path: str, body: Any = None, **given: Any) -> str:
        """Make a request that is answered later, and return the id of its promise."""
        return str((await self.ask("POST", path, body, **given)).json()["request_id"])

    async def pass_data(self, model: str, seq_id: int, given: ModelPass, backward: bool) -> str:
        """Ask for a pass, and return the id of its promise."""
        if self.in_protobuf:
            content = _in_protobuf(model, seq_id, given, backward)
            return await self.promised("/forward_backward", content=content)
        loss = {"loss_fn": given.loss, "loss_fn_config": given.config or None}
        name = "forward_backward" if backward else "forward"
        data = [_in_json(datum) for datum in given.data]
        body = {"model_id": model, "seq_id": seq_id, f"{name}_input": {"data": data, **loss}}
        return await self.promised(f"/{name}", body, repeatable=False)

    async def passed(self, promise: str) -> types.ForwardBackwardOutput:
        answer = await self._result(promise)
        if isinstance(answer, bytes):
            return deserialize_forward_backward_output(answer)
        outputs = [{k: _tensor(v) for k, v in one.items()} for one in answer["loss_fn_outputs"]]
        return types.ForwardBackwardOutput(
            loss_fn_output_type=answer["loss_fn_output_type"],
            loss_fn_outputs=outputs,
            metrics={k: math.nan if v is None else v for k, v in answer["metrics"].items()},
        )

    async def sampled(
        self, promise: str, prompt_length: int | None, last_n: int | None
    ) -> bytes | types.SampleResponse:
        """Return samples: as they are, where they need no change. Those with the logprobs of a
        prompt have its length; ``last_n`` are kept, and None keeps all."""
        answer = await self._result(promise)
        if isinstance(answer, bytes):
            if prompt_length is None:
                return answer
            response = deserialize_sample_response(answer)
            if response.prompt_logprobs_np is None:
                return answer
            logprobs = response.prompt_logprobs_np
        else:
            sequences = [
                types.SampledSequence(
                    stop_reason=one["stop_reason"],
                    sequence_id="",  # the promise has said it
                    tokens_np=np.asarray(one["tokens"], dtype=np.int32),
                    logprobs_np=np.asarray(one["logprobs"], dtype=np.float32),
                )
                for one in answer["sequences"]
            ]
            response = types.SampleResponse(sequences=sequences)
            if prompt_length is None or (known := answer.get("prompt_logprobs")) is None:
                return response
            logprobs = np.array([math.nan if x is None else x for x in known], dtype=np.float32)
        if len(logprobs) == prompt_length - 1:  # without the first token, which has none
            logprobs = np.concatenate([np.full(1, np.nan, dtype=np.float32), logprobs])
        if last_n is not None:
            logprobs = np.where(np.arange(prompt_length) < prompt_length - last_n, np.nan, logprobs)
        return replace(response, prompt_logprobs_np=logprobs.astype(np.float32))

    async def result(self, promise: str) -> Mapping[str, Any]:
        """Return the answer to a request that is neither a pass nor samples."""
        answer: Mapping[str, Any] = await self._result(promise)
        return answer

    async def _result(self, promise: str) -> Any:
        asked = {"request_id": promise}
        while True:
            answer = await self.ask("POST", "/retrieve_future", asked, seconds=_POLL_SECONDS)
            if answer.status != 408:
                return answer.content if answer.kind == PROTOBUF else answer.json()


def _accepted(answer: Answer, method: str, path: str) -> Answer:
    """Return an answer. Raise ServiceError for a refusal, and UnknownError if that is of something
    saved: 408 is none, and asks for patience."""
    if answer.status < 400 or answer.status == 408:
        return answer
    said, asked = _detail(answer), path[1:]
    is_missing = answer.status == 404 and said != _NO_ROUTE
    if is_missing and (method != "POST" or path == "/weights_info"):
        raise UnknownError(f"SkyRL does not know what `{asked}` is about: {said}")
    if is_missing or "not loaded" in said:  # of a future, at its poll
        why, hint = _FORGOTTEN
        what = f"SkyRL no longer knows what `{asked}` is about ({said}): {why}"
        raise ServiceLostError(what, hint)
    raise ServiceError(f"SkyRL refuses `{asked}`: {said}")


def _detail(answer: Answer) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status}"
    if isinstance(detail, list):  # of FastAPI, about fields of a body
        said = [f"{'.'.join(map(str, d.get('loc', ())))}: {d.get('msg')}" for d in detail[:3]]
        return "; ".join(said)
    return str(detail)


def _in_protobuf(model: str, seq_id: int, given: ModelPass, backward: bool) -> bytes:
    loss: Any = given.loss
    passed = types.ForwardBackwardInput(
        data=list(given.data), loss_fn=loss, loss_fn_config=given.config
    )
    request = types.ForwardBackwardRequest(
        forward_backward_input=passed, model_id=model, seq_id=seq_id
    )
    message = forward_backward_request_to_proto(request)
    message.forward_only = not backward
    return bytes(message.SerializeToString())


def _in_json(datum: types.Datum) -> dict[str, Any]:
    tokens = [int(token) for token in datum.model_input.to_ints()]
    inputs = {k: {"data": v.to_numpy().tolist()} for k, v in datum.loss_fn_inputs.items()}
    chunk = {"type": "encoded_text", "tokens": tokens}
    return {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": inputs}


def _tensor(said: Mapping[str, Any]) -> types.TensorData:
    values: Sequence[float] = said["data"]
    return types.TensorData(np.asarray(values), said["dtype"], said["shape"])
