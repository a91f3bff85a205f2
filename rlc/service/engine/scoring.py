"""Logprobs that a request wants beside its samples: of its prompt, and of other tokens.

Arrays: T tokens of a sequence, V vocabulary, K tokens at a position. Logprobs are at temperature 1
unless the temperature of the request is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from tinker import types
from tinker.types.topk_logprobs import MASK_LOGPROB, TopkLogprobs
from torch import Tensor

from rlc.service.engine.attention import IntArray, micro_batches
from rlc.service.engine.base_model import BaseModel, WeightSnapshot
from rlc.service.engine.decoder import invert, stream_key, uniforms
from rlc.service.engine.trainer import packed_logprobs, split_targets
from rlc.service.interface import ServiceError

_NO_TARGET = -1  # in a tensor of targets


@frozen(eq=False)
class ScoringRequest:
    """Logprobs that a request wants beside those of its samples. ``topk`` and ``sample_topk`` are
    numbers of most likely tokens, at each position of the prompt and at each sampled token.
    ``targets`` are tokens at the positions of the prompt after the first, an int64 tensor [T - 1,
    K], dense or CSR; ``alternatives`` is the number of samples at each such position."""

    logprobs: bool = False
    last_n: int | None = None  # of the last tokens only
    topk: int = 0
    sample_topk: int = 0
    targets: types.TensorData | None = None
    alternatives: int = 0

    def check(self, length: int, vocabulary: int) -> None:
        """Raise ServiceError if a prompt of ``length`` tokens cannot be scored like this."""
        if self.last_n is not None and not (self.logprobs and 1 <= self.last_n < length):
            raise ServiceError(
                f"prompt_logprobs_last_n = {self.last_n} needs prompt logprobs and a number "
                f"between 1 and {length - 1}, one less than the prompt has tokens."
            )
        counts = {
            "topk_prompt_logprobs": self.topk,
            "topk_sample_logprobs": self.sample_topk,
            "prompt_alt_tokens_k": self.alternatives,
        }
        for name, count in counts.items():
            if not 0 <= count <= vocabulary:
                raise ServiceError(f"{name} must be between 0 and {vocabulary}, not {count}.")
        if self.targets is not None:
            tokens_TK = read_targets(self.targets)
            if len(tokens_TK) != length - 1:
                raise ServiceError(
                    f"target_prompt_logprobs has {len(tokens_TK)} rows, but the prompt has "
                    f"{length - 1} tokens after its first."
                )
            if ((tokens_TK < _NO_TARGET) | (tokens_TK >= vocabulary)).any():
                raise ServiceError(
                    f"target_prompt_logprobs holds ids outside the vocabulary of {vocabulary}."
                )


def read_targets(targets: types.TensorData) -> IntArray:
    """Return a tensor of targets [T - 1, K]. Raise ServiceError if it is not one."""
    try:
        tokens_TK = targets.to_numpy()
    except (RuntimeError, ValueError) as error:  # what torch raises for indices out of place
        raise ServiceError("target_prompt_logprobs is no sparse tensor in CSR form.") from error
    if tokens_TK.ndim != 2 or tokens_TK.dtype != np.int64:
        raise ServiceError("target_prompt_logprobs must be int64, of two dimensions.")
    return tokens_TK


def prompt_logprobs(
    base: BaseModel, snapshot: WeightSnapshot, prompts: Sequence[IntArray], token_budget: int
) -> list[np.ndarray]:
    """Return the logprobs of each prompt's tokens given those before, NaN for the first."""
    out = [np.full(len(prompt), np.nan, dtype=np.float32) for prompt in prompts]
    longer = [i for i, prompt in enumerate(prompts) if len(prompt) > 1]
    base.use_snapshot(snapshot)
    for run in micro_batches([prompts[i][:-1] for i in longer], token_budget):
        batch = [longer[j] for j in run]
        targets = [prompts[i][1:] for i in batch]
        lp_M = packed_logprobs(base, [prompts[i][:-1] for i in batch], targets)
        for i, piece in zip(batch, split_targets(lp_M, targets), strict=True):
            out[i][1:] = piece
    return out


