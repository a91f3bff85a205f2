"""Logprobs of tokens under a model that is not trained: a reference, a teacher, a reward."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import define, field

from rlc.catalog import tokenizer_of
from rlc.chat import ViewChange, model_input
from rlc.data import text_of
from rlc.plan import PolicyGradient, TeacherPlan, Training, teacher_of
from rlc.runtime.auxiliary import AuxiliaryModels, token_logprobs
from rlc.runtime.concurrency import all_of, in_thread
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.meter import Meter
from rlc.runtime.journal.metrics import mean_metric
from rlc.runtime.records import Rollout, RunError, Usage
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, TokenSequence, merged_sequences
from rlc.runtime.scores import FloatArray, Scores
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.preferences import Completion
from rlc.service import SamplingClient, ServiceError

if TYPE_CHECKING:
    from rlc.runtime.updates.minibatch import EpisodeDatums

_DISTANCES = {"reference": ("kl/reference",), "teacher": ("teacher/kl", "teacher/kl/{env}")}
TEACHER_VIEW = "teacher"  # the prompts that a teacher reads, where they are not the student's


def teacher_views(teachers: tuple[TeacherPlan, ...], env: str) -> dict[str, ViewChange]:
    """What the teacher of an environment is shown of its episodes, if that is not what the student
    sees. Raise DataError if its system message cannot be read."""
    teacher = teacher_of(teachers, env)
    if teacher is None or not _own_prompts(teacher):
        return {}
    system = None if teacher.system is None else text_of(teacher.system)
    return {TEACHER_VIEW: ViewChange(system, teacher.demonstration)}


def _own_prompts(teacher: TeacherPlan) -> bool:
    return teacher.system is not None or teacher.demonstration is not None


@define
class LogprobScorer:
    """One model that scores; ``meter`` counts the tokens sent, at that model's price.

    ``env``: the environment whose episodes it scores; None: all. ``own_prompts``: it reads prompts
    of its own, those of the view :data:`TEACHER_VIEW`. What is beyond its ``context`` has no score.
    With ``top_k`` it also says which so many tokens of the ``vocabulary`` it finds most likely.
    """

    client: SamplingClient
    meter: Meter
    env: str | None = None
    own_prompts: bool = False
    context: int | None = None
    top_k: int | None = None
    vocabulary: int = 0

    async def score(self, rollout: Rollout, usage: Usage) -> list[Scores]:
        """Return what is said of a rollout's merged sequences."""
        sequences = merged_sequences(rollout.turns)
        if not self.own_prompts:
            return await all_of(self._read(sequence, usage) for sequence in sequences)
        read = merged_sequences([turn.seen_as(TEACHER_VIEW) for turn in rollout.turns])
        said = Scores.joined(await all_of(self._read(sequence, usage) for sequence in read))
        turn_N = np.concatenate([np.array(sequence.turns[1:]) for sequence in read])
        return [said.at(_places(sequence, turn_N)) for sequence in sequences]

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
    """Where the tokens of a sequence of the player, after the first, stand among those of which
    ``turn_N`` has the turns; -1 for a token that no turn has sampled."""
    turn_T = np.array(sequence.turns[1:])
    found_T = np.full(len(turn_T), -1)
    for turn in {*turn_T} - {NOT_SAMPLED}:
        found_T[turn_T == turn] = np.flatnonzero(turn_N == turn)
    return found_T


@define(eq=False)
class LogprobScorers:
    """The scorers of a stage in one kind of node, one for each environment or one for all."""

    scorers: Sequence[LogprobScorer]
    _asked: dict[int, dict[int, asyncio.Task[list[Scores]]]] = field(factory=dict, init=False)

    def ask(self, step: int, rollouts: Sequence[Rollout]) -> None:
        """Ask for the scores of rollouts of a step, without waiting for them."""
        asked = self._asked.setdefault(step, {})
        for rollout in rollouts:
            if id(rollout) not in asked and (scorer := self._of(rollout.env)) is not None:
                task = asyncio.create_task(scorer.score(rollout, scorer.meter.running[step]))
                task.add_done_callback(_seen)
                asked[id(rollout)] = task

    async def scores(self, step: int, rollouts: Sequence[Rollout]) -> dict[int, list[Scores]]:
        """Return the scores of those rollouts of a step that have a scorer; the keys are ids."""
        self.ask(step, rollouts)
        tasks = {id(one): self._asked[step].pop(id(one), None) for one in rollouts}
        waiting = {key: task for key, task in tasks.items() if task is not None}
        try:
            found = await asyncio.gather(*waiting.values())
        except BaseException:
            await _cancel(waiting.values())
            raise
        return dict(zip(waiting, found, strict=True))

    def _of(self, env: str) -> LogprobScorer | None:
        return next((one for one in self.scorers if one.env in (None, env)), None)

    def write(self) -> None:
        """Write down what the running steps have read so far."""
        for scorer in self.scorers:
            scorer.meter.write()

    def finish(self, step: int) -> int:
        """Write all down, forget a step, and return how many tokens it has read."""
        self._asked.pop(step, None)
        return sum(scorer.meter.finish(step).prefill for scorer in self.scorers)

    async def close(self) -> None:
        """Stop asking."""
        await _cancel(task for asked in self._asked.values() for task in asked.values())


