"""Tokens of a step, by the kinds that a service bills.

Sampling prefills every prompt; what extends an earlier one, or is shared by a group, can come
from the service's cache. Training is billed for every token of a sequence. A reference model
reads every sequence that was played once; of preferences every reply takes a forward pass and a
gradient, and its reference reads it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from operator import add
from typing import Any

from rlc.catalog import (
    DEFAULT_FAILURE,
    learns_targets_alone,
    loss_traits,
    max_turns,
    preference_traits,
    teacher_traits,
)
from rlc.plan import (
    FORM_TRIES,
    AnyData,
    BatchPlan,
    BuilderData,
    Demonstrations,
    EnvPlan,
    Evaluation,
    FileData,
    FromData,
    LabelledReplies,
    Likelihood,
    ModelPlan,
    PolicyGradient,
    PreferenceLoss,
    PreferredPairs,
    Rollouts,
    Samples,
    SamplingPlan,
    StagePlan,
    Table,
    Training,
    teacher_of,
)
from rlc.pricing.shapes import (
    CHAT_TOKENS,
    ORACLE_SHARE,
    REPLY_SHARE,
    UNLIMITED,
    EpisodeShape,
    Level,
    MeasuredEnv,
    Rollout,
    RowTokens,
    example_tokens,
    preference_tokens,
    rollout_shape,
    rollout_tokens,
    times,
)
from rlc.records import evolve, frozen

SIDE_TOKENS = {"low": 60, "expected": 600, "high": 4_000}  # of a reply that cannot be read
HELDOUT = 1_000  # held-out preferences or examples, where they cannot be counted
ROW_TOKENS = {"low": 60, "expected": 600, "high": 4_000}  # of an example that cannot be read
TRIES = {"low": 1, "expected": 2, "high": 20}  # episodes for each demonstration of the model
# Tasks that are played side by side: the last ones may be more than are needed.
WAVE, LARGE_WAVE = 64, 512
ROUNDING = 1e-9  # by which a share of a whole number of tasks may exceed a whole number
# Of the groups that may be replaced.
RESAMPLED: Mapping[Level, float] = {"low": 0.0, "expected": 0.5, "high": 1.0}
# Of the rollouts: those of a group whose rewards are all equal are not trained on.
TAUGHT: Mapping[Level, float] = {"low": 0.25, "expected": 1.0, "high": 1.0}


def _sides(data: AnyData) -> int:
    """Return how many replies each preference of data has."""
    return 1 if data.word == LabelledReplies.word else 2


def _of_preference(stage: Training, data: AnyData, level: Level) -> Tokens:
    """Return the tokens of one preference, both replies of a pair together."""
    rows, sides = preference_tokens(data, stage.model), _sides(data)
    whole: float = sides * SIDE_TOKENS[level]
    if rows is not None:
        whole = rows.at(level) + sides * CHAT_TOKENS[level]
    for env in data.environments:
        whole = sides * rollout_tokens(rollout_shape(env, stage.model, None, level))
    if not _labelled(stage):
        return Tokens(prefill=whole, train=whole)
    reply = whole / sides
    return Tokens(prefill=reply + reply, train=reply)  # it is read with that to another prompt


def _labelled(stage: Training) -> bool:
    return preference_traits(stage.of(PreferenceLoss).loss).labelled


def count_of(stage: Training, data: AnyData) -> int | None:
    """Return how many preferences data has; None if that is unknown."""
    rows, count = preference_tokens(data, stage.model), data.count
    if count is None and rows is not None:
        count = rows_taken(rows, data)
    return None if count is None else count * (_sides(data) if _labelled(stage) else 1)


def rows_taken(rows: RowTokens, data: AnyData) -> int:
    """Return how many of the rows of a file the split of data has."""
    split = getattr(data, "split", None)
    return ceil(rows.rows * (split["share"] if isinstance(split, Mapping) else 1.0))


def compared(stage: Training) -> int:
    """Return how often held-out data is compared."""
    between = 0 if stage.every is None else (stage.steps - 1) // stage.every
    return 0 if stage.heldout is None else 1 + between


def reference_tokens(stage: Training, level: Level) -> float:
    """Return the tokens that the reference reads in the whole stage: every reply once."""
    source = stage.of(FromData)
    used, count = stage.steps * source.batch, count_of(stage, source.data)
    read = _of_preference(stage, source.data, level).prefill
    return (used if count is None else min(used, count)) * read + heldout_tokens(stage, level)


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
        return Tokens(*(times(factor, count) for count in self.counts))

    @property
    def counts(self) -> tuple[float, ...]:
        """Return the numbers alone, in the order of the kinds."""
        return self.prefill, self.cached, self.sample, self.train, self.reference

    @property
    def total(self) -> float:
        return float(sum(self.counts))


def step_tokens(stage: StagePlan, level: Level) -> Tokens:
    """Return the tokens of one step of a stage, or of one evaluation."""
    return _STEP[stage](stage, level)


def _preference_tokens(stage: Training, level: Level) -> Tokens:
    source = stage.of(FromData)
    return _of_preference(stage, source.data, level) * source.batch


def _likelihood_tokens(stage: Training, level: Level) -> Tokens:
    source = stage.of(FromData)
    longest = _of_row(source.data, stage.model, level)
    for env in source.data.environments:
        shares = ORACLE_SHARE if source.data.by_oracle else REPLY_SHARE
        longest = rollout_tokens(rollout_shape(env, stage.model, None, level, shares))
    return Tokens(train=source.batch * longest)


def _of_row(data: AnyData, model: ModelPlan, level: Level) -> float:
    """Return the tokens of one example from a file."""
    rows = example_tokens(data, model)
    return rows.at(level) + CHAT_TOKENS[level] if rows else ROW_TOKENS[level]


def heldout_count(stage: Training) -> int | None:
    """Return how many examples or preferences a stage holds out; None if that is unknown."""
    if (data := stage.heldout) is None:
        return 0
    if data.compares:
        return count_of(stage, data)
    rows = example_tokens(data, stage.model)
    return data.count if data.count or rows is None else rows_taken(rows, data)


def heldout_tokens(stage: Training, level: Level) -> float:
    """Return the tokens of comparing held-out data once."""
    if (data := stage.heldout) is None:
        return 0.0
    if data.compares:
        one = _of_preference(stage, data, level).prefill
    else:
        one = _of_row(data, stage.model, level)
    count = heldout_count(stage)
    return (HELDOUT if count is None else count) * one


@frozen
class PlayedData:
    """The episodes that data is made of: ``tasks`` of them, each played ``size`` times by a
    ``model``."""

    data: AnyData
    env: EnvPlan
    model: ModelPlan
    tasks: float
    size: int
    sampling: SamplingPlan | None = None

    def tokens(self, stage: StagePlan, level: Level) -> Tokens:
        shape = rollout_shape(self.env, self.model, self.sampling, level)
        played = sampling_tokens(shape, self.tasks, self.size, level != "high")
        return with_tries(played, stage, self.env, level)


def played_data(stage: StagePlan, level: Level) -> Iterator[PlayedData]:
    """Yield the episodes that a model plays for the data of a stage, before its first step."""
    for data in stage.data:
        kind = next(kind for kind in _PLAYED if isinstance(data, kind))
        yield from _PLAYED[kind](stage, data, level)


def _played_demonstrations(stage: StagePlan, data: Any, level: Level) -> Iterator[PlayedData]:
    if not data.by_oracle:
        tasks = data.count * TRIES[level] + _more_tasks(stage.model, data.count, level)
        yield PlayedData(data, data.env, stage.model, tasks, 1)


def _played_samples(_: StagePlan, data: Any, level: Level) -> Iterator[PlayedData]:
    tasks, model = data.count * played_for_one(data, level) / data.size, data.model.model
    if data.count > WAVE or not _keeps_any(data):
        tasks += _more_tasks(model, data.count, level) / data.kept_of_task
    whole = ceil(tasks) if level == "high" else tasks
    yield PlayedData(data, data.env, model, whole, data.size, data.sampling)


def _played_pairs(_: StagePlan, data: Any, level: Level) -> Iterator[PlayedData]:
    model = data.model.model
    tasks = data.count * TRIES[level] + _more_tasks(model, 2 * data.count, level)
    yield PlayedData(data, data.env, model, tasks, data.samples)


def _more_tasks(model: ModelPlan, wanted: int, level: Level) -> int:
    """Return how many tasks may be played beside those that are needed."""
    return min(wanted, LARGE_WAVE if model.hosted else WAVE) if level == "high" else 0


_PLAYED: Mapping[type[Any], Callable[[StagePlan, Any, Level], Iterator[PlayedData]]] = {
    Demonstrations: _played_demonstrations,
    Samples: _played_samples,
    PreferredPairs: _played_pairs,
    FileData: lambda *_: iter(()),
    BuilderData: lambda *_: iter(()),
}


def _keeps_any(samples: Samples) -> bool:
    """Return whether as many episodes of each task are kept as can be."""
    return samples.keep.kind in ("best", "all") and samples.per_task is None


def played_for_one(samples: Samples, level: Level) -> float:
    """Return how many episodes are assumed to be played for each that is kept. A task that is
    played again may have no more that can be kept."""
    least = samples.size / samples.kept_of_task
    if _keeps_any(samples) or (samples.keep.kind in ("best", "all") and level != "high"):
        return least
    assumed = {**TRIES, "high": samples.tries}[level]
    return float(max(assumed, least))


def tokens_before(stage: StagePlan, level: Level) -> Tokens:
    """Return the tokens of a stage before its first step, of demonstrations by the model itself."""
    played = (one for one in played_data(stage, level) if one.data.from_policy)
    return sum((one.tokens(stage, level) for one in played), Tokens())


def most_tries(stage: StagePlan, level: Level) -> int:
    """Return how often a rollout that fails is played: at ``high`` as often as it may be."""
    policy = DEFAULT_FAILURE if stage.rollouts is None else stage.rollouts.on_error
    return 1 + policy.retries if level == "high" else 1


def _sampling_tries(stage: StagePlan, env: EnvPlan, level: Level) -> int:
    """Return how often each reply of a rollout is sampled: at ``high`` as often as it may be."""
    form = FORM_TRIES if env.agent is not None and level == "high" else 1
    return most_tries(stage, level) * form


def with_tries(tokens: Tokens, stage: StagePlan, env: EnvPlan, level: Level) -> Tokens:
    """Return the tokens of rollouts with those of further tries, which nothing is trained on."""
    tries = _sampling_tries(stage, env, level)
    prefill, cached, sample, *learnt = tokens.counts
    return Tokens(*(tries * count for count in (prefill, cached, sample)), *learnt)


def sampling_tokens(shape: Rollout, groups: float, size: int, cached: bool) -> Tokens:
    """Return the tokens of playing groups of ``size`` rollouts; with ``cached`` the cache never
    misses."""
    total = Tokens()
    for episode in shape:
        members = size * episode.copies
        prompts, hits = members * episode.prompts(), 0.0
        if cached:
            repeated = (members - 1) * episode.prompt if episode.shared else 0.0
            hits = prompts - members * episode.fresh() + repeated
        total += Tokens(prompts - hits, hits, members * episode.sampled()) * groups
    return total


def group_tokens(shape: Rollout, groups: float, size: int, cached: bool) -> Tokens:
    """Return the tokens of playing groups, training on each rollout, and reading it once."""
    read = groups * size * rollout_tokens(shape)
    return sampling_tokens(shape, groups, size, cached) + Tokens(train=read, reference=read)


def turn_tokens(shape: Rollout, batch: BatchPlan) -> Tokens:
    """Return the tokens of a batch that is counted in turns, of which ``batch.count`` are trained
    on; a reference reads all that were played. A sequence of several turns is a whole episode,
    whichever turns are chosen. The cache never misses."""
    parallel = batch.parallel or 1
    turns = sum(episode.copies * episode.played_turns for episode in shape)
    read = rollout_tokens(shape)
    episodes = ceil(batch.count / (parallel * turns)) * parallel  # all in parallel each time
    train = batch.count * read / turns
    if all(episode.one_datum for episode in shape):
        train = min(episodes, batch.count) * read
    played = sampling_tokens(shape, episodes, 1, cached=True)
    return played + Tokens(train=train, reference=episodes * read)


def most_turn_tokens(played: Sequence[tuple[Rollout, int]], batch: BatchPlan) -> Tokens:
    """Return the most tokens of a batch that is counted in turns, of rollouts of these shapes, in
    each of which a reply is sampled so often if tries fail.

    At worst one turn is missing, one more reply may be lost, and ``batch.parallel`` of the longest
    rollouts are played. The replies before them are of rollouts of the number of turns that takes
    the most for each; the longest are trained on.
    """
    shapes = [episode for shape, _ in played for episode in shape]

    def most(part: Callable[[EpisodeShape], float], lost: int, tries: bool) -> float:
        rollout = max(
            (number if tries else 1) * sum(one.copies * part(one) for one in shape)
            for shape, number in played
        )
        turn = max(
            part(evolve(episode, turns=turns, most=UNLIMITED)) / turns
            for episode in shapes
            for turns in (1, episode.growing, episode.turns)
        )
        return times(batch.count - 1 + lost, turn) + (batch.parallel or 1) * rollout

    read, lost = most(EpisodeShape.datum_tokens, 0, tries=False), batch.most_lost - 1
    longest = max(
        e.datum_tokens() if e.one_datum else max(e.prompt, e.prompt_at(e.turns - 1)) + e.reply
        for e in shapes
    )
    return Tokens(
        prefill=most(EpisodeShape.prompts, lost, tries=True),
        sample=most(EpisodeShape.sampled, lost, tries=True),
        train=min(read, batch.count * longest),
        reference=read,
    )


def shares(envs: Iterable[EnvPlan]) -> dict[str, float]:
    """Return the share of the tasks of each environment of a mixture."""
    weights = {env.name: env.weight for env in envs}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def tasks_of(env: EnvPlan, envs: Iterable[EnvPlan], count: float, level: Level) -> float:
    """Return how many of ``count`` tasks of a mixture are of an environment, which ``high`` rounds
    up."""
    tasks = count * shares(envs)[env.name]
    return ceil(tasks - ROUNDING) if level == "high" else tasks


def played_tokens(stage: Training, envs: Sequence[EnvPlan], level: Level) -> Tokens:
    """Return the tokens of one step in some of its environments, with those of a reference, without
    groups that are replaced. At ``high`` all turns that are counted may be of any of them."""
    rollouts = stage.of(Rollouts)
    if rollouts.batch.kind == "groups" or level != "high" or not envs:
        return sum((_env_tokens(stage, env, level) for env in envs), Tokens())
    played = [
        (
            rollout_shape(env, stage.model, rollouts.sampling, level),
            _sampling_tries(stage, env, level),
        )
        for env in envs
    ]
    return most_turn_tokens(played, rollouts.batch)


def _env_tokens(stage: Training, env: EnvPlan, level: Level) -> Tokens:
    found = _all_tokens(stage, env, level)
    if isinstance(env, MeasuredEnv):
        return evolve(found, train=found.train * env.taught)
    return found


def replaced_groups(stage: Training, level: Level) -> float:
    """Return how many groups of a step are replaced by others."""
    rollouts = stage.of(Rollouts)
    if not rollouts.batch.resample:
        return 0.0
    part = shares(rollouts.envs)
    known = [part[e.name] * e.equal for e in rollouts.envs if isinstance(e, MeasuredEnv)]
    if len(known) == len(rollouts.envs):
        return min(float(rollouts.batch.resample), rollouts.batch.count * sum(known))
    return rollouts.batch.resample * RESAMPLED[level]


def _all_tokens(stage: Training, env: EnvPlan, level: Level) -> Tokens:
    rollouts = stage.of(Rollouts)
    shape = rollout_shape(env, stage.model, rollouts.sampling, level)
    if rollouts.batch.kind == "turns":
        tokens = turn_tokens(shape, rollouts.batch) * shares(rollouts.envs)[env.name]
        if level == "low":  # more and shorter episodes with as many turns may take more
            return least(tokens, _env_tokens(stage, env, "expected"))
        return tokens
    groups = tasks_of(env, rollouts.envs, rollouts.batch.count, level)
    tokens = group_tokens(shape, groups, env.rollouts.group, level != "high")
    return with_tries(tokens, stage, env, level)


def sequences(stage: Training, envs: Sequence[EnvPlan], level: Level) -> float:
    """Return the training sequences of one step in some environments that a reference reads."""
    rollouts, total = stage.of(Rollouts), 0.0
    batch = rollouts.batch
    shapes = [rollout_shape(env, stage.model, rollouts.sampling, level) for env in envs]
    if batch.kind == "turns" and level == "high":  # at most one a turn
        turns = (sum(one.copies * one.most_turns for one in shape) for shape in shapes)
        return batch.count - 1 + (batch.parallel or 1) * max(turns, default=0.0)
    for env, shape in zip(envs, shapes, strict=True):
        if batch.kind == "turns":
            played = _env_tokens(stage, env, level).reference / rollout_tokens(shape)
        else:
            played = tasks_of(env, rollouts.envs, batch.count, level) * env.rollouts.group
        total += played * sum(one.copies * one.sequences for one in shape)
    return total


def _policy_gradient_tokens(stage: Training, level: Level) -> Tokens:
    rollouts, objective = stage.of(Rollouts), stage.of(PolicyGradient)
    total = played_tokens(stage, rollouts.envs, level)
    # Groups that are replaced are not trained on; any environment may be the one they come from.
    if replaced := replaced_groups(stage, level):
        total += largest(
            with_tries(
                sampling_tokens(
                    rollout_shape(env, stage.model, rollouts.sampling, level),
                    replaced,
                    env.rollouts.group,
                    level != "high",
                ),
                stage,
                env,
                level,
            )
            for env in rollouts.envs
        )
    targeted = [
        env
        for env in rollouts.envs
        if (teacher := teacher_of(objective.teacher, env.name)) is not None
        and teacher_traits(teacher.kind).targets
    ]
    targets = played_tokens(stage, targeted, level).train
    alone = learns_targets_alone(objective.advantage, objective.kl, objective.teacher)
    total = evolve(total, train=0.0 if alone else total.train * TAUGHT[level])
    loss, traits = objective.loss, loss_traits(objective.loss)
    # A custom loss is computed by the server; at worst it has none, and its client asks for the
    # logprobs first.
    by_client = loss.program is not None and stage.model.hosted and level == "high"
    if by_client or traits.reaches_prompt or traits.forward:
        total += Tokens(prefill=total.train)
    if objective.observations is not None:  # up to the last reply: an episode may have but one
        several = [env for env in rollouts.envs if max_turns(env) != 1] if level != "low" else []
        targets += played_tokens(stage, several, level).train
    total = evolve(total, train=total.train + targets)  # gradients of their own
    return total if objective.kl is not None else evolve(total, reference=0.0)


def _evaluation_tokens(stage: Evaluation, level: Level) -> Tokens:
    total = Tokens()
    for env in stage.envs:
        shape = rollout_shape(env, stage.model, stage.sampling, level)
        tasks = tasks_of(env, stage.envs, stage.tasks, level)
        played = sampling_tokens(shape, tasks, stage.samples, level != "high")
        total += with_tries(played, stage, env, level)
    return total


def least(one: Tokens, other: Tokens) -> Tokens:
    """Return the smaller number of each kind."""
    return Tokens(*map(min, one.counts, other.counts))


def largest(tokens: Iterable[Tokens]) -> Tokens:
    """Return the largest number of each kind, over several."""
    return Tokens(*map(max, zip(*(each.counts for each in tokens), strict=True)))


_STEP: Table[Callable[[Any, Level], Tokens]] = Table(
    {
        PolicyGradient: _policy_gradient_tokens,
        Likelihood: _likelihood_tokens,
        PreferenceLoss: _preference_tokens,
        Evaluation: _evaluation_tokens,
    }
)
