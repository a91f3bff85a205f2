"""A frozen base model in float32 or bfloat16, shared by every adapter over it; a prefix cache.

Dimensions: N stream tokens, M of them whose logits are wanted, V vocabulary.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import threading
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import transformers
from attrs import define, field, frozen
from tinker import types
from torch import Tensor

from rlc.service.engine.attention import (
    NAME,
    AttentionLayout,
    IntArray,
    PackLayout,
    common_prefix,
    pack,
    sort_key,
    using,
)
from rlc.service.engine.lora import LoraAdapter, LoraLinear, install
from rlc.service.interface import ServiceError

_LAYER_TYPES = {"full_attention", "sliding_attention"}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
_MERGED_KEPT = 2  # the snapshot in use and the one before it


@frozen(eq=False)
class WeightSnapshot:
    """Weights that no longer change: an adapter, or the bare base model."""

    adapter: LoraAdapter | None


@define(eq=False)
class BaseModel:
    """A causal language model whose linear layers take adapters; see `load_base`."""

    name: str
    folder: Path
    module: Any = field(repr=False)
    layers: dict[str, LoraLinear] = field(repr=False)
    device: torch.device
    _merged: OrderedDict[WeightSnapshot, dict[str, Tensor]] = field(factory=OrderedDict, init=False)
    _used: WeightSnapshot | LoraAdapter | None = field(default=None, init=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, keys, values and activations."""
        return self.module.dtype  # type: ignore[no-any-return]

    def logits(
        self, tokens_N: IntArray, positions_N: IntArray, layout: AttentionLayout, keep_M: Tensor
    ) -> Tensor:
        """Return the logits [M, V] in float32 of the stream tokens ``keep_M`` with the current
        adapter or snapshot."""
        with using(layout):
            out = self.module(
                input_ids=torch.from_numpy(tokens_N).to(self.device)[None],
                position_ids=torch.from_numpy(positions_N).to(self.device)[None],
                use_cache=False,
                logits_to_keep=keep_M,
            )
        return out.logits[0]  # type: ignore[no-any-return]

    def packed_logits(self, sequences: Sequence[IntArray]) -> tuple[Tensor, Sequence[IntArray]]:
        """Return the logits [N, V] of a packed stream of sequences, and their paths in it."""
        packed = pack(sequences)
        everything = torch.arange(len(packed.tokens_N), device=self.device)
        layout = PackLayout.of(packed, self.device)
        return self.logits(packed.tokens_N, packed.positions_N, layout, everything), packed.paths

    def use_adapter(self, adapter: LoraAdapter) -> None:
        """Compute with the base weights and an unmerged adapter from now on, as training does."""
        if adapter is self._used:
            return
        self._used = adapter
        for name, layer in self.layers.items():
            layer.merged = None
            layer.pair = adapter.pairs.get(name)
            layer.scale = adapter.spec.scale

    def snapshot(self, adapter: LoraAdapter) -> WeightSnapshot:
        """Return a copy of an adapter in the dtype of the model."""
        copied_P = adapter.flat_P.detach().to(self.dtype, copy=True)
        return WeightSnapshot(LoraAdapter.over(self.layers, adapter.spec, copied_P))

    def use_snapshot(self, snapshot: WeightSnapshot) -> None:
        """Compute with a snapshot from now on, as sampling does; in float32 it is merged."""
        adapter, merged = snapshot.adapter, dict[str, Tensor]()
        if adapter is not None and self.dtype != torch.float32:
            self.use_adapter(adapter)
            return
        if snapshot is self._used:  # each turn of sampling asks
            return
        self._used = snapshot
        if adapter is not None:
            if snapshot not in self._merged:
                while len(self._merged) >= _MERGED_KEPT:
                    self._merged.popitem(last=False)
                self._merged[snapshot] = {
                    name: torch.addmm(self.layers[name].weight, b, a, alpha=adapter.spec.scale)
                    for name, (a, b) in adapter.pairs.items()
                }
            self._merged.move_to_end(snapshot)
            merged = self._merged[snapshot]
        for name, layer in self.layers.items():
            layer.merged = merged.get(name)
            layer.pair = None

    def token_ids(self, model_input: types.ModelInput, where: str) -> IntArray:
        """Return the token ids of an input. Raise ServiceError, whose message begins with
        ``where``, for an input that is empty, has images or sounds, has an id outside the
        vocabulary, or is longer than the context."""
        try:
            if (length := model_input.length) > self.context:
                raise ServiceError(
                    f"{where} has {length} tokens, more than the model's context of {self.context}."
                )
            tokens = np.asarray(model_input.to_ints(), dtype=np.int64)
        except ValueError as error:
            message = f"{where}: the local engine reads text only, no images or sounds."
            raise ServiceError(message) from error
        except OverflowError as error:
            raise ServiceError(f"{where}: a token's id has more than 64 bits.") from error
        if not len(tokens):
            raise ServiceError(f"{where} has no tokens.")
        outside = tokens[(tokens < 0) | (tokens >= self.vocabulary)]
        if len(outside):
            raise ServiceError(
                f"{where}: token {int(outside[0])} is outside the vocabulary of "
                f"{self.vocabulary} tokens."
            )
        return tokens

    @cached_property
    def context(self) -> int:
        return int(self.module.config.max_position_embeddings)

    @cached_property
    def depth(self) -> int:
        return int(self.module.config.num_hidden_layers)

    @cached_property
    def vocabulary(self) -> int:
        """The number of token ids with logits."""
        return int(self.module.get_output_embeddings().weight.shape[0])

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text by default."""
        sources = (self.module.generation_config, self.module.config)
        found = next((s.eos_token_id for s in sources if s.eos_token_id is not None), None)
        if found is None:
            found = self.tokenizer.eos_token_id
        return frozenset(found if isinstance(found, list) else () if found is None else (found,))

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the folder. Raise ServiceError if there is none."""
        # Without any of these files transformers returns an empty tokenizer.
        if not any((self.folder / file).is_file() for file in _TOKENIZER_FILES):
            raise ServiceError(f"{self.folder} has no tokenizer.")
        try:
            return transformers.AutoTokenizer.from_pretrained(str(self.folder))
        except (OSError, ValueError) as error:
            raise ServiceError(f"The tokenizer in {self.folder} cannot be loaded.") from error

    @cached_property
    def decoding_tokenizer(self) -> Any:
        """A tokenizer for the thread that samples: one cannot be used by two threads at a time."""
        return copy.deepcopy(self.tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the configuration and the sizes of the files, to tell models apart."""
        digest = hashlib.sha256((self.folder / "config.json").read_bytes())
        for file in sorted(self.folder.glob("*.safetensors")):
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        return digest.hexdigest()

    @property
    def bytes_per_token(self) -> int:
        """An estimate of the activations that one token's forward pass keeps."""
        config = self.module.config
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        per_layer = 16 * int(config.hidden_size) + 5 * int(inner)
        return self.dtype.itemsize * per_layer * self.depth + 4 * 4 * self.vocabulary


_LOADING = threading.Lock()  # transformers switches off initialisation for the whole process


def load_base(
    name: str, folder: Path, device: torch.device, dtype: torch.dtype | None = None
) -> BaseModel:
    """Load a Hugging Face causal language model from a folder, in ``dtype``; see `pick_dtype`.
    Raise ServiceError if there is none, or if the engine does not support its attention."""
    if not (folder / "config.json").is_file():
        raise ServiceError(f"There is no model in {folder}: it has no config.json.")
    transformers.utils.logging.disable_progress_bar()
    try:
        with _LOADING:
            saved = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
            dtype = pick_dtype(dtype, device, saved.dtype)
            module: Any = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=dtype, attn_implementation=NAME, local_files_only=True
            )
    except Exception as error:  # transformers raises many kinds for a damaged folder
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ServiceError(f"The model in {folder} cannot be loaded: {reason}") from error
    kind = type(module).__name__
    layer_types = set(getattr(module.config, "layer_types", None) or ())
    if not module._supports_attention_backend or layer_types - _LAYER_TYPES:
        raise ServiceError(
            f"The local engine does not support the attention of {kind} ({name}): "
            "it runs decoders with full or sliding-window attention."
        )
    if "logits_to_keep" not in inspect.signature(module.forward).parameters:
        raise ServiceError(f"The local engine does not support {kind} ({name}).")
    module.requires_grad_(False).eval().to(device)
    base = BaseModel(name, folder, module, install(module), device)
    _check_faithful(base)
    return base


