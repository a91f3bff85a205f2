"""The losses of the Tinker API: sums over tokens, nothing averaged.

With lp the trainer's logprob of a target token, q the sampler's, ρ = exp(lp − q), A its
advantage, w its weight and sg() a constant to the gradient:

====================  ==========================================
cross_entropy         −Σ w·lp
importance_sampling   −Σ ρ·A
ppo                   −Σ min(ρ·A, clip(ρ, low, high)·A)
cispo                 −Σ sg(clip(ρ, low, high))·lp·A
dro                   −Σ (lp·A − β/2·(lp − q)²)
gspo                  −Σ min(s·A, clip(s, low, high)·A)
stable_reinforce      −Σ m·(lp·A − kl_coeff/2·(lp − q)²)
====================  ==========================================

s is exp(mean(lp − q)) over the tokens of the datum that ``sequence_ratio_mask`` marks, times
exp(lp − sg(lp)): one ratio for the sequence, its gradient on each token (arXiv 2507.18071).

m is 1 on the targets that the datum's provenance spans call sampled, 0 elsewhere. Tinker's own
definition of stable_reinforce is not published, nor what its ``kl_coeff`` is by default; both are
here those of rlc.

``low`` and ``high`` bound the ratio itself, and may be given per token in the datum. Arrays
have the suffix M: all tokens of some datums, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from attrs import frozen
from tinker import types
from torch import Tensor

from rlc.catalog import service_settings
from rlc.service.interface import ServiceError

_LOW, _HIGH = "clip_low_threshold", "clip_high_threshold"
_LENGTHS = "lengths_D"  # tokens of each datum, in the order in which they follow one another
_POLICY = ("target_tokens", "logprobs", "advantages")


@frozen
class EngineLoss:
    """A loss and its inputs; the catalogue has its settings."""

    name: str
    sum_M: Callable[[Tensor, Mapping[str, Tensor]], Tensor]
    inputs: tuple[str, ...] = _POLICY
    vanishes_with: str | None = "advantages"  # if this input is all zero, so are loss and gradient
    several_targets: bool = False  # a position may have K targets: arrays [T, K]
    sampled_only: bool = False  # only targets in sampled spans count: array `sampled`


def _cross_entropy(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    return -(x["weights"] * lp_M).sum()


def _importance_sampling(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    return -(torch.exp(lp_M - x["logprobs"]) * x["advantages"]).sum()


def _ppo(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    return _clipped(torch.exp(lp_M - x["logprobs"]), x)


def _cispo(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    ratio_M = torch.exp(lp_M.detach() - x["logprobs"])
    return -(torch.clamp(ratio_M, x[_LOW], x[_HIGH]) * lp_M * x["advantages"]).sum()


def _dro(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    pull_M = 0.5 * x["beta"] * (lp_M - x["logprobs"]).square()
    return -(lp_M * x["advantages"] - pull_M).sum()


def _gspo(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    mask_M, lengths_D = x["sequence_ratio_mask"], x[_LENGTHS].tolist()
    gap_M = (lp_M.detach() - x["logprobs"]) * mask_M
    sums_D = torch.stack([piece.sum() for piece in torch.split(gap_M, lengths_D)])
    counts_D = torch.stack([piece.sum() for piece in torch.split(mask_M, lengths_D)])
    ratio_D = (sums_D / counts_D.clamp_min(1.0)).exp()
    return _clipped(ratio_D.repeat_interleave(x[_LENGTHS]) * torch.exp(lp_M - lp_M.detach()), x)


def _stable_reinforce(lp_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    pull_M = 0.5 * x["kl_coeff"] * (lp_M - x["logprobs"]).square()
    return -(x["sampled"] * (lp_M * x["advantages"] - pull_M)).sum()


def _clipped(ratio_M: Tensor, x: Mapping[str, Tensor]) -> Tensor:
    clipped_M = torch.clamp(ratio_M, x[_LOW], x[_HIGH])
    return -torch.minimum(ratio_M * x["advantages"], clipped_M * x["advantages"]).sum()


LOSSES: Mapping[str, EngineLoss] = {
    loss.name: loss
    for loss in (
        EngineLoss(
            "cross_entropy",
            _cross_entropy,
            inputs=("target_tokens", "weights"),
            vanishes_with="weights",
            several_targets=True,
        ),
        EngineLoss("importance_sampling", _importance_sampling),
        EngineLoss("ppo", _ppo),
        EngineLoss("cispo", _cispo),
        EngineLoss("dro", _dro, vanishes_with=None),
        EngineLoss("gspo", _gspo, (*_POLICY, "sequence_ratio_mask")),
        EngineLoss("stable_reinforce", _stable_reinforce, vanishes_with=None, sampled_only=True),
    )
}


def combined(sums: Mapping[str, float], count: int) -> dict[str, float]:
    """Return metrics from their sums over ``count`` datums: those called ``…:mean`` are means."""
    return {key: value / count if key.endswith(":mean") else value for key, value in sums.items()}


def find(name: str) -> EngineLoss:
    if name not in LOSSES:
        raise ServiceError(f"Unknown loss {name!r}; the local engine has {', '.join(LOSSES)}.")
    return LOSSES[name]


@frozen
class BuiltinLoss:
    loss: EngineLoss
    settings: Mapping[str, float]

    @classmethod
    def of(cls, name: str, config: Mapping[str, float | str] | None) -> BuiltinLoss:
        """Return a loss with its settings, given or default. Raise ServiceError if there is no such
        loss, or a setting is unknown, missing, or not a finite number."""
        loss = find(name)
        given, defaults = dict(config or {}), service_settings(name)
        if unknown := sorted(given.keys() - defaults.keys()):
            known = ", ".join(defaults) or "none"
            raise ServiceError(f"{name} has no setting {unknown[0]!r}; its settings: {known}.")
        settings = {}
        for key, default in defaults.items():
            value = given.get(key, default)
            if value is None:
                raise ServiceError(f"{name} needs the setting {key!r} in loss_fn_config.")
            if isinstance(value, str) or not np.isfinite(value):
                raise ServiceError(f"{name}: {key} must be a finite number, not {value!r}.")
            settings[key] = float(value)
        return cls(loss, settings)

    @property
    def name(self) -> str:
        return self.loss.name

    def read_inputs(self, datum: types.Datum, where: str) -> dict[str, np.ndarray]:
        """Return the arrays of a datum, each of the shape of the targets ([T], or [T, K] if the
        loss takes several targets for a position), with the settings repeated. Raise ServiceError
        for an input that is missing, unknown, of another shape or not finite."""
        given, loss = datum.loss_fn_inputs, self.loss
        per_token = {_LOW, _HIGH} & self.settings.keys()
        if unknown := sorted(given.keys() - set(loss.inputs) - per_token):
            raise ServiceError(f"{where}: {loss.name} does not read the input {unknown[0]!r}.")
        for key in loss.inputs:
            if key not in given:
                raise ServiceError(f"{where}: {loss.name} needs the input {key!r}.")
        shape = target_shape(datum, where, loss.several_targets)
        arrays = {key: _array(given[key], key, shape, where) for key in loss.inputs}
        for key, value in self.settings.items():
            repeated = np.full(shape, value, dtype=np.float32)
            arrays[key] = _array(given[key], key, shape, where) if key in given else repeated
        if loss.sampled_only:
            arrays["sampled"] = _sampled(datum, len(arrays["advantages"]), where)
            if (arrays["advantages"][arrays["sampled"] == 0] != 0).any():
                raise ServiceError(
                    f"{where}: {loss.name} takes advantages on sampled tokens only; "
                    "one that is not 0 lies outside the sampled spans."
                )
        return arrays

    def has_gradient(self, arrays: Mapping[str, np.ndarray]) -> bool:
        key = self.loss.vanishes_with
        return key is None or bool(np.any(arrays[key]))

    def total(
        self,
        lp_M: Tensor,
        datums: Sequence[Mapping[str, np.ndarray]],
        numbers: Sequence[int],  # noqa: ARG002
    ) -> tuple[Tensor, dict[str, float]]:
        joined = {
            key: torch.from_numpy(np.concatenate([d[key].ravel() for d in datums])).to(lp_M)
            for key in datums[0]
            if key != "target_tokens"
        }
        lengths = [datum["target_tokens"].size for datum in datums]
        joined[_LENGTHS] = torch.tensor(lengths, device=lp_M.device)
        summed = self.loss.sum_M(lp_M, joined)
        if not torch.isfinite(summed):
            raise ServiceError(
                f"The {self.name} loss is not finite: the weights or the logprobs have diverged."
            )
        return summed, {}


def _sampled(datum: types.Datum, length: int, where: str) -> np.ndarray:
    spans = datum.loss_fn_input_spans
    if spans is None:
        raise ServiceError(
            f"{where} needs provenance: sample with record_stability_info = True, and name the "
            "sequences with Datum.with_provenance."
        )
    kinds = [isinstance(span, types.SampledProvenanceSpan) for span in spans]
    sampled = np.repeat(kinds, [span.length for span in spans]).astype(np.float32)
    if len(sampled) != length:
        raise ServiceError(f"{where}: its spans cover {len(sampled)} of {length} targets.")
    return sampled


def target_shape(datum: types.Datum, where: str, several: bool) -> tuple[int, ...]:
    """Return the shape of a datum's targets: [T], or [T, K] if there may be ``several`` for a
    position. Raise ServiceError if the model input is not of T tokens."""
    length, targets = datum.model_input.length, datum.loss_fn_inputs["target_tokens"]
    shape = tuple(targets.shape or targets.to_numpy().shape) or (1,)
    if shape == (length,) or (several and len(shape) == 2 and shape[0] == length and shape[1] > 0):
        return shape
    raise ServiceError(
        f"{where}: target_tokens has the shape {list(shape)}, "
        f"but the model input has {length} tokens."
    )


def finite_array(data: types.TensorData, key: str, where: str) -> np.ndarray:
    """Return an input as an array. Raise ServiceError if it cannot be read, or is not finite."""
    try:
        array = data.to_numpy()
    except (RuntimeError, ValueError) as error:  # what torch raises for indices out of place
        raise ServiceError(f"{where}: {key} is no sparse tensor in CSR form.") from error
    if not np.isfinite(array).all():
        raise ServiceError(f"{where}: {key} has a value that is not finite.")
    return array


def _array(data: types.TensorData, key: str, shape: tuple[int, ...], where: str) -> np.ndarray:
    array = finite_array(data, key, where)
    if array.shape == () and shape == (1,):  # sent without a shape
        array = array.reshape(shape)
    if array.shape != shape:
        what = f"target_tokens has {list(shape)}"
        if len(shape) == 1:
            what = f"the model input has {shape[0]} tokens"
        raise ServiceError(f"{where}: {key} has the shape {list(array.shape)}, but {what}.")
    return array
