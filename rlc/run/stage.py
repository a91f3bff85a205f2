"""The work of one training stage: a function for each kind of node in the step graph."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import asdict, define, frozen

from rlc.algo.advantages import Advantages, Episodes, compute_advantages
from rlc.algo.kl import sample_train_kl
from rlc.envs.build import PlayableEnv
from rlc.envs.seeds import derive_seed
from rlc.plan.tree import TrainPlan
from rlc.run.datums import TrainingDatum, rollout_datums
from rlc.run.graph import StepFunction
from rlc.run.mixture import draw
from rlc.run.records import Rollout, RunError, Usage
from rlc.run.rollout import Player, Task
from rlc.run.tasks import all_of
from rlc.service.interface import SamplingClient, TrainingClient

if TYPE_CHECKING:
    from tinker import types


@frozen
class Collected:
    """What a step played, failures included, and the tokens that it took."""

    rollouts: list[Rollout]
    usage: Usage


@frozen
class Valid:
    """The rollouts that enter the statistics, and their rewards as labelled arrays."""

    rollouts: list[Rollout]
    episodes: Episodes


@frozen
class Credited:
    """Rollouts with their advantages."""

    rollouts: list[Rollout]
    advantages: Advantages


@frozen
class Gradient:
    """A ``forward_backward`` under way, and the datums that went into it."""

    datums: list[TrainingDatum]
    output: Awaitable[types.ForwardBackwardOutput]


@frozen
class Update:
    """What an optimiser step did; ``metrics`` is flat. ``trained`` counts tokens sent."""

    metrics: dict[str, float]
    trained: int


@define
class StageWork:
    """One stage in progress. ``cursor`` advances as tasks are drawn."""

    plan: TrainPlan
    seed: int
    envs: Mapping[str, PlayableEnv]
    training: TrainingClient
    cursor: dict[str, int]
    stop_requested: Callable[[], bool]
    on_rollouts: Callable[[int, int], None]  # done and planned groups of this step

    def functions(self) -> dict[str, StepFunction]:
        """By the kind of the graph's nodes."""
        return {
            "snapshot": self.snapshot,
            "rollouts": self.rollouts,
            "returns": self.returns,
            "advantages": self.advantages,
            "datums": self.datums,
            "forward_backward": self.forward_backward,
            "optim_step": self.optim_step,
            "checkpoint": self.checkpoint,
        }

    async def snapshot(self, step: int, inputs: Mapping[str, Any]) -> SamplingClient:
        return await self.training.save_weights_and_get_sampling_client()

    async def rollouts(self, step: int, inputs: Mapping[str, Any]) -> Collected:
        usage, batch = Usage(), self.plan.batch
        player = Player(
            client=inputs["snapshot"],
            sampling=self.plan.sampling,
            context=self.plan.model.context,
            on_error=self.plan.on_error,
            usage=usage,
        )
        if batch.kind == "groups":
            return Collected(await self._play(player, batch.count, batch.size), usage)
        played: list[Rollout] = []
        while sum(len(rollout.turns) for rollout in played) < batch.count:
            wave = await self._play(player, batch.parallel or batch.count, batch.size)
            played.extend(wave)
        return Collected(played, usage)

    async def _play(self, player: Player, count: int, size: int) -> list[Rollout]:
        """Draw ``count`` tasks and play them side by side; at least one rollout succeeds."""
        weights = {env.name: env.weight for env in self.plan.envs}
        tasks = [
            Task(
                env=self.envs[env],
                number=number,
                size=size,
                seed=derive_seed(self.seed, "task", self.plan.name, env, number),
            )
            for env, number in draw(weights, self.cursor, count)
        ]
        done = 0

        async def play(task: Task) -> list[Rollout]:
            nonlocal done
            members = await player.play(task)
            done += 1
            self.on_rollouts(done, count)
            return members

        rollouts = [member for group in await all_of(map(play, tasks)) for member in group]
        if not any(rollout.turns for rollout in rollouts):
            cause = next((r.error for r in rollouts if r.error), "no episode had a turn")
            raise RunError(f"every rollout failed; the first cause: {cause}")
        return rollouts

    async def returns(self, step: int, inputs: Mapping[str, Any]) -> Valid:
        """Leave failed rollouts out, before any statistic, and label the rest."""
        rollouts = [rollout for rollout in inputs["rollouts"].rollouts if rollout.turns]
        return Valid(rollouts, _episodes(rollouts))

    async def advantages(self, step: int, inputs: Mapping[str, Any]) -> Credited:
        valid: Valid = inputs["returns"]
        return Credited(valid.rollouts, compute_advantages(self.plan.advantage, valid.episodes))

    async def datums(self, step: int, inputs: Mapping[str, Any]) -> list[TrainingDatum]:
        credited: Credited = inputs["advantages"]
        values_RT, kept_R = credited.advantages.by_rollout(), credited.advantages.kept_R
        pairs = zip(credited.rollouts, values_RT, strict=True)
        kept = [pair for pair, keep in zip(pairs, kept_R, strict=True) if keep]
        chosen = self._choose_turns(step, [len(rollout.turns) for rollout, _ in kept])
        drop_zero = self.plan.loss.name != "dro"  # its quadratic term acts without advantages too
        return [
            datum
            for (rollout, advantages_T), chosen_T in zip(kept, chosen, strict=True)
            for datum in rollout_datums(rollout, advantages_T, chosen_T, drop_zero)
        ]

    def _choose_turns(self, step: int, turns_R: Sequence[int]) -> list[npt.NDArray[np.bool_]]:
        """Which turns are trained on: all, or a random ``count`` of them under ``turns()``."""
        batch, total = self.plan.batch, sum(turns_R)
        chosen = np.ones(total, dtype=np.bool_)
        if batch.kind == "turns" and total > batch.count:
            seed = derive_seed(self.seed, "subsample", self.plan.name, step)
            order = np.random.default_rng(seed).permutation(total)
            chosen[order[batch.count :]] = False
        return np.split(chosen, np.cumsum(turns_R)[:-1]) if turns_R else []

    async def forward_backward(self, step: int, inputs: Mapping[str, Any]) -> Gradient | None:
        """Submit, do not wait: the optimiser step is to follow in the same breath."""
        loss, datums = self.plan.loss, inputs["datums"]
        if not datums:
            return None
        data = [datum.to_tinker(loss.name) for datum in datums]
        output = self.training.forward_backward(data, loss.name, loss.config or None)
        return Gradient(datums, output)

    async def optim_step(self, step: int, inputs: Mapping[str, Any]) -> Update:
        """Both results, or nothing where no datum had an advantage."""
        gradient: Gradient | None = inputs["forward_backward"]
        if gradient is None:
            return Update({"optim/skipped": 1.0}, trained=0)
        update = self.training.optim_step(_adam_params(self.plan))
        output, response = await asyncio.gather(gradient.output, update)
        metrics = {"optim/skipped": 0.0, "optim/lr": self.plan.optimizer.learning_rate}
        metrics |= {f"optim/{name}": value for name, value in (response.metrics or {}).items()}
        metrics["loss/sum"] = output.metrics["loss:sum"]
        metrics |= _kl_metrics(gradient.datums, output)
        return Update(metrics, trained=sum(len(datum.inputs) for datum in gradient.datums))

    async def checkpoint(self, step: int, inputs: Mapping[str, Any]) -> str | None:
        save = self.plan.save
        due = save.every is not None and step % save.every == 0
        if not (due or step == self.plan.steps or self.stop_requested()):
            return None
        return await self.save(step)

    async def save(self, step: int) -> str:
        """Save weights and optimiser after ``step``; gives the path that restores them."""
        name = f"{self.plan.name}-{step:06d}"
        ttl = self.plan.save.ttl_seconds
        return (await self.training.save_state(name, ttl_seconds=ttl, overwrite=True)).path


