"""Tokens that teachers read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rlc.plan.environments import EnvPlan
from rlc.plan.parts import TeacherPlan, teacher_of
from rlc.plan.stages import Rollouts, StagePlan, Training, is_training
from rlc.pricing.shapes import rollout_shape
from rlc.pricing.texts import Level, text_tokens
from rlc.pricing.tokens import Tokens, env_tokens

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
        from rlc.data.errors import DataError  # few recipes show a teacher more
        from rlc.data.templates import text_of

        with suppress(DataError):  # which `rlc check` reports
            more += text_tokens(text_of(teacher.system), stage.model, level)
    if teacher.demonstration is not None:
        more += DEMONSTRATION_TOKENS[level]
    shape = rollout_shape(env, stage.model, stage.of(Rollouts).sampling, level)
    return more * played / sum(one.copies * one.datum_tokens() for one in shape)
