"""A run on a remote service: probed before the first step, recorded, closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from attrs import asdict, define, evolve, field

from rlc.catalog import asks_older_weights, loss_traits, provider, service_loss
from rlc.plan import ModelPlan, Plan, StagePlan, Training
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import PROBES, Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import SERVICE_FILE
from rlc.runtime.probes import probe_loss, probe_seeds, probe_topk, probe_training
from rlc.runtime.service_guard import ServiceGuard
from rlc.service import (
    RemoteService,
    ServiceClient,
    ServiceError,
    ServiceLostError,
    TrainingClient,
    smaller_contexts,
)

S = TypeVar("S", bound=StagePlan)


@define(eq=False)
class RemoteSession:
    """The session of a run on a remote service, and its ``Listener``."""

    service: RemoteService
    folder: RunFolder
    note: Callable[[str], None]
    pressed: Callable[[], None]
    _contexts: dict[str, int] = field(factory=dict, init=False)
    _seeds_probed: bool = field(default=False, init=False)

    async def open(self, plan: Plan) -> None:
        """Compare the plan with what the service currently offers. Raise ServiceError if that is
        not enough."""
        self.folder.journal.set_meta(server=self.service.server)
        self.service.listen(self)
        answer = await self.service.get_server_capabilities()
        self._contexts = smaller_contexts(plan, answer.supported_models, self.service.server)
        planned = {stage.model.base: stage.model.context for stage in plan.stages}
        for base, context in self._contexts.items():
            less = ", less than the plan counts on" if planned[base] is not None else ""
            self.note(
                f"the service has {context:,} tokens of context for `{base}`{less}; an episode "
                "that needs more ends there"
            )
        probed = set[tuple[str, int, bool]]()  # top-k tokens that are learnt
        for one in plan.stages:
            for model, top_k, of_reply in _soft_targets(one):
                if (model.base, top_k, of_reply) in probed:
                    continue
                if await self.service.is_rlc():
                    return
                probed.add((model.base, top_k, of_reply))
                sampler = await self.service.create_sampling_client(base_model=model.base)
                used = await probe_topk(sampler, top_k, of_reply=of_reply)
                Meter(self.folder.journal, one.name, model).add(PROBES, used)

    def with_served_context(self, stage: S) -> S:
        """Return the stage with the context length that the service offers."""
        context = self._contexts.get(stage.model.base, stage.model.context)
        return evolve(stage, model=evolve(stage.model, context=context))

    async def verify(self, stage: Training, training: TrainingClient, meter: Meter) -> None:
        """Probe the loss of a stage, the gradients of a server that others have written and, once,
        the seeds of samples; meter the tokens used. Raise ServiceError if the service trains
        otherwise than the plan says."""
        loss, scratch = service_loss(stage), await self._scratch(stage)
        published = loss_traits(loss).published or await self.service.is_rlc()
        probe = None
        if published:
            used = scratch or training
            probe = await probe_loss(used, loss, is_scratch=scratch is not None)
        if not published:
            self.note(
                f"`{loss.name}` is not compared with the service's, whose definition of it is not "
                "published"
            )
        elif probe is None and loss.program is None:
            self.note(f"`{loss.name}` is not compared with the service's: no local formula")
        elif probe is not None and probe.reported is None:
            self.note(
                f"`{loss.name}` is not compared: the service reports no loss without a gradient"
            )
        elif probe is not None:
            meter.add(PROBES, probe.usage)
            record = {"event": "loss probe", "stage": stage.name, "loss": loss.name}
            self.record(record | {"told": probe.reported, "expected": probe.expected})
        if scratch is not None:
            await self._probe_training(stage, scratch, meter)
        await self._probe_seeds(stage, training, meter)

    async def _scratch(self, stage: Training) -> TrainingClient | None:
        """Return a training client to try gradients and steps on, which the server forgets with the
        session; None where they need not be tried, or cannot be."""
        model = stage.model
        if _is_tinker(self.service.server) or await self.service.is_rlc():
            return None
        if provider(model.service).module is not None:
            self.note("gradients are not tried: each client of this service holds GPUs of its own")
            return None
        try:
            return await self._open_scratch(model)
        except ServiceLostError:
            raise
        except ServiceError as error:
            self.note(f"gradients are not tried, for lack of a second model: {error}")
            return None

    def _open_scratch(self, model: ModelPlan) -> Awaitable[TrainingClient]:
        return self.service.create_lora_training_client(
            model.base,
            rank=model.lora_rank,  # SkyRL's backend for Megatron has one rank for all
            seed=1,
            train_mlp=model.train_mlp,
            train_attn=model.train_attn,
            train_unembed=model.train_unembed,
        )

    async def _probe_training(self, stage: Training, scratch: TrainingClient, meter: Meter) -> None:
        loss, model = service_loss(stage), stage.model
        newest_alone = provider(model.service).samples is not None
        older = asks_older_weights(stage) and not newest_alone
        open_fresh = partial(self._open_scratch, model)
        try:
            found, used = await probe_training(open_fresh, scratch, loss, older=older)
        except ServiceLostError:
            raise
        except ServiceError as error:
            self.note(f"gradients could not be compared: {error}")
            return
        meter.add(PROBES, used)
        for text in found.notes:
            self.note(text)
        record = {"event": "training probe", "stage": stage.name, "loss": loss.name}
        self.record(record | asdict(found))
        if wrong := [str(measure) for measure in found.measures if not measure.holds]:
            raise ServiceError(
                f"{self.service.server} trains otherwise than the plan says: {'; '.join(wrong)}",
                "choose another service, or mend this one: `rlc conform` says what else differs; "
                "nothing has been trained yet",
            )

    async def _probe_seeds(self, stage: Training, training: TrainingClient, meter: Meter) -> None:
        rollouts = stage.rollouts
        if self._seeds_probed or rollouts is None:
            return
        if max(rollouts.batch.size, *(env.rollouts.group for env in rollouts.envs)) <= 1:
            return
        sampler = await training.save_weights_and_get_sampling_client()
        distinct, used = await probe_seeds(sampler, training.get_tokenizer())
        meter.add(PROBES, used)
        if not distinct:
            self.service.separate_samples()
            self.note(
                "the service repeats the samples of a seeded request; each is asked for alone, "
                "with a seed of its own"
            )
        self.record({"event": "seed probe", "distinct": distinct})
        self._seeds_probed = True

    def record(self, event: dict[str, Any]) -> None:
        """Write an event of the service to the run folder, with ids to reconcile a bill."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.folder.append(SERVICE_FILE, [{"time": now, **event}])


