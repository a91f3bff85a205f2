"""Probes of the gradients and the steps of any server, as conversations.

A conversation yields requests that can be submitted together, is sent their answers, and returns
what it has measured. It has no client: a run carries it out before its first step, and `rlc
conform` as checks.

A gradient is seen by its norm, which a step with a learning rate of 0 reports. Where the server
reports none, it is seen by plain steps. With beta1 = 0 and an eps far above the gradient, AdamW
moves the weights by learning_rate / eps times the gradient, and so the logprobs in proportion; a
server that ignores eps is found out by a step that should move nothing.

Tolerances: the mistakes that are looked for change a gradient by half and more, or a step by a
factor of two. bfloat16 changes the norm of a gradient by some percent, where other kernels compute
it, and a logprob by some hundredths; plain steps move all logprobs by about `_RISE` on average.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import field, frozen

from rlc.algo import RATIO_MASK, Floats, builtin_loss_and_grad
from rlc.catalog import LIKELIHOOD, LossTraits, service_loss_traits

if TYPE_CHECKING:
    from tinker import types

    from rlc.service.interface import SamplingClient

_T = TypeVar("_T")


@frozen
class MeasuredDifference:
    """A difference that was measured, and the largest that is allowed."""

    what: str
    found: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.found <= self.allowed  # not so for NaN

    def __str__(self) -> str:
        return f"{self.what} differ by {self.found:.3g}, at most {self.allowed:g}"


@frozen(eq=False)
class Pass:
    """A forward pass, and with ``backward`` its gradient."""

    data: list[types.Datum]
    loss: str = LIKELIHOOD.name
    config: Mapping[str, float | str] | None = None
    backward: bool = True

    @property
    def tokens(self) -> int:
        return sum(datum.model_input.length for datum in self.data)


@frozen
class OptimStep:
    """A step of the optimiser, without momentum."""

    learning_rate: float
    eps: float = 1e-12

    @property
    def params(self) -> types.AdamParams:
        from tinker import types

        return types.AdamParams(learning_rate=self.learning_rate, beta1=0.0, eps=self.eps)


@frozen
class Snapshot:
    """A sampling client of the present weights, which is the answer."""


@frozen(eq=False)
class Sample:
    """One token of a sampling client."""

    sampler: SamplingClient


@frozen
class Fresh:
    """Go on with a training client on which nothing has been done."""


Request = Pass | OptimStep | Snapshot | Sample | Fresh
Conversation = Generator[Sequence[Request], list[Any], _T]


@frozen(eq=False)
class Findings:
    """What was measured, and what could not be."""

    measures: list[MeasuredDifference] = field(factory=list)
    notes: list[str] = field(factory=list)

    def joined(self, more: Findings) -> Findings:
        return Findings([*self.measures, *more.measures], [*self.notes, *more.notes])


# Token ids that every vocabulary has, in an order that means nothing: a model then spreads its
# probability, and a difference shows.
IDS = [int(x) for x in np.random.default_rng(16).permutation(np.arange(40, 300))]
LENGTHS = (12, 8)  # two datums of different lengths, which reveal a mean where a sum is due


def sequences() -> list[list[int]]:
    """Return the tokens of the datums: of each one more than it has targets."""
    return [IDS[20 + 20 * i : 21 + 20 * i + length] for i, length in enumerate(LENGTHS)]


def likelihood(scale: float = 1.0) -> list[types.Datum]:
    """Return datums of the log-likelihood, all their weights ``scale``."""
    return [datum(t, {"weights": np.full(len(t) - 1, scale)}) for t in sequences()]


def datum(tokens: Sequence[int], inputs: Mapping[str, Floats]) -> types.Datum:
    """Return a datum that predicts each token from those before it."""
    from tinker import types

    arrays: dict[str, Any] = {"target_tokens": np.asarray(tokens[1:], dtype=np.int64)}
    arrays |= {key: np.asarray(array, dtype=np.float32) for key, array in inputs.items()}
    return types.Datum(types.ModelInput.from_ints(list(tokens[:-1])), arrays)


def inputs_of(
    loss: str, config: Mapping[str, Any], logprobs_T: Floats, which: int
) -> dict[str, Floats]:
    """Return the inputs of datum number ``which``, rounded to float32. The sampler's logprobs lie
    around the trainer's, ``logprobs_T``, such that there are ratios below, inside and above the
    clip range, with advantages of both signs and different sizes."""
    length = len(logprobs_T)
    traits = (
        LossTraits(sampler_logprobs=False) if loss == LIKELIHOOD.name else service_loss_traits(loss)
    )
    advantages_T = np.where(np.arange(length) // 4 % 2 == 1, -0.3, 1.0)
    if not traits.sampler_logprobs:
        inputs = {"weights": advantages_T}
    else:
        ratio_T = np.resize(np.asarray(traits.ratios(config)[which]), length)
        inputs = {"logprobs": logprobs_T - np.log(ratio_T), "advantages": advantages_T}
    if traits.per_sequence:
        inputs[RATIO_MASK] = np.ones(length)
    return {key: array.astype(np.float32).astype(np.float64) for key, array in inputs.items()}


def trained_logprobs(passed: types.ForwardBackwardOutput) -> list[Floats]:
    """Return the trainer's logprobs of each datum."""
    arrays = (output["logprobs"].to_numpy() for output in passed.loss_fn_outputs)
    return [np.asarray(array, dtype=np.float64) for array in arrays]


