"""The state of the server: engine, models, sessions and their clients, and extensions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import quote
from uuid import uuid4

from attrs import define, field, frozen
from tinker import types
from tinker.types.session_status import SessionActive, SessionStatus

from rlc.plan import LONGEST_TTL, SHORTEST_TTL
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraSpec
from rlc.service.engine.service import (
    LocalSamplingClient,
    LocalService,
    LocalTrainingClient,
    ModelFacts,
)
from rlc.service.http import RefusedRequest
from rlc.service.interface import ServiceError
from rlc.service.server.faults import Disturbances
from rlc.service.server.futures import SAMPLE, Futures
from rlc.service.server.runs import Runs, as_time

SIGNED = "/signed/"  # under it, the signature of an address is its key
USER = "tml:organization_user:local"
ORGANIZATION = "local"
_LIFETIME = 3600.0
_HEADER = {"alg": "HS256", "typ": "JWT"}


@frozen
class Signer:
    """Sign with a secret of this process, so that no signature outlives a restart."""

    _secret: bytes = field(factory=lambda: secrets.token_bytes(32), repr=False)

    def token(self) -> str:
        """Return an identity that is valid for an hour."""
        now = int(time.time())
        claims = {"sub": USER, "org_id": ORGANIZATION, "iat": now, "exp": now + int(_LIFETIME)}
        parts = (json.dumps(part, separators=(",", ":")).encode() for part in (_HEADER, claims))
        content = ".".join(map(_base64, parts))
        return f"{content}.{_base64(self._mac(content))}"

    def has_signed(self, token: str) -> bool:
        """Return whether `token` made this identity, and it has not expired."""
        content, _, signature = token.rpartition(".")
        if not _same(signature, _base64(self._mac(content))):
            return False
        claims = json.loads(base64.urlsafe_b64decode(content.split(".")[1] + "=="))
        return bool(claims["exp"] > time.time())

    def url(self, base_url: str, path: str) -> tuple[str, datetime]:
        """Return an address under :data:`SIGNED` that is valid for an hour, and when it expires."""
        expires = int(time.time() + _LIFETIME)
        signature = self._mac(f"{path}?{expires}").hex()
        address = f"{base_url.rstrip('/')}{SIGNED}{quote(path)}"
        return f"{address}?expires={expires}&signature={signature}", as_time(expires)

    def has_signed_path(self, path: str, expires: str, signature: str) -> bool:
        """Return whether `url` made an address with these parts, and it has not expired."""
        is_ours = _same(signature, self._mac(f"{path}?{expires}").hex())
        return is_ours and int(expires) > time.time()

    def _mac(self, content: str) -> bytes:
        return hmac.digest(self._secret, content.encode(errors="replace"), hashlib.sha256)


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


SILENCE = 900.0  # seconds without a heartbeat (there is one every 10) that end a session
_SNAPSHOTS = 16  # unnamed samplers that a model may have


@define(eq=False)
class RequestSequencer:
    """Carry out a model's requests in the order of their numbers, not of their arrival."""

    next: int = 1
    _early: dict[int, Callable[[], None]] = field(factory=dict, init=False)

    def check(self, seq: int) -> None:
        """Raise RefusedRequest for a request that was carried out already."""
        if seq < self.next or seq in self._early:
            raise RefusedRequest(410, f"Request {seq} of this model has been carried out already.")

    def take(self, seq: int, act: Callable[[], None]) -> None:
        """Call ``act`` when all requests with lower numbers have been carried out."""
        self._early[seq] = act
        while ready := self._early.pop(self.next, None):
            self.next += 1
            ready()


@define(eq=False)
class SamplingSession:
    id: str
    base_model: str
    model_path: str | None
    client: LocalSamplingClient
    mutable: bool = False  # whether it follows the mutable snapshots of its model


@define(eq=False)
class ServedAdapter:
    id: str
    base_model: str
    client: LocalTrainingClient
    sequencer: RequestSequencer = field(factory=RequestSequencer, init=False)
    # By last use.
    snapshots: OrderedDict[str, SamplingSession] = field(factory=OrderedDict, init=False)

    @property
    def lora(self) -> LoraSpec:
        return self.client.spec


@define(eq=False)
class Session:
    user_metadata: dict[str, Any]
    display_name: str | None
    project_id: str
    id: str = field(factory=lambda: str(uuid4()), init=False)
    created_at: float = field(factory=time.time, init=False)
    heard_at: float = field(factory=time.time, init=False)
    ended: str | None = field(default=None, init=False)  # why, once it is
    status: SessionStatus | None = field(factory=SessionActive, init=False)
    model_ids: list[str] = field(factory=list, init=False)
    sampler_ids: list[str] = field(factory=list, init=False)
    losses: dict[str, CustomLoss] = field(factory=dict, init=False)

    @property
    def metadata(self) -> dict[str, str]:
        return {key: str(value) for key, value in self.user_metadata.items()}


