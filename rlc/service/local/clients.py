"""The clients that programs hold: Tinker's methods, each an awaitable on the engine's thread."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import numpy as np
from attrs import define
from tinker import types

from rlc.service.errors import ServiceError
from rlc.service.local.checkpoints import CheckpointStore, Description, Kind
from rlc.service.local.live import LiveWorker
from rlc.service.local.model.base import Snapshot
from rlc.service.local.model.lora import Adapter
from rlc.service.local.restore import restore
from rlc.service.local.sampling.sampler import (
    Engine,
    SampleRequest,
    Scoring,
    read_logprobs_request,
    read_request,
)
from rlc.service.local.training.trainer import Trainer
from rlc.service.local.worker import Worker, failed

AnyWorker = Worker[SampleRequest] | LiveWorker
_numbers = itertools.count()


@define(eq=False)
class LocalSamplingClient:
    """Samples from one snapshot; see `rlc.service.interface.SamplingClient`."""

    _worker: AnyWorker
    _engine: Engine
    _snapshot: Snapshot

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        prompt_logprobs_last_n: int | None = None,
    ) -> Awaitable[types.SampleResponse]:
        """Draw completions. Sample ``i`` depends on (seed, i), the prompt and the snapshot.

        Without a seed the draws are fresh. The awaitable raises ServiceError for a request
        that cannot be honoured; others are not disturbed.
        """
        return self._send(
            lambda number: read_request(
                self._engine,
                self._snapshot,
                number,
                prompt,
                num_samples,
                sampling_params,
                Scoring(include_prompt_logprobs, prompt_logprobs_last_n, topk_prompt_logprobs),
            )
        )

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        """Log-probability of each prompt token given those before; the first is None."""
        reply = self._send(
            lambda number: read_logprobs_request(self._engine, self._snapshot, number, prompt)
        )

        async def unpack() -> list[float | None]:
            return (await reply).prompt_logprobs or []

        return unpack()

    def get_tokenizer(self) -> Any:
        """The Hugging Face tokenizer of the base model."""
        return self._engine.base.tokenizer

    def _send(self, read: Callable[[int], SampleRequest]) -> Awaitable[types.SampleResponse]:
        try:
            request = read(next(_numbers))
        except ServiceError as error:
            return failed(error)
        return self._worker.sample(request)


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
    _model: str | None = None  # its folder, once it has one

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Logprobs and loss, without a gradient."""
        return self._worker.submit(lambda: self.trainer.run(data, loss_fn, loss_fn_config, False))

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        """Logprobs and loss; the gradient of the summed loss is added to what is there."""
        return self._worker.submit(lambda: self.trainer.run(data, loss_fn, loss_fn_config, True))

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        """AdamW on the accumulated gradient, which is then cleared; see `Trainer.step`."""
        return self._worker.submit(lambda: self.trainer.step(optim_params))

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsResponse]:
        """Save weights and optimiser, exactly."""

        def save() -> types.SaveWeightsResponse:
            path = self._save("weights", name, ttl_seconds, overwrite, user_metadata)
            return types.SaveWeightsResponse(path=path)

        return self._worker.submit(save)

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        """Save the weights alone."""

        def save() -> types.SaveWeightsForSamplerResponse:
            path = self._save("sampler_weights", name, ttl_seconds, overwrite, user_metadata)
            return types.SaveWeightsForSamplerResponse(path=path)

        return self._worker.submit(save)

    def save_weights_and_get_sampling_client(self) -> Awaitable[LocalSamplingClient]:
        """A sampling client on the weights as they are after the calls made so far."""
        return self._worker.submit(
            lambda: LocalSamplingClient(self._worker, self._engine, self.trainer.snapshot())
        )

    def get_tokenizer(self) -> Any:
        """The Hugging Face tokenizer of the base model."""
        return self._engine.base.tokenizer

    def load(self, path: str, optimizer: bool) -> Awaitable[None]:
        """Go on from a saved state of the same shape; without ``optimizer`` with a fresh one.

        An accumulated gradient is dropped. Raises ServiceError, and changes nothing, for a
        checkpoint that is missing or of another base model or adapter.
        """
        return self._worker.submit(lambda: restore(self.trainer, self._store, path, optimizer))

    def _save(
        self,
        kind: Kind,
        name: str,
        ttl_seconds: int | None,
        overwrite: bool,
        user_metadata: dict[str, str] | None,
    ) -> str:
        expires_at = self._store.expiry(ttl_seconds)
        if self._model is None:
            self._model = self._store.claim_model()
        arrays, description = describe(self.trainer, kind, expires_at, user_metadata)
        return self._store.save(self._model, kind, name, arrays, description, overwrite)


def describe(
    trainer: Trainer, kind: Kind, expires_at: float | None, user_metadata: dict[str, str] | None
) -> tuple[dict[str, np.ndarray], Description]:
    """A trainer's content as named arrays: adapter, and for ``weights`` Adam's moments."""
    base, optimizer, spec = trainer.base, trainer.optimizer, trainer.adapter.spec
    vectors = {"adapter": optimizer.parameters_P}
    if kind == "weights":
        vectors |= {"adam_mean": optimizer.mean_P, "adam_square": optimizer.square_P}
    arrays = {}
    for label, vector_P in vectors.items():
        for name, (a, b) in Adapter.over(base.layers, spec, vector_P).pairs.items():
            arrays[f"{label}/{name}.lora_A"] = a.cpu().numpy()
            arrays[f"{label}/{name}.lora_B"] = b.cpu().numpy()
    steps = optimizer.steps if kind == "weights" else None
    return arrays, Description(base.name, base.fingerprint, spec, steps, expires_at, user_metadata)
