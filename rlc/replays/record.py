"""A step replayed: as the run had it, and beside it as another objective would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rlc.plan import Change

if TYPE_CHECKING:
    from rlc.replays.gradients import GradientComparison
    from rlc.replays.outcomes import ObjectiveOutcome

EXACT = 1e-12  # of what is computed in float64, in parts of it
ROUNDED = 1e-4  # of what the service has computed in float32


@frozen(eq=False)
class ReplayedSide:
    """What a step comes to under one objective.

    Attributes:
        formula: the names of advantage, loss and aggregation, and the strength of penalties.
        advantages: mean, standard deviation, smallest and largest, over the episodes.
        episodes: how many have an advantage other than 0, and how many there are.
        loss: the loss of the step; None if a part of it is not known.
        metrics: those of ``metrics.jsonl`` that follow from the episodes, by key.
        environments: the share of the gradient that is of each.
        components: that of each component of the reward, and of the pulls to other models; empty
            if it is made of one thing only.
        outcome: all of it, with datums and gradients by the logprobs.
    """

    formula: Mapping[str, str]
    advantages: Mapping[str, float]
    episodes: tuple[int, int]
    loss: float | None
    metrics: Mapping[str, float]
    environments: Mapping[str, float]
    components: Mapping[str, float]
    outcome: ObjectiveOutcome = field(repr=False)


@frozen(eq=False)
class ReplayedSequence:
    """A sequence of an episode as it is trained on. ``tokens`` has T + 1 ids; the columns, of shape
    (T,), are of the targets, the tokens after the first: which of them were sampled and are trained
    on, the logprobs of sampler and trainer, the advantages with the weight of the aggregation
    folded in, and the slopes ``∂L/∂log p``."""

    tokens: Sequence[int]
    mask_T: Any
    logprobs_T: Any
    trainer_T: Any
    advantages_T: Any
    gradient_T: Any
    loss: float | None


@frozen(eq=False)
class ReplayedEpisode:
    """An episode of the step, as it was and, if something else was asked for, as it would be:
    ``advantage`` is the mean over its tokens, ``share`` its part of the gradient, ``weight`` that
    of its first sequence in the aggregation, None if it has no gradient."""

    env: str
    task: int
    member: int
    role: str
    reward: float
    error: str | None
    prompt: str
    reply: str
    advantage: tuple[float, ...]
    share: tuple[float, ...]
    weight: tuple[float | None, ...]
    sequences: tuple[tuple[ReplayedSequence, ...], ...] = field(repr=False)

    @property
    def changes_sign(self) -> bool:
        """Whether it is taught the other way round: its advantage goes from above 0 to below, from
        either to 0, or back."""
        return len(self.advantage) > 1 and len({_sign(x) for x in self.advantage}) > 1

    def token_weight(self, side: int) -> float:
        """Return the sum of the weights of its tokens that are trained on."""
        tokens = sum(int(one.mask_T.sum()) for one in self.sequences[side])
        return tokens * (self.weight[side] or 0.0)

    @property
    def name(self) -> str:
        """Its name in tables: ``guess 12/3 judge``, of task and member."""
        return f"{self.env} {self.task}/{self.member} {self.role}".strip()


@frozen
class ReplayedGroup:
    """The episodes of a task: ``weight`` is their part of the sum of the weights of all tokens that
    are trained on, ``share`` that of the gradient; as it was and, if something else was asked for,
    as it would be."""

    env: str
    task: int
    rewards: tuple[float, ...]
    weight: tuple[float, ...]
    share: tuple[float, ...]


@frozen(eq=False)
class ReplayRecord:
    """What a replay has found.

    Attributes:
        run: the folder.
        stage: the stage.
        step: its step.
        before: what the step came to.
        after: what it would have come to; None if nothing else was asked for.
        asked: what was set.
        changes: how the objective of ``after`` differs by it.
        episodes: those of the step that took part, in the order of the run.
        differences: the largest difference of what was computed anew from what the run has
            journalled, by what it is of, in parts of it where that is above 1.
        cosine: of both gradients by the logprobs of the tokens; None if there is one side, or a
            gradient is 0 or not known.
        notes: what is not known, and why.
        gradient: what the weights say of it, if that was asked for.
    """

    run: str
    stage: str
    step: int
    before: ReplayedSide
    after: ReplayedSide | None
    asked: tuple[str, ...]
    changes: tuple[Change, ...]
    episodes: tuple[ReplayedEpisode, ...]
    differences: Mapping[str, float]
    cosine: float | None = None
    notes: tuple[str, ...] = ()
    gradient: GradientComparison | None = None

    @property
    def sides(self) -> tuple[ReplayedSide, ...]:
        return (self.before,) if self.after is None else (self.before, self.after)

    @property
    def changing(self) -> tuple[ReplayedEpisode, ...]:
        """The episodes that are taught the other way round."""
        return tuple(one for one in self.episodes if one.changes_sign)

    @property
    def agrees(self) -> bool:
        """Whether what was computed anew is what the run has journalled."""
        return all(x <= _allowed(name) for name, x in self.differences.items())

    @property
    def groups(self) -> tuple[ReplayedGroup, ...]:
        """The groups of the step, in the order of the run."""
        members: dict[tuple[str, int], list[ReplayedEpisode]] = {}
        for one in self.episodes:
            members.setdefault((one.env, one.task), []).append(one)
        sides = range(len(self.sides))
        whole = [sum(one.token_weight(side) for one in self.episodes) for side in sides]
        return tuple(
            ReplayedGroup(
                env,
                task,
                tuple(one.reward for one in own),
                tuple(
                    sum(one.token_weight(side) for one in own) / (whole[side] or 1.0)
                    for side in sides
                ),
                tuple(sum(one.share[side] for one in own) for side in sides),
            )
            for (env, task), own in members.items()
        )

    def group(self, env: str, task: int) -> tuple[ReplayedEpisode, ...]:
        """Return the episodes of one task."""
        return tuple(one for one in self.episodes if (one.env, one.task) == (env, task))


def _allowed(name: str) -> float:
    return ROUNDED if name == "loss/sum" else EXACT


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