def opposite(tokens: Sequence[Sequence[int]], slopes: Sequence[Floats]) -> Pass:
    """Return the log-likelihood with a loss's slopes by the logprobs as weights: its gradient is
    the opposite of that of the loss."""
    pairs = zip(tokens, slopes, strict=True)
    return Pass([datum(own, {"weights": slope_T}) for own, slope_T in pairs])


_GRADIENT = 0.2  # of a gradient, in parts of it
_LEFT = 0.1  # of a gradient and its opposite
_MOVED = {_GRADIENT: 0.35, _LEFT: 0.5}  # the same, if it is seen by plain steps
_FACTOR = 0.4  # of a step, in parts of it
_BACK = 0.5  # of the way of a step
_EPS = 1e6  # far above any gradient of a few tokens
_VISIBLE_RATE = 1e-3  # of a step of Adam that shows in the logprobs
_VISIBLE = 0.02  # nats of a token on average; less may be noise
_RISE = 0.3  # nats by which a plain step raises a logprob on average
_LEAST_RATE, _MOST_RATE, _FASTER = 1e-7, 1e4, 16.0


def _score() -> Pass:
    return Pass(likelihood(), backward=False)


def _plain(rate: float) -> OptimStep:
    return OptimStep(rate * _EPS, _EPS)


def _norm(stepped: types.OptimStepResponse) -> float | None:
    return (stepped.metrics or {}).get("grad_norm")


def _moved(before: types.ForwardBackwardOutput, after: types.ForwardBackwardOutput) -> Floats:
    moved_M: Floats = np.concatenate(trained_logprobs(after)) - np.concatenate(
        trained_logprobs(before)
    )
    return moved_M


@frozen
class Ruler:
    """How gradients are measured: by their norms, or by plain steps of some rate."""

    rate: float | None = None

    @property
    def before(self) -> list[Request]:
        return [] if self.rate is None else [_score()]

    @property
    def after(self) -> list[Request]:
        return [OptimStep(0.0)] if self.rate is None else [_plain(self.rate), _score()]

    def around(self, passes: Sequence[Pass]) -> list[Request]:
        return [*self.before, *passes, *self.after]

    def size(self, answers: Sequence[Any]) -> Floats:
        """Return the norm of a gradient, or the movement of the logprobs."""
        if self.rate is None:
            return np.array([np.nan if (norm := _norm(answers[-1])) is None else norm])
        return _moved(answers[0], answers[-1])

    def allowed(self, by_norm: float) -> float:
        return by_norm if self.rate is None else _MOVED[by_norm]


