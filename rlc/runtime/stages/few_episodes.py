"""A few episodes of each evaluation of a plan, within a budget, and no training.

Groups are played as in a run, and each is written as soon as it is over: a process that dies loses
those in play alone, and one that goes on plays the others. A group begins while the budget has room
for what groups have used so far, and for those in play; no request is sent that could exceed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, frozen

from rlc.catalog import DEFAULT_FAILURE, LIKELIHOOD, provide_keys
from rlc.data import search_beside
from rlc.plan import Evaluation
from rlc.pricing import stage_cost
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import Meter, cost
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import ROLLOUTS_FILE, rollout_record, usage_metrics
from rlc.runtime.records import Rollout, RunError, Usage, grouped
from rlc.runtime.remote import auxiliary_session
from rlc.runtime.rollouts.groups import build_envs, play_task
from rlc.runtime.rollouts.player import Player, close_envs
from rlc.runtime.rollouts.tasks import Task, TaskStream, new_cursor
from rlc.runtime.service_guard import LimitedSamplingClient, fixed_limiter
from rlc.runtime.spending_limit import SpendingLimit
from rlc.runtime.stages.evaluation import evaluation_metrics
from rlc.runtime.summary import Observer
from rlc.runtime.trackers import MetricsLog
from rlc.runtime.updates.datums import episode_datums
from rlc.runtime.weights import open_weights
from rlc.service import (
    SamplingClient,
    ServiceClient,
    ServiceError,
    TrainingClient,
    trained_logprobs,
)

if TYPE_CHECKING:
    from tinker import types

AGREEMENT = "kl/sample_train"  # nats a token, by which the sampler and the trainer differ
_STEP = 0  # an evaluation of a model as it is
_COMPARED = 8  # rollouts whose logprobs the trainer computes, too
_MARGIN = 1.5  # by which a group may use more than those before it


class OutOfBudgetError(ServiceError):
    """A request that could cost more than is left."""


@define(eq=False)
class ProbeBudget(SpendingLimit):
    """What episodes may cost. ``of_group``: what a group takes, as far as one has shown it;
    ``used_up``: a request was not sent."""

    of_group: float = 0.0
    used_up: bool = False


@frozen(eq=False)
class _BudgetedClient:
    """A sampling client that sends no request which could exceed a budget."""

    client: SamplingClient
    budget: ProbeBudget
    model: Any

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        *args: Any,
        **kwargs: Any,
    ) -> types.SampleResponse:
        most = sampling_params.max_tokens or self.model.context or 0
        usage = Usage(prefill=prompt.length * num_samples, sampled=most * num_samples)
        if (reserved := self.budget.reserve(cost(self.model, usage) or 0.0)) is None:
            self.budget.used_up = True
            raise OutOfBudgetError("the probe's budget has no room for another request")
        with reserved:
            return await self.client.sample(prompt, num_samples, sampling_params, *args, **kwargs)

    def compute_logprobs(self, prompt: types.ModelInput) -> Any:
        return self.client.compute_logprobs(prompt)

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()


@define(eq=False)
class FewEpisodes:
    """Plays the evaluations of a folder's plan one after the other, each task as a group of the
    environment's own size. :meth:`run` raises RunError if not one group could be played."""

    folder: RunFolder
    service: ServiceClient
    observer: Observer
    usd: float | None
    _log: MetricsLog = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = MetricsLog(self.folder.path)

    async def run(self) -> None:
        plan = self.folder.plan
        search_beside(plan.recipe)
        for said in provide_keys(plan):
            self.observer.warning(said)
        self.folder.set_state("running")
        async with auxiliary_session(self.service, self.folder, self.observer.note) as session:
            service, auxiliary = session
            clients = dict[str, TrainingClient]()  # one for each model
            for place, stage in enumerate(plan.evaluations, start=1):
                # What one leaves of its part is there for those after it.
                part = None if self.usd is None else self.usd * place / len(plan.evaluations)
                if self.folder.journal.step(stage.name, _STEP) is None:
                    key = repr(stage.model)
                    if key not in clients:
                        opened = open_weights(service, self.folder, stage, self.observer.note)
                        clients[key] = await opened
                    await self._play(stage, clients[key], auxiliary, part)
        self.folder.set_state("finished")

    async def _play(
        self,
        stage: Evaluation,
        training: TrainingClient,
        auxiliary: AuxiliaryModels,
        usd: float | None,
    ) -> None:
        """Play the tasks of an evaluation that are not written yet, until ``usd`` are spent."""
        journal = self.folder.journal
        meter = Meter(journal, stage.name, stage.model)
        budget = ProbeBudget(usd, self._spent(meter))
        client = await training.save_weights_and_get_sampling_client()
        if (most := stage.sampling.concurrency) is not None:
            client = LimitedSamplingClient(client, fixed_limiter(most))
        limited = client if usd is None else _BudgetedClient(client, budget, stage.model)
        responders = auxiliary.responders(meter)
        tokenizer = training.get_tokenizer()
        envs = build_envs(stage.envs, tokenizer, stage.model.renderer, responders)
        pasts = {
            env.play.past.every: auxiliary.answering(meter, stage.model, client)
            for env in stage.envs
            if env.play is not None and env.play.past is not None
        }
        journal.start_step(stage.name, _STEP)
        player = Player(
            limited,
            stage.sampling,
            stage.model.context,
            DEFAULT_FAILURE,
            meter.running[_STEP],
            pasts=pasts,
        )
        stream = TaskStream(envs, new_cursor(list(envs)), self.folder.plan.seed, ("probe",))
        written = self._written(stage)
        tasks = [task for task in stream.take(stage.tasks) if task.number not in written]
        started, found = time.perf_counter(), list[Rollout]()
        usual = stage_cost(stage).step["expected"].usd / stage.tasks
        try:
            await self._groups(stage, player, tasks, budget, usual, found)
        finally:
            meter.write()
            await close_envs(envs.values())
        if not found and not written:
            raise RunError(
                f"not one group of {stage.envs[0].name} could be played within the budget of "
                f"${usd or 0.0:.2f}",
                "`--budget` allows more; what was spent is counted",
            )
        metrics: dict[str, Any] = {"stage": stage.name, "step": _STEP}
        metrics |= evaluation_metrics(stage, found) if found else {}
        metrics |= usage_metrics(meter.finish(_STEP))
        metrics["time/total"] = time.perf_counter() - started
        metrics |= await self._agreement(stage, training, meter, found)
        journal.finish_step(stage.name, _STEP, {}, metrics)
        self._log.write(metrics)
        self.observer.evaluated(stage, _STEP, metrics)

    async def _groups(
        self,
        stage: Evaluation,
        player: Player,
        tasks: Iterable[Task],
        budget: ProbeBudget,
        usual: float,
        found: list[Rollout],
    ) -> None:
        """Play tasks side by side as long as the budget has room for them."""
        playing, waiting = set[asyncio.Task[None]](), list(tasks)
        total, over = len(waiting), 0

        async def play(task: Task) -> None:
            nonlocal over
            before = budget.spent()
            members = await play_task(player, task)
            if budget.used_up and any(one.error is not None for one in members):
                return  # the budget has cut it short: it says nothing of the environment
            over += 1
            failures = [one.failure for one in members if one.failure]
            self.folder.keep_failures(failures, stage.name, _STEP)
            records = [rollout_record(stage.name, _STEP, one) for one in members]
            self.folder.append(ROLLOUTS_FILE, records)
            found.extend(members)
            if over == 1:  # the first is all that is known
                budget.of_group = max(budget.spent() - before, 0.0)
            self.observer.progress(over, total)
            self.observer.played(members)

        while waiting or playing:
            while waiting and not budget.used_up:
                each = budget.of_group or (usual if isfinite(usual) else 0.0)
                if playing and budget.left() < _MARGIN * each * (len(playing) + 1):
                    break
                if not playing and over and budget.left() < _MARGIN * each:
                    return
                playing.add(asyncio.create_task(play(waiting.pop(0))))
                if not over and budget.usd is not None:
                    break  # one group shows what the others will use
            if not playing:
                return
            try:
                done, playing = await asyncio.wait(playing, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
            except BaseException:
                for one in playing:
                    one.cancel()
                await asyncio.gather(*playing, return_exceptions=True)
                raise

    def _spent(self, meter: Meter) -> Callable[[], float]:
        def spent() -> float:
            meter.write()
            return self.folder.journal.spent_usd()

        return spent

    def _written(self, stage: Evaluation) -> set[int]:
        """Return the tasks that an earlier process has played; forget what it has written in
        part."""
        if not (self.folder.path / ROLLOUTS_FILE).exists():
            return set()
        records = [one for one in self.folder.read(ROLLOUTS_FILE) if "stage" in one]
        members = grouped(records, lambda one: (one["stage"], int(one["task"])))
        whole = {
            place
            for place, mine in members.items()
            if place[0] != stage.name or len({one["member"] for one in mine}) == stage.samples
        }
        kept = [one for one in records if (one["stage"], int(one["task"])) in whole]
        self.folder.rewrite(ROLLOUTS_FILE, kept)
        return {task for name, task in whole if name == stage.name}

    async def _agreement(
        self, stage: Evaluation, training: TrainingClient, meter: Meter, found: list[Rollout]
    ) -> Mapping[str, float]:
        """Compare the sampler's logprobs of a few rollouts with the trainer's, by a forward pass;
        nothing if the service refuses it, or the temperature makes them different things."""
        played = [one for one in found if one.turns and one.error is None][:_COMPARED]
        if stage.sampling.shaping or not played:
            return {}
        datums = [
            datum
            for one in played
            for datum in episode_datums(
                one.turns, np.ones(len(one.turns)), np.ones(len(one.turns), dtype=np.bool_)
            )
        ]
        usage = Usage(prefill=sum(len(datum.inputs) for datum in datums))
        if self.usd is not None:
            left = self.usd - self.folder.journal.spent_usd()
            if (cost(stage.model, usage) or 0.0) > left:
                return {}
        started = time.perf_counter()
        try:
            data = [datum.to_tinker(LIKELIHOOD) for datum in datums]
            passed = await training.forward(data, LIKELIHOOD.name, None)
        except ServiceError as error:
            self.observer.note(f"sampler and trainer are not compared: {error}")
            return {}
        meter.add(_STEP, usage)
        apart = [
            (datum.logprobs_T - logprobs_T)[datum.mask_T]
            for datum, logprobs_T in zip(datums, trained_logprobs(passed), strict=True)
        ]
        return {
            AGREEMENT: float(np.concatenate(apart).mean()),
            "forward/tokens": float(usage.prefill),
            "forward/seconds": time.perf_counter() - started,
        }
