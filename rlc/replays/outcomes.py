"""What the episodes of a step come to under one objective: advantages, weights, losses, and what
each token adds to the gradient; computed by the functions that a run computes them with."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen

from rlc.algo import PROCESS, AlgorithmError, Floats, has_running, needs_batch, reads
from rlc.plan import PolicyGradient, Training
from rlc.replays.recorded import (
    RecordedRun,
    RecordedStep,
    ReplayError,
    SequenceKey,
    without_component,
)
from rlc.runtime import (
    CreditedRollout,
    Rollout,
    StepComputation,
    TrainBatch,
    TrainingDatum,
    drift_metrics,
    score_metrics,
    trainable_rollouts,
    with_values_over,
)
from rlc.seeds import derive_seed

T = TypeVar("T")


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, also where an event loop is running already."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work).result()


@frozen(eq=False)
class DatumOutcome:
    """A datum in its minibatch. ``gradient_T`` is that of the loss by the trainer's logprobs of the
    targets; ``loss`` is None if logprobs decide it that were not kept: those of a teacher's
    tokens, or of what comes between replies."""

    key: SequenceKey
    datum: TrainingDatum
    loss: float | None
    gradient_T: Floats

    @property
    def size(self) -> float:
        """The sum of what its tokens add to the gradient, regardless of signs."""
        return float(np.abs(self.gradient_T).sum())


@frozen(eq=False)
class ObjectiveOutcome:
    """A step's episodes under the objective of ``stage``.

    Attributes:
        credited: the rollouts with their advantages, in the order of the run.
        batch: its minibatches and datums; None if tokens of an episode that it trains on are gone.
        datums: what each datum comes to, in the order of the updates.
        assumed: the number of sequences whose logprobs by the trainer are not known, because the
            run took no gradient of them; in their place are those of the sampler.
        metrics: those of ``metrics.jsonl`` that follow from all this, by key.
    """

    stage: Training
    credited: list[CreditedRollout]
    batch: TrainBatch | None = None
    datums: list[DatumOutcome] = field(factory=list)
    assumed: int = 0
    metrics: dict[str, float] = field(factory=dict)

    @property
    def objective(self) -> PolicyGradient:
        return self.stage.of(PolicyGradient)

    @property
    def loss(self) -> float | None:
        """The loss of the step; None if a part of it is not known."""
        values = [one.loss for one in self.datums]
        known = [value for value in values if value is not None]
        return None if self.batch is None or len(known) < len(values) else fsum(known)

    def sizes(self) -> dict[int, float]:
        """Return how much of the gradient is of each rollout, by id: the sum over its tokens."""
        found: dict[int, float] = {}
        for one in self.datums:
            found[one.key[0]] = found.get(one.key[0], 0.0) + one.size
        return found

    def gradients(self) -> dict[SequenceKey, Floats]:
        """Return the gradients by the logprobs, shape (T,), by sequence, of all its datums."""
        found: dict[SequenceKey, Floats] = {}
        for one in self.datums:
            before = found.get(one.key, np.zeros(0))
            found[one.key] = added(before, one.gradient_T)
        return found


def added(one_T: Floats, other_T: Floats, times: float = 1.0) -> Floats:
    """Return ``one + times · other``; the shorter one, which was trimmed, has zeros at its end."""
    found = np.zeros(max(len(one_T), len(other_T)))
    found[: len(one_T)] += one_T
    found[: len(other_T)] += times * other_T
    return found


async def outcome_of(
    run: RecordedRun,
    stage: Training,
    recorded: RecordedStep,
    as_it_was: bool,
    rollouts: Sequence[Rollout] | None = None,
) -> ObjectiveOutcome:
    """Return what a step comes to. What a scheme keeps of earlier steps is as the run journalled it
    if the scheme is that of the run (``as_it_was``), else computed anew from the first step on.
    ``rollouts`` take the place of the recorded ones, with the same ids of turns.

    Raise ReplayError for a step that cannot be computed.
    """
    scheme, seed = stage.of(PolicyGradient).advantage, run.plan.seed
    before = [one for one in run.steps(stage.name) if one.step < recorded.step]
    tokenizer = _tokenizer(stage) if reads(scheme, PROCESS) else None
    try:
        if as_it_was:
            cursors = [one.cursor for one in before]
        else:
            cursors = await _cursors(run, stage, [one.step for one in before], tokenizer)
        computation = StepComputation.of(seed, stage, cursors, tokenizer)
        played = trainable_rollouts(rollouts or recorded.rollouts, stage.played)
        scored, complete = recorded.scored, recorded.complete
        if rollouts is not None:  # the same ones, with another credit
            old = {id(new): id(one) for new, one in zip(rollouts, recorded.rollouts, strict=True)}
            scored = {
                scorer: {new: by[was] for new, was in old.items() if was in by}
                for scorer, by in scored.items()
            }
            complete = {new for new, was in old.items() if was in complete}
        else:
            old = {id(one): id(one) for one in recorded.rollouts}
        if needs := [name for name in ("logq", "ref", "teacher") if reads(scheme, name)]:
            _require_tokens(played, complete, f"`{scheme.name}` reads `{needs[0]}` of each token")
        credited = await computation.credited(recorded.step, played, scored)
        lost = [r for r in credited if r.kept and r.rollout.turns and id(r.rollout) not in complete]
        if lost:
            return ObjectiveOutcome(stage, _renamed(credited, recorded, old))
        batch = computation.batch(recorded.step, credited, scored)
        found = _of_batch(stage, recorded, batch, old, seed)
        return evolve(found, credited=_renamed(credited, recorded, old))
    except AlgorithmError as error:
        raise ReplayError(f"step {recorded.step} cannot be computed so: {error}") from error


async def _cursors(
    run: RecordedRun, stage: Training, steps: Sequence[int], tokenizer: Any
) -> list[dict[str, Any]]:
    """Return what a scheme that is not the run's would have kept after each of its first steps."""
    scheme = stage.of(PolicyGradient).advantage
    if not (has_running(scheme) or scheme.function):
        return []
    if id(scheme) not in run.cursors:
        computation, found = StepComputation.of(run.plan.seed, stage, [], tokenizer), []
        for step in steps:
            earlier = run.read(stage, step)
            played = trainable_rollouts(earlier.rollouts, stage.played)
            await computation.credited(step, played, earlier.scored)
            found.append(computation.cursor(step))
        run.cursors[id(scheme)] = found
    return run.cursors[id(scheme)]


