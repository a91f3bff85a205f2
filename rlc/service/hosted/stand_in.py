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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cached_property
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

from attrs import define, field
from tinker import types

from rlc.catalog import TINY, Provider
from rlc.service.hosted.clients import start_thread
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.refusals import translate
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceError, SessionEnd

_SUBMITTING = 64  # samples that are handed in at once
_CLOSING_SECONDS = 60.0  # to give back what is billed by the hour
# Arguments whose absence would change what is computed, and not only how it is kept.
_NEEDED = {
    "include_prompt_logprobs",
    "topk_prompt_logprobs",
    "topk_sample_logprobs",
    "record_stability_info",
}

_log = logging.getLogger(__name__)


def load(there: Provider) -> ModuleType:
    """Return the module that stands in for `tinker`. Raise ServiceError if it cannot be used."""
    assert there.module is not None
    _add_older_names()
    try:
        module = importlib.import_module(there.module)
    except ImportError as error:
        hint = f"pip install {there.package}"
        raise ServiceError(f"the client of {there.title} cannot be used: {error}", hint) from error
    if not hasattr(module, "ServiceClient"):
        raise ServiceError(f"{there.module} has no ServiceClient, which stands in for the SDK's")
    return module


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
    """A client of the package. ``base`` is the model as rlc calls it."""

    sdk: Any
    there: Provider
    base: str

    def _call(self, method: str, /, **arguments: Any) -> Callable[[], Any]:
        """Return the call of a method with the arguments that it takes. Raise ServiceError if it
        lacks one that counts."""
        return lambda: _called(self.sdk, method, self.there, arguments)

    def get_base_model(self) -> str:
        return self.base

    def get_tokenizer(self) -> Any:
        if hasattr(self.sdk, "get_tokenizer"):
            return self.sdk.get_tokenizer()
        from transformers import AutoTokenizer

        from rlc.service.tiny import path

        return AutoTokenizer.from_pretrained(path() if self.base == TINY else self.base)


def _called(sdk: Any, name: str, there: Provider, arguments: Mapping[str, Any]) -> Any:
    method = getattr(sdk, name, None)
    if method is None:
        raise ServiceError(f"the client of {there.title} has no `{name}`")
    takes = inspect.signature(method).parameters
    for argument, value in arguments.items():
        if value and argument in _NEEDED and argument not in takes:
            raise ServiceError(f"the client of {there.title} takes no `{argument}` in `{name}`")
    given = {key: value for key, value in arguments.items() if key in takes}
    return method(**given, **dict(_more(name, there)))


def _more(name: str, there: Provider) -> Iterator[tuple[str, Any]]:
    """Yield the arguments of a method that the provider's file adds; unset variables add none."""
    for key, value in there.arguments.get(name, {}).items():
        if isinstance(value, str) and value.startswith("$"):
            value = os.environ.get(value[1:])
        if value is not None:
            yield key, value


@define(eq=False)
class _Sampling(_Client):
    pool: Executor

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
    ) -> Later:
        call = self._call(
            "sample",
            prompt=prompt,
            num_samples=num_samples,
            sampling_params=sampling_params,
            include_prompt_logprobs=include_prompt_logprobs,
            topk_prompt_logprobs=topk_prompt_logprobs,
            topk_sample_logprobs=topk_sample_logprobs,
        )
        return Later(call, self.pool)

    def compute_logprobs(self, prompt: types.ModelInput) -> Later:
        return Later(self._call("compute_logprobs", prompt=prompt), self.pool)


@define(eq=False)
class _Training(_Client):
    samplers: Executor
    model_id: str = field(factory=lambda: uuid4().hex)
    _turn: Executor = field(factory=lambda: ThreadPoolExecutor(1), init=False)

    @cached_property
    def holder(self) -> Any:
        return SimpleNamespace(get_session_id=lambda: self.model_id)

    def get_info(self) -> Any:
        data = SimpleNamespace(model_name=self.base, tokenizer_id=None)
        return SimpleNamespace(model_data=data)

    def forward(self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None) -> Later:
        return self._ask("forward", data=data, loss_fn=loss_fn, loss_fn_config=loss_fn_config)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> Later:
        more = {"loss_fn": loss_fn, "loss_fn_config": loss_fn_config}
        return self._ask("forward_backward", data=data, **more)

    def optim_step(self, adam_params: types.AdamParams) -> Later:
        return self._ask("optim_step", adam_params=adam_params)

    def save_state(
        self, name: str, ttl_seconds: int | None, overwrite: bool, user_metadata: Any
    ) -> Later:
        more = {"overwrite": overwrite, "user_metadata": user_metadata}
        return self._saved("save_state", name=name, ttl_seconds=ttl_seconds, **more)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None, user_metadata: Any
    ) -> Later:
        more = {"ttl_seconds": ttl_seconds, "user_metadata": user_metadata}
        return self._saved("save_weights_for_sampler", name=name, **more)

    def save_weights_and_get_sampling_client(self, *, record_stability_info: bool = False) -> Later:
        name = "save_weights_and_get_sampling_client"
        call = self._call(name, record_stability_info=record_stability_info)
        return Later(call, self._turn, lambda sdk: self.sampler(sdk))

    def sampler(self, sdk: Any) -> _Sampling:
        return _Sampling(sdk, self.there, self.base, self.samplers)

    def close(self) -> None:
        if hasattr(self.sdk, "close"):
            self.sdk.close()

    def _ask(self, method: str, /, **arguments: Any) -> Later:
        return Later(self._call(method, **arguments), self._turn)

    def _saved(self, method: str, /, **arguments: Any) -> Later:
        def named(answer: Any) -> Any:
            path = str(answer.path)
            whole = path if "://" in path else f"{self.there.scheme}{self.base}/{path}"
            return SimpleNamespace(path=whole)

        return Later(self._call(method, **arguments), self._turn, named)


