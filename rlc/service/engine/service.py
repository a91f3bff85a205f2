"""The embedded engine's clients, as `rlc.service.interface` specifies them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import torch
from attrs import define, evolve, field, frozen
from tinker import types

from rlc.service import tiny
from rlc.service.engine.base_model import BaseModel, PrefixCache, WeightSnapshot, load_base
from rlc.service.engine.checkpoints import Checkpoint, CheckpointStore, Kind, read_peft
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.decoder import Decoder
from rlc.service.engine.lora import LoraAdapter, LoraSpec
from rlc.service.engine.losses import BuiltinLoss
from rlc.service.engine.sampling import (
    ContinuousWorker,
    Engine,
    SampleRequest,
    read_logprobs_request,
    read_request,
    run_wave,
)
from rlc.service.engine.scoring import ScoringRequest
from rlc.service.engine.trainer import (
    Trainer,
    restore,
    restore_optimizer,
    restored_adapter,
    state_arrays,
)
from rlc.service.engine.waves import WaveWorker, call_in
from rlc.service.interface import (
    LossConfig,
    LossHandle,
    MappedAwaitable,
    SampledToken,
    ServiceError,
    TokenMask,
)

AnyWorker = WaveWorker[SampleRequest] | ContinuousWorker


@define(eq=False)
class LocalSamplingClient:
    """A sampling client on one snapshot of the weights."""

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
        masks: Callable[[], TokenMask] | None = None,
    ) -> Awaitable[types.SampleResponse]:
        """Sample ``i`` depends on (seed, i), the prompt and the snapshot. ``on_token`` is called in
        the event loop with each token as it is sampled, the last one before the awaitable is done.
        ``masks`` returns a mask for each sample, on the engine's thread.
        """
        tell = None if on_token is None else partial(call_in, asyncio.get_running_loop(), on_token)
        of_prompt = include_prompt_logprobs, prompt_logprobs_last_n, topk_prompt_logprobs
        of_others = topk_sample_logprobs, target_prompt_logprobs, prompt_alt_tokens_k
        scoring = ScoringRequest(*of_prompt, *of_others)
        read = partial(read_request, self._engine, self._snapshot)
        return self._send(partial(read, prompt, num_samples, sampling_params, scoring, tell, masks))

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        reply = self._send(partial(read_logprobs_request, self._engine, self._snapshot, prompt))
        return MappedAwaitable(reply, lambda scored: scored.prompt_logprobs or [])

    def get_tokenizer(self) -> Any:
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
    """A training client. Calls run in the order they are made. A checkpoint does not have the
    gradient that no ``optim_step`` has used yet."""

    _worker: AnyWorker
    _engine: Engine
    trainer: Trainer
    _store: CheckpointStore
    _model: str | None = None  # the folder of its checkpoints, once it has one

    @property
    def spec(self) -> LoraSpec:
        return self.trainer.adapter.spec

    def forward(
        self, data: list[types.Datum], loss_fn: str | CustomLoss, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self._run(data, loss_fn, loss_fn_config, backward=False)

    def forward_backward(
        self, data: list[types.Datum], loss_fn: str | CustomLoss, loss_fn_config: LossConfig = None
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self._run(data, loss_fn, loss_fn_config, backward=True)

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: LossHandle
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self._run(data, cast(CustomLoss, loss_fn), None, backward=True)

    def _run(
        self, data: list[types.Datum], loss_fn: str | CustomLoss, config: LossConfig, backward: bool
    ) -> Awaitable[types.ForwardBackwardOutput]:
        def run() -> types.ForwardBackwardOutput:
            loss = BuiltinLoss.of(loss_fn, config) if isinstance(loss_fn, str) else loss_fn
            return self.trainer.run(data, loss, backward)

        return self._worker.submit(run)

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        return self._worker.submit(lambda: self.trainer.step(optim_params))

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsResponse]:
        save = partial(self._save, "weights", name, ttl_seconds, overwrite, user_metadata)
        return self._worker.submit(lambda: types.SaveWeightsResponse(path=save()))

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        save = partial(self._save, "sampler_weights", name, ttl_seconds, overwrite, user_metadata)
        return self._worker.submit(lambda: types.SaveWeightsForSamplerResponse(path=save()))

    def save_weights_external(
        self, name: str, ttl_seconds: int | None = None, recipients: Sequence[str] = ()
    ) -> Awaitable[types.SaveWeightsResponse]:
        """Save the adapter for other programs, as Hugging Face PEFT has it."""
        save = partial(self._save, "external_weights", name, ttl_seconds, False, None, recipients)
        return self._worker.submit(lambda: types.SaveWeightsResponse(path=save()))

    def save_weights_and_get_sampling_client(
        self, *, record_stability_info: bool = False
    ) -> Awaitable[LocalSamplingClient]:
        def create() -> LocalSamplingClient:
            snapshot = self._engine.base.snapshot(self.trainer.adapter)
            return LocalSamplingClient(self._worker, self._engine, snapshot)

        return self._worker.submit(create)

    def get_tokenizer(self) -> Any:
        return self._engine.base.tokenizer

    def load(self, path: str, optimizer: bool) -> Awaitable[None]:
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


_T = TypeVar("_T")
TINY = "tiny"
_GIB = 2**30
_MAX_ROWS = {"cpu": 256, "cuda": 1024}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@frozen
class ModelFacts:
    context: int  # tokens
    architecture: str
    folder: Path
    end_tokens: frozenset[int]  # of a text


@define(eq=False)
class LocalService:
    """The service client of the engine; see `rlc.service.engine.open_engine`."""

    device: torch.device
    store: CheckpointStore
    _worker: AnyWorker
    dtype: torch.dtype | None = None  # None: as `pick_dtype` does
    _engines: dict[Path, Engine] = field(factory=dict, init=False)

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
        model: str | None = None,
    ) -> Awaitable[LocalTrainingClient]:
        """``model`` is the folder of the checkpoints, by default the next ``model-<number>``."""

        def create() -> LocalTrainingClient:
            spec = LoraSpec(rank, train_mlp, train_attn, train_unembed)
            engine = self._engine(base_model)
            return self._client(engine, LoraAdapter.fresh(engine.base.layers, spec, seed), model)

        return self._worker.submit(create)

    def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None, model: str | None = None
    ) -> Awaitable[LocalTrainingClient]:
        return self._worker.submit(lambda: self._restored(path, model, optimizer=True))

    def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None, model: str | None = None
    ) -> Awaitable[LocalTrainingClient]:
        return self._worker.submit(lambda: self._restored(path, model, optimizer=False))

    def create_training_client_from_adapter(
        self, folder: str, base_model: str, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[LocalTrainingClient]:
        def create() -> LocalTrainingClient:
            engine = self._engine(base_model)
            return self._client(engine, read_peft(engine.base, Path(folder)), None)

        return self._worker.submit(create)

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        *,
        record_stability_info: bool = False,
    ) -> Awaitable[LocalSamplingClient]:
        def create() -> LocalSamplingClient:
            if (model_path is None) == (base_model is None):
                raise ServiceError("Give either model_path or base_model to sample from.")
            if base_model is not None:
                engine = self._engine(base_model)
                return LocalSamplingClient(self._worker, engine, engine.bare)
            assert model_path is not None
            engine, adapter, _ = self._load(model_path)
            return LocalSamplingClient(self._worker, engine, engine.base.snapshot(adapter))

        return self._worker.submit(create)

    def create_custom_loss(
        self, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> Awaitable[CustomLoss]:
        # Tracing changes torch's modules for a moment, so it takes its turn with computations.
        return self._worker.submit(lambda: CustomLoss.trace(fn, input_ranks))

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        return self.in_turn(lambda store: store.delete(path))

    def in_turn(self, work: Callable[[CheckpointStore], _T]) -> Awaitable[_T]:
        """Do something with the checkpoints that must not coincide with a save."""
        return self._worker.submit(lambda: work(self.store))

    def facts(self, base_model: str) -> Awaitable[ModelFacts]:
        """Load a base model and describe it."""

        def describe() -> ModelFacts:
            base = self._engine(base_model).base
            architecture = str(base.module.config.model_type)
            return ModelFacts(base.context, architecture, base.folder, base.end_tokens)

        return self._worker.submit(describe)

    def close(self) -> None:
        self._worker.close()

    def _engine(self, base_model: str) -> Engine:
        folder = find_folder(base_model)
        if folder not in self._engines:
            name = base_model if base_model == TINY else str(folder)
            self._engines[folder] = make_engine(load_base(name, folder, self.device, self.dtype))
        return self._engines[folder]

    def _restored(self, path: str, model: str | None, optimizer: bool) -> LocalTrainingClient:
        engine, adapter, checkpoint = self._load(path)
        client = self._client(engine, adapter, model)
        if optimizer:
            restore_optimizer(client.trainer, checkpoint)
        return client

    def _client(
        self, engine: Engine, adapter: LoraAdapter, model: str | None
    ) -> LocalTrainingClient:
        trainer = Trainer.of(engine.base, adapter, engine.token_budget)
        return LocalTrainingClient(self._worker, engine, trainer, self.store, model)

    def _load(self, path: str) -> tuple[Engine, LoraAdapter, Checkpoint]:
        checkpoint = self.store.load(path)
        engine = self._engine(checkpoint.description.base_model)
        return engine, restored_adapter(engine.base, checkpoint), checkpoint


def start_worker(threads: int | None, continuous: bool) -> AnyWorker:
    """Start the engine's thread, by default on this process's cores, at most 8."""
    if not threads:
        wanted = os.environ.get("OMP_NUM_THREADS", "")
        threads = int(wanted) if wanted.isdecimal() else min(len(os.sched_getaffinity(0)), 8)
    return ContinuousWorker(threads) if continuous else WaveWorker(run_wave, threads)


def pick_device(name: str | None) -> torch.device:
    """Return the device to compute on. Raise ServiceError if it is not there."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ServiceError(f"{name!r} is no device; say 'cpu' or 'cuda'.") from error
    if device.type not in _MAX_ROWS:
        raise ServiceError(f"The local engine runs on 'cpu' or 'cuda', not on {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ServiceError("This machine has no CUDA device that PyTorch can use.")
    return device


def read_dtype(name: str | None) -> torch.dtype | None:
    """Return the dtype of a name, by default the one in RLC_DTYPE; None if there is none. Raise
    ServiceError for another type than float32 and bfloat16."""
    name = name or os.environ.get("RLC_DTYPE")
    if name and name not in DTYPES:
        raise ServiceError(f"The local engine computes in {' or '.join(DTYPES)}, not in {name!r}.")
    return DTYPES[name] if name else None


def find_folder(base_model: str) -> Path:
    """Return the folder of a base model. Raise ServiceError if there is none."""
    if base_model == TINY:
        return tiny.path()
    folder = Path(base_model).expanduser()
    if not folder.is_dir():
        raise ServiceError(
            f"The local engine has no model {base_model!r}: "
            f"give {TINY!r}, or the folder of a Hugging Face causal language model."
        )
    return folder.resolve()


def make_engine(base: BaseModel) -> Engine:
    """Decide how much of the device's memory each part may use."""
    cuda = base.device.type == "cuda"
    memory = torch.cuda.mem_get_info(base.device)[0] if cuda else 4 * _GIB
    token_budget = max(256, memory // 8 // base.bytes_per_token)
    config = base.module.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_bytes_per_token = int(2 * base.dtype.itemsize * heads * head_dim * config.num_hidden_layers)
    decoder = Decoder(base, PrefixCache(memory // 8), chunk=token_budget)
    max_rows = _MAX_ROWS[base.device.type]
    return Engine(base, decoder, token_budget, max_rows, memory // 4 // kv_bytes_per_token)
