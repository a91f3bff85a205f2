"""Tinker's clients behind `rlc.service.interface`; every error is a sentence."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import tinker
from attrs import define, field, frozen
from tinker import types

from rlc.plan import elapsed
from rlc.seeds import sample_seed
from rlc.service.hosted.refusals import translate, translate_in_client
from rlc.service.hosted.sdk import result_of, snapshot, start_thread
from rlc.service.interface import (
    LossConfig,
    LossHandle,
    MappedAwaitable,
    ServiceError,
    ServiceLostError,
)

if TYPE_CHECKING:
    from tinker import APIFuture
    from tinker.lib.public_interfaces.custom_loss import LossHandle as SdkLoss


# The SDK waits an hour for an account that is paused for its billing; its own message about that
# should come first.
PATIENCE_SECONDS = 75 * 60.0

_T = TypeVar("_T")


@define(eq=False)
class Patience:
    """Seconds that a service may be silent, over all requests, before a run stops waiting. A
    service with a full queue accepts requests and answers none. ``last_word`` is its message about
    the queue. ``pause`` returns until when the SDK holds samples back, after one was refused as too
    many; ``pressed`` is called when that has happened again."""

    where: str
    seconds: float = PATIENCE_SECONDS
    last_word: str = ""
    pause: Callable[[], float | None] = lambda: None
    pressed: Callable[[], None] = lambda: None
    _paused: float | None = field(default=None, init=False)
    _heard: float = field(factory=time.monotonic)

    def heard(self) -> None:
        self._heard = time.monotonic()
        if (paused := self.pause()) != self._paused:
            self._paused = paused
            self.pressed()

    def left(self, start: float) -> float:
        """Return the seconds until a request made at ``start`` (monotonic) is abandoned."""
        return max(self._heard, start) + self.seconds - time.monotonic()

    def lost(self) -> ServiceLostError:
        why = self.last_word or "its queue may be full"
        message = f"{self.where} has answered nothing for {elapsed(self.seconds)}: {why}"
        return ServiceLostError(message, "the run can be resumed later")


@define(eq=False)
class PendingReply(Generic[_T]):
    """The answer to a request that is under way; awaiting it raises ServiceError."""

    _future: APIFuture[_T]
    _patience: Patience
    _translate: Callable[[BaseException, str], ServiceError] = translate
    _start: float = field(factory=time.monotonic)

    def __await__(self) -> Generator[Any, None, _T]:
        return self._wait().__await__()

    async def _wait(self) -> _T:
        task = asyncio.ensure_future(result_of(self._future))
        try:
            while not task.done():
                left = self._patience.left(self._start)
                if left <= 0:
                    raise self._patience.lost()
                await asyncio.wait([task], timeout=left)
            answer: _T = task.result()
        except Exception as error:
            raise self._translate(error, self._patience.where) from error
        finally:
            task.cancel()
        self._patience.heard()
        return answer


def submit(
    ask: Callable[[], APIFuture[_T]],
    patience: Patience,
    explain: Callable[[BaseException, str], ServiceError] = translate,
) -> PendingReply[_T]:
    """Make a request now. Raise ServiceError if the SDK does not send it."""
    try:
        return PendingReply(ask(), patience, explain)
    except Exception as error:
        raise translate(error, patience.where) from error


async def in_thread(work: Callable[[], _T]) -> _T:
    return await asyncio.wrap_future(start_thread(work))


def own_tokenizer(client: tinker.TrainingClient | tinker.SamplingClient, name: str) -> Any:
    """Return a tokenizer for one client alone. Raise ServiceError if it cannot be loaded."""
    try:
        # The SDK has one for all clients of a process, and it serves one thread at a time.
        return copy.deepcopy(client.get_tokenizer())
    except Exception as error:  # transformers and its hub raise many kinds
        why = str(error).strip().split("\n")[0][:200]
        hint = "it comes from the Hugging Face hub, or from its cache on this machine"
        raise ServiceError(f"cannot load the tokenizer `{name}`: {why}", hint) from error


@define(eq=False)
class HostedSamplingClient:
    """A sampling client. Some servers give every sample of a seeded request the same random stream.
    If ``separate`` returns true, such a request is made once for each sample, with seeds derived
    from its own."""

    sdk: tinker.SamplingClient
    _patience: Patience
    separate: Callable[[], bool]
    _known: Callable[[str], Any] = lambda _: None  # the tokenizer of a base model, if it is loaded

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
    ) -> Awaitable[types.SampleResponse]:
        scores = include_prompt_logprobs, topk_prompt_logprobs, topk_sample_logprobs

        def ask(count: int, params: types.SamplingParams) -> PendingReply[types.SampleResponse]:
            return submit(lambda: self.sdk.sample(prompt, count, params, *scores), self._patience)

        seed = sampling_params.seed
        if num_samples == 1 or seed is None or not self.separate():
            return ask(num_samples, sampling_params)
        seeds = [sample_seed(seed, i) for i in range(num_samples)]
        replies = [ask(1, sampling_params.model_copy(update={"seed": s})) for s in seeds]
        return _joined(replies, prompt.length)

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        return submit(lambda: self.sdk.compute_logprobs(prompt), self._patience)

    def get_tokenizer(self) -> Any:
        base = self.sdk.get_base_model()
        known = self._known(base)
        return own_tokenizer(self.sdk, base) if known is None else copy.deepcopy(known)


async def _joined(
    replies: Sequence[PendingReply[types.SampleResponse]], prompt_length: int
) -> types.SampleResponse:
    """Join responses of one sample each. The cache hits of a response are those of one prompt; the
    prompts of its other samples count as hits. To keep that account right, the hits of the joined
    response are one prompt less what all requests paid for in full; that can be below 0."""
    responses = await asyncio.gather(*replies)
    paid = sum(prompt_length - response.prompt_cache_hit_tokens for response in responses)
    return replace(
        responses[0],
        sequences=[sequence for response in responses for sequence in response.sequences],
        prompt_cache_hit_tokens=prompt_length - paid,
    )


@frozen(eq=False)
class HostedLoss:
    sdk: SdkLoss

    @property
    def name(self) -> str:
        return self.sdk.name

    @property
    def in_client(self) -> bool:
        return self.sdk.loss_id is None


@define(eq=False)
class HostedTrainingClient:
    """A training client. Requests run in the order they are made."""

    sdk: tinker.TrainingClient
    _tokenizer: Any
    _metadata: Mapping[str, str]
    _patience: Patience
    _separate: Callable[[], bool]

    def forward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        name = cast(types.LossFnType, loss_fn)
        return submit(lambda: self.sdk.forward(data, name, loss_fn_config), self._patience)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        name = cast(types.LossFnType, loss_fn)
        return submit(lambda: self.sdk.forward_backward(data, name, loss_fn_config), self._patience)

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: LossHandle
    ) -> Awaitable[types.ForwardBackwardOutput]:
        loss = cast(HostedLoss, loss_fn)
        explain = partial(translate_in_client, loss=loss.name) if loss.in_client else translate

        def ask() -> tinker.APIFuture[types.ForwardBackwardOutput]:
            try:
                return self.sdk.forward_backward_custom(data, loss.sdk)
            except ValueError as error:  # data that lack an input, which ends nothing
                raise ServiceError(str(error)) from error

        return submit(ask, self._patience, explain)

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        return submit(lambda: self.sdk.optim_step(optim_params), self._patience)

    def save_state(
        self, name: str, ttl_seconds: int | None = None, overwrite: bool = False
    ) -> Awaitable[types.SaveWeightsResponse]:
        save = partial(self.sdk.save_state, name, ttl_seconds, overwrite, dict(self._metadata))
        return submit(save, self._patience)

    def save_weights_for_sampler(
        self, name: str, ttl_seconds: int | None = None
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        save = partial(self.sdk.save_weights_for_sampler, name, ttl_seconds, dict(self._metadata))
        return submit(save, self._patience)

    def save_weights_and_get_sampling_client(
        self, *, record_stability_info: bool = False
    ) -> Awaitable[HostedSamplingClient]:
        # The SDK's unnamed snapshots are ephemeral: no checkpoint is left behind, none is billed.
        reply = submit(partial(snapshot, self.sdk, record_stability_info), self._patience)
        shared = self._patience, self._separate, lambda _: self._tokenizer
        return MappedAwaitable(reply, lambda sdk: HostedSamplingClient(sdk, *shared))

    def get_tokenizer(self) -> Any:
        return self._tokenizer
