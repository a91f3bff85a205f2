"""Tinker's client interface of a training service, as protocols; its errors; pending calls.

Every name, argument and default is the official SDK's (tinker 0.38), and the data are its own
``tinker.types``. The hosted service, a compatible server and the embedded engine implement it; the
runtime knows only this module. Each call returns an awaitable at once, so that
``forward_backward`` and ``optim_step`` can be submitted together.

The embedded engine answers requests in waves, and a wave should hold all that the program can
request before it needs an answer. So code that plays environments marks the calls that it waits for
and after which it makes another request. An environment may take for ever, so a wave waits for it
about a second; for a call that is ``ours``, and surely ends, it waits as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

from attrs import define, frozen

from rlc.errors import Error
from rlc.plan import Sampling

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from tinker import types


class ServiceError(Error):
    """A request that a training service refused or could not carry out. The message is one sentence
    for the user: what is wrong, and what would be right."""


class ServiceLostError(ServiceError):
    """The service as a whole has failed: another request would fail, too."""


class CheckpointError(ServiceError):
    """A saved state that is missing, damaged or expired; an older one may serve."""


class UndeletableError(ServiceError):
    """The service has no way to delete a saved state, which therefore stays there."""


_T = TypeVar("_T")
R = TypeVar("R")


@frozen(eq=False)
class MappedAwaitable(Generic[_T, R]):
    """Awaits ``make(result of work)``. ``work`` is under way already, and unlike a coroutine this
    need not be awaited."""

    work: Awaitable[_T]
    make: Callable[[_T], R]

    def __await__(self) -> Generator[Any, None, R]:
        return self.make((yield from self.work.__await__()))


LossConfig = Mapping[str, float | str] | None
SessionEnd = Literal["success", "errored", "interrupted"]


@frozen
class SamplingRequest(Sampling):
    """The sampling of replies to one prompt, and what to return beside their tokens."""

    seed: int | None = None
    n: int = 1  # replies
    top_logprobs: int = 0  # of the most likely tokens beside each sampled one
    prompt_logprobs: bool = False  # the same for the tokens of the prompt


def sampling_params(
    sampling: Sampling, seed: int | None, stop: Sequence[str] | Sequence[int] | None
) -> types.SamplingParams:
    """Return the parameters of a sampling request; ``stop`` holds all that ends a reply."""
    from tinker import types

    return types.SamplingParams(
        max_tokens=sampling.max_tokens,
        seed=seed,
        stop=stop,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )


@frozen
class SampledToken:
    """A token of a sampling request whose reply is streamed."""

    sample: int  # which of the request's samples
    token: int
    logprob: float
    topk: tuple[tuple[int, float], ...]  # the most likely tokens and their logprobs
    stop_reason: Literal["stop", "length"] | None  # None unless it is the last of its sample


class TokenMask(Protocol):
    """What may be sampled in a reply, token by token."""

    def allowed(self, tokens: Sequence[int], left: int) -> npt.NDArray[np.bool_]:
        """Return which tokens may follow ``tokens``, if ``left`` are sampled at most: one at least.
        It is called for each token of one reply in turn."""


class SamplingClient(Protocol):
    """Samples from one fixed snapshot of the weights."""

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        *,
        topk_sample_logprobs: int = 0,
    ) -> Awaitable[types.SampleResponse]:
        """Sample ``num_samples`` completions; each has its own random stream.

        Logprobs of samples, and of the ``topk_sample_logprobs`` most likely tokens in the place of
        each sampled one, include the temperature. Those of the prompt, and of the
        ``topk_prompt_logprobs`` most likely tokens in the place of each of its tokens, are at
        temperature 1. The reply is a function of the arguments and the snapshot: the same ``seed``
        gives the same tokens, whatever else is being sampled.
        """

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        """Return the logprob of each prompt token given those before; the first is None."""

    def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer of the base model; loading it may block."""


class LossHandle(Protocol):
    """A custom loss of a service, for its training clients; see `create_custom_loss`."""

    @property
    def name(self) -> str:
        """The name of its function."""

    @property
    def in_client(self) -> bool:
        """Whether this client computes the loss, which costs half as much again."""


