"""The embedded engine's service client: base models loaded once, adapters over them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from attrs import define, field, frozen

from rlc.service.engine.base_model import BaseModel, PrefixCache, load_base
from rlc.service.engine.checkpoints import Checkpoint, CheckpointStore, read_peft
from rlc.service.engine.clients import AnyWorker, LocalSamplingClient, LocalTrainingClient
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.decoder import Decoder
from rlc.service.engine.lora import LoraAdapter, LoraSpec
from rlc.service.engine.sampling import ContinuousWorker, Engine, run_wave
from rlc.service.engine.trainer import Trainer, restore_optimizer, restored_adapter
from rlc.service.engine.waves import WaveWorker
from rlc.service.interface import ServiceError

_T = TypeVar("_T")
TINY = "tiny"
_GIB = 2**30
_MAX_ROWS = {"cpu": 256, "cuda": 1024}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@frozen
class ModelFacts:
    """What a client may want to know of a base model."""

    context: int  # tokens
    architecture: str
    folder: Path
    end_tokens: frozenset[int]  # of a text


@define(eq=False)
class LocalService:
    """See `rlc.service.interface.ServiceClient`; made by `rlc.service.engine.connect`."""

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
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002 (nothing to bill)
        model: str | None = None,
    ) -> Awaitable[LocalTrainingClient]:
        """Create a fresh adapter; the same seed gives the same one.

        ``model`` is the folder of its checkpoints; None takes the next free ``model-<number>``.
        """

        def create() -> LocalTrainingClient:
            spec = LoraSpec(rank, train_mlp, train_attn, train_unembed)
            engine = self._engine(base_model)
            return self._client(engine, LoraAdapter.fresh(engine.base.layers, spec, seed), model)

        return self._worker.submit(create)

    def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002
        model: str | None = None,
    ) -> Awaitable[LocalTrainingClient]:
        """Continue from a saved state: the next steps are those the saved client would make."""
        return self._worker.submit(lambda: self._restored(path, model, optimizer=True))

    def create_training_client_from_state(
        self,
        path: str,
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002
        model: str | None = None,
    ) -> Awaitable[LocalTrainingClient]:
        """Continue from saved weights, with a fresh optimiser."""
        return self._worker.submit(lambda: self._restored(path, model, optimizer=False))

    def create_training_client_from_adapter(
        self,
        folder: str,
        base_model: str,
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002
    ) -> Awaitable[LocalTrainingClient]:
        """Continue from an adapter of Hugging Face PEFT; see `rlc.service.engine.checkpoints`."""

        def create() -> LocalTrainingClient:
            engine = self._engine(base_model)
            return self._client(engine, read_peft(engine.base, Path(folder)), None)

        return self._worker.submit(create)

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        *,
        record_stability_info: bool = False,  # noqa: ARG002 (datums hold all that it computes with)
    ) -> Awaitable[LocalSamplingClient]:
        """Sample from a checkpoint (of either kind) or from a bare base model."""

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
        """Trace a loss, which any training client of this engine can use."""
        # Tracing changes torch's modules for a moment, so it waits for those that compute.
        return self._worker.submit(lambda: CustomLoss.trace(fn, input_ranks))

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        """Delete a checkpoint. Raise ServiceError if there is none."""
        return self.in_turn(lambda store: store.delete(path))

    def in_turn(self, work: Callable[[CheckpointStore], _T]) -> Awaitable[_T]:
        """Do something with the checkpoints that must not meet a save of theirs."""
        return self._worker.submit(lambda: work(self.store))

    def facts(self, base_model: str) -> Awaitable[ModelFacts]:
        """Load a base model and describe it."""

        def describe() -> ModelFacts:
            base = self._engine(base_model).base
            kind = str(base.module.config.model_type)
            return ModelFacts(base.context, kind, base.folder, base.end_tokens)

        return self._worker.submit(describe)

    def close(self) -> None:
        """Finish what was submitted, and end the engine's thread."""
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
    if not threads:
        # The cores this process may use, at most 8: small models gain nothing from more.
        wanted = os.environ.get("OMP_NUM_THREADS", "")
        cores = len(os.sched_getaffinity(0))
        threads = int(wanted) if wanted.isdecimal() else min(cores, 8)
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
    """Return the type of that name, by default the one in RLC_DTYPE; None if there is none.

    Raise ServiceError for another type than float32 and bfloat16.
    """
    name = name or os.environ.get("RLC_DTYPE")
    if not name:
        return None
    if name not in DTYPES:
        raise ServiceError(f"The local engine computes in {' or '.join(DTYPES)}, not in {name!r}.")
    return DTYPES[name]


def find_folder(base_model: str) -> Path:
    """Return the folder of a base model. Raise ServiceError if there is none."""
    if base_model == TINY:
        from rlc.service import tiny

        return Path(tiny.path())
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
