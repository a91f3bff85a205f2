"""From credited rollouts to what each optimiser update is trained on.

Order: what other models say of the tokens is added to their advantages; the batch is split into
updates, the members of a group together; in each update the aggregation's weights are folded into
the advantages; sequences that could not change anything are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from rlc.algo import aggregate_weights, kl_penalty
from rlc.catalog import aggregate_traits, loss_traits, teacher_traits
from rlc.plan import AggregatePlan, KlPlan, LossPlan, PolicyGradient, TeacherPlan, teacher_of
from rlc.runtime.records import Rollout, RunError
from rlc.runtime.scores import Scores
from rlc.runtime.updates.datums import FloatArray, TrainingDatum, episode_datums


@frozen(eq=False)
class EpisodeDatums:
    """The datums of one rollout."""

    rollout: Rollout
    datums: list[TrainingDatum]

    @property
    def group(self) -> tuple[str, int]:
        """The label of its task."""
        return self.rollout.group

    @property
    def sampled(self) -> int:
        """How many tokens are trained on."""
        return sum(datum.sampled for datum in self.datums)


@frozen(eq=False)
class Minibatch:
    """The datums of one optimiser update and the configuration of its loss. ``taught``: those of
    which it learns a teacher's most likely tokens, whatever else it learns."""

    datums: list[TrainingDatum]
    loss_config: dict[str, float]
    taught: list[TrainingDatum] = field(factory=list)


def rollout_datums(
    rollouts: Sequence[Rollout],
    advantages_RT: Sequence[FloatArray],
    chosen_RT: Sequence[npt.NDArray[np.bool_]],
    scored_R: Sequence[Mapping[str, Sequence[Scores]]],
) -> list[EpisodeDatums]:
    """Return the datums of each rollout that has any.

    Advantages and choice are given by turn, what each scorer says by sequence.
    """
    rows = zip(rollouts, advantages_RT, chosen_RT, scored_R, strict=True)
    episodes = []
    made: Counter[tuple[str | int, ...]] = Counter()  # one role of a member may reply several times
    for rollout, advantages_T, chosen_T, scored in rows:
        who, named = (*rollout.group, rollout.member, rollout.role), list[TrainingDatum]()
        for datum in episode_datums(rollout.turns, advantages_T, chosen_T, scored):
            named.append(evolve(datum, name=(*who, made[who])))
            made[who] += 1
        episodes.append(EpisodeDatums(rollout, named))
    return [episode for episode in episodes if episode.datums]


def minibatches(
    objective: PolicyGradient, updates: int, episodes: Sequence[EpisodeDatums]
) -> list[Minibatch]:
    """Return what each of the ``updates`` of a batch is trained on, in order; empty ones are left
    out."""
    if loss_traits(objective.loss).recorded:  # each token is named by a reply that is trained on
        episodes = [evolve(e, datums=[d.trimmed() for d in e.datums]) for e in episodes]
    if objective.kl is not None and objective.kl.coef:
        episodes = _pulled("reference", objective.kl, episodes)
    for teacher in objective.teacher:
        if teacher.coef and not teacher_traits(teacher.kind).targets:
            episodes = _pulled("teacher", teacher, episodes)
    made = [
        evolve(
            _weighted(objective.aggregate, objective.loss, part), taught=_taught(objective, part)
        )
        for part in _split(episodes, updates)
    ]
    return [minibatch for minibatch in made if minibatch.datums or minibatch.taught]


def _taught(objective: PolicyGradient, episodes: Sequence[EpisodeDatums]) -> list[TrainingDatum]:
    """The datums of an update of which a teacher's most likely tokens are learnt, each with its
    weight: that of the aggregation, times the teacher's ``coef``."""
    weight_R = _token_weights(objective.aggregate, episodes, [e.sampled for e in episodes])
    return [
        evolve(datum, weight=weight * teacher.coef)
        for episode, weight in zip(episodes, weight_R, strict=True)
        if (teacher := teacher_of(objective.teacher, episode.group[0])) is not None
        for datum in episode.datums
        if datum.topk is not None and datum.topk.mass_T[datum.mask_T].any()
    ]


