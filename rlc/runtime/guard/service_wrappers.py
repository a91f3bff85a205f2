"""A service with deadlines: each request is answered in time, or ends the run.

Wraps the clients of any service; their methods are those of :mod:`rlc.service.interface`. A remote
service's sampling is limited as well (:mod:`rlc.runtime.guard.adaptive_concurrency`). The embedded
engine has a queue of its own and is limited only if the recipe says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define

from rlc.plan.records import SftPlan, TrainPlan
from rlc.runtime.guard.adaptive_concurrency import (
    MOST,
    ConcurrencyLimiter,
    LimitedSamplingClient,
    fixed_limiter,
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
    watchdog: Watchdog

    def sample(
        self, prompt: types.ModelInput, num_samples: int, *args: Any, **kwargs: Any
    ) -> Awaitable[types.SampleResponse]:
        answer = self.client.sample(prompt, num_samples, *args, **kwargs)
        return WatchedCall(self.watchdog, f"{num_samples} sampled replies", answer)

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        return WatchedCall(self.watchdog, "logprobs", self.client.compute_logprobs(prompt))


@define(eq=False)
class WatchedTrainingClient:
    """See :class:`rlc.service.interface.TrainingClient`."""

    client: TrainingClient
    service: WatchedServiceClient

    def forward(
        self, data: list[types.Datum], *args: Any, **kwargs: Any
    ) -> Awaitable[types.ForwardBackwardOutput]:
        answer = self.client.forward(data, *args, **kwargs)
        return self._watched(f"the loss of {len(data):,} sequences", answer)

    def forward_backward(
        self, data: list[types.Datum], *args: Any, **kwargs: Any
    ) -> Awaitable[types.ForwardBackwardOutput]:
        answer = self.client.forward_backward(data, *args, **kwargs)
        return self._watched(f"the gradient of {len(data):,} sequences", answer)

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        return self._watched("an optimiser step", self.client.optim_step(optim_params))

    def save_state(
        self, name: str, *args: Any, **kwargs: Any
    ) -> Awaitable[types.SaveWeightsResponse]:
        answer = self.client.save_state(name, *args, **kwargs)
        return self._watched(f"the checkpoint {name}", answer)

    def save_weights_for_sampler(
        self, name: str, *args: Any, **kwargs: Any
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        answer = self.client.save_weights_for_sampler(name, *args, **kwargs)
        return self._watched(f"the weights {name}", answer)

    async def save_weights_and_get_sampling_client(self, **kwargs: Any) -> SamplingClient:
        answer = self.client.save_weights_and_get_sampling_client(**kwargs)
        return self.service.watched(await self._watched("a snapshot of the weights", answer))

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()

    def _watched(self, what: str, answer: Awaitable[T]) -> Awaitable[T]:
        return WatchedCall(self.service.watchdog, what, answer)


@define(eq=False)
class WatchedServiceClient:
    """See :class:`rlc.service.interface.ServiceClient`. ``limiter``: None if nothing is limited."""

    service: ServiceClient
    watchdog: Watchdog
    limiter: ConcurrencyLimiter | None

    @classmethod
    def of(cls, service: ServiceClient, note: Callable[[str], None]) -> WatchedServiceClient:
        """Wrap a service; ``note`` is called when its server cannot be reached."""
        if isinstance(service, RemoteService):
            return cls(service, Watchdog(note, service.ping), ConcurrencyLimiter())
        return cls(service, Watchdog(note), None)

    def begin(self, stage: TrainPlan | SftPlan) -> None:
        """Apply the deadlines and the concurrency of a stage from now on."""
        self.watchdog.limit(stage.deadlines)
        most = stage.sampling.concurrency if isinstance(stage, TrainPlan) else None
        if isinstance(self.service, RemoteService):
            assert self.limiter is not None
            self.limiter.concurrency.cap = most or MOST
        else:
            self.limiter = None if most is None else fixed_limiter(most)

    def pressed(self) -> None:
        """Record that the service says it has too much to do; it is not silent, then."""
        self.watchdog.heard()
        if self.limiter is not None:
            self.limiter.pressed()

    def metrics(self) -> dict[str, float]:
        """Return the limiter's metrics since the last call."""
        return {} if self.limiter is None else self.limiter.metrics()

    def watched(self, client: SamplingClient) -> SamplingClient:
        """Return a sampling client of this service with deadlines, limited if need be."""
        watched = WatchedSamplingClient(client, self.watchdog)
        return watched if self.limiter is None else LimitedSamplingClient(watched, self.limiter)

    async def create_lora_training_client(
        self, base_model: str, *args: Any, **kwargs: Any
    ) -> TrainingClient:
        answer = self.service.create_lora_training_client(base_model, *args, **kwargs)
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

    async def create_sampling_client(self, *args: Any, **kwargs: Any) -> SamplingClient:
        answer = self.service.create_sampling_client(*args, **kwargs)
        return self.watched(await self.watchdog.until("a sampling client", answer))

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        answer = self.service.delete_checkpoint(path)
        return WatchedCall(self.watchdog, f"the deletion of {path}", answer)

    async def _training(self, what: str, answer: Awaitable[TrainingClient]) -> TrainingClient:
        return WatchedTrainingClient(await self.watchdog.until(what, answer), self)
