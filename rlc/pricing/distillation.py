"""Tokens of the models that a stage learns from: what teachers read, and what is sampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rlc.plan.distillation import SamplesPlan, TeacherPlan, kept_of_task, teacher_of
from rlc.plan.environments import EnvPlan
from rlc.plan.models import ModelPlan
from rlc.plan.records import SftPlan, StagePlan, TrainPlan
from rlc.pricing.shapes import rollout_shape, rollout_shapes
from rlc.pricing.texts import Level, text_tokens
from rlc.pricing.tokens import TRIES, Tokens, env_tokens, largest, sampling_tokens

# Of a demonstration, in a field of a row that cannot be read.
DEMONSTRATION_TOKENS = {"low": 20, "expected": 200, "high": 2_000}


def teacher_tokens(stage: StagePlan, level: Level) -> Iterator[tuple[TeacherPlan, Tokens]]:
    """What each teacher of a stage reads in one step: every sequence that is played in its
    environments, once, uncached."""
    if not isinstance(stage, TrainPlan):
        return
    for teacher in stage.teacher:
        taught = [env for env in stage.envs if teacher_of(stage.teacher, env.name) is teacher]
        read = 0.0
        for env in taught:
            played = env_tokens(stage, env, level).reference
            read += played + _shown(stage, env, teacher, played, level)
        yield teacher, Tokens(prefill=read)


def _shown(
    stage: TrainPlan, env: EnvPlan, teacher: TeacherPlan, played: float, level: Level
) -> float:
    """The tokens that a teacher is shown beside those of the student."""
    more = 0.0
    if teacher.system:
        from rlc.data.errors import DataError  # few recipes show a teacher more
        from rlc.data.templates import text_of

        with suppress(DataError):  # which `rlc check` reports
            more += text_tokens(text_of(teacher.system), stage.model, level)
    if teacher.demonstration is not None:
        more += DEMONSTRATION_TOKENS[level]
    shape = rollout_shape(env, stage.model, stage.sampling, level)
    return more * played / sum(one.copies * one.datum_tokens() for one in shape)


def samples_tokens(stage: StagePlan, level: Level) -> Iterator[tuple[ModelPlan, Tokens]]:
    """What the model takes that plays the samples of a supervised stage, before its first step."""
    if not isinstance(stage, SftPlan) or stage.data.sampled is None:
        return
    samples, env, count = stage.data.sampled, stage.data.env, stage.data.count
    assert env is not None
    assert count is not None
    model, shapes = samples.model.model, list[Tokens]()
    for shape in rollout_shapes(env, model, samples.sampling, level):
        tasks = count * played_for_one(samples, level) / samples.size
        shapes.append(sampling_tokens(shape, tasks, samples.size, level != "high"))
    yield model, largest(shapes)


def played_for_one(samples: SamplesPlan, level: Level) -> float:
    """The episodes that are assumed to be played for each that is kept."""
    least = samples.size / kept_of_task(samples)
    if samples.keep.kind in ("best", "all"):
        return least
    assumed = {**TRIES, "high": samples.tries}[level]
    return float(max(assumed, least))