def _seen(task: asyncio.Task[list[Scores]]) -> None:
    """Mark an exception as seen; it is raised where the scores are awaited, if they are."""
    if not task.cancelled():
        task.exception()


async def _cancel(tasks: Iterable[asyncio.Task[list[Scores]]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


@define(eq=False)
class ReferenceReplies:
    """Asks a frozen model for the logprobs of replies, each once in the life of a run.

    ``meter`` counts the tokens sent, at that model's price, in the step that needs them. ``file``
    has what is known, by the keys of the sides.
    """

    client: SamplingClient
    meter: Meter
    folder: RunFolder
    file: str
    _known: dict[str, FloatArray] = field(factory=dict, init=False)
    _read: Counter[int] = field(factory=Counter, init=False)  # tokens, by the step they were for
    _asked: dict[int, asyncio.Task[None]] = field(factory=dict, init=False)  # by step

    def __attrs_post_init__(self) -> None:
        if (self.folder.path / self.file).exists():
            for record in self.folder.read(self.file):
                if "key" in record:  # the last line may be damaged by a crash
                    values = np.frombuffer(b64decode(record["logprobs"]), dtype="<f4")
                    self._known[record["key"]] = values.astype(np.float64)
                    self._read[record["step"]] += record["tokens"]

    def ask(self, step: int, sides: Sequence[Completion]) -> None:
        """Start to ask for what a step will need, without waiting."""
        if step not in self._asked:
            self._asked[step] = asyncio.create_task(self._ask(step, sides))

    async def logprobs(self, step: int, sides: Sequence[Completion]) -> list[FloatArray]:
        """Return the logprobs of each side's reply, token by token."""
        self.ask(step, sides)
        await self._asked.pop(step)
        self.meter.running[step]
        await self._ask(step, sides)  # of others than were foreseen
        return [self._known[side.key] for side in sides]

    def write(self) -> None:
        """Write down what the running steps have read so far."""
        self.meter.write()

    def finish(self, step: int) -> int:
        """Write all down, and return the tokens that were read for a step, by this process or an
        earlier one."""
        self.meter.running[step]
        self.meter.finish(step)
        return self._read[step]

    async def close(self) -> None:
        """Give up what was asked for ahead."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _ask(self, step: int, sides: Sequence[Completion]) -> None:
        missing = {side.key: side for side in sides if side.key not in self._known}
        if not missing:
            return
        found = await all_of(self._of_side(step, side) for side in missing.values())
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

    async def _of_side(self, step: int, side: Completion) -> FloatArray:
        return side.replies(await all_of(self._of_datum(step, datum) for datum in side.datums))

    async def _of_datum(self, step: int, datum: TrainingDatum) -> FloatArray:
        tokens = [*datum.inputs, int(datum.targets_T[-1])]
        usage = self.meter.running[step]
        return np.array(await token_logprobs(self.client, tokens, datum.chunks, usage))


async def open_scorers(
    asked: AuxiliaryModels, stage: Training, tokenizer: Any
) -> dict[str, LogprobScorers]:
    """Open the models that score the tokens of a stage, by the kind of node that asks them.

    Raise RunError for a teacher whose tokens are not those of ``tokenizer``.
    """
    journal, found = asked.folder.journal, dict[str, LogprobScorers]()
    objective = stage.of(PolicyGradient)
    if objective.kl is not None:
        client = await asked.client(objective.kl.reference)
        account = Meter(journal, stage.name, objective.kl.reference.model)
        found["reference"] = LogprobScorers([LogprobScorer(client, account)])
    if objective.teacher:
        found["teacher"] = LogprobScorers(
            [await _open_teacher(asked, stage, one, tokenizer) for one in objective.teacher]
        )
    return found


async def _open_teacher(
    asked: AuxiliaryModels, stage: Training, teacher: TeacherPlan, tokenizer: Any
) -> LogprobScorer:
    model = teacher.model.model
    client = await asked.client(teacher.model)
    if tokenizer_of(model.base) is None or tokenizer_of(model.base) != tokenizer_of(
        stage.model.base
    ):
        theirs = await in_thread(client.get_tokenizer)
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise RunError(
                f"the teacher `{model.name}` ({model.base}) has other tokens than "
                f"{stage.model.base}, so its logprobs are of another text",
                "take a teacher of the same family of models",
            )
    return LogprobScorer(
        client,
        Meter(asked.folder.journal, stage.name, model),
        env=teacher.name,
        own_prompts=_own_prompts(teacher),
        context=model.context,
        top_k=teacher.top_k and min(teacher.top_k, len(tokenizer)),
        vocabulary=len(tokenizer),
    )


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
    """Return the mean of the probability that a teacher's top-k tokens have together, over the
    sampled positions of which it has named some."""
    masses = [d.topk.mass_T[d.mask_T] for d in datums if d.topk is not None]
    return mean_metric(
        "teacher/mass", [mass for row_T in masses for mass in row_T.tolist() if mass > 0]
    )
