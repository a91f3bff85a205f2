"""The Tinker service through its SDK: one session, opened when the first client is made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, TypeVar

import httpx
import tinker
from attrs import define, field
from tinker import types
from tinker.lib.base_url import resolve_base_url

from rlc.plan import elapsed
from rlc.service.hosted.clients import (
    HostedLoss,
    HostedSamplingClient,
    HostedTrainingClient,
    Patience,
    PendingReply,
    in_thread,
    own_tokenizer,
    submit,
)
from rlc.service.hosted.endpoint import Endpoint, find_endpoint
from rlc.service.hosted.refusals import causes, reported_to, translate
from rlc.service.hosted.sdk import capabilities, open_rest, start_thread
from rlc.service.interface import (
    CheckpointError,
    Listener,
    ServiceError,
    ServiceLostError,
    SessionEnd,
    UndeletableError,
)
from rlc.service.tracing import trace

_CLOSING_SECONDS = 5.0  # after Ctrl-C was pressed twice, the user waits for it
_PING_SECONDS = 5.0

_log = logging.getLogger(__name__)

C = TypeVar("C", tinker.TrainingClient, tinker.SamplingClient)
_T = TypeVar("_T")


@define(eq=False)
class HostedService:
    """See `rlc.service.interface.RemoteService`. ``metadata`` goes with the session, its models and
    their checkpoints, so that a bill can be traced back to a run."""

    endpoint: Endpoint
    metadata: Mapping[str, str] = field(factory=dict)
    patience: Patience = field(init=False)
    _sdk: tinker.ServiceClient = field(init=False, repr=False)
    _listener: Listener | None = field(default=None, init=False)
    _listening: ExitStack = field(factory=ExitStack, init=False)
    _session: str | None = field(default=None, init=False)
    _separate: bool = field(default=False, init=False)
    _losses: dict[str, HostedLoss] = field(factory=dict, init=False)
    _tokenizers: dict[str, Any] = field(factory=dict, init=False)  # by base model
    _tracing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._sdk = self._opened()
        self.patience = Patience(self.endpoint.name)

    def _opened(self) -> tinker.ServiceClient:
        return tinker.ServiceClient(
            user_metadata=dict(self.metadata),
            project_id=self.endpoint.project,
            display_name=self.metadata.get("rlc_run"),
            base_url=self.endpoint.client_url,
            api_key=self.endpoint.api_key,
        )

    @property
    def server(self) -> str:
        return self.endpoint.base_url or resolve_base_url()

    async def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> HostedTrainingClient:
        adapter = self._theirs(base_model), rank, seed, train_mlp, train_attn, train_unembed
        create = partial(self._sdk.create_lora_training_client, *adapter)
        return await self._training(create, user_metadata)

    async def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> HostedTrainingClient:
        create = partial(self._sdk.create_training_client_from_state_with_optimizer, path)
        return await self._training(create, user_metadata, path)

    async def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> HostedTrainingClient:
        create = partial(self._sdk.create_training_client_from_state, path)
        return await self._training(create, user_metadata, path)

    async def create_training_client_from_adapter(
        self, folder: str, base_model: str, user_metadata: dict[str, str] | None = None
    ) -> HostedTrainingClient:
        raise ServiceError(f"{self.endpoint.name} takes no adapter of PEFT, as in {folder}")

    async def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        *,
        record_stability_info: bool = False,
    ) -> HostedSamplingClient:
        if (model_path is None) == (base_model is None):
            raise ServiceError("give either model_path or base_model to sample from")
        theirs = None if base_model is None else self._theirs(base_model)
        client = await self._create(
            lambda: self._sdk.create_sampling_client(
                model_path=model_path,
                base_model=theirs,
                record_stability_info=record_stability_info,
            )
        )
        shared = self.patience, lambda: self._separate
        return HostedSamplingClient(client, *shared, self._tokenizers.get)

    async def create_custom_loss(
        self, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> HostedLoss:
        """Trace a loss, and send it to a server that computes custom losses; each loss once."""
        async with self._tracing:
            key = (await in_thread(lambda: trace(fn, input_ranks))).key
            if key not in self._losses:
                ask = partial(self._sdk.create_custom_loss, fn, input_ranks)
                reply = await in_thread(lambda: submit(ask, self.patience))
                self._losses[key] = HostedLoss(await reply)
            return self._losses[key]

    async def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        answer = await self._rest(capabilities)
        models = _ours(answer.supported_models, self.endpoint)
        return types.GetServerCapabilitiesResponse(supported_models=models)

    def _theirs(self, base: str) -> str:
        """Return the provider's name of a model."""
        offered = self.endpoint.provider.offered(base)
        return base if offered is None else offered.name

    async def delete_checkpoint(self, path: str) -> None:
        try:
            await self._rest(lambda rest: rest.delete_checkpoint_from_tinker_path(path))
        except ServiceError as error:
            # A path that is not Tinker's is a ValueError of the SDK, which names nothing by it.
            is_foreign = isinstance(error.__cause__, ValueError)
            if not is_foreign and status_of(error) not in (404, 405):
                raise
            if is_foreign or await self._is_there(path):
                where = self.endpoint.name
                message = f"{where} does not delete checkpoints such as {path}"
                raise UndeletableError(message) from error

    async def _is_there(self, path: str) -> bool:
        try:
            await self._rest(lambda rest: rest.get_weights_info_by_tinker_path(path))
        except ServiceError as error:
            if not 400 <= (status_of(error) or 0) < 500:
                raise
            return False
        return True

    async def ping(self) -> None:
        await self._health()

    async def is_rlc(self) -> bool:
        return str((await self._health()).headers.get("server")).startswith("rlc/")

    async def _health(self) -> httpx.Response:
        return await health(self.server, self.endpoint.name)

    def separate_samples(self) -> None:
        self._separate = True

    def listen(self, listener: Listener) -> None:
        """Call ``listener``, in the running loop's thread, on pauses, sessions and models."""
        loop = asyncio.get_running_loop()

        def report(text: str, is_pause: bool) -> None:
            self.patience.last_word = text
            if not loop.is_closed():
                loop.call_soon_threadsafe(listener.note, text)
                if is_pause:
                    loop.call_soon_threadsafe(listener.pressed)

        self._listener = listener
        self.patience.pressed = listener.pressed
        self._listening.enter_context(reported_to(report))

    async def close(self, end: SessionEnd) -> None:
        closing = self._sdk.close(end)
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                await self.ping()  # the SDK would try to reach a lost server all that time
                await closing
        except Exception as error:
            closing.future().cancel()  # ends the heartbeats of the session all the same
            _log.info("the session was not closed: %s", translate(error, self.endpoint.name))
        finally:
            self._listening.close()

    async def _training(
        self,
        create: Callable[..., tinker.APIFuture[tinker.TrainingClient]],
        user_metadata: Mapping[str, str] | None,
        path: str | None = None,
    ) -> HostedTrainingClient:
        """Create a client with its tokenizer, and report it to the listener. Raise CheckpointError
        if the server does not have the checkpoint ``path``."""
        metadata = {**self.metadata, **(user_metadata or {})}
        try:
            client = await self._create(lambda: create(user_metadata=metadata))
        except ServiceError as error:
            if path is not None and _is_unknown(error):
                raise CheckpointError(f"{error}.", error.hint) from error
            raise
        info = client.get_info()
        base = str(info.model_data.model_name)
        ids = {"model_id": client.model_id, "base": base, "session_id": str(self._session)}
        source = {} if path is None else {"from": path}
        self._record({"event": "model", **ids, "metadata": metadata, **source})
        name = str(info.model_data.tokenizer_id or base)
        tokenizer = await in_thread(lambda: own_tokenizer(client, name))
        self._tokenizers[base] = tokenizer
        shared = self.patience, lambda: self._separate
        return HostedTrainingClient(client, tokenizer, metadata, *shared)

    async def _create(self, ask: Callable[[], tinker.APIFuture[C]]) -> C:
        """Create a client; the first one opens the session, which blocks a thread."""
        reply: PendingReply[C] = await in_thread(lambda: submit(ask, self.patience))
        client = await reply
        holder = client.holder
        # The SDK retries a refused sample by itself, and shows that nowhere else.
        self.patience.pause = lambda: getattr(holder, "_sample_backoff_until", None)
        session = holder.get_session_id()
        if session != self._session:
            self._session = session
            event = {"event": "session", "session_id": session, "server": self.server}
            self._record({**event, "metadata": dict(self.metadata)})
        return client

    async def _rest(self, ask: Callable[[tinker.RestClient], tinker.APIFuture[Any]]) -> Any:
        reply: PendingReply[Any] = await in_thread(
            lambda: submit(lambda: ask(open_rest(self.endpoint)), self.patience)
        )
        return await reply

    def _record(self, event: dict[str, Any]) -> None:
        if self._listener is not None:
            self._listener.record(event)