def pick_dtype(
    wanted: torch.dtype | None, device: torch.device, saved: torch.dtype | None
) -> torch.dtype:
    """Return ``wanted``, or by default on a GPU bfloat16 for a model that was saved in it, else
    float32. A model saved in bfloat16 was trained in it, and loses nothing in it; a GPU then reads
    half as much for a token, and multiplies several times faster. A CPU without AMX gains
    nothing."""
    in_half = device.type == "cuda" and saved == torch.bfloat16
    return wanted or (torch.bfloat16 if in_half else torch.float32)


def _check_faithful(base: BaseModel) -> None:
    """Raise ServiceError if the engine's attention differs from transformers' own on a few tokens,
    as it does for an architecture whose attention has a feature that the engine lacks."""
    ids = np.arange(1, 8, dtype=np.int64) * 37 % base.vocabulary
    branches = [ids[:5], np.concatenate([ids[:3], ids[4:]])]
    with torch.inference_mode():
        ours, paths = base.packed_logits(branches)
        base.module.set_attn_implementation("eager")
        theirs = [
            base.module(torch.from_numpy(b)[None].to(base.device)).logits[0] for b in branches
        ]
        base.module.set_attn_implementation(NAME)
    for path, expected in zip(paths, theirs, strict=True):
        if base.dtype == torch.float32:
            same = torch.allclose(ours[path], expected, rtol=1e-3, atol=1e-3)
        else:  # rounding adds up over the layers, to 0.02 of 64 of them
            same = bool((ours[path] - expected).norm() <= 0.05 * expected.norm())
        if not same:
            kind = type(base.module).__name__
            raise ServiceError(
                f"The local engine does not reproduce {kind} ({base.name}): "
                "its attention does something the engine does not know."
            )


