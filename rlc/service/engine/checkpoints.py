"""Checkpoints: one safetensors file each, its description as JSON in the file's header.

Writing one file is atomic. Paths read
``local://<model>/<weights|sampler_weights|external_weights>/<name>`` and are relative to the
engine's root, so that a run's folder can be moved. ``external_weights`` are adapters for other
programs, which the engine does not load: the files of Hugging Face PEFT (0.21).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import cattrs
import numpy as np
import safetensors
import safetensors.numpy
import torch
from attrs import define, evolve, field, frozen

from rlc.catalog import ADAPTER_CONFIG, ADAPTER_PREFIX, ADAPTER_WEIGHTS, STATE_HEADER
from rlc.service.engine.base_model import BaseModel
from rlc.service.engine.lora import ALPHA, LoraAdapter, LoraSpec
from rlc.service.interface import CheckpointError, ServiceError

SCHEME = "local://"
_FORMAT = 1
_SUFFIX = ".safetensors"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")

Kind = Literal["weights", "sampler_weights", "external_weights"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_PATH = re.compile(rf"local://({_MODEL.pattern})/({'|'.join(_KINDS)})/({_NAME.pattern})")
Arrays = dict[str, np.ndarray]


@frozen
class Description:
    """The description of a checkpoint. ``optimizer_steps`` is None if there is no optimiser."""

    base_model: str
    fingerprint: str
    lora: LoraSpec
    optimizer_steps: int | None
    expires_at: float | None  # seconds since the epoch
    user_metadata: dict[str, str] | None = None
    public: bool = False
    recipients: list[str] = field(factory=list)  # of age, to which an export is encrypted

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at < time.time()


@frozen(eq=False)
class Checkpoint:
    path: str
    arrays: Arrays
    description: Description


@frozen
class CheckpointInfo:
    path: str
    kind: Kind
    name: str
    saved_at: float  # seconds since the epoch
    size_bytes: int
    description: Description


def is_folder_name(name: str) -> bool:
    return (
        0 < len(name.encode(errors="replace")) <= 255
        and not set(name) & set("/\\\0")
        and not name.startswith(".")
    )


@define(eq=False)
class CheckpointStore:
    root: Path

    def claim_model(self) -> str:
        """Make the folder of a new model and return its name: ``model-1``, ``model-2``, …"""
        for number in itertools.count(1):
            try:
                (self.root / f"model-{number}").mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise ServiceError(f"Cannot write checkpoints in {self.root}: {error}.") from error
            break
        return f"model-{number}"

    def require_writable(self) -> None:
        """Make the root. Raise ServiceError if nothing can be written there."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise ServiceError(
                f"Cannot write checkpoints in {self.root}: {error.strerror or error}.",
                "--checkpoints names another folder",
            ) from error

    def save(
        self,
        model: str,
        kind: Kind,
        name: str,
        arrays: Arrays,
        description: Description,
        overwrite: bool = False,
    ) -> str:
        """Write a checkpoint and return its path; expired ones are deleted. Raise ServiceError if
        the name is taken (without ``overwrite``) or unusable, or the folder cannot be written."""
        if not _NAME.fullmatch(name) or not is_folder_name(f"{name}-temporary{_SUFFIX}"):
            raise ServiceError(
                "A checkpoint's name holds letters, digits, '.', '_' and '-', and fits in the name "
                f"of a file: not {name[:100]!r}."
            )
        file = self.root / model / kind / f"{name}{_SUFFIX}"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            for info in self._found():
                if info.description.expired:
                    self.file(info.path).unlink(missing_ok=True)
            _write(file, arrays, description, overwrite)
        except FileExistsError as error:
            raise ServiceError(
                f"There is a checkpoint {name!r} already; pass overwrite to replace it."
            ) from error
        except OSError as error:
            raise ServiceError(
                f"Cannot write the checkpoint {file}: {error.strerror or error}.",
                "make room on its disk, or see to the folder's permissions",
            ) from error
        return f"{SCHEME}{model}/{kind}/{name}"

    def load(self, path: str) -> Checkpoint:
        """Read a checkpoint by its path, or the file of another engine's. Raise CheckpointError if
        it is missing, damaged or expired."""
        file = self.file(path) if path.startswith(SCHEME) else Path(path)
        try:
            with safetensors.safe_open(str(file), framework="numpy") as opened:
                header, description = _read_header(opened)
                arrays = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
            if header["format"] != _FORMAT or header["sha256"] != _digest(arrays):
                raise ValueError("wrong checksum")
        except FileNotFoundError as error:
            where = f" in {self.root}" if path.startswith(SCHEME) else ""
            raise CheckpointError(f"There is no checkpoint {path}{where}.") from error
        except Exception as error:  # a damaged file makes the readers raise many kinds
            raise CheckpointError(
                f"The checkpoint {path} is damaged and cannot be read."
            ) from error
        if description.expired:
            raise CheckpointError(f"The checkpoint {path} has expired.")
        return Checkpoint(path, arrays, description)

    def list(self, model: str | None = None) -> list[CheckpointInfo]:
        """Return the checkpoints of one model or of all, newest first, without expired ones."""
        found = [info for info in self._found(model) if not info.description.expired]
        return sorted(found, key=lambda info: (-info.saved_at, info.path))

    def find(self, path: str) -> CheckpointInfo:
        """Describe one checkpoint. Raise ServiceError if it is missing or expired."""
        info = self._info(self.file(path))
        if info is None or info.description.expired:
            raise ServiceError(f"There is no checkpoint {path} in {self.root}.")
        return info

    def change(self, path: str, **described: Any) -> None:
        """Change a checkpoint's description. Raise ServiceError if it is missing or expired."""
        loaded, file = self.load(path), self.file(path)
        saved_at = file.stat().st_mtime
        _write(file, loaded.arrays, evolve(loaded.description, **described), overwrite=True)
        os.utime(file, (saved_at, saved_at))

    def copy(self, path: str, model: str, expires_at: float | None) -> str:
        """Copy a checkpoint to another model's folder, private, and return the path of the copy.
        Raise ServiceError as `load` and `save` do."""
        loaded, found = self.load(path), self.find(path)
        description = evolve(loaded.description, expires_at=expires_at, public=False)
        return self.save(model, found.kind, found.name, loaded.arrays, description)

    def delete_all_but(self, keep: Collection[str]) -> None:
        """Delete the other checkpoints and half-written files; nothing else may use the store."""
        for info in self._found():
            if info.path not in keep:
                self.file(info.path).unlink(missing_ok=True)
        for partial in self.root.glob("*/*weights/.*"):
            partial.unlink(missing_ok=True)

    def expiry(self, ttl_seconds: int | None) -> float | None:
        """Return the time at which something expires, in seconds since the epoch."""
        if ttl_seconds is not None and ttl_seconds <= 0:
            raise ServiceError(f"ttl_seconds must be positive, not {ttl_seconds}.")
        return None if ttl_seconds is None else time.time() + ttl_seconds

    def delete(self, path: str) -> None:
        """Delete a checkpoint. Raise CheckpointError if there is none."""
        try:
            self.file(path).unlink()
        except FileNotFoundError as error:
            raise CheckpointError(f"There is no checkpoint {path} in {self.root}.") from error

    def file(self, path: str) -> Path:
        """Return the file of a checkpoint, which need not exist. Raise ServiceError for what is not
        a path."""
        match = _PATH.fullmatch(path)
        if match is None or not all(map(is_folder_name, (match[1], f"{match[3]}{_SUFFIX}"))):
            raise ServiceError(
                f"{path[:100]!r} is no checkpoint of the local engine: "
                "such a path reads local://<model>/weights/<name>."
            )
        model, kind, name = match.groups()
        return self.root / model / kind / f"{name}{_SUFFIX}"

    def _found(self, model: str | None = None) -> Iterator[CheckpointInfo]:
        files = self.root.glob(f"{model or '*'}/*weights/*.safetensors")
        yield from filter(None, map(self._info, files))

    def _info(self, file: Path) -> CheckpointInfo | None:
        """Read a file's header; None if it is gone or damaged."""
        model, folder = file.parts[-3:-1]
        kind = next((kind for kind in _KINDS if kind == folder), None)
        if kind is None:
            return None
        # Another process may delete or damage a file meanwhile; it is theirs to report.
        with suppress(OSError, KeyError, ValueError, safetensors.SafetensorError):
            with safetensors.safe_open(str(file), framework="numpy") as opened:
                _, description = _read_header(opened)
            stat, name = file.stat(), file.name.removesuffix(_SUFFIX)
            path = f"{SCHEME}{model}/{kind}/{name}"
            return CheckpointInfo(path, kind, name, stat.st_mtime, stat.st_size, description)
        return None


