"""What is in memory for the connected programs: sessions, models in training, samplers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from attrs import define, field
from tinker.types.session_status import SessionActive, SessionStatus

from rlc.service.engine.clients import LocalSamplingClient, LocalTrainingClient
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraSpec
from rlc.service.http import RefusedRequest

SILENCE = 900.0  # seconds without a heartbeat (there is one every 10) that end a session
_SNAPSHOTS = 16  # unnamed samplers that a model may have


@define(eq=False)
class RequestSequencer:
    """Carries out a model's requests in the order of their numbers, not of their arrival."""

    next: int = 1
    _early: dict[int, Callable[[], None]] = field(factory=dict, init=False)

    def check(self, seq: int) -> None:
        """Raise Refused for a request that was carried out: its answer is no longer kept."""
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
    """A sampling session: weights to sample from."""

    id: str
    base_model: str
    model_path: str | None
    client: LocalSamplingClient
    mutable: bool = False  # whether it follows the mutable snapshots of its model


@define(eq=False)
class ServedAdapter:
    """An adapter in training."""

    id: str
    base_model: str
    client: LocalTrainingClient
    sequencer: RequestSequencer = field(factory=RequestSequencer, init=False)
    snapshots: OrderedDict[str, SamplingSession] = field(
        factory=OrderedDict, init=False
    )  # by last use

    @property
    def lora(self) -> LoraSpec:
        """What its adapter trains."""
        return self.client.trainer.adapter.spec


@define(eq=False)
class Session:
    """One program that talks to the server."""

    id: str
    user_metadata: dict[str, Any]
    display_name: str | None
    project_id: str
    created_at: float
    heard_at: float
    ended: str | None = field(default=None, init=False)  # why, once it is
    status: SessionStatus | None = field(factory=SessionActive, init=False)
    model_ids: list[str] = field(factory=list, init=False)
    sampler_ids: list[str] = field(factory=list, init=False)
    losses: dict[str, CustomLoss] = field(factory=dict, init=False)

    @property
    def metadata(self) -> dict[str, str]:
        """Its user's metadata, as the API reports it."""
        return {key: str(value) for key, value in self.user_metadata.items()}


@define(eq=False)
class Sessions:
    """Everything in memory; ids are never used again."""

    all: dict[str, Session] = field(factory=dict, init=False)
    models: dict[str, ServedAdapter] = field(factory=dict, init=False)
    samplers: dict[str, SamplingSession] = field(factory=dict, init=False)

    def create(
        self, user_metadata: dict[str, Any], display_name: str | None, project_id: str
    ) -> Session:
        now = time.time()
        session = Session(str(uuid4()), user_metadata, display_name, project_id, now, now)
        self.all[session.id] = session
        return session

    def latest(self) -> list[Session]:
        """The sessions since the server started, the latest first."""
        return sorted(self.all.values(), key=lambda s: (s.created_at, s.id), reverse=True)

    def session(self, session_id: str) -> Session:
        """A session that is not over. Raise Refused if it is unknown or over."""
        session = self.all.get(session_id)
        if session is None:
            raise RefusedRequest(404, f"There is no session {session_id}: {_RESTARTED}.")
        if session.ended is not None:
            raise RefusedRequest(410, f"The session {session_id} is over: {session.ended}.")
        session.heard_at = time.time()
        return session

    def model(self, model_id: str) -> ServedAdapter:
        """A model in training. Raise Refused if there is none, or its session is over."""
        self._check_alive(model_id)
        model = self.models.get(model_id)
        if model is None:
            raise RefusedRequest(
                404,
                f"There is no model {model_id} in memory: {_RESTARTED}. "
                "Create a training client from its last checkpoint.",
            )
        return model

    def sampler(self, sampler_id: str) -> SamplingSession:
        """A sampler. Raise Refused if there is none, or its session is over."""
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

    def add_model(self, session: Session, model: ServedAdapter) -> None:
        self.models[model.id] = model
        session.model_ids.append(model.id)

    def add_sampler(self, session: Session, sampler: SamplingSession) -> None:
        self.samplers[sampler.id] = sampler
        session.sampler_ids.append(sampler.id)

    def add_snapshot(
        self, session: Session, model: ServedAdapter, sampler: SamplingSession
    ) -> None:
        """Add a sampler of a model's current weights; it may replace the one used longest ago.

        If it is mutable, all mutable samplers of the model get its weights.
        """
        self.add_sampler(session, sampler)
        model.snapshots[sampler.id] = sampler
        for other in model.snapshots.values():
            if sampler.mutable and other.mutable:
                other.client = sampler.client
        while len(model.snapshots) > _SNAPSHOTS:
            oldest, _ = model.snapshots.popitem(last=False)
            del self.samplers[oldest]

    def end(self, session: Session, why: str) -> list[str]:
        """Free what a session holds, and return the ids of its models, samplers and losses."""
        session.ended, session.status = why, None
        owned = [*session.losses]
        session.losses.clear()
        for model_id in session.model_ids:
            self.models.pop(model_id, None)
        for sampler_id in session.sampler_ids:
            self.samplers.pop(sampler_id, None)
        return [*session.model_ids, *session.sampler_ids, *owned]

    def silent(self) -> list[Session]:
        """Sessions whose programs have not sent a heartbeat for :data:`SILENCE` seconds."""
        limit = time.time() - SILENCE
        return [s for s in self.all.values() if s.ended is None and s.heard_at < limit]

    def forget(self) -> None:
        """Forget everything, as a restart does."""
        self.all.clear()
        self.models.clear()
        self.samplers.clear()

    def _check_alive(self, id: str) -> None:
        session_id = id.split(":")[0]
        if session_id in self.all:
            self.session(session_id)


_RESTARTED = "the server may have been restarted since"
