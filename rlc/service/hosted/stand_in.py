"""A package that stands in for the SDK, such as Together's: its clients in the shape of the SDK's.

Such a package has the classes of the SDK and takes its data, and lacks what its service does not
have. Its methods may block; they run in threads here, those of a training client one after the
other. Its states may have bare names; here their paths are ``SCHEME://BASE/NAME``.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial, partialmethod
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

from attrs import define, field
from tinker import types

from rlc.catalog import TINY, Provider
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.refusals import translate
from rlc.service.hosted.sdk import start_thread
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceError, SessionEnd

_SUBMITTING = 64  # samples that are handed in at once
_CLOSING_SECONDS = 60.0  # to give back what is billed by the hour
_log = logging.getLogger(__name__)


def load(there: Provider) -> ModuleType:
    """Return the module that stands in for `tinker`. Raise ServiceError if it cannot be used."""
    assert there.module is not None
    _add_older_names()
    try:
        return importlib.import_module(there.module)
    except ImportError as error:
        hint = f"pip install {there.package}"
        raise ServiceError(f"the client of {there.title} cannot be used: {error}", hint) from error


def _add_older_names() -> None:
    """Give the SDK the names by which packages for its version 0.23 call it."""
    from tinker.types import topk_logprobs

    older = ModuleType("tinker.types.topk_prompt_logprobs")
    older.TopkPromptLogprobs = topk_logprobs.TopkLogprobs  # type: ignore[attr-defined]
    if sys.modules.setdefault(older.__name__, older) is not older:
        return
    sequence: Any = types.SampledSequence
    made = sequence.__init__

    def init(self: Any, stop_reason: Any, sequence_id: str = "", **more: Any) -> None:
        made(self, stop_reason, sequence_id, **more)

    sequence.__init__ = init


@define(eq=False)
class Later:
    """What a method returns, as the SDK's futures have it."""

    _work: Callable[[], Any]
    _pool: Executor | None = None
    _then: Callable[[Any], Any] = lambda answer: answer
    _begun: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        pool = self._pool
        self._begun = start_thread(self._work) if pool is None else pool.submit(self._work)

    async def result_async(self) -> Any:
        answer = await asyncio.wrap_future(self._begun)
        if hasattr(answer, "result_async"):
            answer = await answer.result_async()
        elif inspect.isawaitable(answer):
            answer = await answer
        return self._then(answer)


@define(eq=False)
class _Client:
    """A training or a sampling client of the package. ``base`` is the model as rlc calls it;
    requests are made in ``pool``, samples in ``samplers``. What rlc asks of it is in
    :data:`_ARGUMENTS`."""

    sdk: Any
    there: Provider
    base: str
    samplers: Executor
    pool: Executor = field(factory=lambda: ThreadPoolExecutor(1))
    model_id: str = field(factory=lambda: uuid4().hex)

    def __getattr__(self, method: str) -> Callable[..., Later]:
        if method not in _ARGUMENTS:
            raise AttributeError(method)
        names, then = _ARGUMENTS[method], _ANSWERS.get(method, lambda _, answer: answer)

        def ask(*given: Any, **more: Any) -> Later:
            arguments = dict(zip(names, given, strict=False)) | more
            call = partial(_called, self.sdk, method, self.there, arguments)
            return Later(call, self.pool, partial(then, self))

        return ask

    @property
    def holder(self) -> Any:
        return SimpleNamespace(get_session_id=lambda: self.model_id)

    def get_info(self) -> Any:
        data = SimpleNamespace(model_name=self.base, tokenizer_id=None)
        return SimpleNamespace(model_data=data)

    def get_base_model(self) -> str:
        return self.base

    def get_tokenizer(self) -> Any:
        if hasattr(self.sdk, "get_tokenizer"):
            return self.sdk.get_tokenizer()
        from transformers import AutoTokenizer

        from rlc.service.tiny import path

        return AutoTokenizer.from_pretrained(path() if self.base == TINY else self.base)

    def sampler(self, sdk: Any) -> _Client:
        return _Client(sdk, self.there, self.base, self.samplers, self.samplers)

    def named(self, answer: Any) -> Any:
        """Return the answer with a path that says service and model."""
        path = str(answer.path)
        own = "" if "://" in path else f"{self.there.scheme}{self.base}/"
        return SimpleNamespace(path=own + path)


_DATA = ("data", "loss_fn", "loss_fn_config")
_SAMPLED = ("include_prompt_logprobs", "topk_prompt_logprobs", "topk_sample_logprobs")
# The arguments of methods, by the SDK's names in its order.
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "forward": _DATA,
    "forward_backward": _DATA,
    "optim_step": ("adam_params",),
    "save_state": ("name", "ttl_seconds", "overwrite", "user_metadata"),
    "save_weights_for_sampler": ("name", "ttl_seconds", "user_metadata"),
    "save_weights_and_get_sampling_client": (),
    "sample": ("prompt", "num_samples", "sampling_params", *_SAMPLED),
    "compute_logprobs": ("prompt",),
}
_ANSWERS: Mapping[str, Callable[[_Client, Any], Any]] = {
    "save_state": _Client.named,
    "save_weights_for_sampler": _Client.named,
    "save_weights_and_get_sampling_client": _Client.sampler,
}
# Arguments whose absence would change what is computed, and not only how it is kept.
_NEEDED = {*_SAMPLED, "record_stability_info"}