def _pulled(
    scorer: str, by: KlPlan | TeacherPlan, episodes: Sequence[EpisodeDatums]
) -> list[EpisodeDatums]:
    """Take the distance from a reference off the advantages, token by token; or that from a
    teacher, in the episodes that it scores. What has no score is not changed."""
    env = by.name if isinstance(by, TeacherPlan) else None
    mine = [env is None or episode.group[0] == env for episode in episodes]
    datums = [d for episode, its in zip(episodes, mine, strict=True) if its for d in episode.datums]
    scored_DT = [datum.scored[scorer] for datum in datums if scorer in datum.scored]
    if len(scored_DT) < len(datums):
        raise RunError(f"a sequence has no logprobs of the {scorer} that it is compared with")
    change_DT = kl_penalty(
        [datum.logprobs_T for datum in datums],
        scored_DT,
        [
            datum.mask_T & ~np.isnan(scored_T)
            for datum, scored_T in zip(datums, scored_DT, strict=True)
        ],
        by.coef,
        by.discount,
        centred=isinstance(by, KlPlan),
    )
    changed = iter(
        evolve(datum, advantages_T=datum.advantages_T + change_T)
        for datum, change_T in zip(datums, change_DT, strict=True)
    )
    return [
        evolve(episode, datums=[next(changed) for _ in episode.datums]) if its else episode
        for episode, its in zip(episodes, mine, strict=True)
    ]


def _split(episodes: Sequence[EpisodeDatums], updates: int) -> list[list[EpisodeDatums]]:
    """Return even parts, in order; the members of a group stay together."""
    groups: dict[tuple[str, int], list[EpisodeDatums]] = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    members, cuts = list(groups.values()), np.linspace(0, len(groups), updates + 1).round()
    bounds = cuts.astype(int).tolist()
    return [
        [episode for group in members[start:end] for episode in group]
        for start, end in pairwise(bounds)
    ]


def _weighted(
    aggregate: AggregatePlan, loss: LossPlan, episodes: Sequence[EpisodeDatums]
) -> Minibatch:
    """Fold the weights of the aggregation into advantages and loss.

    A loss of one number a sequence counts like that of a single token.
    """
    if not episodes:
        return Minibatch([], loss.config)
    weight_R = _token_weights(
        aggregate, episodes, [len(e.datums) if loss.by_sequence else e.sampled for e in episodes]
    )
    weighted = [
        (datum, weight / datum.sampled if loss.mean else weight)
        for episode, weight in zip(episodes, weight_R, strict=True)
        for datum in episode.datums
    ]
    traits = loss_traits(loss)
    if traits.weighted:  # a token without an advantage may have a gradient too
        return Minibatch([evolve(datum, weight=w) for datum, w in weighted], loss.config)
    datums = [evolve(d, advantages_T=w * d.advantages_T, folded=w) for d, w in weighted]
    pull = traits.pull
    if pull is None:
        return Minibatch([datum for datum in datums if datum.advantages_T.any()], loss.config)
    if not aggregate_traits(aggregate.kind).uniform:
        raise RunError(f"`{loss.name}()` cannot be weighted by `{aggregate.kind}()`")
    # The pull acts on a token without an advantage too, and has the same weight as the others.
    return Minibatch(datums, {**loss.config, pull: loss.config[pull] * weight_R[0]})


def _token_weights(
    aggregate: AggregatePlan, episodes: Sequence[EpisodeDatums], counts_R: Sequence[int]
) -> list[float]:
    """What a token of each episode weighs, of those that are counted."""
    labels = {group: i for i, group in enumerate(dict.fromkeys(e.group for e in episodes))}
    groups_R = [labels[episode.group] for episode in episodes]
    weights: list[float] = aggregate_weights(
        aggregate.kind, counts_R, groups_R, aggregate.length
    ).tolist()
    return weights
