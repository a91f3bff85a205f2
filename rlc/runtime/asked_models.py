"""The models that answer inside of environments, asked without a run, within a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from attrs import define, frozen

from rlc.chat import Chunks, EnvError
from rlc.envs import ModelReply, ModelRequest, Responder, Responders
from rlc.plan import Asked, EndpointPlan, ModelPlan, ModelState
from rlc.pricing import endpoint_dollars
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import Meter, cost
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Usage
from rlc.runtime.remote import auxiliary_session
from rlc.runtime.spending_limit import SpendingLimit
from rlc.runtime.start import connect_run
from rlc.runtime.summary import Observer
from rlc.service import require_service

_AROUND = 64  # tokens that a chat format puts around messages, at most


class OverBudgetError(EnvError):
    """A request to a model that could cost more than is left."""

    cause = "budget"


@define(eq=False)
class AskedModels:
    """Responders whose requests together stay within a limit: the most of each is a token for each
    byte that is asked. ``refused``: why some were not sent."""

    inner: Responders
    limit: SpendingLimit
    refused: str = ""

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

    def reserve(self, dollars: float | None) -> AbstractContextManager[None]:
        """Return a context in which that is set aside. Raise OverBudgetError if it is not left, or
        not known."""
        reserved = None if dollars is None else self.limit.reserve(dollars)
        if reserved is None:
            why = "its price is not known" if dollars is None else "the budget has no room for more"
            self.refused = f"a judge was not asked: {why}"
            raise OverBudgetError(self.refused)
        return reserved


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
    limit = SpendingLimit(usd, folder.journal.spent_usd)
    if not served:
        models = AuxiliaryModels(None, folder)  # type: ignore[arg-type]  # endpoints alone
        try:
            yield AskedModels(models.responders(meter), limit)
        finally:
            await models.close()
        return
    require_service(folder.plan, base_url)
    service = connect_run(folder, base_url, resumed=False)
    async with auxiliary_session(service, folder, Observer().note) as (_, models):
        yield AskedModels(models.responders(meter), limit)
