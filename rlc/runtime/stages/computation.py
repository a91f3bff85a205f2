"""What a step makes of its rollouts: advantages, then minibatches. The nodes of a running step
compute it once, and a replay of its recorded episodes again, with other formulas if asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from rlc.algo import (
    Advantages,
    AdvantageScheme,
    Episodes,
    Floats,
    compute_advantages,
    renewed,
    running_decays,
)
from rlc.plan import EnvPlan, PolicyGradient, Rollouts, Training
from rlc.runtime.concurrency import in_thread
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.tokens import Scores
from rlc.runtime.stages.own_advantages import STATE, OwnAdvantages
from rlc.runtime.updates.datums import (
    EpisodeDatums,
    FloatArray,
    Minibatch,
    minibatches,
    rollout_datums,
)
from rlc.runtime.updates.scorers import token_columns
from rlc.seeds import derive_seed

KEY = ".averages"  # in a step's cursor; no environment has this name

Averages = Mapping[str, float]  # by environment and role


@define(eq=False)
class RunningAverage:
    """One moving average that a scheme reads, for each role of each environment (``guess/judge``),
    by the step after which it holds. A step reads that after the last step that is over for certain
    when it begins, so that neither overlap nor order changes an advantage."""

    at: int  # its position in the program
    decay: float
    key: str  # in a step's cursor
    lag: int  # steps that may still be under way when another begins
    _after: dict[int, Averages] = field(factory=dict)
    _returns: dict[int, dict[str, list[float]]] = field(factory=dict, init=False)

    @classmethod
    def of(
        cls, scheme: AdvantageScheme, lag: int, cursors: Sequence[Mapping[str, Any]]
    ) -> list[RunningAverage]:
        """Return those of a scheme, after the steps with these cursors."""
        found = []
        for place, (at, decay) in enumerate(running_decays(scheme.result).items()):
            key = f"{KEY}.{place + 1}" if place else KEY
            known = {number: cursor.get(key, {}) for number, cursor in enumerate(cursors, start=1)}
            found.append(cls(at, decay, key, lag, known))
        return found

    def read(self, step: int, rollouts: Sequence[Rollout]) -> Floats:
        """Return what a step's rollouts read, shape (R,)."""
        averages = self.after(step - 1 - self.lag)
        return np.array([averages.get(_label(one), 0.0) for one in rollouts], np.float64)

    def add(self, step: int, rollouts: Sequence[Rollout], found: Advantages) -> None:
        """Record what it is of in a step, or in a part of it."""
        values, value_V = self._returns.setdefault(step, {}), found.observed[self.at]
        kept = [one for one, is_kept in zip(rollouts, found.kept_R, strict=True) if is_kept]
        each = len(value_V) == len(kept)
        counts = [1] * len(kept) if each else found.turns_R[found.kept_R].tolist()
        for rollout, part in zip(kept, np.split(value_V, np.cumsum(counts)[:-1]), strict=True):
            values.setdefault(_label(rollout), []).extend(part.tolist())

    def after(self, step: int) -> Averages:
        """Return the values after a step that has computed its advantages."""
        if step < 1:
            return {}
        if step not in self._after:
            before = self.after(step - 1)
            new = {
                label: renewed(before.get(label, 0.0), values, self.decay)
                for label, values in self._returns.pop(step, {}).items()
            }
            self._after[step] = dict(sorted({**before, **new}.items()))
        return self._after[step]


def _label(rollout: Rollout) -> str:
    return f"{rollout.env}/{rollout.role}" if rollout.role else rollout.env


@frozen(eq=False)
class CreditedRollout:
    """A rollout with an advantage for each turn; ``kept`` unless the scheme has dropped it.
    ``of_tokens_A`` has those of the tokens of all turns, where these may differ."""

    rollout: Rollout
    advantages_T: FloatArray
    kept: bool
    of_tokens_A: FloatArray | None = None


@frozen(eq=False)
class TrainBatch:
    """The minibatches of a step's updates, and the episodes that they were made of."""

    minibatches: list[Minibatch]
    episodes: list[EpisodeDatums]


# The scores of rollouts by scorer, then by the ids of the rollouts.
ScoresById = Mapping[str, Mapping[int, Sequence[Scores]]]


