"""The clients that programs hold: Tinker's methods, each an awaitable on the engine's thread.

See `rlc.service.interface` for what the methods promise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from attrs import define, evolve
from tinker import types

from rlc.service.engine.base_model import WeightSnapshot
from rlc.service.engine.checkpoints import CheckpointStore, Kind
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.losses import BuiltinLoss
from rlc.service.engine.sampling import (
    ContinuousWorker,
    Engine,
    SampleRequest,
    read_logprobs_request,
    read_request,
)
from rlc.service.engine.scoring import ScoringRequest
from rlc.service.engine.trainer import Trainer, restore, state_arrays
from rlc.service.engine.waves import WaveWorker, call_in
from rlc.service.interface import LossHandle, MappedAwaitable, SampledToken, ServiceError

AnyWorker = WaveWorker[SampleRequest] | ContinuousWorker


@define(eq=False)
class LocalSamplingClient:
    """Samples from one snapshot; see `rlc.service.interface.SamplingClient`."""

    _worker: AnyWorker
    _engine: Engine
    _snapshot: WeightSnapshot

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        prompt_logprobs_last_n: int | None = None,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: types.TensorData | None = None,
        prompt_alt_tokens_k: int = 0,
        *,
        on_token: Callable[[SampledToken], None] | None = None,
    ) -> Awaitable[types.SampleResponse]:
        """Draw completions. Sample ``i`` depends on (seed, i), the prompt and the snapshot.

        Without a seed the draws are fresh. The awaitable raises ServiceError for a request
        that cannot be honoured; others are not disturbed. ``on_token`` is called in the event loop
        with every token as it is sampled, and for the last time before the awaitable is done.
        """
        tell = None if on_token is None else partial(call_in, asyncio.get_running_loop(), on_token)
        scoring = ScoringRequest(
            include_prompt_logprobs,
            prompt_logprobs_last_n,
            topk_prompt_logprobs,
            topk_sample_logprobs,
            target_prompt_logprobs,
            prompt_alt_tokens_k,
        )
        return self._send(
            lambda: read_request(
                self._engine, self._snapshot, prompt, num_samples, sampling_params, scoring, tell
            )
        )

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        """Return the logprob of each prompt token given those before; None for the first."""
        reply = self._send(lambda: read_logprobs_request(self._engine, self._snapshot, prompt))
        return MappedAwaitable(reply, lambda scored: scored.prompt_logprobs or [])

    def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer of the base model."""
        return self._engine.base.tokenizer

    def _send(self, read: Callable[[], SampleRequest]) -> Awaitable[types.SampleResponse]:
        try:
            return self._worker.sample(read())
        except ServiceError as error:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future


@define(eq=False)
class LocalTrainingClient:
    """One adapter and its optimiser; see `rlc.service.interface.TrainingClient`.

    Calls run in the order they are made. A gradient that no ``optim_step`` has used yet is
    not part of a checkpoint.
    """

    _worker: AnyWorker
    _engine: Engine
    trainer: Trainer
    _store: CheckpointStore
    _model: str | None = None  # the folder of its checkpoints, once it has one

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Compute logprobs and loss, without a gradient."""
        return self._run(data, loss_fn, loss_fn_config, backward=False)

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Compute logprobs and loss, and add the gradient of the summed loss to what is there."""
        return self._run(data, loss_fn, loss_fn_config, backward=True)

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: LossHandle
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """The same with a loss of `LocalService.create_custom_loss`."""
        return self._run(data, cast(CustomLoss, loss_fn), None, backward=True)

    def _run(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        config: Mapping[str, float | str] | None,
        backward: bool,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        def run() -> types.ForwardBackwardOutput:
            loss = BuiltinLoss.of(loss_fn, config) if isinstance(loss_fn, str) else loss_fn
            return self.trainer.run(data, loss, backward)

        return self._worker.submit(run)

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        """Step AdamW on the accumulated gradient, and clear it; see `Trainer.step`."""
        return self._worker.submit(lambda: self.trainer.step(optim_params))

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsResponse]:
        """Save weights and optimiser, exactly."""
        save = partial(self._save, "weights", name, ttl_seconds, overwrite, user_metadata)
        return self._worker.submit(lambda: types.SaveWeightsResponse(path=save()))

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        """Save the weights alone."""
        save = partial(self._save, "sampler_weights", name, ttl_seconds, overwrite, user_metadata)
        return self._worker.submit(lambda: types.SaveWeightsForSamplerResponse(path=save()))

    def save_weights_external(
        self, name: str, ttl_seconds: int | None = None, recipients: Sequence[str] = ()
    ) -> Awaitable[str]:
        """Export the adapter for other programs, and return its path; see `state_arrays`."""
        save = partial(self._save, "external_weights", name, ttl_seconds, False, None, recipients)
        return self._worker.submit(save)

    def save_weights_and_get_sampling_client(
        self,
        *,
        record_stability_info: bool = False,  # noqa: ARG002 (datums hold all that it computes with)
    ) -> Awaitable[LocalSamplingClient]:
        """Return a sampling client on the weights as they are after the calls made so far."""
        return self._worker.submit(
            lambda: LocalSamplingClient(self._worker, self._engine, self.trainer.snapshot())
        )

    def get_tokenizer(self) -> Any:
        """Return the Hugging Face tokenizer of the base model."""
        return self._engine.base.tokenizer

    def load(self, path: str, optimizer: bool) -> Awaitable[None]:
        """Continue from a saved state of the same shape; see `restore`."""
        return self._worker.submit(lambda: restore(self.trainer, self._store, path, optimizer))

    def _save(
        self,
        kind: Kind,
        name: str,
        ttl_seconds: int | None,
        overwrite: bool,
        user_metadata: dict[str, str] | None,
        recipients: Sequence[str] = (),
    ) -> str:
        expires_at = self._store.expiry(ttl_seconds)
        if self._model is None:
            self._model = self._store.claim_model()
        arrays, description = state_arrays(self.trainer, kind, expires_at, user_metadata)
        description = evolve(description, recipients=list(recipients))
        return self._store.save(self._model, kind, name, arrays, description, overwrite)
