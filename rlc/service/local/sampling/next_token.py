"""Picking the next token from logits, given a uniform number. B rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from attrs import frozen
from tinker import types
from torch import Tensor

from rlc.service.errors import ServiceError

# What is less is this: logits that are divided by it still fit into float32, and of the whole
# distribution the likeliest token is left.
_LEAST = 1e-30
Likeliest = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # ids and logprobs, [K] each


@frozen
class SamplingRule:
    """The distribution that a row samples from."""

    temperature: float  # 0: the likeliest token
    top_k: int  # -1: all
    top_p: float  # 1: all

    @classmethod
    def of(cls, params: types.SamplingParams) -> SamplingRule:
        """Read a request's rule. Raise ServiceError if a value is out of range."""
        rule = cls(params.temperature, params.top_k, params.top_p)
        if not 0 <= rule.temperature < float("inf"):
            raise ServiceError(f"temperature must be 0 or more, not {rule.temperature}.")
        if rule.top_k != -1 and rule.top_k < 1:
            raise ServiceError(f"top_k must be -1 (all) or at least 1, not {rule.top_k}.")
        if not 0 < rule.top_p <= 1:
            raise ServiceError(f"top_p must be above 0 and at most 1, not {rule.top_p}.")
        temperature = rule.temperature and max(rule.temperature, _LEAST)
        return cls(temperature, rule.top_k, max(rule.top_p, _LEAST))

    @property
    def filters(self) -> bool:
        return self.temperature > 0 and (self.top_k != -1 or self.top_p < 1)


def next_tokens(
    logits_BV: Tensor, rules: Sequence[SamplingRule], uniform_B: npt.NDArray[np.float64]
) -> tuple[list[int], list[float]]:
    """Return tokens by inverting the cumulative distribution, and their logprobs.

    A logprob is that of the distribution sampled from: temperature, top-k and top-p included,
    renormalised. A greedy choice (temperature 0) has the logprob of temperature 1.
    """
    shaped_BV = logits_BV.float()
    if any(rule.temperature not in (0, 1) for rule in rules):
        temperatures = [rule.temperature or 1.0 for rule in rules]
        shaped_BV = shaped_BV / torch.tensor(temperatures, device=shaped_BV.device)[:, None]
    if filtering := [i for i, rule in enumerate(rules) if rule.filters]:
        shaped_BV = shaped_BV.clone()
        shaped_BV[filtering] = _filtered(shaped_BV[filtering], [rules[i] for i in filtering])
    logprobs_BV = torch.log_softmax(shaped_BV, dim=-1)
    cumulative_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
    token_B1 = invert(cumulative_BV, uniform_B[:, None])
    greedy = [rule.temperature == 0 for rule in rules]
    if any(greedy):
        is_greedy_B1 = torch.tensor(greedy, device=token_B1.device)[:, None]
        token_B1 = torch.where(is_greedy_B1, logits_BV.argmax(-1, keepdim=True), token_B1)
    chosen_B1 = logprobs_BV.gather(1, token_B1)
    return token_B1[:, 0].tolist(), chosen_B1[:, 0].tolist()


def invert(cumulative_BV: Tensor, uniform_BK: npt.NDArray[np.float64]) -> Tensor:
    """Return the tokens [B, K] at which a cumulative distribution passes uniform numbers.

    The distribution is float64 and need not add up to 1.
    """
    total_B1 = cumulative_BV[:, -1:]
    aim_BK = torch.from_numpy(uniform_BK).to(total_B1.device) * total_B1
    # Rounding must not let the aim reach the total: no token lies beyond it.
    aim_BK = torch.minimum(aim_BK, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(cumulative_BV, aim_BK, right=True)


def likeliest_tokens(
    logits_BV: Tensor, rules: Sequence[SamplingRule], topk: Sequence[int]
) -> dict[int, Likeliest]:
    """Return the ``topk`` likeliest tokens of each row that asks for some, the likeliest first.

    Logprobs are those at the row's temperature (1 if it is greedy). What top_k and top_p leave out
    is there too.
    """
    rows = [row for row, k in enumerate(topk) if k]
    if not rows:
        return {}
    temperatures = torch.tensor([rules[row].temperature or 1.0 for row in rows])
    tempered_RV = logits_BV[rows].float() / temperatures[:, None].to(logits_BV.device)
    best = torch.log_softmax(tempered_RV, dim=-1).topk(max(topk), dim=-1)
    ids_RK = best.indices.to(torch.int32).cpu().numpy()
    logprobs_RK = best.values.cpu().numpy()
    return {
        row: (ids_K[: topk[row]], logprobs_K[: topk[row]])
        for row, ids_K, logprobs_K in zip(rows, ids_RK, logprobs_RK, strict=True)
    }


def _filtered(logits_BV: Tensor, rules: Sequence[SamplingRule]) -> Tensor:
    """Keep the ``top_k`` likeliest, and of those the fewest that reach ``top_p`` together."""
    V = logits_BV.shape[1]
    device = logits_BV.device
    top_k_B1 = torch.tensor(
        [V if r.top_k == -1 else min(r.top_k, V) for r in rules], device=device
    )[:, None]
    top_p_B1 = torch.tensor([r.top_p for r in rules], device=device)[:, None]
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    dropped_BV = torch.arange(V, device=device) >= top_k_B1
    probs_BV = sorted_BV.masked_fill(dropped_BV, -torch.inf).softmax(-1)
    before_BV = probs_BV.cumsum(-1) - probs_BV
    # At top_p = 1 rounding of the sum must drop nothing.
    dropped_BV |= (before_BV >= top_p_B1) & (top_p_B1 < 1)
    kept_BV = sorted_BV.masked_fill(dropped_BV, -torch.inf)
    return torch.empty_like(logits_BV).scatter_(1, order_BV, kept_BV)