def _episodes(rollouts: Sequence[Rollout]) -> Episodes:
    """The arrays that an advantage scheme is computed from. A group is one task of one
    environment, whatever the order of its members."""
    groups = {key: i for i, key in enumerate(dict.fromkeys((r.env, r.task) for r in rollouts))}
    envs = {key: i for i, key in enumerate(dict.fromkeys(r.env for r in rollouts))}
    return Episodes.from_rollouts(
        rewards_RT=[np.array([t.reward for t in r.turns], dtype=np.float64) for r in rollouts],
        tokens_RT=[np.array([len(t.tokens) for t in r.turns], dtype=np.int64) for r in rollouts],
        group_R=np.array([groups[r.env, r.task] for r in rollouts], dtype=np.int64),
        env_R=np.array([envs[r.env] for r in rollouts], dtype=np.int64),
    )


def _adam_params(plan: TrainPlan) -> types.AdamParams:
    from tinker import types

    return types.AdamParams(**asdict(plan.optimizer))


def _kl_metrics(
    datums: Sequence[TrainingDatum], output: types.ForwardBackwardOutput
) -> dict[str, float]:
    """How far the trainer's logprobs are from the sampler's, over the sampled tokens."""
    kl = sample_train_kl(
        [datum.logprobs_T for datum in datums],
        [outputs["logprobs"].to_numpy() for outputs in output.loss_fn_outputs],
        [datum.mask_T for datum in datums],
    )
    return {} if kl is None else {"kl/sample_train": kl.k1, "kl/sample_train_k2": kl.k2}
