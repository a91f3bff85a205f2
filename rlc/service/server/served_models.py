"""The models that `rlc serve` has: base models, and the checkpoints of its clients."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field, frozen
from tinker import types

from rlc.catalog import find_model
from rlc.chat import EnvError, fitting_renderer
from rlc.service.chats.model import ChatModel
from rlc.service.engine.checkpoints import SCHEME
from rlc.service.engine.clients import LocalSamplingClient
from rlc.service.http import RefusedRequest
from rlc.service.inference.endpoint import Caller
from rlc.service.interface import SampledToken, ServiceError
from rlc.service.server.backend import Backend, ServedModel
from rlc.service.server.runs import TINKER, engine_path

_MOST_OPENED = 16  # models whose weights are kept
_NOT_FOUND = "model_not_found"
_RENDERER = "renderer_name"  # where the cookbook notes it in the metadata of a run
_OWNER = "inference"  # as which usage is counted: these requests belong to no session


@define(eq=False)
class ServedModels:
    """The models of a server by their names: a base model's, a checkpoint's path, or both as
    ``base;path``."""

    backend: Backend
    # By source or path, and when it was saved; those used longest ago come first.
    _opened: OrderedDict[tuple[str, float], asyncio.Future[LocalSamplingClient]] = field(
        factory=OrderedDict, init=False
    )
    _renderers: dict[tuple[str, tuple[str, ...]], tuple[Any, str]] = field(factory=dict, init=False)

    def names(self) -> dict[str, float]:
        """The names of all models, and when they were made (0 if unknown)."""
        saved = [c for c in self.backend.runs.checkpoints() if c.checkpoint_type != "external"]
        bases = dict.fromkeys(self.backend.served, 0.0)
        return bases | {c.tinker_path: c.time.timestamp() for c in saved}

    async def find(self, name: str, caller: Caller) -> ChatModel:  # noqa: ARG002 (all have one key)
        """Find a model. Raise Refused (404) if there is none of the name."""
        base, _, path = name.rpartition(";")
        if not path.startswith(TINKER):
            served = self._served(name)
            client = await self._open((served.source, 0.0), base_model=served.source)
            return self._model(name, served, client)
        try:
            saved = self.backend.engine.store.find(engine_path(path))
            run = self.backend.runs.find(path.removeprefix(TINKER).split("/")[0])
            client = await self._open((path, saved.saved_at), model_path=engine_path(path))
        except (ServiceError, RefusedRequest) as error:
            said = str(error).replace(SCHEME, TINKER)
            raise RefusedRequest(404, said, param="model", code=_NOT_FOUND) from error
        served = self._served(self.backend.name_of(run.base_model))
        if base not in ("", served.name):
            raise RefusedRequest(400, f"{path} is of {served.name}, not of {base}.", param="model")
        return self._model(name, served, client, (run.user_metadata or {}).get(_RENDERER))

    async def _open(self, key: tuple[str, float], **named: Any) -> LocalSamplingClient:
        """Open weights once, for all requests that name them: only then they share a batch."""
        if key not in self._opened:
            opening = self.backend.engine.create_sampling_client(**named)
            self._opened[key] = asyncio.ensure_future(opening)
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        try:
            return await asyncio.shield(self._opened[key])
        except ServiceError:
            self._opened.pop(key, None)
            raise

    def _served(self, name: str) -> ServedModel:
        if name not in self.backend.served:
            known = ", ".join(self.backend.served)
            said = f"The model {name!r} does not exist here: there are {known}, and checkpoints"
            said += " by their tinker:// paths."
            raise RefusedRequest(404, said, param="model", code=_NOT_FOUND)
        return self.backend.served[name]

    def _model(
        self,
        name: str,
        served: ServedModel,
        client: LocalSamplingClient,
        trained: str | None = None,
    ) -> ChatModel:
        known = [model for n in (served.name, served.source) if (model := find_model(n))]
        own = tuple(renderer for model in known for renderer in model.renderers)
        names = tuple(dict.fromkeys((*([trained] if trained else []), *own)))
        tokenizer, facts = client.get_tokenizer(), served.facts
        if (served.name, names) not in self._renderers:
            self._renderers[served.name, names] = _fitting(tokenizer, served.name, names)
        renderer, why = self._renderers[served.name, names]
        counted: Any = _CountedClient(client, self.backend, served.name)
        ends = facts.end_tokens
        return ChatModel(
            name, served.name, counted, tokenizer, renderer, facts.context, ends, no_renderer=why
        )


def _fitting(tokenizer: Any, base: str, names: tuple[str, ...]) -> tuple[Any, str]:
    """The first of some renderers that fits a tokenizer; else None, and why."""
    why = (
        f"rlc does not know how chats are written for {base}; serve the model under the name that "
        "it has in `rlc catalog --kind base` (rlc serve --model NAME=FOLDER)"
    )
    for name in names:
        try:
            return fitting_renderer(tokenizer, name), ""
        except EnvError as error:
            why = str(error)
    return None, why


@frozen(eq=False)
class _CountedClient:
    """A client of the engine whose requests are late, as the server is told to be, and counted."""

    client: LocalSamplingClient
    backend: Backend
    base_model: str

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        *,
        on_token: Callable[[SampledToken], None] | None = None,
        **scores: Any,
    ) -> types.SampleResponse:
        """As the engine's client does."""
        await asyncio.sleep(self.backend.disturbances.delay("sample"))
        asked: Awaitable[types.SampleResponse] = self.client.sample(
            prompt, num_samples, sampling_params, on_token=on_token, **scores
        )
        response = await asked
        cached = response.prompt_cache_hit_tokens or 0
        self.backend.used(
            _OWNER,
            self.base_model,
            prefill=prompt.length - cached,
            cached_prefill=cached,
            sample=sum(len(sequence.tokens) for sequence in response.sequences),
        )
        return response
