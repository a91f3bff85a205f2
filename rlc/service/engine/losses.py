"""The losses of the Tinker API, computed by torch from the texts of their formulas.

Sums over tokens; nothing is averaged. Clip thresholds may be given per token in the datum. Tinker's
own definition of stable_reinforce is not published, nor what its ``kl_coeff`` is by default; both
are here those of rlc. Arrays have the suffix M: all tokens of some datums, one after another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from attrs import frozen
from tinker import types
from torch import Tensor

from rlc.algo import INPUT, NUMBER, RATIO_MASK, SAMPLED, ServedLoss, degree
from rlc.algo import LOSSES as SERVED
from rlc.catalog import service_settings
from rlc.service.interface import ServiceError

_LENGTHS = "lengths_D"  # tokens of each datum, in the order in which they follow one another
_OPERATIONS: Mapping[str, Callable[..., Tensor]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "neg": operator.neg,
    "exp": torch.exp,
    "min": torch.minimum,
    "clip": torch.clamp,
    "stop": Tensor.detach,
}
_Columns = Mapping[str, Tensor]


@frozen
class EngineLoss:
    """A loss and its inputs; the catalogue has its settings."""

    name: str
    sum_M: Callable[[Tensor, _Columns], Tensor]
    inputs: tuple[str, ...]
    vanishes_with: str | None  # if this input is all zero, so are loss and gradient
    several_targets: bool = False  # a position may have K targets: arrays [T, K]
    sampled_only: bool = False  # only targets in sampled spans count: array `sampled`


def _summed(served: ServedLoss, lp_M: Tensor, x: _Columns) -> Tensor:
    """Return a loss by its formula."""
    given, made = served.given(lp_M, x), list[Any]()
    for node in served.program.nodes:
        args = [made[arg] for arg in node.args]
        if node.op == NUMBER:
            made.append(node.value)
        elif node.op == INPUT:
            made.append(given[node.name or ""])
        elif node.op == "mean":
            made.append(_mean(args[0], x))
        else:
            made.append(_OPERATIONS[node.op](*args))
    loss_M: Tensor = made[served.program.output]
    return (x[SAMPLED] * loss_M if SAMPLED in x else loss_M).sum()


def _mean(values_M: Tensor, x: _Columns) -> Tensor:
    """Return for each token the mean over those of its datum that are marked, which no gradient
    passes through."""
    mask_M, lengths = x[RATIO_MASK], x[_LENGTHS].tolist()
    sums_D = torch.stack([part.sum() for part in torch.split(values_M.detach() * mask_M, lengths)])
    counts_D = torch.stack([part.sum() for part in torch.split(mask_M, lengths)])
    return (sums_D / counts_D.clamp_min(1.0)).repeat_interleave(x[_LENGTHS])


def _engine_loss(served: ServedLoss) -> EngineLoss:
    reads, marks = tuple(served.reads.values()), served.marks
    return EngineLoss(
        served.text.name,
        partial(_summed, served),
        ("target_tokens", *reads, *([RATIO_MASK] if marks == RATIO_MASK else ())),
        vanishes_with=reads[-1] if degree(served.program).of == 1 else None,
        several_targets="weights" in reads,
        sampled_only=marks == SAMPLED,
    )


LOSSES: Mapping[str, EngineLoss] = {name: _engine_loss(loss) for name, loss in SERVED.items()}


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
        per_token = SERVED[loss.name].thresholds
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