async def health(server: str, name: str) -> httpx.Response:
    """Return the answer of a server that is asked whether it is up. Raise ServiceLostError if it
    cannot be reached; ``name`` is what messages call it."""
    try:
        async with httpx.AsyncClient(timeout=_PING_SECONDS) as client:
            return await client.get(f"{server.rstrip('/')}/api/v1/healthz")
    except httpx.HTTPError as error:
        message = f"cannot reach {name}: {str(error) or 'it does not answer'}"
        hint = "is it up, and its address right? the run can be resumed later"
        raise ServiceLostError(message, hint) from error


def _is_unknown(error: ServiceError) -> bool:
    return status_of(error) == 404


def status_of(error: ServiceError) -> int | None:
    """Return the HTTP status that an error is from; None if it is from none."""
    statuses = (getattr(cause, "status_code", None) for cause in causes(error))
    return next((status for status in statuses if status is not None), None)


def _ours(models: Sequence[types.SupportedModel], endpoint: Endpoint) -> list[types.SupportedModel]:
    """Return models under the names that rlc has for them."""
    there = endpoint.provider
    named = {one.name: base for base in there.model_names if (one := there.offered(base))}
    ours = [(model, named.get(model.model_name or "", model.model_name)) for model in models]
    return [model.model_copy(update={"model_name": name}) for model, name in ours]