def find_ruler() -> Conversation[Ruler | None]:
    """Return how gradients can be measured; None if the server reports no norm and ignores eps."""
    _, stepped = yield [Pass(likelihood()), OptimStep(0.0)]
    if _norm(stepped) is not None:
        return Ruler()
    if not (yield from _honours_eps()):
        return None
    rate = _LEAST_RATE
    while rate < _MOST_RATE:
        before, *_, after = yield Ruler(rate).around([Pass(likelihood())])
        rise = float(_moved(before, after).mean())
        if rise > 2 * _VISIBLE:
            return Ruler(rate * _RISE / rise)
        rate *= _FASTER
    return None


def _honours_eps() -> Conversation[bool]:
    step = OptimStep(_VISIBLE_RATE, _EPS)
    before, *_, after = yield [_score(), Pass(likelihood()), step, _score()]
    return bool(np.abs(_moved(before, after)).mean() < _VISIBLE)


@frozen(eq=False)
class _Case:
    """Passes whose gradient is some multiple of that of `likelihood`."""

    what: str
    times: float
    passes: list[Pass]


def _cases() -> list[_Case]:
    tokens = sequences()
    tails, halves = list[Any](), (list[Any](), list[Any]())
    for i, own in enumerate(tokens):
        length = len(own) - 1
        longer = own + IDS[100 + 20 * i : 100 + 20 * i + length]
        tails.append(datum(longer, {"weights": np.repeat([1.0, 0.0], length)}))
        first_T = np.arange(length) < length // 2
        for half, chosen_T in zip(halves, (first_T, ~first_T), strict=True):
            half.append(datum(own, {"weights": chosen_T.astype(np.float64)}))
    return [
        _Case("two copies of each sequence", 2.0, [Pass(likelihood() * 2)]),
        _Case("weights of 2", 2.0, [Pass(likelihood(2.0))]),
        _Case("sequences with a tail of weights of 0", 1.0, [Pass(tails)]),
        _Case("two requests, each with weights of 0 on half", 1.0, [Pass(half) for half in halves]),
        _Case("weights of -1", -1.0, [Pass(likelihood(-1.0))]),
    ]


def gradient_sums(ruler: Ruler) -> Conversation[list[MeasuredDifference]]:
    """Compare gradients that are multiples of one another if nothing is averaged."""
    cases, one = _cases(), [Pass(likelihood())]
    order = [one, *chain.from_iterable((case.passes, one) for case in cases)]
    asked = [ruler.around(passes) for passes in order]
    answers = iter((yield list(chain.from_iterable(asked))))
    sizes = [ruler.size(list(islice(answers, len(part)))) for part in asked]
    found, allowed = [], ruler.allowed(_GRADIENT)
    for i, case in enumerate(cases):
        before, size, after = sizes[2 * i : 2 * i + 3]
        unit = (before + after) / 2  # plain steps change it a little
        due = abs(case.times) if ruler.rate is None else case.times
        times = _ratio(float(size @ unit), float(unit @ unit))
        what = (
            f"the gradient of {case.what}, {times:.3g} times that of one copy with weights of 1, "
        )
        what += f"and {due:g} times that, in parts of it,"
        found.append(MeasuredDifference(what, abs(times / due - 1), allowed))
    return found


def cancels(
    loss: str, own: Pass, mirrored: Callable[[list[Floats]], Pass], ruler: Ruler
) -> Conversation[MeasuredDifference]:
    """Compare the gradient of a loss with what takes it back, given the trainer's logprobs."""
    first = yield [*ruler.before, own]
    answers = yield [mirrored(trained_logprobs(first[-1])), *ruler.after, *ruler.around([own])]
    end = 1 + len(ruler.after)
    left, alone = ruler.size([*first, *answers[:end]]), ruler.size(answers[end:])
    parts = _ratio(float(np.linalg.norm(left)), float(np.linalg.norm(alone)))
    what = f"the gradient of `{loss}` and that of its formula, in parts of it,"
    return MeasuredDifference(what, parts, ruler.allowed(_LEFT))