@define(eq=False)
class StepComputation:
    """Makes advantages, then minibatches, of the rollouts of a stage, step after step."""

    seed: int
    plan: Training
    averages: list[RunningAverage]
    own: OwnAdvantages | None
    tokenizer: Any  # read for process rewards only

    @classmethod
    def of(
        cls, seed: int, stage: Training, cursors: Sequence[Mapping[str, Any]], tokenizer: Any
    ) -> StepComputation:
        """Return that of a stage after the steps with these cursors."""
        scheme, lag = stage.of(PolicyGradient).advantage, stage.of(Rollouts).overlap.max_staleness
        averages = RunningAverage.of(scheme, lag, cursors)
        return cls(seed, stage, averages, OwnAdvantages.of(scheme, cursors), tokenizer)

    async def credited(
        self, step: int, rollouts: Sequence[Rollout], scored: ScoresById
    ) -> list[CreditedRollout]:
        """Apply the scheme to the rollouts of a step, or of a part of it."""
        scheme = self.plan.of(PolicyGradient).advantage

        def labelled() -> Episodes:
            running = {one.at: one.read(step, rollouts) for one in self.averages}
            of_tokens = token_columns(scheme, rollouts, scored, self.tokenizer)
            known = labelled_episodes(rollouts)
            return evolve(known, step=step, running=running, of_tokens=of_tokens)

        def computed() -> Advantages:
            found = compute_advantages(scheme, labelled())
            for one in self.averages:
                one.add(step, rollouts, found)
            return found

        if self.own is None:
            found = await in_thread(computed)
        else:
            found = await self.own.computed(step, await in_thread(labelled))
        of_tokens: Sequence[FloatArray | None] = found.of_tokens or [None] * len(rollouts)
        rows = zip(rollouts, found.by_rollout(), found.kept_R.tolist(), of_tokens, strict=True)
        return [CreditedRollout(*row) for row in rows]

    def batch(
        self, step: int, credited: Sequence[CreditedRollout], scored: ScoresById
    ) -> TrainBatch:
        """Make the minibatches of a step, or of a part of it, of rollouts in the order of tasks."""
        kept = [row for row in credited if row.kept and row.rollout.turns]
        of_row = [
            {name: by[id(row.rollout)] for name, by in scored.items() if id(row.rollout) in by}
            for row in kept
        ]
        chosen = self._choose_turns(step, [len(row.rollout.turns) for row in kept])
        advantages = [row.advantages_T for row in kept]
        of_tokens = [row.of_tokens_A for row in kept]
        rollouts = [row.rollout for row in kept]
        episodes = rollout_datums(rollouts, advantages, chosen, of_row, of_tokens)
        objective = self.plan.of(PolicyGradient)
        if objective.kl is not None:
            objective = evolve(objective, kl=objective.kl.at(step, self.plan.steps))
        updates = minibatches(objective, self.plan.of(Rollouts).batch.updates, episodes)
        return TrainBatch(updates, episodes)

    def cursor(self, step: int) -> dict[str, Any]:
        """Return what is kept after a step that has computed its advantages, for later ones."""
        kept: dict[str, Any] = {one.key: one.after(step) for one in self.averages}
        return kept if self.own is None else {**kept, STATE: self.own.finish(step)}

    def _choose_turns(self, step: int, turns_R: Sequence[int]) -> list[npt.NDArray[np.bool_]]:
        """Mark the turns to train on: all, or a random ``count`` of them under ``turns()``."""
        batch, total = self.plan.of(Rollouts).batch, sum(turns_R)
        chosen = np.ones(total, dtype=np.bool_)
        if batch.kind == "turns" and total > batch.count:
            seed = derive_seed(self.seed, "subsample", self.plan.name, step)
            order = np.random.default_rng(seed).permutation(total)
            chosen[order[batch.count :]] = False
        return np.split(chosen, np.cumsum(turns_R)[:-1]) if turns_R else []


def trainable_rollouts(rollouts: Sequence[Rollout], envs: Sequence[EnvPlan]) -> list[Rollout]:
    """Return rollouts with a credit, without replaced or failed groups and idle seats."""
    most = {env.name: env.rollouts.max_failures for env in envs}
    members = {(r.group, r.member) for r in rollouts if r.error is not None}
    failed = Counter(group for group, _ in members)
    return [
        r
        for r in rollouts
        if r.credit and not r.replaced and (r.turns or r.error)
        if (allowed := most[r.env]) is None or failed[r.group] <= allowed
    ]


def labelled_episodes(rollouts: Sequence[Rollout]) -> Episodes:
    """Return the arrays of an advantage scheme.

    A group is one task of one environment. A failure before the first turn counts with its reward
    and no tokens. A reward that is one number is a component.
    """

    def labels(values: Sequence[Any]) -> npt.NDArray[np.int64]:
        number = {value: i for i, value in enumerate(dict.fromkeys(values))}
        return np.array([number[value] for value in values], dtype=np.int64)

    def flags(values: Iterable[bool]) -> npt.NDArray[np.bool_]:
        return np.fromiter(values, np.bool_, len(rollouts))

    parts_R = [r.components or {"": (1.0, r.credit)} for r in rollouts]
    episodes = Episodes.from_rollouts(
        rewards_RT=[np.array(r.credit, dtype=np.float64) for r in rollouts],
        tokens_RT=[np.array([len(t.tokens) for t in r.turns] or [0], np.int64) for r in rollouts],
        group_R=labels([r.group for r in rollouts]),
        env_R=labels([r.env for r in rollouts]),
        role_R=labels([r.role for r in rollouts]),
        parts_R=parts_R,
    )
    return evolve(
        episodes,
        truncated_R=flags(r.error is None and r.ended != "done" for r in rollouts),
        failed_R=flags(r.error is not None for r in rollouts),
        envs=tuple(dict.fromkeys(r.env for r in rollouts)),
        roles=tuple(dict.fromkeys(r.role for r in rollouts)),
    )
