"""The losses of the training service: the texts in ``formulas/losses.rl``, what it calls the inputs
and parameters of these, and their values, which a service is checked against.

On a datum the service sums a formula over all T tokens; nothing is averaged. What was not sampled
has an advantage of 0, and two losses have an input that marks tokens:

- ``sequence_ratio_mask`` marks those that the mean of gspo is of. The gradient on a token, marked
  or not, is that of ``exp(logp - stop(logp))``.
- ``sampled`` marks those that stable_reinforce sums over, from the provenance spans of the datum.
  Tinker does not publish its definition; the text is that of the embedded engine and ``rlc serve``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.program import Program
from rlc.algo.texts import FormulaText, formula_texts
from rlc.records import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    from rlc.algo.episodes import Floats

# The keys of ``loss_fn_config`` that are not the names of the parameters.
_LOW, _HIGH = "clip_low_threshold", "clip_high_threshold"
_THRESHOLDS = {"clip_low": _LOW, "clip_high": _HIGH}
RATIO_MASK, SAMPLED = "sequence_ratio_mask", "sampled"
_MARKS = {"gspo": RATIO_MASK, "stable_reinforce": SAMPLED}


@frozen(eq=False)
class ServedLoss:
    """A loss of the service. ``text`` is its formula, ``settings`` its parameters with the keys of
    the service, and ``marks`` the input that marks tokens, 1 everywhere if it is left out."""

    text: FormulaText
    settings: Mapping[str, str]
    marks: str | None

    @cached_property
    def program(self) -> Program:
        """The formula, which reads its parameters like inputs."""
        return self.text.program("loss", {}, self.settings)

    @cached_property
    def reads(self) -> Mapping[str, str]:
        """The inputs of a datum, by those of the formula."""
        if "logq" in self.program.inputs:
            return {"logq": "logprobs", "adv": "advantages"}
        return {"adv": "weights"}

    @property
    def thresholds(self) -> set[str]:
        """The settings that a datum may have for each token."""
        return {key for own, key in self.settings.items() if own in _THRESHOLDS}

    def formula(self) -> tuple[str, ...]:
        """Return the formula for people, with what its signs mean."""
        from rlc.algo.expressions.formula import formula, signs  # `check` prints none

        return (*(lines := formula(self.program)), *signs(lines))

    def given(self, logp: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the formula reads, from the inputs and settings of the service."""
        names = {**self.reads, **self.settings}
        return {"logp": logp, **{name: columns[key] for name, key in names.items()}}


LOSSES: Mapping[str, ServedLoss] = {
    name: ServedLoss(text, {p: _THRESHOLDS.get(p, p) for p in text.defaults}, _MARKS.get(name))
    for name, text in formula_texts("loss").items()
}
"""The losses of the service, by Tinker's names."""


def builtin_loss_and_grad(
    name: str,
    config: Mapping[str, float] | None,
    logprobs_T: npt.ArrayLike,
    inputs: Mapping[str, npt.ArrayLike],
) -> tuple[float, Floats]:
    """Return the loss of one datum and its gradient by the trainer's logprobs, shape (T,).

    ``config`` has the settings by Tinker's names, all of them; ``inputs`` are the datum's
    ``loss_fn_inputs``, one value a token, where thresholds may be too, and win. Raise
    AlgorithmError for an unknown loss, a setting or input that is unknown, missing or of another
    length, thresholds out of order, and a result that is not finite.
    """
    import numpy as np  # `check` computes none

    from rlc.algo.expressions.evaluate import loss_and_grad

    if name not in LOSSES:
        raise AlgorithmError(f"unknown loss {name!r}; known are {', '.join(sorted(LOSSES))}")
    loss, logp_T = LOSSES[name], np.asarray(logprobs_T, dtype=np.float64)
    given = loss.given(logp_T, columns := _columns(loss, config or {}, inputs, logp_T.shape))
    weights, marked_T = columns.get(SAMPLED, 1.0), columns.get(RATIO_MASK)
    try:
        return loss_and_grad(loss.program, given, weights=weights, marked_T=marked_T)
    except AlgorithmError as error:
        names = " and ".join(loss.reads.values())
        message = f"{name} is not finite: check the logprobs and the {names}"
        raise AlgorithmError(message) from error


def _columns(
    loss: ServedLoss,
    config: Mapping[str, float],
    inputs: Mapping[str, npt.ArrayLike],
    shape: tuple[int, ...],
) -> dict[str, Floats]:
    """Return the inputs and settings of a loss as columns of shape (T,). Raise AlgorithmError if
    they do not fit."""
    import numpy as np

    name, marks = loss.text.name, {} if loss.marks is None else {loss.marks: 1.0}
    reads, settings = [*loss.reads.values()], [*loss.settings.values()]
    read = {"target_tokens", *reads, *marks, *loss.thresholds}
    for what, had, known in (("setting", config, {*settings}), ("input", inputs, read)):
        if unknown := sorted(had.keys() - known):
            choices = ", ".join(sorted(known)) or "none"
            raise AlgorithmError(f"{name} has no {what} {unknown[0]!r}; it knows {choices}")
    given, columns = {**marks, **config, **inputs}, {}
    for key in (*reads, *marks, *settings):
        if key not in given:
            what = "setting" if key in settings else "input"
            raise AlgorithmError(f"{name} needs the {what} {key!r}")
        column = np.asarray(given[key], dtype=np.float64)
        if column.shape != shape and (key in inputs or column.shape):
            message = f"{key} of {name} has shape {column.shape}, the logprobs have {shape}"
            raise AlgorithmError(message)
        columns[key] = np.broadcast_to(column, shape)
    if loss.thresholds and np.any(columns[_LOW] > columns[_HIGH]):
        raise AlgorithmError(f"{name}: {_LOW} is above {_HIGH}")
    return columns