def _read_header(opened: Any) -> tuple[Any, Description]:
    header = json.loads((opened.metadata() or {})[STATE_HEADER])
    return header, cattrs.structure(header["description"], Description)


def _write(file: Path, arrays: Arrays, description: Description, overwrite: bool) -> None:
    header: Mapping[str, Any] = {
        "format": _FORMAT,
        "sha256": _digest(arrays),
        "description": cattrs.unstructure(description),
    }
    content = safetensors.numpy.save(arrays, metadata={STATE_HEADER: json.dumps(header)})
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.stem}-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if overwrite:
            os.replace(temporary, file)
        else:
            os.link(temporary, file)  # unlike a rename, fails if there is a file
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        digest.update(f"{key} {arrays[key].shape} {_dtype_name(array.dtype)}\n".encode())
        digest.update(array.reshape(-1).data)
    return digest.hexdigest()


@cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy takes as long to write as a small array to be
    hashed."""
    return str(dtype)


def peft_key(layer: str, part: str) -> str:
    """Return the name of ``lora_A`` or ``lora_B`` of a layer."""
    return f"{ADAPTER_PREFIX}{layer}.{part}.weight"


def peft_arrays(arrays: Arrays) -> Arrays:
    """Return the adapter among the arrays of a checkpoint, as PEFT names it."""
    mark = "adapter/"
    names = {key: key.removeprefix(mark).rpartition(".") for key in arrays if key.startswith(mark)}
    return {peft_key(layer, part): arrays[key] for key, (layer, _, part) in names.items()}


def peft_config(base_model: str, rank: int, keys: Iterable[str]) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": rank,
        "lora_alpha": int(ALPHA),
        "lora_dropout": 0.0,
        "bias": "none",
        # As PEFT reads it: every layer whose name ends in one of these.
        "target_modules": sorted({key.split(".lora_")[0].rpartition(".")[2] for key in keys}),
        "inference_mode": True,
    }


def peft_scale(config: Mapping[str, Any]) -> float:
    """Return the factor of ``B A`` in an adapter of PEFT; the engine's is ``ALPHA / rank``."""
    rank = float(config["r"])
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def read_peft(base: BaseModel, folder: Path) -> LoraAdapter:
    """Return the adapter in a folder of PEFT. Layers that it lacks start fresh, which changes
    nothing at first. Raise ServiceError if it does not fit the base model."""
    try:
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        arrays = safetensors.numpy.load_file(folder / ADAPTER_WEIGHTS)
        rank, theirs = int(config["r"]), peft_scale(config)
    except Exception as error:  # damaged files make the readers raise many kinds
        raise CheckpointError(f"The adapter in {folder} cannot be read: {error}.") from error
    layers = dict.fromkeys(
        key.removeprefix(ADAPTER_PREFIX).removesuffix(".weight").rpartition(".")[0]
        for key in arrays
    )
    if unknown := [name for name in layers if name not in base.layers]:
        raise ServiceError(f"{base.name} has no layer {unknown[0]}, which {folder} adapts.")
    kinds = {base.layers[name].kind for name in layers}
    spec = LoraSpec(rank, "mlp" in kinds, "attn" in kinds, "unembed" in kinds)
    adapter = LoraAdapter.fresh(base.layers, spec, seed=0)
    factors = {"lora_A": 1.0, "lora_B": theirs / spec.scale}
    for layer in layers:
        for (part, factor), view in zip(factors.items(), adapter.pairs[layer], strict=True):
            array = arrays.get(peft_key(layer, part))
            if array is None or array.shape != tuple(view.shape):
                raise ServiceError(f"{part} of {layer} in {folder} does not fit {base.name}.")
            view.copy_(torch.from_numpy(array) * factor)
    return adapter