_REACH_SECONDS = 10.0
_ANSWER_SECONDS = 60.0


def require_reachable(endpoint: Endpoint) -> None:
    """Raise ServiceLostError if nothing listens at the address of a server; blocks."""
    url = f"{endpoint.base_url or resolve_base_url()}/api/v1/healthz"
    try:
        httpx.get(url, timeout=_REACH_SECONDS)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        message = f"cannot reach {endpoint.name}: {str(error) or 'no answer'}"
        hint = "is it up, and is the address right (--base-url, TINKER_BASE_URL)?"
        raise ServiceLostError(message, hint) from error
    except httpx.HTTPError:
        pass  # a broken answer is one, too: something listens there


def offered_models(endpoint: Endpoint) -> Sequence[types.SupportedModel]:
    """Return the models of a server; blocks, for a minute at most. The SDK retries failures for
    minutes, since they may pass. Before a run, a wrong address or key is the likelier reason, and
    is reported at once. Raise ServiceError if the server cannot be reached, does not accept the
    key, or has paused the account."""
    require_reachable(endpoint)

    def ask() -> Sequence[types.SupportedModel]:
        answer = capabilities(open_rest(endpoint), once=True).result()
        return _ours(answer.supported_models, endpoint)

    return answer_of(ask, endpoint, "listed its models", "try again later")


def find_base(path: str, base_url: str | None, service: str) -> tuple[str, str | None]:
    """Return the base model of a state, and the renderer that its run notes, if any; blocks. Raise
    ServiceError if the service does not know the state, or does not answer."""
    endpoint = find_endpoint(base_url, service=service)
    if endpoint.provider.module is not None:
        if (base := endpoint.provider.base_of(path)) is None:
            raise ServiceError(f"{path} does not say its base model")
        return base, None

    def ask() -> tuple[str, str | None]:
        rest = open_rest(endpoint)
        base = rest.get_weights_info_by_tinker_path(path).result().base_model
        run = rest.get_training_run_by_tinker_path(path).result()
        # Where the cookbook and rlc note it in the metadata of a run.
        return base, (run.user_metadata or {}).get("renderer_name")

    return answer_of(ask, endpoint, "answered")


def state_info(path: str, endpoint: Endpoint) -> types.WeightsInfoResponse:
    """Return what a server says of a state; blocks. Raise ServiceError if it does not know it, or
    does not answer."""
    return answer_of(
        lambda: open_rest(endpoint).get_weights_info_by_tinker_path(path).result(),
        endpoint,
        "answered",
    )


def answer_of(ask: Callable[[], _T], endpoint: Endpoint, what: str, hint: str | None = None) -> _T:
    """Return the answer of a server. Raise ServiceLostError if it takes longer than a minute."""
    try:
        return start_thread(ask).result(_ANSWER_SECONDS)
    except OutOfTime as error:
        message = f"{endpoint.name} has not {what} within {elapsed(_ANSWER_SECONDS)}"
        raise ServiceLostError(message, hint) from error
    except Exception as error:
        raise translate(error, endpoint.name) from error