def loss_gradient(
    loss: str, config: Mapping[str, Any], ruler: Ruler
) -> Conversation[MeasuredDifference]:
    """Compare the gradient of a loss with its formula in float64."""
    (scored,) = yield [_score()]
    inputs = [
        inputs_of(loss, config, logprobs_T, i)
        for i, logprobs_T in enumerate(trained_logprobs(scored))
    ]

    def mirrored(logprobs_DT: list[Floats]) -> Pass:
        pairs = zip(logprobs_DT, inputs, strict=True)
        slopes = [builtin_loss_and_grad(loss, config, lp_T, own)[1] for lp_T, own in pairs]
        return opposite(sequences(), slopes)

    data = [datum(tokens, own) for tokens, own in zip(sequences(), inputs, strict=True)]
    return (yield from cancels(loss, Pass(data, loss, config or None), mirrored, ruler))


def step_sizes(ruler: Ruler | None) -> Conversation[Findings]:
    """Compare how far steps move the logprobs, one of them with twice the learning rate of those
    around it; and the first with what the norm of the gradient predicts."""
    found, rate = Findings(), ruler.rate if ruler else None
    step: Callable[[float], OptimStep] = _plain
    is_plain = ruler is not None and (yield from _honours_eps())
    if is_plain and rate is None:
        _, stepped = yield [Pass(likelihood()), OptimStep(0.0)]
        rate = _ratio(_RISE * sum(LENGTHS), (_norm(stepped) or 0.0) ** 2)
    elif not is_plain:
        found.notes.append("the server ignores eps: how far a step goes was not compared")
        step = OptimStep
        yield [Fresh()]
        rise = _rises((yield _steps(step(_VISIBLE_RATE))))[0]
        if not rise > _VISIBLE:
            found.notes.append("its steps hardly move logprobs: their rates were not compared")
            return found
        rate = _VISIBLE_RATE * _RISE / rise
    assert rate is not None
    answers = yield _steps(step(rate), step(2 * rate), step(rate))
    first, second, third = _rises(answers)
    times = _ratio(second, (first + third) / 2)  # which takes out that gradients change on the way
    what = "the way of the logprobs in a step of twice the learning rate, "
    what += f"{times:.3g} times as far, and twice as far, in parts of it,"
    found.measures.append(MeasuredDifference(what, abs(times / 2 - 1), _FACTOR))
    norms = _norm(answers[2]), _norm(answers[5])
    if is_plain and norms[0] is not None and norms[1] is not None:
        due = rate * norms[0] * (norms[0] + norms[1]) / 2 / sum(LENGTHS)  # it changes on the way
        what = (
            f"the way of the logprobs in a step, {_ratio(first, due):.3g} times as far as by its "
        )
        what += "learning rate and the gradient's norm, and that, in parts of it,"
        found.measures.append(MeasuredDifference(what, abs(_ratio(first, due) - 1), _FACTOR))
    return found


def _steps(*steps: OptimStep) -> list[Request]:
    return [_score(), *(r for step in steps for r in (Pass(likelihood()), step, _score()))]


def _rises(answers: Sequence[Any]) -> list[float]:
    """Return by how much each of `_steps` raises a logprob on average (nats)."""
    scored = answers[::3]
    return [float(_moved(*pair).mean()) for pair in pairwise(scored)]


def older_sampler() -> Conversation[Findings]:
    """Compare the trainer before and after a sample of weights that it has left behind."""
    step = OptimStep(_VISIBLE_RATE)
    before, sampler, _, _, after = yield [
        _score(),
        Snapshot(),
        Pass(likelihood()),
        step,
        _score(),
    ]
    yield [Sample(sampler)]
    (again,) = yield [_score()]
    moved_M, back_M = _moved(before, after), _moved(again, after)
    if not np.abs(moved_M).mean() > _VISIBLE:
        return Findings(notes=["a step hardly moves logprobs: an older sampler was not tried"])
    parts = abs(float(back_M @ moved_M)) / float(moved_M @ moved_M)
    what = "the trainer's logprobs before and after a sample of older weights, in parts of a step,"
    return Findings([MeasuredDifference(what, parts, _BACK)])


def _ratio(value: float, by: float) -> float:
    return value / by if by else float("nan")