def _called(sdk: Any, name: str, there: Provider, arguments: Mapping[str, Any]) -> Any:
    """Call a method with the arguments that it takes, and with those that the provider's file adds.
    Raise ServiceError if it lacks one that counts."""
    method = getattr(sdk, name, None)
    if method is None:
        raise ServiceError(f"the client of {there.title} has no `{name}`")
    takes = inspect.signature(method).parameters
    if lost := [key for key in _NEEDED & {*arguments} if arguments[key] and key not in takes]:
        raise ServiceError(f"the client of {there.title} takes no `{lost[0]}` in `{name}`")
    given = {key: value for key, value in arguments.items() if key in takes}
    for key, value in there.arguments.get(name, {}).items():
        if isinstance(value, str) and value.startswith("$"):
            value = os.environ.get(value[1:])
        given |= {} if value is None else {key: value}
    return method(**given)


@define(eq=False)
class _Service:
    """The package's ServiceClient in the shape of the SDK's."""

    endpoint: Endpoint
    metadata: Mapping[str, str]
    sdk: Any = field(init=False)
    opened: list[_Client] = field(factory=list, init=False)
    samplers: Executor = field(factory=lambda: ThreadPoolExecutor(_SUBMITTING), init=False)

    def __attrs_post_init__(self) -> None:
        where, made = self.endpoint, {"user_metadata": dict(self.metadata)}
        own = made | {"base_url": where.base_url, "api_key": where.api_key}
        self.sdk = _called(load(where.provider), "ServiceClient", where.provider, own)

    def create_lora_training_client(self, base: str, *adapter: Any, **more: Any) -> Later:
        names = ("rank", "seed", "train_mlp", "train_attn", "train_unembed")
        offered = self.endpoint.provider.offered(base)
        named = {"base_model": base if offered is None else offered.name}
        arguments = dict(zip(names, adapter, strict=True)) | named | more
        return self._create("create_lora_training_client", base, arguments)

    def create_sampling_client(
        self, model_path: str | None, base_model: str | None, **more: Any
    ) -> Later:
        there = self.endpoint.provider
        arguments = {"model_path": model_path, "base_model": base_model, **more}
        base = base_model or there.base_of(model_path or "") or ""
        call = partial(_called, self.sdk, "create_sampling_client", there, arguments)
        shared = base, self.samplers, self.samplers
        return Later(call, None, lambda sdk: _Client(sdk, there, *shared))

    def create_custom_loss(self, *_: Any) -> Later:
        raise ServiceError(f"the client of {self.endpoint.provider.title} takes no custom losses")

    def _restored(self, name: str, path: str, **more: Any) -> Later:
        base = self.endpoint.provider.base_of(path)
        state = path if base is None else path.rpartition("/")[2]
        return self._create(name, base or "", {"path": state, **more})

    create_training_client_from_state = partialmethod(
        _restored, "create_training_client_from_state"
    )
    create_training_client_from_state_with_optimizer = partialmethod(
        _restored, "create_training_client_from_state_with_optimizer"
    )

    def _create(self, name: str, base: str, arguments: Mapping[str, Any]) -> Later:
        there = self.endpoint.provider

        def opened(sdk: Any) -> _Client:
            known = base or sdk.get_info().model_data.model_name
            self.opened.append(_Client(sdk, there, known, self.samplers))
            return self.opened[-1]

        return Later(partial(_called, self.sdk, name, there, arguments), None, opened)


@define(eq=False)
class StandInService(HostedService):
    """A hosted service through a package that stands in for the SDK. What it has is known from its
    provider's file; its states stay there, for these packages delete none."""

    def _opened(self) -> Any:
        try:
            return _Service(self.endpoint, self.metadata)
        except ServiceError:
            raise
        except Exception as error:  # without its cause: a text with the key is in no log
            why = str(error).replace(self.endpoint.api_key or "\0", "…")
            message = f"the client of {self.endpoint.provider.title} cannot be opened: {why}"
            raise ServiceError(message) from None

    def _theirs(self, base: str) -> str:
        return base  # the package gets the provider's name; tokenizers and states have rlc's

    @property
    def server(self) -> str:
        return self.endpoint.base_url or self.endpoint.provider.name

    async def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        there = self.endpoint.provider
        known = [(base, there.offered(base)) for base in there.model_names]
        models = [
            types.SupportedModel(model_name=base, max_context_length=one.context if one else None)
            for base, one in known
        ]
        return types.GetServerCapabilitiesResponse(supported_models=models)

    async def delete_checkpoint(self, path: str) -> None:
        _log.info("%s stays on %s", path, self.endpoint.name)

    async def ping(self) -> None:
        """Do nothing: the address of its API has no page to look at."""

    async def is_rlc(self) -> bool:
        return False

    async def close(self, _: SessionEnd) -> None:
        """Give back what is opened: it may be billed by the hour."""
        service: Any = self._sdk
        try:
            async with asyncio.timeout(_CLOSING_SECONDS):
                for client in service.opened:
                    await Later(getattr(client.sdk, "close", lambda: None)).result_async()
        except Exception as error:
            why = translate(error, self.endpoint.name)
            _log.warning("%s may still hold what this run opened: %s", self.endpoint.name, why)
        finally:
            self._listening.close()