def _is_tinker(server: str) -> bool:
    from tinker.lib.base_url import DEFAULT_BASE_URL

    return server == DEFAULT_BASE_URL


def _soft_targets(stage: StagePlan) -> Iterator[tuple[ModelPlan, int, bool]]:
    """Yield each model whose top-k tokens are learnt, their number, and whether of replies."""
    for teacher in stage.policy_gradient.teacher if stage.policy_gradient else ():
        if teacher.top_k is not None:
            yield teacher.model.model, teacher.top_k, False
    for data in stage.data:
        if data.soft_targets is not None:
            state, top_k = data.soft_targets
            yield state.model, top_k, True


@asynccontextmanager
async def auxiliary_session(
    service: ServiceClient, folder: RunFolder, note: Callable[[str], None]
) -> AsyncIterator[tuple[ServiceClient, AuxiliaryModels]]:
    """Yield a guarded client of a service for what trains nothing, with the auxiliary models of a
    plan; a session on a remote service ends with the block."""
    guard, done = ServiceGuard.of(service, note), False
    models = AuxiliaryModels(guard.client, folder)
    try:
        if isinstance(service, RemoteService):
            await RemoteSession(service, folder, note, guard.pressed).open(folder.plan)
        yield guard.client, models
        done = True
    finally:
        await models.close()
        if isinstance(service, RemoteService):
            await service.close("success" if done else "errored")
