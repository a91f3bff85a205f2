"""A run on a remote service: checked before the first step, recorded, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from attrs import define, evolve, field

from rlc.catalog import loss_traits, service_loss
from rlc.plan import ModelPlan, Plan, StagePlan, Training
from rlc.plan.leaves import asked_models
from rlc.runtime.guard.probes import probe_loss, probe_seeds, probe_topk
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.meter import PROBES, Meter, cost
from rlc.runtime.records import RunError, Usage
from rlc.service import RemoteService, TrainingClient, smaller_contexts

SERVICE_FILE = "service.jsonl"

S = TypeVar("S", bound=StagePlan)


@define(eq=False)
class RemoteSession:
    """What a run does with a remote service besides training, as its ``Listener``."""

    service: RemoteService
    folder: RunFolder
    note: Callable[[str], None]
    pressed: Callable[[], None]
    _contexts: dict[str, int] = field(factory=dict, init=False)
    _seeds_probed: bool = field(default=False, init=False)

    async def open(self, plan: Plan) -> None:
        """Compare the plan with what the service currently offers.

        Raises:
            ServiceError: the service cannot do what the plan asks.
            RunError: a price is unknown without which a budget in dollars cannot be kept.
        """
        for stage in plan.trainings:
            if stage.budget.usd is None:
                continue
            for model in (stage.model, *(state.model for _, state in asked_models(stage))):
                if cost(model, Usage(1, 1, 1, 1)) is None:
                    raise RunError(
                        f"the budget of stage `{stage.name}` cannot be kept: not all prices of "
                        f"`{model.base}` are known",
                        "leave the budget out, or limit the steps",
                    )
        self.folder.journal.set_meta(server=self.service.server)
        self.service.listen(self)
        answer = await self.service.get_server_capabilities()
        self._contexts = smaller_contexts(plan, answer.supported_models, self.service.server)
        for base, context in self._contexts.items():
            self.note(
                f"the service has {context:,} tokens of context for `{base}`, less than the plan "
                "counts on; an episode that needs more ends there"
            )

        await self._verify_topk(plan)

    async def _verify_topk(self, plan: Plan) -> None:
        """Ask the base of each model whose most likely tokens are learnt for those of a few places.

        Raise ServiceError if the service does not give them.
        """
        asked = set[tuple[str, int, bool]]()
        for stage in plan.stages:
            for model, top_k, of_reply in _soft_targets(stage):
                if (model.base, top_k, of_reply) in asked:
                    continue
                if await self.service.is_rlc():
                    return
                asked.add((model.base, top_k, of_reply))
                sampler = await self.service.create_sampling_client(base_model=model.base)
                used = await probe_topk(sampler, top_k, of_reply=of_reply)
                Meter(self.folder.journal, stage.name, model).add(PROBES, used)

    def with_served_context(self, stage: S) -> S:
        """Return the stage with the context length that the service offers."""
        context = self._contexts.get(stage.model.base, stage.model.context)
        return evolve(stage, model=evolve(stage.model, context=context))

    async def verify(self, stage: Training, training: TrainingClient, meter: Meter) -> None:
        """Probe the loss of a stage and, once, the seeds of samples; meter the tokens used.

        Raise ServiceError if the service does not compute the loss of the plan.
        """
        loss = service_loss(stage)
        published = loss_traits(loss).published or await self.service.is_rlc()
        probe = await probe_loss(training, loss) if published else None
        if not published:
            self.note(
                f"`{loss.name}` is not compared with the service's, whose definition of it is not "
                "published"
            )
        elif probe is None and loss.program is None:
            self.note(f"`{loss.name}` is not compared with the service's: no local formula")
        elif probe is not None:
            meter.add(PROBES, probe.usage)
            record = {"event": "loss probe", "stage": stage.name, "loss": loss.name}
            self.record(record | {"told": probe.reported, "expected": probe.expected})
        rollouts = stage.rollouts
        if self._seeds_probed or rollouts is None:
            return
        if max(rollouts.batch.size, *(env.rollouts.group for env in rollouts.envs)) > 1:
            await self._verify_seeds(stage, training, meter)

    async def _verify_seeds(self, stage: Training, training: TrainingClient, meter: Meter) -> None:
        sampler = await self.service.create_sampling_client(base_model=stage.model.base)
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
        """Keep the ids of sessions and models in the run folder, to reconcile a bill."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.folder.append(SERVICE_FILE, [{"time": now, **event}])


def _soft_targets(stage: StagePlan) -> Iterator[tuple[ModelPlan, int, bool]]:
    """Yield each model whose top-k logprobs a stage learns, their number, and whether they are
    those of a reply that it samples."""
    for teacher in stage.policy_gradient.teacher if stage.policy_gradient else ():
        if teacher.top_k is not None:
            yield teacher.model.model, teacher.top_k, False
    for data in stage.data:
        if data.soft_targets is not None:
            state, top_k = data.soft_targets
            yield state.model, top_k, True
