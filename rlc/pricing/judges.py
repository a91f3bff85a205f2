"""Tokens of judges: what they are shown, and what they say.

A judge of single episodes is asked once for each, one that ranks once for each group, and one that
compares pairs n (n - 1) times for a group of n. ``high`` asks as often as it may be asked. What a
preference stage has learnt reads each episode twice: with its weights, and with its reference.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rlc.catalog.environments import reward_models_of, rubrics_of
from rlc.data.errors import DataError
from rlc.plan.environments import EndpointPlan, EnvPlan, JudgePlan, JudgingPlan
from rlc.plan.models import ModelPlan, SamplingPlan
from rlc.plan.preferences import PreferencesPlan
from rlc.plan.records import EvalPlan, StagePlan, TrainPlan, data_of
from rlc.pricing.distillation import played_for_one
from rlc.pricing.shapes import REPLY_SHARE, rollout_shape
from rlc.pricing.texts import Level, text_tokens
from rlc.pricing.tokens import RESAMPLED, TRIES, Tokens, shares

# Of the question, around the rubric and what is judged.
QUESTION_TOKENS = {"low": 60, "expected": 110, "high": 200}
_MILLION = 1e6


@frozen
class _Played:
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


def _played(stage: StagePlan, level: Level) -> Iterator[_Played]:
    if isinstance(stage, TrainPlan):
        again = stage.batch.resample * RESAMPLED[level]
        for env in stage.envs:
            groups, size = stage.batch.count * shares(stage.envs)[env.name], env.rollouts.group
            if stage.batch.kind == "turns":
                episode = rollout_shape(env, stage.model, stage.sampling, level)[0]
                groups, size = groups / episode.turns, 1
            yield _Played(env, groups + again, size)
    elif isinstance(stage, EvalPlan):
        for env in stage.envs:
            yield _Played(env, stage.tasks * shares(stage.envs)[env.name], stage.samples)
    for data in data_of(stage):
        if data.env is None or (count := data.count) is None:
            continue
        if isinstance(data, PreferencesPlan):
            yield _Played(data.env, count * TRIES[level], data.samples or 1, before=True)
        elif (samples := data.sampled) is not None:
            tasks = count * played_for_one(samples, level) / samples.size
            yield _Played(data.env, tasks, samples.size, before=True)
        elif data.policy == "model":
            yield _Played(data.env, count * TRIES[level], 1, before=True)


def _tokens(
    stage: StagePlan, played: _Played, judging: JudgingPlan, judge: JudgePlan, level: Level
) -> Tokens:
    size = played.size
    asked = played.groups * {"score": size, "ranking": 1, "pairwise": size * (size - 1)}[judging.by]
    asked *= judge.attempts if level == "high" else 1
    sampling = getattr(stage, "sampling", None)
    question = question_tokens(stage.model, sampling, played.env, judging, judge, size, level)
    return Tokens(prefill=asked * question, sample=asked * judge.max_tokens * REPLY_SHARE[level])


def _read(stage: StagePlan, played: _Played, level: Level) -> Tokens:
    """What a model reads whose reward is that of the tokens: each episode, whole."""
    sampling = getattr(stage, "sampling", None)
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
