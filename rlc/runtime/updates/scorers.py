"""Logprobs of tokens under a model that is not trained: a reference, a teacher, a reward."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import define, field

from rlc.algo import LOGQ, PROCESS, SCORED, AdvantageScheme, reads
from rlc.catalog import tokenizer_of
from rlc.chat import ViewChange, model_input
from rlc.data import STEPS, DataError, step_rewards, text_of
from rlc.envs import all_of
from rlc.plan import PolicyGradient, TeacherPlan, Training, teacher_of
from rlc.runtime.auxiliary import AuxiliaryModels, token_logprobs
from rlc.runtime.concurrency import cancel_all, in_thread, mark_seen
from rlc.runtime.journal.database import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import mean_metric
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts.tokens import (
    NOT_SAMPLED,
    FloatArray,
    Scores,
    TokenSequence,
    merged_sequences,
)
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.preferences import Completion
from rlc.service import SamplingClient, ServiceError

if TYPE_CHECKING:
    from rlc.runtime.updates.datums import EpisodeDatums

_DISTANCES = {"reference": ("kl/reference",), "teacher": ("teacher/kl", "teacher/kl/{env}")}
TEACHER_VIEW = "teacher"  # the prompts that a teacher reads, where they are not the student's


def teacher_views(teachers: tuple[TeacherPlan, ...], env: str) -> dict[str, ViewChange]:
    """Return the view of a teacher with prompts of its own. Raise DataError if unreadable."""
    teacher = teacher_of(teachers, env)
    if teacher is None or not _has_own_prompts(teacher):
        return {}
    system = None if teacher.system is None else text_of(teacher.system)
    return {TEACHER_VIEW: ViewChange(system, teacher.demonstration)}


def _has_own_prompts(teacher: TeacherPlan) -> bool:
    return teacher.system is not None or teacher.demonstration is not None


@define
class LogprobScorer:
    """A model that scores the episodes of ``env``, or all; ``meter`` counts the tokens sent.

    With ``own_prompts`` it reads those of the view :data:`TEACHER_VIEW`. Tokens beyond its
    ``context`` have no score. With ``top_k`` it also names the most likely tokens, so many of the
    ``vocabulary`` in each place.
    """

    client: SamplingClient
    meter: Meter
    env: str | None = None
    own_prompts: bool = False
    context: int | None = None
    top_k: int | None = None
    vocabulary: int = 0

    async def score(self, rollout: Rollout, usage: Usage) -> list[Scores]:
        """Return the scores of a rollout's merged sequences."""
        sequences = merged_sequences(rollout.turns)
        if not self.own_prompts:
            return await all_of(self._read(sequence, usage) for sequence in sequences)
        read = merged_sequences([turn.seen_as(TEACHER_VIEW) for turn in rollout.turns])
        scores = Scores.joined(await all_of(self._read(sequence, usage) for sequence in read))
        turn_N = np.concatenate([np.array(sequence.turns[1:]) for sequence in read])
        return [scores.at(_places(sequence, turn_N)) for sequence in sequences]

    async def _read(self, sequence: TokenSequence, usage: Usage) -> Scores:
        from tinker import types

        length, room = len(sequence.tokens), self.context or len(sequence.tokens) + 1
        known = min(length, room if self.top_k is None else room - 1)  # of which one is for a reply
        tokens, unknown = sequence.tokens[:known], [np.nan] * (length - known)
        if self.top_k is None:
            known_T = await token_logprobs(self.client, tokens, sequence.chunks, usage)
            return Scores.of_tokens([*known_T, *unknown])
        reply = types.SamplingParams(max_tokens=1, seed=0)  # no request without one
        prompt = model_input(tokens, sequence.chunks)
        response = await self.client.sample(prompt, 1, reply, True, self.top_k)
        usage.prefill += known
        usage.sampled += sum(len(sequence.tokens) for sequence in response.sequences)
        logprobs, topk = response.prompt_logprobs or [], response.topk_prompt_logprobs_np
        if topk is None:
            raise ServiceError("the service did not say which tokens a teacher finds most likely")
        values = [0.0 if logprob is None else logprob for logprob in logprobs[1:]]
        values += [np.nan] * (length - 1 - len(values))
        return Scores.with_topk(values, topk, self.vocabulary)