@define(eq=False)
class _Service:
    """The package's ServiceClient in the shape of the SDK's."""

    endpoint: Endpoint
    metadata: Mapping[str, str]
    sdk: Any = field(init=False)
    opened: list[_Training] = field(factory=list, init=False)
    samplers: Executor = field(factory=lambda: ThreadPoolExecutor(_SUBMITTING), init=False)

    def __attrs_post_init__(self) -> None:
        where, there = self.endpoint, self.endpoint.provider
        made = {"user_metadata": dict(self.metadata), "base_url": where.base_url}
        made["api_key"] = where.api_key
        self.sdk = _called(load(there), "ServiceClient", there, made)

    def create_lora_training_client(
        self, base: str, *adapter: Any, user_metadata: dict[str, str]
    ) -> Later:
        names = ("rank", "seed", "train_mlp", "train_attn", "train_unembed")
        offered = self.endpoint.provider.offered(base)
        arguments = dict(zip(names, adapter, strict=True)) | {"user_metadata": user_metadata}
        arguments["base_model"] = offered.name if offered else base
        return self._create("create_lora_training_client", base, arguments)

    def create_training_client_from_state(self, path: str, user_metadata: dict[str, str]) -> Later:
        return self._restored("create_training_client_from_state", path, user_metadata)

    def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str]
    ) -> Later:
        name = "create_training_client_from_state_with_optimizer"
        return self._restored(name, path, user_metadata)

    def create_sampling_client(
        self, model_path: str | None, base_model: str | None, record_stability_info: bool
    ) -> Later:
        there = self.endpoint.provider
        arguments: dict[str, Any] = {"model_path": model_path, "base_model": base_model}
        arguments["record_stability_info"] = record_stability_info or None
        base = base_model or there.base_of(model_path or "") or ""
        return Later(
            lambda: _called(self.sdk, "create_sampling_client", there, arguments),
            None,
            lambda sdk: _Sampling(sdk, there, base, self.samplers),
        )

    def create_custom_loss(self, *_: Any) -> Later:
        raise ServiceError(f"the client of {self.endpoint.provider.title} takes no custom losses")

    def _restored(self, name: str, path: str, metadata: dict[str, str]) -> Later:
        base = self.endpoint.provider.base_of(path)
        state = path if base is None else path.rpartition("/")[2]
        return self._create(name, base or "", {"path": state, "user_metadata": metadata})

    def _create(self, name: str, base: str, arguments: Mapping[str, Any]) -> Later:
        there = self.endpoint.provider

        def opened(sdk: Any) -> _Training:
            own = sdk.get_info().model_data.model_name if hasattr(sdk, "get_info") else base
            client = _Training(sdk, there, base or own, self.samplers)
            self.opened.append(client)
            return client

        return Later(lambda: _called(self.sdk, name, there, arguments), None, opened)


@define(eq=False)
class StandInService(HostedService):
    """A hosted service through a package that stands in for the SDK. What it has is known from its
    provider's file; its states stay there, for these packages delete none."""

    def _opened(self) -> Any:
        return _Service(self.endpoint, self.metadata)

    def _theirs(self, base: str) -> str:
        return base  # the package gets the provider's name; tokenizers and states have rlc's

    @property
    def server(self) -> str:
        return self.endpoint.base_url or self.endpoint.provider.name

    async def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        there, models = self.endpoint.provider, []
        for base in there.model_names:
            offered = there.offered(base)
            context = None if offered is None else offered.context
            models.append(types.SupportedModel(model_name=base, max_context_length=context))
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
                    await Later(client.close).result_async()
        except Exception as error:
            why = translate(error, self.endpoint.name)
            _log.warning("%s may still hold what this run opened: %s", self.endpoint.name, why)
        finally:
            self._listening.close()
