"""What a model's name stands for: weights to sample from, and how chats are written for them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from attrs import define, field, frozen
from tinker import types

from rlc.catalog.facts.models import find_model, renderer_names
from rlc.envs.base import EnvError
from rlc.envs.tool_chat import fitting_renderer
from rlc.service.errors import ServiceError
from rlc.service.http.backend import Backend, Served
from rlc.service.http.checkpoints.runs import TINKER, engine_path
from rlc.service.http.refusals import Refused
from rlc.service.interface import SampledToken
from rlc.service.local.checkpoints import SCHEME
from rlc.service.local.clients import LocalSamplingClient

_MOST_OPENED = 16  # models whose weights are kept
_NOT_FOUND = "model_not_found"
_RENDERER = "renderer_name"  # where the cookbook notes it in the metadata of a run


class StreamingClient(Protocol):
    """What is needed of a sampling client here: Tinker's call, and the tokens as they come.

    A service that returns whole samples may report their tokens when it has them all.
    """

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        *,
        topk_sample_logprobs: int = 0,
        on_token: Callable[[SampledToken], None] | None = None,
    ) -> Awaitable[types.SampleResponse]: ...

    def get_tokenizer(self) -> Any: ...


@frozen(eq=False)
class InferenceModel:
    """A model that a request has named."""

    name: str  # as the request has it
    base_model: str  # the served name
    context: int  # tokens
    client: StreamingClient
    end_tokens: frozenset[int]  # what ends a text, without a chat's markup
    renderers: tuple[str, ...]  # that may be its own, the likeliest first

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer of the base model."""
        return self.client.get_tokenizer()


@define(eq=False)
class Models:
    """The models of a server by their names: a base model's, a checkpoint's path, or both as
    ``base;path``."""

    backend: Backend
    # By source or path, and when it was saved; those used longest ago come first.
    _opened: OrderedDict[tuple[str, float], asyncio.Future[LocalSamplingClient]] = field(
        factory=OrderedDict, init=False
    )
    _renderers: dict[tuple[str, tuple[str, ...]], Any] = field(factory=dict, init=False)

    def names(self) -> dict[str, float]:
        """The names of all models, and when they were made (0 if unknown)."""
        saved = [c for c in self.backend.runs.checkpoints() if c.checkpoint_type != "external"]
        bases = dict.fromkeys(self.backend.served, 0.0)
        return bases | {c.tinker_path: c.time.timestamp() for c in saved}

    async def find(self, name: str) -> InferenceModel:
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
        except (ServiceError, Refused) as error:
            said = str(error).replace(SCHEME, TINKER)
            raise Refused(404, said, param="model", code=_NOT_FOUND) from error
        served = self._served(self.backend.name_of(run.base_model))
        if base not in ("", served.name):
            raise Refused(400, f"{path} is of {served.name}, not of {base}.", param="model")
        return self._model(name, served, client, (run.user_metadata or {}).get(_RENDERER))

    async def _open(self, key: tuple[str, float], **named: Any) -> StreamingClient:
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

    def renderer(self, model: InferenceModel, name: str | None = None) -> Any:
        """The cookbook's renderer of that name, or the model's own. Raise Refused (400) if there is
        none, or it does not fit the model's tokenizer."""
        if name is not None and name not in renderer_names():
            known = ", ".join(renderer_names())
            raise Refused(
                400, f"There is no renderer {name!r}: there are {known}.", param="renderer"
            )
        names = model.renderers if name is None else (name,)
        if (model.base_model, names) not in self._renderers:
            self._renderers[model.base_model, names] = self._fitting(model, names)
        return self._renderers[model.base_model, names]

    def _fitting(self, model: InferenceModel, names: tuple[str, ...]) -> Any:
        why = (
            f"rlc does not know how chats are written for {model.base_model}. Use /v1/completions, "
            "name a renderer, or serve the model under the name that it has in "
            "`rlc catalog --kind base` (rlc serve --model NAME=FOLDER)."
        )
        for name in names:
            try:
                return fitting_renderer(model.tokenizer, name)
            except EnvError as error:
                why = f"{model.base_model} cannot chat: {error}."
        raise Refused(400, why, param="renderer")

    def _served(self, name: str) -> Served:
        if name not in self.backend.served:
            known = ", ".join(self.backend.served)
            said = f"The model {name!r} does not exist here: there are {known}, and checkpoints"
            said += " by their tinker:// paths."
            raise Refused(404, said, param="model", code=_NOT_FOUND)
        return self.backend.served[name]

    def _model(
        self, name: str, served: Served, client: StreamingClient, trained: str | None = None
    ) -> InferenceModel:
        known = [model for n in (served.name, served.source) if (model := find_model(n))]
        renderers = [trained] if trained else []
        renderers += [renderer for model in known for renderer in model.renderers]
        unique = tuple(dict.fromkeys(renderers))
        facts = served.facts
        return InferenceModel(name, served.name, facts.context, client, facts.end_tokens, unique)
