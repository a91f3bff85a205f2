"""A run folder as a replay reads it: the episodes of a step as its nodes had them, and what the
trainer and other models said of their tokens. Nothing is written."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen

from rlc.algo import Floats
from rlc.catalog import located_files
from rlc.plan import JOURNAL_FILE, Plan, RewardPlan, Training
from rlc.report import read_plan
from rlc.runtime import (
    ROLLOUTS_FILE,
    EpisodeHead,
    EpisodeIndex,
    EpisodeKey,
    Journal,
    Record,
    Rollout,
    RunError,
    Scores,
    SequenceTokens,
    StoredStep,
    TokenIndex,
    TokenPrefix,
    Turn,
    episode_credit,
)

# A sequence of an episode, by the id of its rollout and its place there.
SequenceKey = tuple[int, int]


class ReplayError(RunError):
    """A step that cannot be replayed, or not in the way that was asked for."""


@frozen(eq=False)
class RecordedSequence:
    """What the run said of a sequence: the trainer's logprobs of its targets, shape (T,), NaN where
    there was no gradient, and of the sampled ones the advantages, shape (S,), with the weight."""

    trainer_T: Floats
    advantages_S: Floats
    sampled_T: Any
    weight: float | None


@frozen(eq=False)
class RecordedStep:
    """The rollouts of a step in the order of the run, and what belongs to them.

    Attributes:
        rollouts: all of them, failures included; those whose tokens were not kept have no prompts.
        records: their lines of ``rollouts.jsonl``, by id.
        scored: scores by other models, by scorer and id.
        sequences: what the run said of each sequence, by the id of its rollout and its place.
        complete: ids of the rollouts whose tokens are all there.
        metrics: those of the step in the journal.
    """

    step: int
    rollouts: list[Rollout]
    records: Mapping[int, Record]
    scored: dict[str, dict[int, list[Scores]]]
    sequences: Mapping[SequenceKey, RecordedSequence]
    complete: set[int]
    metrics: Mapping[str, Any]


@define(eq=False)
class RecordedRun:
    """A run folder, which may still grow. ``plan`` has all files where this process finds them.
    ``cursors`` has what other schemes would have kept after the first steps, by their ids."""

    path: Path
    plan: Plan
    journal: Journal
    cursors: dict[int, list[dict[str, Any]]] = field(factory=dict, init=False)
    _tokens: TokenIndex = field(init=False)
    _episodes: EpisodeIndex = field(init=False)
    _heads: dict[tuple[str, int], list[EpisodeHead]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens, self._episodes = TokenIndex(self.path), EpisodeIndex(self.path)

    @classmethod
    def open(cls, path: Path) -> RecordedRun:
        """Open a run folder. Raise RunError if there is no run in it."""
        plan = read_plan(path)
        if not (path / JOURNAL_FILE).is_file():
            raise RunError(f"{path} has no {JOURNAL_FILE}: nothing was run there")
        return cls(path, located_files(plan), Journal(path / JOURNAL_FILE, read_only=True))

    def stage(self, name: str | None) -> Training:
        """Return a reinforcement learning stage, by default the last one with a finished step."""
        known = [one for one in self.plan.trainings if one.policy_gradient is not None]
        listed = ", ".join(f"`{one.name}`" for one in known)
        if not known:
            hint = "what is learnt from data has no advantages"
            raise ReplayError(f"{self.path} has no stage that learns from rollouts", hint)
        if name is None:
            begun = [one for one in known if self.journal.steps(one.name)]
            return (begun or known)[-1]
        found = next((one for one in known if one.name == name), None)
        if found is None:
            raise ReplayError(f"{self.path} has no `{name}` to replay", f"it has {listed}")
        return found

    def steps(self, stage: str) -> list[StoredStep]:
        """Return the finished steps of a stage. Raise ReplayError if there are none."""
        done = self.journal.steps(stage)
        if not done:
            raise ReplayError(f"no step of `{stage}` in {self.path} is finished")
        return done

    def read(self, stage: Training, step: int) -> RecordedStep:
        """Return a finished step. Raise ReplayError if it is not there."""
        done = {one.step: one for one in self.steps(stage.name)}
        if step not in done:
            raise ReplayError(
                f"{self.path} has no step {step} of `{stage.name}`",
                f"its finished steps are {min(done)} to {max(done)}",
            )
        plans = {env.name: env.reward for env in stage.played}
        stored = self._tokens.step(stage.name, step)
        found = RecordedStep(
            step, [], records := {}, {}, sequences := {}, set(), done[step].metrics
        )
        for head, _ in self._episodes.read_on():
            self._heads.setdefault((head.stage, head.step), []).append(head)
        for head in self._heads.get((stage.name, step), ()):
            record = self._episodes.record(head)
            if record is None or head.env not in plans:
                raise ReplayError(
                    f"an episode of step {step} of `{stage.name}` is damaged in {ROLLOUTS_FILE}",
                    "restore the file from a backup, or replay another step",
                )
            key = EpisodeKey(head.env, head.task, head.member, head.role, max(0, head.reply - 1))
            kept = stored.get(key, [])
            turns, is_complete = _turns(record, kept)
            rollout = Rollout(
                *(head.env, head.task, head.member, str(record.get("digest")), turns, head.ended),
                credit=_credit(record, turns, plans[head.env]),
                error=head.error,
                role=head.role,
                staleness=int(record.get("staleness", 0)),
                replaced=bool(record.get("replaced")),
                components={name: (w, tuple(x)) for name, (w, x) in _components(record).items()},
            )
            found.rollouts.append(rollout)
            records[id(rollout)] = record
            if not is_complete:
                continue
            found.complete.add(id(rollout))
            for at, one in enumerate(kept):
                sequences[id(rollout), at] = _sequence(one)
            for scorer in {name for one in kept for name in one.scored}:
                by = found.scored.setdefault(scorer, {})
                by[id(rollout)] = [_scores(one, scorer) for one in kept]
        if not found.rollouts:
            raise ReplayError(f"{self.path} has no episodes of step {step} of `{stage.name}`")
        return found


def _components(record: Record) -> Mapping[str, tuple[float, Sequence[float]]]:
    return record.get("components") or {}


def _turns(record: Record, kept: Sequence[SequenceTokens]) -> tuple[tuple[Turn, ...], bool]:
    """Return the turns of an episode, and whether all of their tokens are there."""
    placed: dict[int, tuple[TokenPrefix, list[int], Sequence[float]]] = {}
    for one in kept:
        whole, at = array("i", one.tokens), 0
        for turn, begin, end in one.spans:
            logprobs = one.logprobs_S[at : at + end - begin]
            placed[turn] = TokenPrefix(whole, begin), whole[begin:end].tolist(), logprobs
            at += end - begin
    turns = []
    for index, said in enumerate(record["turns"]):
        prompt, tokens, logprobs = placed.get(index, ((), range(said["tokens"]), ()))
        own = said["observation"], said["action"], said["reward"], said["stop_reason"]
        steps = [(int(end), float(reward)) for end, reward in said.get("steps") or ()]
        turns.append(Turn(prompt, tokens, logprobs, *own, said["metrics"], steps=steps))
    return tuple(turns), len(placed) == len(turns)


def _credit(record: Record, turns: Sequence[Turn], plan: RewardPlan) -> tuple[float, ...]:
    """Return the credit of each turn; of a folder of an older version that of its rewards."""
    if (credit := record.get("credit")) is not None:
        return tuple(credit)
    if not record.get("advantages"):
        return ()  # it had no part in the batch
    if len(record["advantages"]) == 1:
        return (float(record["reward"]),)
    made = episode_credit(plan, turns, record["ended"] == "done")
    if len(made) != len(record["advantages"]) or abs(sum(made) - record["reward"]) > 1e-9:
        raise ReplayError(
            "this run was made by an older rlc, which did not keep what each turn earned of a "
            "reward that is shaped or compared",
            "a new run keeps it",
        )
    return made


def _places(one: SequenceTokens) -> Any:
    """Return the places of the sampled targets of a sequence, shape (S,)."""
    spans = [np.arange(begin - 1, end - 1) for _, begin, end in one.spans]
    return np.concatenate([*spans, np.zeros(0, np.int64)]).astype(np.int64)


def _sequence(one: SequenceTokens) -> RecordedSequence:
    at_S, length = _places(one), len(one.tokens) - 1
    trainer_T, sampled_T = np.full(length, np.nan), np.zeros(length, np.bool_)
    trainer_T[at_S], sampled_T[at_S] = one.trainer_S, True
    return RecordedSequence(trainer_T, np.array(one.advantages_S), sampled_T, one.weight)


def _scores(one: SequenceTokens, scorer: str) -> Scores:
    at_S, length = _places(one), len(one.tokens) - 1
    logprobs_T = np.full(length, np.nan)
    logprobs_T[at_S] = one.scored[scorer]
    if one.topk is None or scorer != "teacher":
        return Scores.of_tokens(logprobs_T)
    tokens_SK, shares_SK, mass_S = (np.array(part) for part in one.topk)
    shape = length, tokens_SK.shape[1]
    tokens_TK, shares_TK, mass_T = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(length)
    tokens_TK[at_S], shares_TK[at_S], mass_T[at_S] = tokens_SK, shares_SK, mass_S
    return Scores(logprobs_T, tokens_TK, shares_TK, mass_T)


def without_component(rollout: Rollout, name: str) -> Rollout:
    """Return a rollout without one of the components of its reward, another object in any case."""
    parts = dict(rollout.components)
    if name not in parts:
        return evolve(rollout)
    weight, value_T = parts.pop(name)
    left = tuple(x - weight * own for x, own in zip(rollout.credit, value_T, strict=True))
    return evolve(rollout, credit=left, components=parts)