@define(eq=False)
class Sessions:
    """Sessions, models in training and samplers in memory; ids are never used again."""

    all: dict[str, Session] = field(factory=dict, init=False)
    models: dict[str, ServedAdapter] = field(factory=dict, init=False)
    samplers: dict[str, SamplingSession] = field(factory=dict, init=False)

    def latest(self) -> list[Session]:
        return sorted(self.all.values(), key=lambda s: (s.created_at, s.id), reverse=True)

    def session(self, session_id: str) -> Session:
        """Return a session. Raise RefusedRequest if it is unknown or over."""
        session = self.all.get(session_id)
        if session is None:
            raise RefusedRequest(404, f"There is no session {session_id}: {_RESTARTED}.")
        if session.ended is not None:
            raise RefusedRequest(410, f"The session {session_id} is over: {session.ended}.")
        session.heard_at = time.time()
        return session

    def model(self, model_id: str) -> ServedAdapter:
        """Return a model. Raise RefusedRequest if there is none, or its session is over."""
        self._check_alive(model_id)
        model = self.models.get(model_id)
        if model is None:
            advice = "Create a training client from its last checkpoint."
            message = f"There is no model {model_id} in memory: {_RESTARTED}. {advice}"
            raise RefusedRequest(404, message)
        return model

    def sampler(self, sampler_id: str) -> SamplingSession:
        """Return a sampler. Raise RefusedRequest if there is none, or its session is over."""
        self._check_alive(sampler_id)
        sampler = self.samplers.get(sampler_id)
        if sampler is None:
            raise RefusedRequest(
                404,
                f"There is no sampler {sampler_id}: the server keeps the {_SNAPSHOTS} unnamed "
                "snapshots of a model that were used last, and none over a restart. "
                "save_weights_for_sampler keeps one by name.",
            )
        for model in self.models.values():
            if sampler_id in model.snapshots:
                model.snapshots.move_to_end(sampler_id)
        return sampler

    def add_sampler(self, session: Session, sampler: SamplingSession) -> None:
        self.samplers[sampler.id] = sampler
        session.sampler_ids.append(sampler.id)

    def add_snapshot(
        self, session: Session, model: ServedAdapter, sampler: SamplingSession
    ) -> None:
        """Add a sampler of a model's current weights; it may replace the one used longest ago. If
        it is mutable, all mutable samplers of the model get its weights."""
        self.add_sampler(session, sampler)
        model.snapshots[sampler.id] = sampler
        for other in model.snapshots.values():
            if sampler.mutable and other.mutable:
                other.client = sampler.client
        while len(model.snapshots) > _SNAPSHOTS:
            oldest, _ = model.snapshots.popitem(last=False)
            del self.samplers[oldest]

    def end(self, session: Session, why: str) -> list[str]:
        """Free a session's memory, and return the ids of its models, samplers and losses."""
        session.ended, session.status = why, None
        owned = [*session.model_ids, *session.sampler_ids, *session.losses]
        session.losses.clear()
        for owner in owned:
            self.models.pop(owner, None)
            self.samplers.pop(owner, None)
        return owned

    def silent(self) -> list[Session]:
        """Return the sessions without a heartbeat for :data:`SILENCE` seconds."""
        limit = time.time() - SILENCE
        return [s for s in self.all.values() if s.ended is None and s.heard_at < limit]

    def _check_alive(self, id: str) -> None:
        session_id = id.split(":")[0]
        if session_id in self.all:
            self.session(session_id)


_RESTARTED = "the server may have been restarted since"


Handlers = Mapping[str, Mapping[str, Callable[..., Any]]]  # by method and path, as those of `app`


class Extension:
    """An addition to a server; these methods, which do nothing here, are called as it works."""

    def handlers(self) -> Handlers:
        """Return handlers of more paths."""
        return {}

    def used(self, owner: str, base_model: str, counts: Mapping[str, int]) -> None:
        """Count what was computed for ``owner``, a model or a sampler: tokens of ``training``,
        ``prefill``, ``cached_prefill`` and ``sample``, or ``checkpoints``."""

    def happened(self, event: str, details: Mapping[str, object]) -> None:
        """Note an event, named ``<resource>_<action>``."""

    def sampled(
        self, sampler_id: str, request: types.SampleRequest, response: types.SampleResponse
    ) -> None:
        """Note an answered request."""

    def check_sampled(self, session_id: str, data: Sequence[types.Datum]) -> None:
        """Raise RefusedRequest if a session cannot use datums of a loss of sampled tokens alone."""