def _places(sequence: TokenSequence, turn_N: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of a sequence's tokens among others by their turns; -1 if not sampled."""
    turn_T = np.array(sequence.turns[1:])
    found_T = np.full(len(turn_T), -1)
    for turn in {*turn_T} - {NOT_SAMPLED}:
        found_T[turn_T == turn] = np.flatnonzero(turn_N == turn)
    return found_T


@define(eq=False)
class LogprobScorers:
    """The scorers of a stage in one kind of node, one for each environment or one for all."""

    scorers: Sequence[LogprobScorer]
    _requested: dict[int, dict[int, asyncio.Task[list[Scores]]]] = field(factory=dict, init=False)

    def ask(self, step: int, rollouts: Sequence[Rollout]) -> None:
        """Request the scores of rollouts of a step, without waiting for them."""
        requested = self._requested.setdefault(step, {})
        for rollout in rollouts:
            mine = (one for one in self.scorers if one.env in (None, rollout.env))
            if id(rollout) not in requested and (scorer := next(mine, None)) is not None:
                task = asyncio.create_task(scorer.score(rollout, scorer.meter.running[step]))
                task.add_done_callback(mark_seen)
                requested[id(rollout)] = task

    async def scores(self, step: int, rollouts: Sequence[Rollout]) -> dict[int, list[Scores]]:
        """Return the scores of those rollouts of a step that have a scorer; the keys are ids."""
        self.ask(step, rollouts)
        tasks = {id(one): self._requested[step].pop(id(one), None) for one in rollouts}
        waiting = {key: task for key, task in tasks.items() if task is not None}
        try:
            found = await asyncio.gather(*waiting.values())
        except BaseException:
            await cancel_all(waiting.values())
            raise
        return dict(zip(waiting, found, strict=True))

    def write(self) -> None:
        """Journal the tokens that the running steps have read so far."""
        for scorer in self.scorers:
            scorer.meter.write()

    def finish(self, step: int) -> int:
        """Journal and forget the tokens that a step has read, and return their number."""
        self._requested.pop(step, None)
        return sum(scorer.meter.finish(step).prefill for scorer in self.scorers)

    async def close(self) -> None:
        await cancel_all(task for tasks in self._requested.values() for task in tasks.values())


@define(eq=False)
class ReferenceReplies:
    """Requests the logprobs of replies of a frozen model, each once in the life of a run. ``meter``
    counts the tokens sent in the step that needs them; ``file`` has the results so far."""

    client: SamplingClient
    meter: Meter
    folder: RunFolder
    file: str
    _known: dict[str, FloatArray] = field(factory=dict, init=False)
    _read: Counter[int] = field(factory=Counter, init=False)  # tokens, by the step they were for
    _requested: dict[int, asyncio.Task[None]] = field(factory=dict, init=False)  # by step

    def __attrs_post_init__(self) -> None:
        if (self.folder.path / self.file).exists():
            for record in self.folder.read(self.file):
                if "key" in record:  # the last line may be damaged by a crash
                    values = np.frombuffer(b64decode(record["logprobs"]), dtype="<f4")
                    self._known[record["key"]] = values.astype(np.float64)
                    self._read[record["step"]] += record["tokens"]

    def ask(self, step: int, sides: Sequence[Completion]) -> None:
        """Request the logprobs that a step will need, without waiting for them."""
        if step not in self._requested:
            self._requested[step] = asyncio.create_task(self._ask(step, sides))

    async def logprobs(self, step: int, sides: Sequence[Completion]) -> list[FloatArray]:
        """Return the logprobs of each side's reply, token by token."""
        self.ask(step, sides)
        await self._requested.pop(step)
        self.meter.running[step]
        await self._ask(step, sides)  # those that were not foreseen
        return [self._known[side.key] for side in sides]

    def write(self) -> None:
        self.meter.write()

    def finish(self, step: int) -> int:
        """Journal and return the tokens read for a step, by this process or an earlier one."""
        self.meter.running[step]
        self.meter.finish(step)
        return self._read[step]

    async def close(self) -> None:
        await cancel_all(self._requested.values())

    async def _ask(self, step: int, sides: Sequence[Completion]) -> None:
        missing = {side.key: side for side in sides if side.key not in self._known}
        if not missing:
            return
        usage = self.meter.running[step]

        async def logprobs(datum: TrainingDatum) -> FloatArray:
            tokens = [*datum.inputs, int(datum.targets_T[-1])]
            return np.array(await token_logprobs(self.client, tokens, datum.chunks, usage))

        async def reply(side: Completion) -> FloatArray:
            return side.replies(await all_of(map(logprobs, side.datums)))

        found = await all_of(map(reply, missing.values()))
        records: list[dict[str, Any]] = [
            {
                "key": key,
                "step": step,
                "tokens": sum(len(datum.inputs) + 1 for datum in side.datums),
                "logprobs": b64encode(row.astype("<f4").tobytes()).decode(),
            }
            for (key, side), row in zip(missing.items(), found, strict=True)
        ]
        self.folder.append(self.file, records)
        self._known |= zip(missing, found, strict=True)
        self._read[step] += sum(record["tokens"] for record in records)


async def open_scorers(
    auxiliary: AuxiliaryModels, stage: Training, tokenizer: Any
) -> dict[str, LogprobScorers]:
    """Open the scorers of a stage by their node. Raise RunError for a teacher with other tokens."""
    journal, found = auxiliary.folder.journal, dict[str, LogprobScorers]()
    objective = stage.of(PolicyGradient)
    if objective.kl is not None:
        client = await auxiliary.client(objective.kl.reference)
        account = Meter(journal, stage.name, objective.kl.reference.model)
        found["reference"] = LogprobScorers([LogprobScorer(client, account)])
    if objective.teacher:
        found["teacher"] = LogprobScorers(
            [await _open_teacher(auxiliary, stage, one, tokenizer) for one in objective.teacher]
        )
    return found


async def _open_teacher(
    auxiliary: AuxiliaryModels, stage: Training, teacher: TeacherPlan, tokenizer: Any
) -> LogprobScorer:
    model = teacher.model.model
    client = await auxiliary.client(teacher.model)
    if tokenizer_of(model.base) is None or tokenizer_of(model.base) != tokenizer_of(
        stage.model.base
    ):
        theirs = await in_thread(client.get_tokenizer)
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise RunError(
                f"the teacher `{model.name}` ({model.base}) has other tokens than "
                f"{stage.model.base}, so its logprobs are of another text",
                "use a teacher of the same family of models",
            )
    return LogprobScorer(
        client,
        Meter(auxiliary.folder.journal, stage.name, model),
        env=teacher.name,
        own_prompts=_has_own_prompts(teacher),
        context=model.context,
        top_k=teacher.top_k and min(teacher.top_k, len(tokenizer)),
        vocabulary=len(tokenizer),
    )


def token_columns(
    scheme: AdvantageScheme,
    rollouts: Sequence[Rollout],
    scored: Mapping[str, Mapping[int, Sequence[Scores]]],
    tokenizer: Any,
) -> dict[str, FloatArray]:
    """Return what a scheme reads of the sampled tokens of rollouts, in order, by input. A token
    that a model has not scored has the sampler's logprob, so that nothing separates the two.

    Raise RunError for an episode without process rewards if these are read.
    """
    read = [name for name in (LOGQ, *SCORED, PROCESS) if reads(scheme, name)]
    if not read:
        return {}
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    logq_A = np.array([one for turn in turns for one in turn.logprobs], np.float64)
    found = {LOGQ: logq_A}
    if PROCESS in read:
        found[PROCESS] = np.array(
            [x for one in rollouts for x in _process(one, tokenizer)], np.float64
        )
    for name in read:
        if name in SCORED:
            by = scored.get(SCORED[name], {})
            rows = [_turn_scores(one, by.get(id(one))) for one in rollouts]
            scores_A = np.concatenate(rows) if rows else logq_A
            found[name] = np.where(np.isnan(scores_A), logq_A, scores_A)
    return {name: found[name] for name in read}


def _process(rollout: Rollout, tokenizer: Any) -> Iterator[float]:
    """Yield the process reward of each sampled token of a rollout."""
    if rollout.error is None and all(turn.steps is None for turn in rollout.turns):
        hint = f"a grader returns them as `{STEPS}`, an environment as those of an observation: "
        hint += "`[]` where there are none"
        raise RunError(f"an episode of `{rollout.env}` has no process rewards", hint)
    for turn in rollout.turns:
        try:
            yield from step_rewards(turn.tokens, turn.action, turn.steps or (), tokenizer)
        except DataError as error:
            raise RunError(f"process rewards of `{rollout.env}`: {error.what}") from error


def _turn_scores(rollout: Rollout, scores: Sequence[Scores] | None) -> FloatArray:
    """Return the logprobs of a rollout's sampled tokens by a scorer, NaN where unknown."""
    rows = [np.full(len(turn.tokens), np.nan) for turn in rollout.turns]
    if scores is not None:
        for sequence, known in zip(merged_sequences(rollout.turns), scores, strict=True):
            whole_T = np.concatenate(([np.nan], known.logprobs_T))
            for turn, reply in sequence.replies.items():
                rows[turn] = whole_T[reply.begin : reply.end]
    return np.concatenate([*rows, np.zeros(0)])


def score_metrics(batches: Iterable[Sequence[EpisodeDatums]]) -> dict[str, float]:
    """Return the mean distance from each scorer over the sampled tokens of a batch (nats): from the
    reference, and from the teacher by environment too. With a teacher that could not read all, the
    share of the tokens that it did not score; with one that names its top-k tokens, the mean of the
    probability that they have together."""
    distances: dict[str, list[Any]] = {}
    played = [episode for episodes in batches for episode in episodes]
    for episode in played:
        for datum in episode.datums:
            for scorer, scored_T in datum.scored.items():
                distance_T = (datum.logprobs_T - scored_T)[datum.mask_T]
                for name in _DISTANCES[scorer]:
                    distances.setdefault(name.format(env=episode.group[0]), []).append(distance_T)
    metrics = dict[str, float]()
    for name, rows in distances.items():
        values_N = np.concatenate(rows)
        known_N = values_N[~np.isnan(values_N)]
        metrics |= mean_metric(name, known_N.tolist())
        if len(known_N) < len(values_N):
            metrics[f"{name}/unscored"] = 1 - len(known_N) / len(values_N)
    return metrics | teacher_mass([datum for episode in played for datum in episode.datums])


def teacher_mass(datums: Iterable[TrainingDatum]) -> dict[str, float]:
    """Return the mean probability of a teacher's top-k tokens, over positions with any."""
    masses = [d.topk.mass_T[d.mask_T] for d in datums if d.topk is not None]
    return mean_metric(
        "teacher/mass", [mass for row_T in masses for mass in row_T.tolist() if mass > 0]
    )