@frozen(eq=False)
class CacheEntry:
    tokens: IntArray
    cut: Tensor  # from `KVCache.cut`


@define(eq=False)
class _Shelf:
    keys: list[bytes] = field(factory=list)  # in lexicographic order
    entries: dict[bytes, CacheEntry] = field(factory=dict)


@define(eq=False)
class PrefixCache:
    """Keys and values of computed sequences, found by their longest prefix; at most ``budget``
    bytes, of which the entries used longest ago go first. The next turn of an episode extends the
    tokens of the last, so only the difference has to be computed."""

    budget: int
    used: int = field(default=0, init=False)
    _shelves: WeakKeyDictionary[WeightSnapshot, _Shelf] = field(
        factory=WeakKeyDictionary, init=False
    )
    _age: OrderedDict[tuple[int, bytes], _Shelf] = field(factory=OrderedDict, init=False)

    def longest(self, snapshot: WeightSnapshot, tokens: IntArray) -> tuple[CacheEntry | None, int]:
        """Return the entry with the longest common prefix with ``tokens``, and its length."""
        shelf = self._shelves.get(snapshot)
        if shelf is None:
            return None, 0
        at = bisect_left(shelf.keys, sort_key(tokens))
        best: tuple[CacheEntry | None, int] = (None, 0)
        for key in shelf.keys[max(at - 1, 0) : at + 1]:
            shared = common_prefix(shelf.entries[key].tokens, tokens)
            if shared > best[1]:
                best = (shelf.entries[key], shared)
        if best[0] is not None:
            self._age.move_to_end((id(shelf), sort_key(best[0].tokens)))
        return best

    def put(self, snapshot: WeightSnapshot, tokens: IntArray, cut: Tensor) -> None:
        """Add a sequence; an entry that it extends is dropped."""
        key = sort_key(tokens)
        if snapshot not in self._shelves:
            self._shelves[snapshot] = _Shelf()
            alive = {id(shelf) for shelf in self._shelves.values()}
            for (owner, old), gone in list(self._age.items()):
                if owner not in alive:
                    self._drop(gone, old)
        shelf = self._shelves[snapshot]
        at = bisect_left(shelf.keys, key)
        if at < len(shelf.keys) and shelf.keys[at].startswith(key):
            return
        if at and key.startswith(shelf.keys[at - 1]):
            self._drop(shelf, shelf.keys[at - 1])
        shelf.entries[key] = CacheEntry(tokens, cut)
        insort(shelf.keys, key)
        self._age[id(shelf), key] = shelf
        self.used += cut.nbytes
        while self.used > self.budget:
            (_, oldest), holder = next(iter(self._age.items()))
            self._drop(holder, oldest)

    def _drop(self, shelf: _Shelf, key: bytes) -> None:
        self.used -= shelf.entries.pop(key).cut.nbytes
        del shelf.keys[bisect_left(shelf.keys, key)]
        del self._age[id(shelf), key]
