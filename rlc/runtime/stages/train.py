"""The work of one training stage: a function for each kind of node in the step graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Advantages, Episodes
from rlc.envs.seeds import derive_seed
from rlc.plan.graph import takes_what_is_ready
from rlc.plan.records import EnvPlan, TrainPlan
from rlc.runtime.concurrency import in_thread
from rlc.runtime.graph import NodeContext, Parts, StepFunction, StepOutcome
from rlc.runtime.journal.metrics import reference_metrics, rollout_metrics, rollout_record
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.rollouts.environments import close_envs
from rlc.runtime.rollouts.groups import (
    TaskStream,
    play_groups,
    play_replacing,
    replaced_groups,
)
from rlc.runtime.rollouts.player import Player, Task
from rlc.runtime.rollouts.ready_groups import Playing, ReadyGroups, share_of
from rlc.runtime.stages.base import StepReport
from rlc.runtime.stages.weights import Snapshot, StageWeights
from rlc.runtime.updates.datums import FloatArray
from rlc.runtime.updates.minibatch import Minibatch, minibatches, rollout_datums
from rlc.runtime.updates.optimizer import (
    PendingGradients,
    UpdateResult,
    adam_params,
    finish,
    submit,
    wire_datums,
)
from rlc.runtime.updates.reference import ReferenceModel
from rlc.service.interface import SamplingClient


@frozen(eq=False)
class ValidRollouts:
    """The rollouts that enter the statistics, and their rewards as labelled_episodes arrays."""

    rollouts: list[Rollout]
    episodes: Episodes


@frozen(eq=False)
class CreditedRollouts:
    """Rollouts with their advantages."""

    rollouts: list[Rollout]
    advantages: Advantages


@frozen(eq=False)
class TrainBatch:
    """What the updates of a step are trained on, and what there is to say of it."""

    minibatches: list[Minibatch]
    metrics: dict[str, float]


@define(eq=False)
class TrainStage:
    """One stage in progress; see :class:`rlc.runtime.stages.base.Stage`.

    ``on_groups`` is told how many groups of a step are played, and how many there are.
    """

    plan: TrainPlan
    seed: int
    weights: StageWeights
    stream: TaskStream
    reference_client: SamplingClient | None
    on_groups: Callable[[int, int], None]
    usage: dict[int, Usage] = field(factory=dict)
    reference_usage: dict[int, Usage] = field(factory=dict)
    _played: Counter[int] = field(factory=Counter, init=False)
    _arrivals: dict[int, ReadyGroups] = field(factory=dict, init=False)

    def functions(self) -> dict[str, StepFunction]:
        """By the kind of the graph's nodes."""
        return {
            "snapshot": self.snapshot,
            "rollouts": self.rollouts,
            "returns": self.returns,
            "advantages": self.advantages,
            "reference": self.reference,
            "datums": self.datums,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "checkpoint": self.weights.checkpoint,
        }

    async def snapshot(self, at: NodeContext, inputs: Mapping[str, Any]) -> Snapshot:
        return await self.weights.snapshot(at.source)

    async def rollouts(self, at: NodeContext, inputs: Mapping[str, Any]) -> list[Rollout]:
        """Everything that the step plays (or its share, in a part), failures included."""
        snapshot, batch = inputs["snapshot"], self.plan.batch
        player = Player(
            client=snapshot.client,
            sampling=self.plan.sampling,
            context=self.plan.model.context,
            on_error=self.plan.on_error,
            usage=self.usage.setdefault(at.step, Usage()),
            staleness=at.step - 1 - snapshot.step,
        )
        if batch.kind == "turns":
            return await self._play_turns(player, at.step)
        tasks = self.stream.of_step(at.step, batch.count, known=snapshot.step)
        spares = range((at.step - 1) * batch.resample, at.step * batch.resample)

        def play(chosen: Sequence[Task], spares: Iterator[int]) -> Playing:
            def some(fresh: Sequence[Task]) -> Awaitable[list[list[Rollout]]]:
                return self._play(player, fresh, at.step, len(tasks))

            return play_replacing(some, chosen, self.stream.spare, spares)

        if not takes_what_is_ready(self.plan):
            return await play(at.share(tasks), iter(at.share(spares)))
        if at.step not in self._arrivals:
            arrivals = self._arrivals[at.step] = ReadyGroups(share_of(tasks, at.parts))
            left = iter(spares)
            arrivals.start(play([task], left) for task in tasks)
        return await self._arrivals[at.step].part()

    async def _play_turns(self, player: Player, step: int) -> list[Rollout]:
        """Waves of parallel episodes until there are enough turns, or one in which all failed."""
        batch, played = self.plan.batch, list[Rollout]()
        while sum(len(rollout.turns) for rollout in played) < batch.count:
            self._played[step] = 0
            tasks = self.stream.take(batch.parallel or batch.count)
            groups = await self._play(player, tasks, step, len(tasks))
            wave = [rollout for group in groups for rollout in group]
            played.extend(wave)
            if not any(rollout.turns for rollout in wave):  # nor would another have any
                break
        self.stream.end_step()
        return played

    async def _play(
        self, player: Player, tasks: Sequence[Task], step: int, planned: int
    ) -> list[list[Rollout]]:
        def on_group() -> None:
            self._played[step] += 1
            self.on_groups(self._played[step], max(planned, self._played[step]))

        return await play_groups(player, tasks, on_group)

    async def returns(self, at: NodeContext, inputs: Mapping[str, Any]) -> ValidRollouts:
        """Leave failures and replaced groups out, before any statistic, and label the rest."""
        return await in_thread(_valid, inputs["rollouts"], self.plan.envs)

    async def advantages(self, at: NodeContext, inputs: Mapping[str, Any]) -> CreditedRollouts:
        valid: ValidRollouts = inputs["returns"]
        advantages = await in_thread(compute_advantages, self.plan.advantage, valid.episodes)
        return CreditedRollouts(valid.rollouts, advantages)

    async def reference(self, at: NodeContext, inputs: Mapping[str, Any]) -> list[list[FloatArray]]:
        """The reference's logprobs of each rollout's sequences."""
        assert self.reference_client is not None
        usage = self.reference_usage.setdefault(at.step, Usage())
        return await ReferenceModel(self.reference_client, usage).logprobs(
            inputs["returns"].rollouts
        )

    async def datums(self, at: NodeContext, inputs: Mapping[str, Any]) -> TrainBatch:
        """Merge, shift, weigh: what the updates of the step (or of a part) are trained on."""
        return await in_thread(self._batch, at, inputs["advantages"], inputs.get("reference"))

    def _batch(
        self,
        at: NodeContext,
        credited: CreditedRollouts,
        reference: Sequence[Sequence[FloatArray]] | None,
    ) -> TrainBatch:
        rollouts, by_rollout = credited.rollouts, credited.advantages.by_rollout()
        references: Sequence[Any] = reference or [None] * len(rollouts)
        kept = [int(i) for i in np.flatnonzero(credited.advantages.kept_R) if rollouts[i].turns]
        chosen_RT = self._choose_turns(at.step, [len(rollouts[i].turns) for i in kept])
        episodes = rollout_datums(
            [rollouts[i] for i in kept],
            [by_rollout[i] for i in kept],
            chosen_RT,
            [references[i] for i in kept],
        )
        return TrainBatch(minibatches(self.plan, episodes), reference_metrics(episodes))

    def _choose_turns(self, step: int, turns_R: Sequence[int]) -> list[npt.NDArray[np.bool_]]:
        """Which turns are trained on: all, or a random ``count`` of them under ``turns()``."""
        batch, total = self.plan.batch, sum(turns_R)
        chosen = np.ones(total, dtype=np.bool_)
        if batch.kind == "turns" and total > batch.count:
            seed = derive_seed(self.seed, "subsample", self.plan.name, step)
            order = np.random.default_rng(seed).permutation(total)
            chosen[order[batch.count :]] = False
        return np.split(chosen, np.cumsum(turns_R)[:-1]) if turns_R else []

    async def forward_backward(
        self, at: NodeContext, inputs: Mapping[str, Any]
    ) -> PendingGradients:
        """Submit, do not wait: the optimiser step is to follow in the same breath."""
        params = adam_params(self.plan.optimizer, at.step, self.plan.steps)
        batch: TrainBatch = inputs["datums"]
        data = await in_thread(wire_datums, self.plan.loss, batch.minibatches)
        gradients = submit(self.weights.training, self.plan.loss, batch.minibatches, data, params)
        if at.step in self._arrivals:
            self._arrivals[at.step].train(gradients)
        return gradients

    async def optim_step(self, at: NodeContext, inputs: Mapping[str, Any]) -> UpdateResult:
        """All results, or nothing where no datum had an advantage."""
        params = adam_params(self.plan.optimizer, at.step, self.plan.steps)
        parts = Parts.of(inputs["forward_backward"])
        update = await finish(self.weights.training, parts, params, sampled=True)
        self.weights.step = at.step
        return update

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Metrics, rollouts with their advantages, and the cursor after the step."""
        outputs = outcome.outputs
        rollouts = self._in_order(step, Parts.of(outputs["rollouts"]))
        update: UpdateResult = outputs["optim_step"]
        self.usage[step].trained = update.trained
        self._played.pop(step, None)
        metrics = await in_thread(rollout_metrics, rollouts, self.plan.envs)
        metrics |= update.metrics
        for batch in Parts.of(outputs["datums"]):
            metrics |= batch.metrics
        credited = Parts.of(outputs["advantages"])
        records = await in_thread(_records, self.plan.name, step, rollouts, credited)
        metrics |= self.stream.metrics()
        if self.plan.batch.resample:
            metrics |= replaced_groups(rollouts, self.stream.envs)
        cursor, checkpoint = self.stream.finish(step, rollouts), outputs["checkpoint"]
        return StepReport(metrics, records, cursor, checkpoint)

    def _in_order(self, step: int, parts: Sequence[list[Rollout]]) -> list[Rollout]:
        """The rollouts of a step by their tasks, whatever came in first; those that took the place
        of others last."""
        rollouts = [rollout for part in parts for rollout in part]
        if self._arrivals.pop(step, None) is None:
            return rollouts
        tasks = self.stream.of_step(step, self.plan.batch.count)
        place = {(task.env.plan.name, task.number): at for at, task in enumerate(tasks)}
        return sorted(rollouts, key=lambda rollout: place.get(rollout.group, len(place)))

    async def close(self) -> None:
        """Close the environments."""
        await close_envs(self.stream.envs.values())


def trainable_rollouts(rollouts: Sequence[Rollout], envs: Sequence[EnvPlan]) -> list[Rollout]:
    """The rollouts that have a credit, without the groups in which too many failed, and those that
    others are trained on in place of."""
    allowed = {env.name: env.rollouts.max_failures for env in envs}
    members = {(r.group, r.member) for r in rollouts if r.error is not None}
    failed = Counter(group for group, _ in members)

    def too_many(rollout: Rollout) -> bool:
        most = allowed[rollout.env]
        return most is not None and failed[rollout.group] > most

    fresh = [rollout for rollout in rollouts if rollout.credit and not rollout.replaced]
    return [rollout for rollout in fresh if not too_many(rollout)]


def _valid(rollouts: Sequence[Rollout], envs: Sequence[EnvPlan]) -> ValidRollouts:
    kept = trainable_rollouts(rollouts, envs)
    return ValidRollouts(kept, labelled_episodes(kept))


def _records(
    stage: str, step: int, rollouts: Sequence[Rollout], credited: Sequence[CreditedRollouts]
) -> list[dict[str, Any]]:
    """The lines of a step in ``rollouts.jsonl``."""
    advantages = _advantages_by_rollout(credited)
    return [rollout_record(stage, step, one, advantages.get(id(one))) for one in rollouts]


def _advantages_by_rollout(parts: Sequence[CreditedRollouts]) -> dict[int, list[float]]:
    """One value a turn, by the identity of the rollout; left-out rollouts have none."""
    return {
        id(rollout): values_T.tolist()
        for credited in parts
        for rollout, values_T in zip(
            credited.rollouts, credited.advantages.by_rollout(), strict=True
        )
    }


def labelled_episodes(rollouts: Sequence[Rollout]) -> Episodes:
    """The arrays that an advantage scheme is computed from. A group is one task of one
    environment, whatever the order of its members; a failure before the first turn counts
    with its reward and no tokens."""
    groups = {key: i for i, key in enumerate(dict.fromkeys(r.group for r in rollouts))}
    envs = {key: i for i, key in enumerate(dict.fromkeys(r.env for r in rollouts))}
    roles = {key: i for i, key in enumerate(dict.fromkeys(r.role for r in rollouts))}
    return Episodes.from_rollouts(
        rewards_RT=[np.array(r.credit, dtype=np.float64) for r in rollouts],
        tokens_RT=[np.array([len(t.tokens) for t in r.turns] or [0], np.int64) for r in rollouts],
        group_R=np.array([groups[r.group] for r in rollouts], dtype=np.int64),
        env_R=np.array([envs[r.env] for r in rollouts], dtype=np.int64),
        role_R=np.array([roles[r.role] for r in rollouts], dtype=np.int64),
    )