def _renamed(
    credited: Sequence[CreditedRollout], recorded: RecordedStep, old: Mapping[int, int]
) -> list[CreditedRollout]:
    """Return rows of the recorded rollouts."""
    of_id = {id(one): one for one in recorded.rollouts}
    return [evolve(row, rollout=of_id[old[id(row.rollout)]]) for row in credited]


def _require_tokens(rollouts: Sequence[Rollout], complete: set[int], why: str) -> None:
    there = sum(id(one) in complete for one in rollouts)
    if there < len(rollouts):
        raise ReplayError(
            f"{why}, and the tokens of {there:,} of {len(rollouts):,} episodes were kept",
            "`rlc run --tokens all` keeps those of all episodes",
        )


def _tokenizer(stage: Training) -> Any:
    from rlc.catalog import tokenizer_of

    name = tokenizer_of(stage.model.base)
    if name is None:
        name = stage.model.base
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def _of_batch(
    stage: Training,
    recorded: RecordedStep,
    batch: TrainBatch,
    old: Mapping[int, int],
    seed: int,
) -> ObjectiveOutcome:
    objective, step = stage.of(PolicyGradient), recorded.step
    loss = objective.loss
    keys = {
        datum.name: (old[id(one.rollout)], datum.sequence)
        for one in batch.episodes
        for datum in one.datums
    }
    assumed = set[SequenceKey]()

    def trainer(datum: TrainingDatum) -> Floats:
        key = keys[datum.name]
        trainer_T = recorded.sequences[key].trainer_T[: len(datum.inputs)]
        unknown_T = np.isnan(trainer_T)
        if (unknown_T & datum.mask_T).any():
            assumed.add(key)
        return np.where(unknown_T, datum.logprobs_T, trainer_T)

    updates = batch.minibatches
    if loss.program is not None and needs_batch(loss.program):
        datums = [datum for update in updates for datum in update.datums]
        stream = derive_seed(seed, "loss", stage.name, step)
        rest = iter(with_values_over(loss.program, datums, [trainer(d) for d in datums], stream))
        updates = [evolve(m, datums=[next(rest) for _ in m.datums]) for m in updates]
    found, trained, trainer_DT = [], list[TrainingDatum](), list[Floats]()
    for update in updates:
        for datum in update.datums:
            trained.append(datum)
            trainer_DT.append(trainer(datum))
            value, gradient_T = datum.loss_and_gradient(loss, update.loss_config, trainer_DT[-1])
            found.append(DatumOutcome(keys[datum.name], datum, value, gradient_T))
        for datum in update.taught:
            assert datum.topk is not None
            known_T = datum.mask_T & (datum.topk.mass_T > 0)
            gradient_T = np.where(known_T, -datum.weight, 0.0)
            found.append(DatumOutcome(keys[datum.name], datum, None, gradient_T))
        found += [DatumOutcome(keys[d.name], d, None, -d.advantages_T) for d in update.observed]
    metrics = drift_metrics(loss, trained, trainer_DT) | score_metrics([batch.episodes])
    outcome = ObjectiveOutcome(
        stage, [], TrainBatch(updates, batch.episodes), found, len(assumed), metrics
    )
    if outcome.loss is not None and found:
        metrics["loss/sum"] = outcome.loss
    return outcome


