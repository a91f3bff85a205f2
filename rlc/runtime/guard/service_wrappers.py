"""A service with deadlines: whatever is asked of it is answered in time, or ends the run.

Wraps the clients of any service. What is sampled from a remote one is paced as well
(:mod:`rlc.runtime.guard.adaptive_concurrency`); the embedded engine has a queue of its own, and is
left alone unless the recipe limits what it draws at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define

from rlc.plan.records import SftPlan, TrainPlan
from rlc.runtime.guard.adaptive_concurrency import (
    MOST,
    AdaptiveConcurrency,
    ConcurrencyLimiter,
    LimitedSamplingClient,
)
from rlc.runtime.guard.watchdog import Watchdog, WatchedCall
from rlc.service.interface import RemoteService, SamplingClient, ServiceClient, TrainingClient

if TYPE_CHECKING:
    from tinker import types

T = TypeVar("T")


@define(eq=False)
class WatchedSamplingClient:
    """See :class:`rlc.service.interface.SamplingClient`."""

    client: SamplingClient
    watch: Watchdog

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
    ) -> Awaitable[types.SampleResponse]:
        answer = self.client.sample(prompt, num_samples, sampling_params, include_prompt_logprobs)
        return WatchedCall(self.watch, f"{num_samples} sampled replies", answer)

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        return WatchedCall(self.watch, "logprobs", self.client.compute_logprobs(prompt))


@define(eq=False)
class WatchedTrainingClient:
    """See :class:`rlc.service.interface.TrainingClient`."""

    client: TrainingClient
    service: WatchedServiceClient

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        answer = self.client.forward(data, loss_fn, loss_fn_config)
        return self._owed(f"the loss of {len(data):,} sequences", answer)

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        answer = self.client.forward_backward(data, loss_fn, loss_fn_config)
        return self._owed(f"the gradient of {len(data):,} sequences", answer)

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        return self._owed("an optimiser step", self.client.optim_step(optim_params))

    def save_state(
        self, name: str, ttl_seconds: int | None = None, overwrite: bool = False
    ) -> Awaitable[types.SaveWeightsResponse]:
        answer = self.client.save_state(name, ttl_seconds, overwrite)
        return self._owed(f"the checkpoint {name}", answer)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        answer = self.client.save_weights_for_sampler(name, ttl_seconds)
        return self._owed(f"the weights {name}", answer)

    async def save_weights_and_get_sampling_client(self) -> SamplingClient:
        answer = self.client.save_weights_and_get_sampling_client()
        return self.service.sampler(await self._owed("a snapshot of the weights", answer))

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()

    def _owed(self, what: str, answer: Awaitable[T]) -> Awaitable[T]:
        return WatchedCall(self.service.watch, what, answer)


@define(eq=False)
class WatchedServiceClient:
    """See :class:`rlc.service.interface.ServiceClient`. ``gate`` is None where nothing is paced."""

    service: ServiceClient
    watch: Watchdog
    gate: ConcurrencyLimiter | None

    @classmethod
    def of(cls, service: ServiceClient, note: Callable[[str], None]) -> WatchedServiceClient:
        """``note`` is told when a server cannot be reached."""
        if isinstance(service, RemoteService):
            return cls(service, Watchdog(note, service.ping), ConcurrencyLimiter())
        return cls(service, Watchdog(note), None)

    def begin(self, stage: TrainPlan | SftPlan) -> None:
        """From now on the deadlines and the concurrency of a stage hold."""
        self.watch.limit(stage.deadlines)
        most = stage.sampling.concurrency if isinstance(stage, TrainPlan) else None
        if isinstance(self.service, RemoteService):
            assert self.gate is not None
            self.gate.pace.cap = most or MOST
        else:
            self.gate = (
                None
                if most is None
                else ConcurrencyLimiter(AdaptiveConcurrency(cap=most, adapts=False))
            )

    def pressed(self) -> None:
        """The service says that it has too much to do: it is not silent, but wants less."""
        self.watch.heard()
        if self.gate is not None:
            self.gate.pressed()

    def metrics(self) -> dict[str, float]:
        """What there is to say of the pace since this was last asked."""
        return {} if self.gate is None else self.gate.metrics()

    def sampler(self, client: SamplingClient) -> SamplingClient:
        """A sampling client of this service, watched and paced."""
        watched = WatchedSamplingClient(client, self.watch)
        return watched if self.gate is None else LimitedSamplingClient(watched, self.gate)

    async def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> TrainingClient:
        answer = self.service.create_lora_training_client(
            base_model, rank, seed, train_mlp, train_attn, train_unembed, user_metadata
        )
        return await self._training(f"an adapter of {base_model}", answer)

    async def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> TrainingClient:
        answer = self.service.create_training_client_from_state_with_optimizer(path, user_metadata)
        return await self._training(f"the state {path}", answer)

    async def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> TrainingClient:
        answer = self.service.create_training_client_from_state(path, user_metadata)
        return await self._training(f"the weights of {path}", answer)

    async def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None
    ) -> SamplingClient:
        answer = self.service.create_sampling_client(model_path, base_model)
        return self.sampler(await self.watch.until("a sampling client", answer))

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        return WatchedCall(
            self.watch, f"the deletion of {path}", self.service.delete_checkpoint(path)
        )

    async def _training(self, what: str, answer: Awaitable[TrainingClient]) -> TrainingClient:
        return WatchedTrainingClient(await self.watch.until(what, answer), self)
