"""Tokens of a step, by the kinds that a service bills.

Sampling prefills every prompt; what extends an earlier one, or is shared by a group, can come
from the service's cache. Training is billed for every token of a sequence. A reference model
reads every sequence that was played once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from operator import add

from attrs import evolve, frozen

from rlc.catalog.index import learns_targets_alone, loss_traits, teacher_traits
from rlc.plan.distillation import teacher_of
from rlc.plan.environments import EnvPlan
from rlc.plan.models import ModelPlan
from rlc.plan.records import (
    LOCAL,
    BatchPlan,
    DataPlan,
    EvalPlan,
    PreferencePlan,
    SftPlan,
    StagePlan,
    TrainPlan,
)
from rlc.pricing.preferences import HELDOUT, heldout_preferences, of_one, rows_taken
from rlc.pricing.shapes import (
    CHAT_TOKENS,
    ORACLE_SHARE,
    REPLY_SHARE,
    Episode,
    Rollout,
    rollout_shapes,
)
from rlc.pricing.texts import Level, example_tokens

# Episodes played for each demonstration that the model itself has to give.
TRIES = {"low": 1, "expected": 2, "high": 20}
# Of the groups that may be replaced.
RESAMPLED: Mapping[Level, float] = {"low": 0.0, "expected": 0.5, "high": 1.0}
# Of the rollouts: those of a group whose rewards are all equal are not trained on.
TAUGHT: Mapping[Level, float] = {"low": 0.25, "expected": 1.0, "high": 1.0}
ROW_TOKENS = {"low": 60, "expected": 600, "high": 4_000}  # of an example that cannot be read


@frozen
class Tokens:
    """Tokens by kind; ``reference`` are those that a reference model reads."""

    prefill: float = 0.0
    cached: float = 0.0
    sample: float = 0.0
    train: float = 0.0
    reference: float = 0.0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*map(add, self.counts, other.counts))

    def __mul__(self, factor: float) -> Tokens:
        return Tokens(*(count * factor for count in self.counts))

    @property
    def counts(self) -> tuple[float, ...]:
        """The numbers alone, in the order of the kinds."""
        return self.prefill, self.cached, self.sample, self.train, self.reference

    @property
    def total(self) -> float:
        return float(sum(self.counts))


def step_tokens(stage: StagePlan, level: Level) -> Tokens:
    """Tokens of one step of a stage, or of one evaluation."""
    if isinstance(stage, TrainPlan):
        return _train_tokens(stage, level)
    if isinstance(stage, EvalPlan):
        return _eval_tokens(stage, level)
    if isinstance(stage, PreferencePlan):
        one = of_one(stage, stage.data, level)
        return Tokens(prefill=stage.batch * one.total, train=stage.batch * one.trained)
    if stage.data.env is None:
        return Tokens(train=stage.batch * _of_row(stage.data, stage.model, level))
    by_oracle = stage.data.policy == "oracle"
    shares = ORACLE_SHARE if by_oracle else REPLY_SHARE
    shapes = rollout_shapes(stage.data.env, stage.model, None, level, shares)
    longest = max(sum(e.copies * e.datum_tokens() for e in shape) for shape in shapes)
    return Tokens(train=stage.batch * longest)


def _of_row(data: DataPlan, model: ModelPlan, level: Level) -> float:
    """Tokens of one example from a file."""
    rows = example_tokens(data, model)
    return rows.at(level) + CHAT_TOKENS[level] if rows else ROW_TOKENS[level]


def heldout_examples(stage: SftPlan) -> int | None:
    """How many examples a stage holds out; None if that is unknown."""
    data = stage.heldout
    if data is None:
        return 0
    rows = example_tokens(data, stage.model)
    return data.count if data.count or rows is None else rows_taken(rows, data.split)


def heldout_tokens(stage: SftPlan | PreferencePlan, level: Level) -> float:
    """Tokens of comparing once what a stage holds out."""
    if isinstance(stage, PreferencePlan):
        return heldout_preferences(stage, level)
    if stage.heldout is None:
        return 0.0
    count = heldout_examples(stage)
    return (HELDOUT if count is None else count) * _of_row(stage.heldout, stage.model, level)


def tokens_before(stage: StagePlan, level: Level) -> Tokens:
    """Tokens of a stage before its first step: demonstrations that the model plays itself."""
    if not isinstance(stage, SftPlan) or stage.data.policy != "model":
        return Tokens()
    assert stage.data.env is not None
    shapes = rollout_shapes(stage.data.env, stage.model, None, level)
    played = (stage.data.count or 0) * TRIES[level]
    return largest(sampling_tokens(shape, played, 1, level != "high") for shape in shapes)


def sampling_tokens(shape: Rollout, groups: float, size: int, cached: bool) -> Tokens:
    """Tokens of playing groups of ``size`` rollouts; with ``cached`` the cache never misses."""
    total = Tokens()
    for episode in shape:
        members = size * episode.copies
        everything = groups * members * episode.prompts()
        fresh = everything
        if cached:
            repeated = (members - 1) * episode.prompt if episode.shared else 0.0
            fresh = groups * (members * episode.fresh() - repeated)
        total += Tokens(fresh, everything - fresh, groups * members * episode.sampled())
    return total


def group_tokens(shape: Rollout, groups: float, size: int, cached: bool) -> Tokens:
    """Tokens of playing groups, training on every rollout of them, and reading each as a reference
    would."""
    read = groups * size * sum(episode.copies * episode.datum_tokens() for episode in shape)
    return sampling_tokens(shape, groups, size, cached) + Tokens(train=read, reference=read)


def turn_tokens(shape: Rollout, batch: BatchPlan, cached: bool) -> Tokens:
    """Tokens of a batch that is counted in turns, of which exactly ``batch.count`` are trained
    on; a reference reads all that were played. A sequence of several turns holds the whole
    episode, whichever turns are chosen. Without ``cached`` no batch takes more."""
    parallel = batch.parallel or 1
    if not cached:
        return _most_turn_tokens(shape, batch.count, parallel)
    turns = sum(episode.copies * episode.turns for episode in shape)
    read = sum(episode.copies * episode.datum_tokens() for episode in shape)
    episodes = ceil(batch.count / (parallel * turns)) * parallel  # whole waves
    if all(episode.one_datum for episode in shape):
        train = min(episodes, batch.count) * read
    else:
        train = batch.count * read / turns
    played = sampling_tokens(shape, episodes, 1, cached)
    return played + Tokens(train=train, reference=episodes * read)


def _most_turn_tokens(shape: Rollout, count: int, parallel: int) -> Tokens:
    """The most tokens of waves of ``parallel`` rollouts that end with ``count`` turns or more.

    At worst one turn is missing and a whole wave is played for it. The turns before it are those
    of long rollouts or of rollouts of one turn, whichever take more; the longest are trained on.
    """
    turns = sum(episode.copies * episode.turns for episode in shape)

    def most(whole: float, single: float) -> float:
        return (count - 1) * max(whole / turns, single) + parallel * whole

    def total(part: Callable[[Episode], float]) -> float:
        return sum(episode.copies * part(episode) for episode in shape)

    first, reply = max(e.prompt for e in shape), max(e.reply for e in shape)
    read = most(total(Episode.datum_tokens), first + reply)
    longest = max(
        e.datum_tokens() if e.one_datum else max(e.prompt, e.prompt_at(e.turns - 1)) + e.reply
        for e in shape
    )
    return Tokens(
        prefill=most(total(Episode.prompts), first),
        sample=most(total(Episode.sampled), reply),
        train=min(read, count * longest),
        reference=read,
    )


def shares(envs: Iterable[EnvPlan]) -> dict[str, float]:
    """Which part of the tasks each environment of a mixture has."""
    weights = {env.name: env.weight for env in envs}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def env_tokens(stage: TrainPlan, env: EnvPlan, level: Level) -> Tokens:
    """Tokens of one step that the episodes of one environment take, each read by a reference; those
    of groups that are replaced aside."""
    part, cached = shares(stage.envs)[env.name], level != "high"
    shapes = rollout_shapes(env, stage.model, stage.sampling, level)
    if stage.batch.kind == "turns":
        return largest(turn_tokens(shape, stage.batch, cached) for shape in shapes) * part
    tasks, size = stage.batch.count * part, env.rollouts.group
    return largest(group_tokens(shape, tasks, size, cached) for shape in shapes)


def _train_tokens(stage: TrainPlan, level: Level) -> Tokens:
    total = sum((env_tokens(stage, env, level) for env in stage.envs), Tokens())
    # Groups that are replaced are not trained on; any environment may be the one they come from.
    replaced = stage.batch.resample * RESAMPLED[level]
    total += largest(
        sampling_tokens(shape, replaced, env.rollouts.group, level != "high")
        for env in stage.envs
        for shape in rollout_shapes(env, stage.model, stage.sampling, level)
    )
    targets = sum(
        env_tokens(stage, env, level).train
        for env in stage.envs
        if (teacher := teacher_of(stage.teacher, env.name)) is not None
        and teacher_traits(teacher.kind).targets
    )
    alone = learns_targets_alone(stage.advantage, stage.kl, stage.teacher)
    total = evolve(total, train=0.0 if alone else total.train * TAUGHT[level])
    if _are_read_first(stage, level):
        total += Tokens(prefill=total.train)
    total = evolve(total, train=total.train + targets)  # a gradient of its own
    return total if stage.kl is not None else evolve(total, reference=0.0)


def _are_read_first(stage: TrainPlan, level: Level) -> bool:
    """Whether sequences are read once before their gradient. A custom loss is computed by the
    server; at worst it has none, and its client asks for the logprobs first."""
    if stage.loss.program is not None and stage.model.service != LOCAL and level == "high":
        return True
    traits = loss_traits(stage.loss)
    return traits.reaches_prompt or traits.forward


def _eval_tokens(stage: EvalPlan, level: Level) -> Tokens:
    part, cached, total = shares(stage.envs), level != "high", Tokens()
    for env in stage.envs:
        shapes = rollout_shapes(env, stage.model, stage.sampling, level)
        tasks = stage.tasks * part[env.name]
        total += largest(sampling_tokens(shape, tasks, stage.samples, cached) for shape in shapes)
    return total


def largest(tokens: Iterable[Tokens]) -> Tokens:
    """Return the largest number of each kind, over several shapes."""
    return Tokens(*map(max, zip(*(each.counts for each in tokens), strict=True)))