@frozen
class ServedModel:
    """A base model and the name that clients call it by."""

    name: str
    source: str  # the engine's name for it: `tiny`, or a folder
    facts: ModelFacts


async def load_models(engine: LocalService, sources: Mapping[str, str]) -> dict[str, ServedModel]:
    return {
        name: ServedModel(name, source, await engine.facts(source))
        for name, source in sources.items()
    }


@define(eq=False)
class Backend:
    """The state of a server, to be used from its event loop. Without ``custom_losses`` clients
    compute theirs themselves."""

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
        """Return a base model by its name. Raise RefusedRequest (400) if it is not served."""
        if name not in self.served:
            known = ", ".join(self.served)
            raise RefusedRequest(400, f"This server has no model {name!r}; it serves {known}.")
        return self.served[name]

    def name_of(self, base_model: str) -> str:
        """Return the served name of what the engine calls ``base_model``, or that itself."""
        names = (s.name for s in self.served.values() if base_model in (s.name, s.source))
        return next(names, base_model)

    def promise(
        self, model_id: str, create: Callable[[], Awaitable[Any]], what: str = "create_model"
    ) -> types.UntypedAPIFuture:
        """Accept work that creates something with an id; a repeated number repeats the request."""
        request_id = f"{model_id}/0"
        if self.futures.find(request_id) is None:
            promise = self.futures.open(request_id, what)
            self.futures.run(promise, create, self.disturbances.delay("train"))
        return types.UntypedAPIFuture(request_id=request_id, model_id=model_id)

    def promise_in_order(
        self, model: ServedAdapter, seq: int | None, what: str, start: Callable[[], Awaitable[Any]]
    ) -> types.UntypedAPIFuture:
        """Accept work on a model, which starts after the requests before it."""
        number = model.sequencer.next if seq is None else seq
        request_id = f"{model.id}/{number}"
        if self.futures.find(request_id) is None:
            model.sequencer.check(number)
            delay = self.disturbances.delay("train")
            promise = self.futures.open(request_id, what)
            model.sequencer.take(number, lambda: self.futures.run(promise, start, delay))
        return types.UntypedAPIFuture(request_id=request_id, model_id=model.id)

    def refuse_in_order(self, model_id: object, seq: object, error: Exception) -> None:
        """Let a refused request on a model count as answered: those after it have higher numbers,
        and wait for its own. Nothing happens if there is no such model, or the number was taken."""
        model = self.sessions.models.get(model_id) if isinstance(model_id, str) else None
        if model is None or not isinstance(seq, int):
            return

        def refuse() -> NoReturn:
            raise error

        with suppress(RefusedRequest):
            self.promise_in_order(model, seq, "refused", refuse)

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
        self.runs.add(model.id, model.base_model, model.lora, user_metadata, session.project_id)
        self.sessions.models[model.id] = model
        session.model_ids.append(model.id)

    def end(self, session: Session, why: str) -> None:
        """Finish a session: stop its work and free its memory; checkpoints remain."""
        for owner in self.sessions.end(session, why):
            self.futures.forget(owner)

    def restart(self) -> None:
        """Forget all that is only in memory, as a restart of the process does."""
        self.sessions = Sessions()
        self.futures.forget()

    def used(self, owner: str, base_model: str, **counts: int) -> None:
        for extension in self.extensions:
            extension.used(owner, base_model, counts)

    def used_samples(
        self, owner: str, base_model: str, prompt: types.ModelInput, reply: types.SampleResponse
    ) -> None:
        cached = reply.prompt_cache_hit_tokens or 0
        sampled = sum(len(sequence.tokens) for sequence in reply.sequences)
        prefill = {"prefill": prompt.length - cached, "cached_prefill": cached}
        self.used(owner, base_model, **prefill, sample=sampled)

    def happened(self, event: str, **details: object) -> None:
        for extension in self.extensions:
            extension.happened(event, details)


def check_ttl(ttl_seconds: int | None) -> None:
    """Raise ServiceError if a service cannot keep a checkpoint for so long."""
    if ttl_seconds is not None and not SHORTEST_TTL <= ttl_seconds <= LONGEST_TTL:
        raise ServiceError(
            f"ttl_seconds must be between {SHORTEST_TTL} (an hour) and {LONGEST_TTL} (ten years), "
            f"not {ttl_seconds}."
        )