class TrainingClient(Protocol):
    """One LoRA adapter and its optimiser."""

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]: ...

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Add the gradient of the summed loss; nothing is averaged.
        ``loss_fn_outputs[i]["logprobs"]`` holds the trainer's logprobs of datum ``i``;
        ``metrics["loss:sum"]`` the loss."""

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: LossHandle
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Add the gradient of a custom loss of this service, whose metrics are in ``metrics``.
        Raise ServiceError, and leave the accumulated gradient as it was, if the loss cannot be
        computed. If it is computed in this client, the error ends the client: it is a
        ServiceLostError."""

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        """Step AdamW on the accumulated gradient, and clear it. ``metrics["grad_norm"]`` is the
        norm before clipping, if the service reports it."""

    def save_state(
        self, name: str, ttl_seconds: int | None = None, overwrite: bool = False
    ) -> Awaitable[types.SaveWeightsResponse]:
        """Save weights and optimiser; the response's ``path`` restores both."""

    def save_weights_and_get_sampling_client(
        self, *, record_stability_info: bool = False
    ) -> Awaitable[SamplingClient]:
        """Return a sampling client on a snapshot of the current weights. With
        ``record_stability_info`` the service keeps the samples for a day, so that datums of this
        session can name their sequences (``Datum.with_provenance``)."""

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        """Save the weights alone; the response's ``path`` can be sampled from."""

    def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer of the base model."""


class ServiceClient(Protocol):
    """Creates the other clients."""

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[TrainingClient]: ...

    def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[TrainingClient]: ...

    def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[TrainingClient]:
        """Start from saved weights with a fresh optimiser. On this machine a path may also be the
        file of another run's checkpoint."""

    def create_training_client_from_adapter(
        self, folder: str, base_model: str, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[TrainingClient]:
        """Start from an adapter of Hugging Face PEFT with a fresh optimiser; not in Tinker's
        interface. Raise ServiceError if the service takes none, or it does not fit the model."""

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        *,
        record_stability_info: bool = False,
    ) -> Awaitable[SamplingClient]: ...

    def create_custom_loss(
        self, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> Awaitable[LossHandle]:
        """Trace a loss of torch functions, once for a session.

        ``fn`` gets the trainer's ``logprobs`` of a datum and the ``loss_fn_inputs`` that its other
        parameters name, as tensors of the ranks ``input_ranks``: 0, 1 ([T]) or 2 ([T, K]). It
        returns the loss, a scalar tensor, and a dict of scalar tensors ``custom/<name>:sum`` or
        ``:mean``. The losses of all datums are summed. Raise ServiceError for a function that
        cannot be traced, or does what the service does not compute.
        """

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        """Delete a saved state by its path, if it still exists. Raise UndeletableError if the
        service cannot delete any."""


class Listener(Protocol):
    """Callbacks of a remote service, which must return quickly."""

    def note(self, text: str) -> None:
        """Show a message to the user, such as a pause or a full queue."""

    def pressed(self) -> None:
        """Note that the service is overloaded: it refuses requests, or its queue is full."""

    def record(self, event: dict[str, Any]) -> None:
        """Keep the ids of a session or a model for the records of the run."""


@runtime_checkable
class RemoteService(ServiceClient, Protocol):
    """A service over a network."""

    @property
    def server(self) -> str:
        """The address of the server."""

    def get_server_capabilities(self) -> Awaitable[types.GetServerCapabilitiesResponse]:
        """Return the models that the server trains and samples, and their contexts."""

    async def ping(self) -> None:
        """Raise ServiceError if its server cannot be reached now."""

    async def is_rlc(self) -> bool:
        """Return whether it is rlc's own server, whose definitions of all losses are known."""

    def separate_samples(self) -> None:
        """From now on request each sample of a seeded request alone, with its own seed."""

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` on pauses and overload, and on new sessions and models."""

    async def close(self, end: SessionEnd) -> None:
        """Finish the session. An error is only logged, since the run is over."""


@define
class PendingCalls:
    """The numbers of pending calls in an event loop, and how often they have changed."""

    ours: int = 0
    environments: int = 0
    changes: int = 0

    def add(self, ours: bool, change: int) -> None:
        self.ours += change * ours
        self.environments += change * (not ours)
        self.changes += 1


_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, PendingCalls] = WeakKeyDictionary()


def calls_of(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    """Return the numbers of a loop's pending calls, which are updated."""
    return _CALLS.setdefault(loop, PendingCalls())


@define(eq=False)
class _Call:
    """A pending call, which is not counted while it waits for requests of its own (``asking``)."""

    ours: bool
    asking: int = 0
    over: bool = False


_AROUND: ContextVar[_Call | None] = ContextVar("pending_call", default=None)


@contextmanager
def pending_call(ours: bool = False) -> Iterator[None]:
    """Count a call after which the program may make another request to a service."""
    calls, call = calls_of(asyncio.get_running_loop()), _Call(ours)
    calls.add(ours, 1)
    token = _AROUND.set(call)
    try:
        yield
    finally:
        _AROUND.reset(token)
        call.over = True
        if not call.asking:
            calls.add(ours, -1)


@contextmanager
def asking() -> Iterator[None]:
    """Do not count the call around a request to the service that it waits for."""
    calls, call = calls_of(asyncio.get_running_loop()), _AROUND.get()
    if call is None or call.over:
        yield
        return
    call.asking += 1
    if call.asking == 1:
        calls.add(call.ours, -1)
    try:
        yield
    finally:
        call.asking -= 1
        if not call.asking and not call.over:
            calls.add(call.ours, 1)
