"""Tokens of judges: what they are shown, and what they say.

A judge of single episodes is asked once for each, one that ranks once for each group, and one that
compares pairs n (n - 1) times for a group of n. ``high`` asks as often as it may be asked. What a
preference stage has learnt reads each episode twice: with its weights, and with its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlc.catalog.environments import reward_models_of, rubrics_of
from rlc.data.errors import DataError
from rlc.plan.environments import EndpointPlan, EnvPlan, JudgePlan, JudgingPlan
from rlc.plan.models import ModelPlan, SamplingPlan
from rlc.plan.stages import Evaluation, FromData, Rollouts, StagePlan, Table, Training
from rlc.pricing.shapes import REPLY_SHARE, rollout_shape
from rlc.pricing.texts import Level, text_tokens
from rlc.pricing.tokens import RESAMPLED, Tokens, played_data, shares
from rlc.records import frozen

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


def _in_step(stage: Training, level: Level) -> Iterator[_PlayedGroups]:
    rollouts = stage.of(Rollouts)
    again = rollouts.batch.resample * RESAMPLED[level]
    for env in rollouts.envs:
        groups = rollouts.batch.count * shares(rollouts.envs)[env.name]
        size = env.rollouts.group
        if rollouts.batch.kind == "turns":
            episode = rollout_shape(env, stage.model, rollouts.sampling, level)[0]
            groups, size = groups / episode.turns, 1
        yield _PlayedGroups(env, groups + again, size)


def _in_evaluation(stage: Evaluation, level: Level) -> Iterator[_PlayedGroups]:  # noqa: ARG001
    for env in stage.envs:
        yield _PlayedGroups(env, stage.tasks * shares(stage.envs)[env.name], stage.samples)


_IN_STEP: Table[Callable[[Any, Level], Iterator[_PlayedGroups]]] = Table(
    {Rollouts: _in_step, FromData: lambda *_: iter(()), Evaluation: _in_evaluation}, by="source"
)


def _tokens(
    stage: StagePlan, played: _PlayedGroups, judging: JudgingPlan, judge: JudgePlan, level: Level
) -> Tokens:
    size = played.size
    asked = played.groups * {"score": size, "ranking": 1, "pairwise": size * (size - 1)}[judging.by]
    asked *= judge.attempts if level == "high" else 1
    sampling = stage.sampling
    question = question_tokens(stage.model, sampling, played.env, judging, judge, size, level)
    return Tokens(prefill=asked * question, sample=asked * judge.max_tokens * REPLY_SHARE[level])


def _read(stage: StagePlan, played: _PlayedGroups, level: Level) -> Tokens:
    """What a model reads whose reward is that of the tokens: each episode, whole."""
    sampling = stage.sampling
    shape = rollout_shape(played.env, stage.model, sampling, level)
    episode = sum(one.copies * one.datum_tokens() for one in shape)
    return Tokens(prefill=played.groups * played.size * episode)


def _rubric_text(judge: JudgePlan) -> str:
    """The text of a rubric; empty if it cannot be read, which `rlc check` reports."""
    from rlc.data.rubrics import read_rubric  # most recipes have no judge

    try:
        rubric = read_rubric(judge.rubric)
    except DataError:
        return ""
    return "\n".join([rubric.text, *(f"{one.name}: {one.text}" for one in rubric.criteria)])
