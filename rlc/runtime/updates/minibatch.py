"""From credited rollouts to what each optimiser update is trained on.

Order: the KL penalty is added to the advantages of the tokens; the batch is split into updates,
the members of a group together; in each update the aggregation's weights are folded into the
advantages; sequences that could not change anything are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from rlc.algo.aggregate import aggregate_weights
from rlc.algo.kl import kl_penalty
from rlc.catalog.index import aggregate_traits, loss_traits
from rlc.plan.records import AggregatePlan, KlPlan, LossPlan, TrainPlan
from rlc.runtime.records import Rollout, RunError
from rlc.runtime.updates.datums import FloatArray, TrainingDatum, episode_datums


@frozen(eq=False)
class EpisodeDatums:
    """The datums of one rollout. ``group`` labels its task."""

    group: tuple[str, int]
    datums: list[TrainingDatum]

    @property
    def sampled(self) -> int:
        """How many tokens are trained on."""
        return sum(datum.sampled for datum in self.datums)


@frozen(eq=False)
class Minibatch:
    """The datums of one optimiser update and the configuration of its loss."""

    datums: list[TrainingDatum]
    loss_config: dict[str, float]


def rollout_datums(
    rollouts: Sequence[Rollout],
    advantages_RT: Sequence[FloatArray],
    chosen_RT: Sequence[npt.NDArray[np.bool_]],
    reference_RST: Sequence[Sequence[FloatArray] | None],
) -> list[EpisodeDatums]:
    """Return the datums of each rollout that has any.

    Advantages and choice are given by turn, the reference by sequence.
    """
    rows = zip(rollouts, advantages_RT, chosen_RT, reference_RST, strict=True)
    episodes = [
        EpisodeDatums(rollout.group, episode_datums(rollout.turns, advantages_T, chosen_T, ref_ST))
        for rollout, advantages_T, chosen_T, ref_ST in rows
    ]
    return [episode for episode in episodes if episode.datums]


def minibatches(plan: TrainPlan, episodes: Sequence[EpisodeDatums]) -> list[Minibatch]:
    """Return what each update of a batch is trained on, in order; empty updates are left out."""
    if loss_traits(plan.loss).recorded:  # each token is named by a reply that is trained on
        episodes = [EpisodeDatums(e.group, [d.trimmed() for d in e.datums]) for e in episodes]
    if plan.kl is not None and plan.kl.coef:
        episodes = _penalised(plan.kl, episodes)
    split = _split(episodes, plan.batch.updates)
    made = [_weighted(plan.aggregate, plan.loss, part) for part in split]
    return [minibatch for minibatch in made if minibatch.datums]


def _penalised(kl: KlPlan, episodes: Sequence[EpisodeDatums]) -> list[EpisodeDatums]:
    """Subtract the distance from the reference from the advantages, token by token."""
    datums = [datum for episode in episodes for datum in episode.datums]
    reference_DT = [datum.reference_T for datum in datums if datum.reference_T is not None]
    if len(reference_DT) < len(datums):
        raise RunError("a sequence has no logprobs of the reference that it is compared with")
    change_DT = kl_penalty(
        [datum.logprobs_T for datum in datums],
        reference_DT,
        [datum.mask_T for datum in datums],
        kl.coef,
        kl.discount,
    )
    changed = iter(
        evolve(datum, advantages_T=datum.advantages_T + change_T)
        for datum, change_T in zip(datums, change_DT, strict=True)
    )
    return [EpisodeDatums(e.group, [next(changed) for _ in e.datums]) for e in episodes]


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
    labels = {group: i for i, group in enumerate(dict.fromkeys(e.group for e in episodes))}
    weight_R = aggregate_weights(
        aggregate.kind,
        [len(e.datums) if loss.by_sequence else e.sampled for e in episodes],
        [labels[episode.group] for episode in episodes],
        aggregate.length,
    )
    weighted = [
        (datum, weight / datum.sampled if loss.mean else weight)
        for episode, weight in zip(episodes, weight_R.tolist(), strict=True)
        for datum in episode.datums
    ]
    traits = loss_traits(loss)
    if traits.weighted:  # a token without an advantage may have a gradient too
        return Minibatch([evolve(datum, weight=w) for datum, w in weighted], loss.config)
    datums = [evolve(datum, advantages_T=w * datum.advantages_T) for datum, w in weighted]
    pull = traits.pull
    if pull is None:
        return Minibatch([datum for datum in datums if datum.advantages_T.any()], loss.config)
    if not aggregate_traits(aggregate.kind).uniform:
        raise RunError(f"`{loss.name}()` cannot be weighted by `{aggregate.kind}()`")
    # The pull acts on a token without an advantage too, and has the same weight as the others.
    return Minibatch(datums, {**loss.config, pull: loss.config[pull] * float(weight_R[0])})