# Shares of the gradient


def shares(sizes: Mapping[str, float]) -> dict[str, float]:
    """Return parts of a sum; none if it is 0."""
    whole = fsum(sizes.values())
    return {name: size / whole for name, size in sizes.items()} if whole else {}


def by_environment(found: ObjectiveOutcome) -> dict[str, float]:
    """Return the share of the gradient that is of each environment: of the sum of the sizes of the
    slopes ``∂L/∂log p`` of all tokens."""
    env_of = {id(row.rollout): row.rollout.env for row in found.credited}
    totals = dict.fromkeys(env_of.values(), 0.0)
    for rollout, size in found.sizes().items():
        totals[env_of[rollout]] += size
    return shares(totals)


async def by_component(
    run: RecordedRun, recorded: RecordedStep, found: ObjectiveOutcome, as_it_was: bool
) -> dict[str, float]:
    """Return the share of each component of the reward, and of the pulls to other models, in the
    gradient: by how much the slopes of the tokens change, in sum, if it is left out. None if the
    gradient is made of one thing only."""
    stage, objective, full = found.stage, found.objective, found.gradients()
    names = sorted({name for one in recorded.rollouts for name in one.components})
    parts: dict[str, PolicyGradient] = {}
    if objective.kl is not None and objective.kl.coef:
        parts["reference"] = evolve(objective, kl=evolve(objective.kl, coef=0.0, final=None))
    if any(teacher.coef for teacher in objective.teacher):
        silent = tuple(evolve(teacher, coef=0.0) for teacher in objective.teacher)
        parts["teacher"] = evolve(objective, teacher=silent)
    if objective.observations:
        parts["observations"] = evolve(objective, observations=None)
    variants: dict[str, tuple[Training, list[Rollout] | None]] = {
        name: (evolve(stage, objective=one), None) for name, one in parts.items()
    }
    if len(names) > 1:
        for name in names:
            variants[name] = stage, [without_component(one, name) for one in recorded.rollouts]
    elif parts:
        zero = [evolve(r, credit=(0.0,) * len(r.credit), components={}) for r in recorded.rollouts]
        variants["reward"] = stage, zero
    if len(variants) < 2:
        return {}
    sizes = dict[str, float]()
    for name, (changed, rollouts) in variants.items():
        without = (await outcome_of(run, changed, recorded, as_it_was, rollouts)).gradients()
        keys = {*full, *without}
        none = np.zeros(0)
        rows = (added(full.get(key, none), without.get(key, none), -1.0) for key in keys)
        sizes[name] = fsum(float(np.abs(row).sum()) for row in rows)
    return shares(sizes)


def signs(found: ObjectiveOutcome) -> dict[int, float]:
    """Return the advantage of each rollout, by id: the mean over its tokens, as they are trained on
    if that is known; 0 if it is left out."""
    known = {id(row.rollout): 0.0 for row in found.credited}
    if found.batch is None:
        for row in found.credited:
            counts_T = np.array([len(turn.tokens) for turn in row.rollout.turns])
            if row.kept and counts_T.sum():
                total = float((row.advantages_T[: len(counts_T)] * counts_T).sum())
                known[id(row.rollout)] = total / float(counts_T.sum())
        return known
    sums: dict[int, tuple[float, int]] = {}
    for one in found.datums:
        if one.loss is not None:
            total, count = sums.get(one.key[0], (0.0, 0))
            advantages_S = (one.datum.advantages_T / one.datum.folded)[one.datum.mask_T]
            sums[one.key[0]] = total + float(advantages_S.sum()), count + len(advantages_S)
    return known | {key: total / count for key, (total, count) in sums.items() if count}
