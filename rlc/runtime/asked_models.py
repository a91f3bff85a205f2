"""The models that answer inside of environments, asked without a run, within a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from attrs import define, field, frozen

from rlc.chat import Chunks, EnvError
from rlc.envs import ModelReply, ModelRequest, Responder, Responders
from rlc.plan import Asked, EndpointPlan, ModelPlan, ModelState
from rlc.pricing import endpoint_dollars
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import Meter, cost
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Usage
from rlc.runtime.remote import RemoteSession
from rlc.runtime.service_guard import ServiceGuard
from rlc.runtime.start import connect_run
from rlc.runtime.summary import Observer
from rlc.service import RemoteService, require_service

_AROUND = 64  # tokens that a chat format puts around messages, at most


class OverBudgetError(EnvError):
    """A request to a model that could cost more than is left."""

    cause = "budget"


@define(eq=False)
class AskedModels:
    """Responders whose requests together cost at most ``usd``: each is reserved at its most before
    it is sent, a token for each byte that is asked. ``refused``: why some were not sent."""

    inner: Responders
    folder: RunFolder
    usd: float
    refused: str = ""
    reserved: list[float] = field(factory=list)

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        return _WithinBudget(self, self.inner(asked, most, timeout), asked)

    async def logprob(
        self, model: ModelState, tokens: Sequence[int], chunks: Chunks, said: Sequence[int]
    ) -> float:
        dollars = cost(model.model, Usage(prefill=len(tokens)))
        with self.reserve(dollars):
            return await self.inner.logprob(model, tokens, chunks, said)

    @property
    def spent(self) -> float:
        """USD so far."""
        return self.folder.journal.spent_usd()

    def reserve(self, dollars: float | None) -> _Reserved:
        """Return a context in which that is set aside. Raise OverBudgetError if it is not left, or
        not known."""
        if dollars is None or self.spent + sum(self.reserved) + dollars > self.usd:
            why = "its price is not known" if dollars is None else "the budget has no room for more"
            self.refused = f"a judge was not asked: {why}"
            raise OverBudgetError(self.refused)
        return _Reserved(self.reserved, dollars)


@frozen
class _Reserved:
    reserved: list[float]
    dollars: float

    def __enter__(self) -> None:
        self.reserved.append(self.dollars)

    def __exit__(self, *_: object) -> None:
        self.reserved.remove(self.dollars)


@frozen(eq=False)
class _WithinBudget:
    models: AskedModels
    inner: Responder
    asked: Asked

    async def reply(self, question: ModelRequest) -> ModelReply:
        said = [str(message["content"]).encode() for message in question.messages]
        prompt = sum(len(text) + _AROUND for text in said)
        with self.models.reserve(self._most(prompt, question.sampling.max_tokens)):
            return await self.inner.reply(question)

    def _most(self, prompt: int, reply: int | None) -> float | None:
        if isinstance(self.asked, EndpointPlan):
            known = reply is not None or self.asked.reply_price == 0
            return endpoint_dollars(self.asked, prompt, reply or 0) if known else None
        model = self.asked.model
        if reply is None and model.context is None:
            return None
        return cost(model, Usage(prefill=prompt, sampled=reply or model.context or 0))


@asynccontextmanager
async def models_alone(
    folder: RunFolder, stage: str, model: ModelPlan, served: bool, usd: float, base_url: str | None
) -> AsyncIterator[AskedModels]:
    """Connect to the service of a plan, if some model is ``served`` there, and yield what asks the
    models of its environments; their tokens are journalled with a ``stage``."""
    meter = Meter(folder.journal, stage, model)
    if not served:
        models = AuxiliaryModels(None, folder)  # type: ignore[arg-type]  # endpoints alone
        try:
            yield AskedModels(models.responders(meter), folder, usd)
        finally:
            await models.close()
        return
    require_service(folder.plan, base_url)
    service, observer = connect_run(folder, base_url, resumed=False), Observer()
    guard = ServiceGuard.of(service, observer.note)
    remote = None
    if isinstance(service, RemoteService):
        remote = RemoteSession(service, folder, observer.note, guard.pressed)
        await remote.open(folder.plan)
    models, done = AuxiliaryModels(guard.client, folder), False
    try:
        yield AskedModels(models.responders(meter), folder, usd)
        done = True
    finally:
        await models.close()
        if remote is not None:
            await remote.service.close("success" if done else "errored")
