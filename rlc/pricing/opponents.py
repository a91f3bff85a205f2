"""Tokens of the opponents in games."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlc.catalog.environments import seats_of, trained_seats
from rlc.plan.models import ModelPlan
from rlc.plan.stages import Evaluation, FromData, Rollouts, StagePlan, Table, Training
from rlc.pricing.shapes import Rollout, rollout_shapes
from rlc.pricing.texts import Level
from rlc.pricing.tokens import Tokens, sampling_tokens, shares
from rlc.records import evolve


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


def _in_step(stage: Training, shape: Rollout, level: Level) -> float:
    """The tasks of a step; where turns are counted, those that have so many, or at most."""
    batch = stage.of(Rollouts).batch
    if batch.kind == "groups":
        return batch.count
    if level == "high":
        return batch.count + (batch.parallel or 1)
    return batch.count / sum(episode.copies * episode.turns for episode in shape)


_MATCHES: Table[Callable[[Any, Rollout, Level], float]] = Table(
    {Rollouts: _in_step, FromData: lambda *_: 0, Evaluation: lambda stage, *_: stage.tasks},
    by="source",
)
