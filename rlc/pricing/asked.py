"""Tokens of the models that a stage asks and does not train, each at its own price.

A judge of single episodes is asked once for each, one that ranks once for each group, and one that
compares pairs n (n - 1) times for a group of n. ``high`` asks as often as it may be asked. What a
preference stage has learnt reads each episode twice: with its weights, and with its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rlc.catalog import reward_models_of, rubrics_of, seats_of, trained_seats
from rlc.data import DataError
from rlc.plan import (
    EndpointPlan,
    EnvPlan,
    Evaluation,
    FromData,
    JudgePlan,
    JudgingPlan,
    ModelPlan,
    Rollouts,
    SamplingPlan,
    StagePlan,
    Table,
    TeacherPlan,
    Training,
    is_training,
    teacher_of,
)
from rlc.pricing.shapes import REPLY_SHARE, Rollout, rollout_shape, rollout_shapes
from rlc.pricing.texts import Level, text_tokens
from rlc.pricing.tokens import (
    RESAMPLED,
    Tokens,
    compared,
    env_tokens,
    heldout_tokens,
    played_data,
    reference_tokens,
    sampling_tokens,
    shares,
)
from rlc.records import evolve, field, frozen


def opponent_tokens(stage: StagePlan, level: Level) -> Iterator[tuple[ModelPlan, Tokens]]:
    """What each opponent samples in a step, or an evaluation: as much as a seat that is trained,
    for each seat of its own."""
    part = shares(stage.played)
    for env in stage.played:
        if env.play is None or env.play.is_self_play or env.play.script is not None:
            continue  # a program samples nothing
        model = stage.model if env.play.opponent is None else env.play.opponent.model
        most = env.play.max_tokens or env.rollouts.max_tokens
        theirs = evolve(env, rollouts=evolve(env.rollouts, max_tokens=most))
        trained = len(trained_seats(env))
        shape, *_ = rollout_shapes(theirs, model, stage.sampling, level)
        matches = _MATCHES[stage](stage, shape, level) * part[env.name]
        own = sampling_tokens(shape, matches, env.rollouts.group, level != "high")
        yield model, own * ((len(seats_of(env)) - trained) / trained)


def _matches_in_step(stage: Training, shape: Rollout, level: Level) -> float:
    """The tasks of a step; where turns are counted, those that have so many, or at most."""
    batch = stage.of(Rollouts).batch
    if batch.kind == "groups":
        return batch.count
    if level == "high":
        return batch.count + (batch.parallel or 1)
    return batch.count / sum(episode.copies * episode.turns for episode in shape)


_MATCHES: Table[Callable[[Any, Rollout, Level], float]] = Table(
    {Rollouts: _matches_in_step, FromData: lambda *_: 0, Evaluation: lambda stage, *_: stage.tasks},
    by="source",
)


# Of a demonstration, in a field of a row that cannot be read.
DEMONSTRATION_TOKENS = {"low": 20, "expected": 200, "high": 2_000}


def teacher_tokens(stage: StagePlan, level: Level) -> Iterator[tuple[TeacherPlan, Tokens]]:
    """What each teacher of a stage reads in one step: every sequence that is played in its
    environments, once, uncached."""
    if not is_training(stage) or (objective := stage.policy_gradient) is None:
        return
    for teacher in objective.teacher:
        envs, teachers = stage.source.environments, objective.teacher
        taught = [env for env in envs if teacher_of(teachers, env.name) is teacher]
        read = 0.0
        for env in taught:
            played = env_tokens(stage, env, level).reference
            read += played + _shown(stage, env, teacher, played, level)
        yield teacher, Tokens(prefill=read)


def _shown(
    stage: Training, env: EnvPlan, teacher: TeacherPlan, played: float, level: Level
) -> float:
    """The tokens that a teacher is shown beside those of the student."""
    more = 0.0
    if teacher.system:
        from rlc.data import (
            DataError,  # few recipes show a teacher more
            text_of,
        )

        with suppress(DataError):  # which `rlc check` reports
            more += text_tokens(text_of(teacher.system), stage.model, level)
    if teacher.demonstration is not None:
        more += DEMONSTRATION_TOKENS[level]
    shape = rollout_shape(env, stage.model, stage.of(Rollouts).sampling, level)
    return more * played / sum(one.copies * one.datum_tokens() for one in shape)


# Of the question, around the rubric and what is judged.
QUESTION_TOKENS = {"low": 60, "expected": 110, "high": 200}
_MILLION = 1e6


@frozen
class _PlayedGroups:
    """Groups of an environment that are played, in a step or before the first."""

    env: EnvPlan
    groups: float
    size: int
    before: bool = False


def judge_tokens(
    stage: StagePlan, level: Level
) -> Iterator[tuple[ModelPlan | EndpointPlan, Tokens, Tokens]]:
    """Each judge of a stage, with its tokens of a step and before the first."""
    for played in _played(stage, level):
        asked = list[tuple[ModelPlan | EndpointPlan, Tokens]]()
        for _, judging, judge in rubrics_of(played.env):
            model = judge.model if isinstance(judge.model, EndpointPlan) else judge.model.model
            asked.append((model, _tokens(stage, played, judging, judge, level)))
        for _, _, learnt in reward_models_of(played.env):
            read = _read(stage, played, level)
            asked += [(state.model, read) for state in (learnt.model, learnt.reference) if state]
        for model, tokens in asked:
            yield (model, Tokens(), tokens) if played.before else (model, tokens, Tokens())


def question_tokens(
    model: ModelPlan,
    sampling: SamplingPlan | None,
    env: EnvPlan,
    judging: JudgingPlan,
    judge: JudgePlan,
    size: int,
    level: Level,
) -> float:
    """Tokens of one question to a judge, in a group of ``size`` that ``model`` has played."""
    episode = rollout_shape(env, model, sampling, level)[0]
    reply = episode.reply if episode.turns == 1 and not judging.whole else episode.datum_tokens()
    shown = {"score": 1, "ranking": size, "pairwise": 2}[judging.by]
    return (
        QUESTION_TOKENS[level]
        + text_tokens(_rubric_text(judge), model, level)
        + episode.prompt
        + shown * reply
    )


def endpoint_dollars(plan: EndpointPlan, prompt: float, reply: float) -> float | None:
    """What so many tokens cost at an endpoint; None if that is not known."""
    if plan.prompt_price is None or plan.reply_price is None:
        return None
    return (prompt * plan.prompt_price + reply * plan.reply_price) / _MILLION


def _played(stage: StagePlan, level: Level) -> Iterator[_PlayedGroups]:
    yield from _IN_STEP[stage](stage, level)
    for one in played_data(stage, level):
        yield _PlayedGroups(one.env, one.tasks, one.size, before=True)


def _groups_in_step(stage: Training, level: Level) -> Iterator[_PlayedGroups]:
    rollouts = stage.of(Rollouts)
    again = rollouts.batch.resample * RESAMPLED[level]
    for env in rollouts.envs:
        groups = rollouts.batch.count * shares(rollouts.envs)[env.name]
        size = env.rollouts.group
        if rollouts.batch.kind == "turns":
            episode = rollout_shape(env, stage.model, rollouts.sampling, level)[0]
            groups, size = groups / episode.turns, 1
        yield _PlayedGroups(env, groups + again, size)


def _groups_in_evaluation(stage: Evaluation, level: Level) -> Iterator[_PlayedGroups]:  # noqa: ARG001
    for env in stage.envs:
        yield _PlayedGroups(env, stage.tasks * shares(stage.envs)[env.name], stage.samples)


_IN_STEP: Table[Callable[[Any, Level], Iterator[_PlayedGroups]]] = Table(
    {Rollouts: _groups_in_step, FromData: lambda *_: iter(()), Evaluation: _groups_in_evaluation},
    by="source",
)


def _tokens(
    stage: StagePlan, played: _PlayedGroups, judging: JudgingPlan, judge: JudgePlan, level: Level
) -> Tokens:
    size = played.size
    asked = played.groups * {"score": size, "ranking": 1, "pairwise": size * (size - 1)}[judging.by]
    asked *= judge.attempts if level == "high" else 1
    given = stage.model, stage.sampling, played.env
    question = question_tokens(*given, judging, judge, size, level)
    return Tokens(prefill=asked * question, sample=asked * judge.max_tokens * REPLY_SHARE[level])


def _read(stage: StagePlan, played: _PlayedGroups, level: Level) -> Tokens:
    """What a model reads whose reward is that of the tokens: each episode, whole."""
    shape = rollout_shape(played.env, stage.model, stage.sampling, level)
    episode = sum(one.copies * one.datum_tokens() for one in shape)
    return Tokens(prefill=played.groups * played.size * episode)


def _rubric_text(judge: JudgePlan) -> str:
    """The text of a rubric; empty if it cannot be read, which `rlc check` reports."""
    from rlc.data import read_rubric  # most recipes have no judge

    try:
        rubric = read_rubric(judge.rubric)
    except DataError:
        return ""
    return "\n".join([rubric.text, *(f"{one.name}: {one.text}" for one in rubric.criteria)])


ASKED = ("teacher", "judge", "opponent", "samples")  # lines of a bill


@frozen
class AskedTokens:
    """What a model is asked for in one step of a stage, or in one evaluation, and before the first.
    ``kind`` is one of :data:`ASKED`."""

    kind: str
    model: ModelPlan | EndpointPlan
    step: Tokens
    before: Tokens = field(factory=Tokens)

    def total(self, times: int) -> Tokens:
        """The tokens of so many steps, and of what comes before them."""
        return self.step * times + self.before


def asked_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """The tokens of each model that a stage asks."""
    for teacher, read in teacher_tokens(stage, level):
        yield AskedTokens("teacher", teacher.model.model, read)
    for judge, step, before in judge_tokens(stage, level):
        yield AskedTokens("judge", judge, step, before)
    for model, sampled in opponent_tokens(stage, level):
        yield AskedTokens("opponent", model, sampled)
    if is_training(stage) and stage.preference and (reference := stage.preference.reference):
        before = Tokens(prefill=reference_tokens(stage, level))
        yield AskedTokens("reference", reference.model, Tokens(), before)
    for played in played_data(stage, level):
        if not played.data.from_policy:
            yield AskedTokens("samples", played.model, Tokens(), played.tokens(level))
    if is_training(stage) and stage.heldout is not None:
        each = heldout_tokens(stage, level) * compared(stage) / stage.steps
        yield AskedTokens("evaluation", stage.model, Tokens(prefill=each))
