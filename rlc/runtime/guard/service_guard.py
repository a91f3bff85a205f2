"""A service with deadlines: each request is answered in time, or ends the run.

Guards the clients of any service; their methods are those of :mod:`rlc.service.interface`. A remote
service's sampling is limited as well (:mod:`rlc.runtime.guard.adaptive_concurrency`). The embedded
engine has a queue of its own and is limited only if the recipe says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from attrs import define

from rlc.plan import Training
from rlc.runtime.guard.adaptive_concurrency import (
    MOST,
    ConcurrencyLimiter,
    LimitedSamplingClient,
    fixed_limiter,
)
from rlc.runtime.guard.watchdog import Watchdog, WatchedCall
from rlc.service import RemoteService, SamplingClient, ServiceClient, TrainingClient

# What the service owes after each call, in words. Methods that are not here answer at once.
_OWED: dict[str, Callable[..., str]] = {
    "sample": lambda _prompt, num_samples, *_, **__: f"{num_samples} sampled replies",
    "compute_logprobs": lambda *_, **__: "logprobs",
    "forward": lambda data, *_, **__: f"the loss of {len(data):,} sequences",
    "forward_backward": lambda data, *_, **__: f"the gradient of {len(data):,} sequences",
    "forward_backward_custom": lambda data, *_, **__: f"the gradient of {len(data):,} sequences",
    "optim_step": lambda *_, **__: "an optimiser step",
    "save_state": lambda name, *_, **__: f"the checkpoint {name}",
    "save_weights_for_sampler": lambda name, *_, **__: f"the weights {name}",
    "save_weights_and_get_sampling_client": lambda *_, **__: "a snapshot of the weights",
    "create_custom_loss": lambda *_, **__: "a custom loss",
    "create_sampling_client": lambda *_, **__: "a sampling client",
    "create_lora_training_client": lambda base_model, *_, **__: f"an adapter of {base_model}",
    "create_training_client_from_adapter": lambda folder, *_, **__: f"the adapter in {folder}",
    "create_training_client_from_state": lambda path, *_, **__: f"the weights of {path}",
    "create_training_client_from_state_with_optimizer": lambda path, *_, **__: f"the state {path}",
    "delete_checkpoint": lambda path: f"the deletion of {path}",
}


@define(eq=False)
class _WatchedClient:
    """A client of any kind whose answers, and whose clients', come in time."""

    client: Any
    guard: ServiceGuard

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if name not in _OWED:
            return method

        def call(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            what = _OWED[name](*args, **kwargs)
            answer = WatchedCall(self.guard.watchdog, what, method(*args, **kwargs))
            if name.endswith("sampling_client"):
                return self.guard.sampling(answer)
            return self.guard.training(answer) if "training_client" in name else answer

        return call


@define(eq=False)
class ServiceGuard:
    """Deadlines and limits of a service; ``limiter`` is None if its sampling is not limited."""

    service: ServiceClient
    watchdog: Watchdog
    limiter: ConcurrencyLimiter | None

    @classmethod
    def of(cls, service: ServiceClient, note: Callable[[str], None]) -> ServiceGuard:
        """Guard a service; ``note`` is called when its server cannot be reached."""
        if isinstance(service, RemoteService):
            return cls(service, Watchdog(note, service.ping), ConcurrencyLimiter())
        return cls(service, Watchdog(note), None)

    @property
    def client(self) -> ServiceClient:
        """The guarded service."""
        return cast(ServiceClient, _WatchedClient(self.service, self))

    async def training(self, answer: Awaitable[TrainingClient]) -> TrainingClient:
        """Wait for a training client of the service, and guard it."""
        return cast(TrainingClient, _WatchedClient(await answer, self))

    async def sampling(self, answer: Awaitable[SamplingClient]) -> SamplingClient:
        """Wait for a sampling client of the service, and guard it."""
        watched = cast(SamplingClient, _WatchedClient(await answer, self))
        return watched if self.limiter is None else LimitedSamplingClient(watched, self.limiter)

    def begin(self, stage: Training) -> None:
        """Apply the deadlines and the concurrency of a stage from now on."""
        self.watchdog.limit(stage.deadlines)
        most = None if stage.rollouts is None else stage.rollouts.sampling.concurrency
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
