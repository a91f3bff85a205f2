"""A reinforcement learning stage: a function for each kind of node in its step graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from attrs import define, evolve, field

from rlc.algo import PROCESS, reads
from rlc.plan import (
    SCORERS,
    PolicyGradient,
    Rollouts,
    Training,
    in_parts,
    takes_what_is_ready,
)
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.concurrency import in_thread
from rlc.runtime.graph import Inputs, NodeContext, Parts, StepFunction, StepOutcome
from rlc.runtime.journal.metrics import rollout_metrics, rollout_record
from rlc.runtime.players.pool import StagePlayers
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.batches import (
    Batch,
    PlannedGroups,
    StreamedGroups,
    TurnRounds,
    replaced_groups,
    whole,
)
from rlc.runtime.rollouts.groups import build_envs, play_group, play_task
from rlc.runtime.rollouts.player import Player, close_envs
from rlc.runtime.rollouts.tasks import Task, TaskRounds, TaskStream
from rlc.runtime.rollouts.tokens import Scores
from rlc.runtime.stages.base import Setup, Stage, StepReport
from rlc.runtime.stages.computation import (
    KEY,
    CreditedRollout,
    StepComputation,
    TrainBatch,
    trainable_rollouts,
)
from rlc.runtime.stages.examples import heldout_node
from rlc.runtime.summary import Observer
from rlc.runtime.updates import optimizer
from rlc.runtime.updates.optimizer import PendingGradients, credited_tokens
from rlc.runtime.updates.scorers import (
    LogprobScorers,
    open_scorers,
    score_metrics,
    teacher_views,
)
from rlc.runtime.weights import SamplerSnapshot, pasts_of
from rlc.seeds import derive_seed


@define(eq=False)
class TrainStage(Stage[LogprobScorers]):
    """A reinforcement learning stage in progress."""

    plan: Training
    source: Rollouts
    objective: PolicyGradient
    stream: TaskStream
    rounds: TaskRounds | None  # under `turns()`
    observer: Observer
    auxiliary: AuxiliaryModels
    computation: StepComputation
    heldout: Mapping[str, StepFunction]
    players: StagePlayers | None = field(default=None, kw_only=True)  # None: this process plays
    kept_tokens: int | None = field(default=None, kw_only=True)  # episodes of a step; None: all
    _played: Counter[int] = field(factory=Counter, init=False)
    _has_unread: bool = field(default=False, init=False)  # whether a note has said so
    _has_lost: bool = field(default=False, init=False)  # whether a step lost too many replies
    _streamed: dict[int, StreamedGroups] = field(factory=dict, init=False)

    def functions(self) -> dict[str, StepFunction]:
        return {
            "snapshot": self.snapshot,
            "rollouts": self.rollouts,
            "returns": self.returns,
            "advantages": self.advantages,
            **{scorer: partial(self.scores, scorer) for scorer in SCORERS},
            "datums": self.datums,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "checkpoint": self.weights.checkpoint,
            **self.heldout,
        }

    async def snapshot(self, node: NodeContext, inputs: Inputs) -> SamplerSnapshot:
        snapshot = await self.weights.snapshot(node.source)
        pasts = {n: await self.weights.past(snapshot.step, n) for n in pasts_of(self.plan)}
        return evolve(snapshot, pasts=pasts) if pasts else snapshot

    async def rollouts(self, node: NodeContext, inputs: Inputs) -> list[Rollout]:
        """Play the groups of the step, or of this part of it; failures are included."""
        snapshot, step = inputs["snapshot"], node.step
        player = Player(
            client=snapshot.client,
            sampling=self.source.sampling,
            context=self.plan.model.context,
            on_error=self.source.on_error,
            usage=self.meter.running[step],
            staleness=step - 1 - snapshot.step,
            pasts={
                every: self.auxiliary.answering(self.meter, self.plan.model, client)
                for every, client in snapshot.pasts.items()
            },
        )
        if step not in self._streamed:
            groups = self._groups(player, step, snapshot.step)
            if node.parts == 1:
                return await whole(groups)
            streamed = self._streamed[step] = StreamedGroups(
                groups,
                parts=node.parts,
                fixed=not takes_what_is_ready(self.source.overlap, self.plan.model.service),
                gradients="forward_backward" in in_parts(self.plan),
            )
            streamed.start()
        return await self._streamed[step].part()

    def _groups(self, player: Player, step: int, known: int) -> Batch:
        """Return what the step plays; curricula choose by what the steps up to ``known`` taught."""
        batch, play, rounds = self.source.batch, partial(self._play, player, step), self.rounds
        if rounds is not None:
            more, last = partial(rounds.more, step), partial(rounds.end, step)
            lost = partial(self._note_lost, step)
            return TurnRounds(batch, rounds.first(step), play, more, player.asked, last, lost)
        tasks = self.stream.of_step(step, batch.count, known)
        spares = range((step - 1) * batch.resample, step * batch.resample)
        return PlannedGroups(tasks, play, self.stream.spare, spares)

    def _note_lost(self, step: int, turns: int, lost: int) -> None:
        """Say why a step has fewer turns than planned, for the first such step."""
        if not self._has_lost:
            self._has_lost = True
            self.observer.note(
                f"step {step} trains on {turns:,} of {self.source.batch.count:,} turns: {lost:,} "
                "replies were lost with rollouts that failed, and no more are played in their place"
            )

    async def _play(self, player: Player, step: int, task: Task) -> list[Rollout]:
        # A server has time for scores as soon as a group is played, unless another replaces it.
        at_once = self.plan.model.hosted and not self.source.batch.resample

        def on_group(members: list[Rollout]) -> None:
            self._played[step] += 1
            if at_once:
                kept = trainable_rollouts(members, self.source.envs)
                for scorers in self.scorers.values():
                    scorers.ask(step, kept)
            self.record_usage()  # at once: the step may fail later
            planned = len(self.stream.sampled[step])
            self.observer.progress(self._played[step], max(planned, self._played[step]))
            self.observer.played(members)

        play = play_task if self.players is None else self.players.play
        return await play_group(player, on_group, task, play)

    async def returns(self, node: NodeContext, inputs: Inputs) -> list[Rollout]:
        """Leave failures and replaced groups out, before any statistic."""
        return await in_thread(trainable_rollouts, inputs["rollouts"], self.source.envs)

    async def advantages(self, node: NodeContext, inputs: Inputs) -> list[CreditedRollout]:
        """Apply the scheme to the whole batch, or to this part of it."""
        rollouts = [one for part in Parts.of(inputs["returns"]) for one in part]
        return await self.computation.credited(node.step, rollouts, _scores_in(inputs))

    async def scores(
        self, scorer: str, node: NodeContext, inputs: Inputs
    ) -> dict[int, list[Scores]]:
        """Return another model's scores of each rollout's sequences; the keys are ids."""
        return await self.scorers[scorer].scores(node.step, inputs["returns"])

    async def datums(self, node: NodeContext, inputs: Inputs) -> TrainBatch:
        """Make the minibatches of the step, or of this part of it."""
        return await in_thread(self._batch, node.step, inputs)

    def _batch(self, step: int, inputs: Inputs) -> TrainBatch:
        credited = [row for part in Parts.of(inputs["advantages"]) for row in part]
        place = self._place(step)
        credited.sort(key=lambda row: place(row.rollout))
        return self.computation.batch(step, credited, _scores_in(inputs))

    async def forward_backward(self, node: NodeContext, inputs: Inputs) -> PendingGradients:
        """Submit the gradients without waiting, so that the optimiser step follows at once."""
        batches = inputs["datums"].minibatches
        seed = derive_seed(self.seed, "loss", self.plan.name, node.step)
        gradients = await optimizer.submit_gradients(
            self.weights.training, self.plan, node.step, batches, self.weights.own_loss, seed
        )
        if node.step in self._streamed:
            outputs = [gradient.output for gradient in gradients.submitted]
            self._streamed[node.step].gradients_submitted(outputs)
        return gradients

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Return metrics, rollouts with their advantages, and the cursor after the step."""
        outputs = outcome.outputs
        rollouts = [rollout for part in Parts.of(outputs["rollouts"]) for rollout in part]
        rollouts.sort(key=self._place(step))
        self._played.pop(step, None)
        self._streamed.pop(step, None)
        self._note_unread(rollouts)
        metrics = await in_thread(rollout_metrics, rollouts, self.source.envs)
        metrics |= outputs["optim_step"].metrics
        metrics |= outputs.get("heldout", {})
        batches = [batch.episodes for batch in Parts.of(outputs["datums"])]
        metrics |= await in_thread(score_metrics, batches)
        # Of turns by what was known when the step had all of its tasks: later steps may go on.
        metrics |= self.stream.known.pop(step, {}) or self.stream.metrics()
        if self.source.batch.resample:
            metrics |= replaced_groups(rollouts, self.stream.envs)

        def records() -> list[dict[str, Any]]:
            credited = [row for part in Parts.of(outputs["advantages"]) for row in part]
            advantages = {id(row.rollout): row.advantages_T.tolist() for row in credited}
            name = self.plan.name
            return [rollout_record(name, step, one, advantages.get(id(one))) for one in rollouts]

        lines = await in_thread(records)
        parts, scored = Parts.of(outputs["forward_backward"]), _scores_in(outputs)
        credited = {id(row.rollout) for part in Parts.of(outputs["advantages"]) for row in part}
        made = rollouts, credited, batches, parts, scored, self.kept_tokens
        tokens = await in_thread(credited_tokens, *made)
        failures = [rollout.failure for rollout in rollouts if rollout.failure]
        cursor = self.stream.finish(step, rollouts)
        cursor |= self.computation.cursor(step)
        metrics |= {f"baseline/{label}": x for label, x in cursor.get(KEY, {}).items()}
        checkpoint = outputs["checkpoint"]
        return StepReport(metrics, checkpoint, lines, failures, cursor, tokens=tokens)

    def _note_unread(self, rollouts: Iterable[Rollout]) -> None:
        """Say once that process rewards are given and have no effect."""
        if self._has_unread or reads(self.objective.advantage, PROCESS):
            return
        paid = (one.env for one in rollouts if any(turn.steps for turn in one.turns))
        if (env := next(paid, None)) is not None:
            self._has_unread = True
            what = f"`{env}` gives process rewards, and the advantage does not read `{PROCESS}`"
            self.observer.note(f"{what}: they have no effect")

    def _place(self, step: int) -> Callable[[Rollout], int]:
        """Return a key that sorts rollouts that come in parts by their tasks, spare ones last."""
        if step not in self._streamed:
            return lambda _: 0
        tasks = enumerate(self.stream.sampled[step])
        place = {(task.env.plan.name, task.number): at for at, task in tasks}
        return lambda rollout: place.get(rollout.group, len(place))

    async def close(self) -> None:
        await super().close()
        if self.players is not None:
            await self.players.close()
        await close_envs(self.stream.envs.values())


