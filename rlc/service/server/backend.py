"""The state of the server: the engine, the models that it serves, their users, and extensions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from attrs import define, field, frozen
from tinker import types

from rlc.plan import LONGEST_TTL, SHORTEST_TTL
from rlc.service.engine.service import LocalService, ModelFacts
from rlc.service.http import RefusedRequest
from rlc.service.interface import ServiceError
from rlc.service.server.faults import Disturbances
from rlc.service.server.futures import SAMPLE, Futures
from rlc.service.server.runs import Runs
from rlc.service.server.sessions import ServedAdapter, Session, Sessions
from rlc.service.server.signing import Signer

Handlers = Mapping[str, Mapping[str, Callable[..., Any]]]  # by method and path, as those of `app`


class Extension:
    """An addition to a server, which calls these methods as it works; here they do nothing."""

    def handlers(self) -> Handlers:
        """Return handlers of more paths."""
        return {}

    def used(self, owner: str, base_model: str, counts: Mapping[str, int]) -> None:
        """Hear what was computed for ``owner``, a model or a sampler: tokens of ``training``,
        ``prefill``, ``cached_prefill`` and ``sample``, or ``checkpoints``."""

    def happened(self, event: str, details: Mapping[str, object]) -> None:
        """Hear what was done, named ``<resource>_<action>``."""

    def sampled(
        self, sampler_id: str, request: types.SampleRequest, response: types.SampleResponse
    ) -> None:
        """Hear of an answered request."""

    def check_sampled(self, session_id: str, data: Sequence[types.Datum]) -> None:
        """Check datums of a loss that takes sampled tokens alone. Raise Refused if a session cannot
        use them."""


@frozen
class ServedModel:
    """A base model and the name that clients call it by."""

    name: str
    source: str  # the engine's name for it: `tiny`, or a folder
    facts: ModelFacts


async def load_models(engine: LocalService, sources: Mapping[str, str]) -> dict[str, ServedModel]:
    """Load every base model at once. Raise ServiceError for a model that cannot be loaded."""
    return {
        name: ServedModel(name, source, await engine.facts(source))
        for name, source in sources.items()
    }


@define(eq=False)
class Backend:
    """The state of a server, to be used from its event loop. Without ``custom_losses`` clients are
    told to compute theirs themselves."""

    engine: LocalService
    served: Mapping[str, ServedModel]
    disturbances: Disturbances = field(factory=Disturbances)
    custom_losses: bool = True
    extensions: Sequence[Extension] = ()
    sessions: Sessions = field(factory=Sessions, init=False)
    signer: Signer = field(factory=Signer, init=False)
    copies: dict[str, str] = field(factory=dict, init=False)  # of weights, by their requests' keys
    runs: Runs = field(init=False)
    futures: Futures = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.runs = Runs(self.engine.store)
        self.futures = Futures(self.disturbances)

    def base(self, name: str) -> ServedModel:
        """A base model by its name. Raise Refused (400) if it is not served."""
        if name not in self.served:
            known = ", ".join(self.served)
            raise RefusedRequest(400, f"This server has no model {name!r}; it serves {known}.")
        return self.served[name]

    def name_of(self, base_model: str) -> str:
        """The served name of what the engine calls ``base_model``, or ``base_model`` itself."""
        names = (s.name for s in self.served.values() if base_model in (s.name, s.source))
        return next(names, base_model)

    def refusals_of(self, model_id: str) -> AbstractContextManager[None]:
        """Keep a refusal to create a model as the answer to the promise of it."""
        return self.futures.keeping_refusals(f"{model_id}/0")

    def promise(
        self, model_id: str, create: Callable[[], Awaitable[Any]], what: str = "create_model"
    ) -> types.UntypedAPIFuture:
        """Accept work that creates a model, or something else with an id. A repeated number is a
        repeated request."""
        request_id = f"{model_id}/0"
        if self.futures.find(request_id) is None:
            promise = self.futures.open(request_id, what)
            self.futures.run(promise, create, self.disturbances.delay("train"))
        return types.UntypedAPIFuture(request_id=request_id, model_id=model_id)

    def promise_in_order(
        self, model: ServedAdapter, seq: int | None, what: str, start: Callable[[], Awaitable[Any]]
    ) -> types.UntypedAPIFuture:
        """Accept work on a model, which starts after the requests before it. Traces show ``what``
        it is."""
        number = model.sequencer.next if seq is None else seq
        request_id = f"{model.id}/{number}"
        if self.futures.find(request_id) is None:
            model.sequencer.check(number)
            delay = self.disturbances.delay("train")
            promise = self.futures.open(request_id, what)
            model.sequencer.take(number, lambda: self.futures.run(promise, start, delay))
        return types.UntypedAPIFuture(request_id=request_id, model_id=model.id)

    def promise_sample(
        self, owner: str, seq: int, samples: int, start: Callable[[], Awaitable[Any]]
    ) -> types.UntypedAPIFuture:
        """Accept a sampling request, unless ``start`` refuses it. Each sample has an id."""
        request_id = f"{owner}/{seq}"
        if self.futures.find(request_id) is None:
            with self.futures.keeping_refusals(request_id):
                work = start()
            promise = self.futures.open(request_id, SAMPLE)
            self.futures.run(promise, lambda: work, self.disturbances.delay("sample"))
        ids = [f"{request_id}/{i}" for i in range(samples)]
        return types.UntypedAPIFuture(request_id=request_id, sample_sequence_ids=ids)

    def add_model(
        self, session: Session, model: ServedAdapter, user_metadata: dict[str, Any] | None
    ) -> None:
        """Add a model that has been created, and write the file of its run."""
        self.runs.add(model.id, model.base_model, model.lora, user_metadata, session.project_id)
        self.sessions.add_model(session, model)

    def end(self, session: Session, why: str) -> None:
        """Finish a session: stop its work and free its memory; its checkpoints remain."""
        for owner in self.sessions.end(session, why):
            self.futures.forget(owner)

    def restart(self) -> None:
        """Forget what a restart of the process would."""
        self.sessions.forget()
        self.futures.forget()

    def used(self, owner: str, base_model: str, **counts: int) -> None:
        """Tell the extensions what was computed for a model or a sampler."""
        for extension in self.extensions:
            extension.used(owner, base_model, counts)

    def happened(self, event: str, **details: object) -> None:
        """Tell the extensions what was done, named ``<resource>_<action>``."""
        for extension in self.extensions:
            extension.happened(event, details)


def check_ttl(ttl_seconds: int | None) -> None:
    """Raise ServiceError if a service cannot keep a checkpoint for so long."""
    if ttl_seconds is not None and not SHORTEST_TTL <= ttl_seconds <= LONGEST_TTL:
        raise ServiceError(
            f"ttl_seconds must be between {SHORTEST_TTL} (an hour) and {LONGEST_TTL} (ten years), "
            f"not {ttl_seconds}."
        )