def prompt_scores(
    base: BaseModel,
    snapshot: WeightSnapshot,
    prompt: IntArray,
    scoring: ScoringRequest,
    temperature: float,
    seed: int,
) -> dict[str, Any]:
    """Score the positions of a prompt after the first with a snapshot, which is used from now on.
    Return fields of a SampleResponse."""
    found: dict[str, Any] = {}
    if not (scoring.topk or scoring.targets is not None or scoring.alternatives):
        return found
    logits_TV = torch.empty(0, base.vocabulary)  # row i: of token i + 1
    if len(prompt) > 1:
        base.use_snapshot(snapshot)
        logits_TV = base.packed_logits([prompt[:-1]])[0].float().cpu()
    logprobs_TV = torch.log_softmax(logits_TV, dim=-1)
    if scoring.topk:
        first = max(1, len(prompt) - (scoring.last_n or len(prompt)))
        best = logprobs_TV[first - 1 :].topk(scoring.topk, dim=-1)
        tokens_TK = np.zeros((first + len(best.values), scoring.topk), dtype=np.int32)
        values_TK = np.full(tokens_TK.shape, MASK_LOGPROB, dtype=np.float32)
        tokens_TK[first:], values_TK[first:] = best.indices.numpy(), best.values.numpy()
        found["topk_prompt_logprobs_np"] = TopkLogprobs(tokens_TK, values_TK)
    if scoring.targets is not None:
        found["target_prompt_logprobs"] = _targets(logprobs_TV, scoring.targets)
    if scoring.alternatives:
        tempered_TV = logits_TV / temperature if temperature else logits_TV
        count = scoring.alternatives
        found["prompt_alt_tokens"] = _samples(logprobs_TV, tempered_TV, count, temperature, seed)
    return found


def _targets(logprobs_TV: Tensor, targets: types.TensorData) -> types.TensorData:
    """Return the logprobs of the targets in their own layout, 0 where there is no target."""
    if targets.sparse_crow_indices is not None:
        counts_T = np.diff(targets.sparse_crow_indices)
        row_N = torch.from_numpy(np.repeat(np.arange(len(counts_T)), counts_T))
        token_N = torch.from_numpy(np.asarray(targets.data, dtype=np.int64))
    else:
        tokens_TK = read_targets(targets)
        row_N = torch.arange(len(tokens_TK)).repeat_interleave(tokens_TK.shape[1])
        token_N = torch.from_numpy(tokens_TK.ravel())
    found_N = logprobs_TV[row_N, token_N.clamp_min(0)]
    return types.TensorData(
        torch.where(token_N == _NO_TARGET, torch.zeros(()), found_N).numpy(),
        "float32",
        list(targets.shape or read_targets(targets).shape),
        sparse_crow_indices=targets.sparse_crow_indices,
        sparse_col_indices=targets.sparse_col_indices,
    )


def _samples(
    logprobs_TV: Tensor, tempered_TV: Tensor, k: int, temperature: float, seed: int
) -> types.PromptAltTokens:
    """Return ``k`` independent samples of each row with their logprobs; at temperature 0 the most
    likely token."""
    cumulative_TV = torch.softmax(tempered_TV.double(), dim=-1).cumsum(-1)
    place_N = np.arange(len(cumulative_TV) * k, dtype=np.uint64)
    key_N = np.full(len(place_N), stream_key(seed, -1), dtype=np.uint64)
    tokens_TK = invert(cumulative_TV, uniforms(key_N, place_N).reshape(-1, k))
    if not temperature:
        tokens_TK = tempered_TV.argmax(-1, keepdim=True).expand(-1, k).contiguous()
    values_TK, shape = logprobs_TV.gather(1, tokens_TK), list(tokens_TK.shape)
    return types.PromptAltTokens(
        types.TensorData(tokens_TK.numpy().ravel(), "int64", shape),
        types.TensorData(values_TK.numpy().ravel(), "float32", shape),
    )