async def open_policy_gradient(setup: Setup, stage: Training) -> TrainStage:
    """Open a stage with its environments, and the models that score what is sampled."""
    source, objective, tokenizer = stage.of(Rollouts), stage.of(PolicyGradient), setup.tokenizer
    setup.observer.waiting(f"opening {', '.join(env.name for env in source.envs)}")
    responders = setup.auxiliary.responders(setup.meter)
    views = partial(teacher_views, objective.teacher)
    given = tokenizer, stage.model.renderer, responders, views
    envs = await in_thread(build_envs, source.envs, *given)
    of_stage = stage, envs, tokenizer, responders, source.on_error, source.sampling
    players = await setup.players.of(*of_stage, objective.teacher)
    cursors, slack = [step.cursor for step in setup.done], source.overlap.max_staleness
    stream = TaskStream.resumed(envs, setup.seed, ("task", stage.name), cursors)
    in_rounds = source.batch.kind == "turns"
    return TrainStage(
        setup.seed,
        setup.weights,
        setup.meter,
        await open_scorers(setup.auxiliary, stage, tokenizer),
        stage,
        source,
        objective,
        stream,
        TaskRounds.resumed(stream, source.batch.at_once, slack, cursors) if in_rounds else None,
        setup.observer,
        setup.auxiliary,
        StepComputation.of(setup.seed, stage, cursors, tokenizer),
        await heldout_node(setup, stage),
        players=players,
        kept_tokens=setup.folder.kept_tokens,
    )


def _scores_in(inputs: Inputs) -> dict[str, dict[int, list[Scores]]]:
    """Return the scores of rollouts by scorer, then by their ids."""
    found: dict[str, dict[int, list[Scores]]] = {}
    for scorer in SCORERS:
        for part in Parts.of(inputs[scorer]) if scorer in inputs else ():
            found.setdefault(scorer, {}).update(part)
    return found
