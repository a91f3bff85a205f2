"""Models behind OpenAI's and Anthropic's APIs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from difflib import get_close_matches

from attrs import evolve, frozen
from starlette.types import ASGIApp

from rlc.models.model import OpenedService
from rlc.plan import ModelPlan
from rlc.service import (
    Caller,
    ChatModel,
    Observer,
    RefusedRequest,
    endpoint_app,
    key_checker,
    require_key,
    require_local_host,
    serving,
)


@frozen(eq=False)
class ReferencedModels:
    """Models by the names that requests call them by."""

    models: Mapping[str, ChatModel]
    _opened_at: float

    def names(self) -> Mapping[str, float]:
        """Return the names of all models, each with the time when it was opened."""
        return dict.fromkeys(self.models, self._opened_at)

    async def find(self, name: str, caller: Caller) -> ChatModel:  # noqa: ARG002 (one key for all)
        """Return a model. Raise Refused (404) if there is none of the name."""
        if name in self.models:
            return evolve(self.models[name], name=name)
        near = get_close_matches(name, self.models, 1) or [*self.models]
        message = f"The model {name!r} is not served here: there is {', '.join(near)}."
        raise RefusedRequest(404, message, param="model", code="model_not_found")


@asynccontextmanager
async def serving_models(
    plans: Mapping[str, ModelPlan],
    host: str,
    port: int,
    key: str | None = None,
    answered: Observer | None = None,
    base_url: str | None = None,
) -> AsyncIterator[str]:
    """Serve models by their names while the block runs; return the address. Models of one service
    share it: the embedded engine has each base model once, and computes one batch at a time.
    Requests have to carry ``key``; without one only those for this machine by name are answered.
    ``answered`` is called with each answered request. Raise rlc.Error if a model, its service or
    the port cannot be used."""
    async with AsyncExitStack() as stack:
        models: dict[str, ChatModel] = {}
        services: dict[str, OpenedService] = {}
        for name, plan in plans.items():
            if plan.service not in services:
                service = await OpenedService.of(plan.service, base_url, shared=True)
                stack.push_async_callback(service.close)
                services[plan.service] = service
            models[name] = chats = await services[plan.service].chats(plan)
            models.setdefault(chats.name, chats)
        app: ASGIApp = endpoint_app(ReferencedModels(models, time.time()), answered)
        app = require_local_host(app) if key is None else require_key(app, key_checker(key))
        yield await stack.enter_async_context(serving(app, host, port))
