"""Tokens of the models that a stage asks and does not train, each at its own price.

A judge of single episodes is asked once for each, one that ranks once for each group, and one that
compares pairs n (n - 1) times for a group of n. ``high`` asks as often as it may be asked. What a
preference stage has learnt reads each episode twice: with its weights, and with its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from rlc.catalog import (
    reward_models_of,
    rubrics_of,
    seats_of,
    teacher_traits,
    trained_seats,
)
from rlc.data import DataError
from rlc.plan import (
    EndpointPlan,
    EnvPlan,
    Evaluation,
    FromData,
    JudgePlan,
    JudgingPlan,
    ModelPlan,
    Rollouts,
    SamplingPlan,
    StagePlan,
    Table,
    Training,
    is_training,
    teacher_of,
)
from rlc.pricing.shapes import (
    CHAT_TOKENS,
    FIRST_ROWS,
    REPLY_SHARE,
    FileState,
    Level,
    MeasuredEnv,
    file_state,
    rollout_shape,
    rollout_tokens,
    row_tokens,
    text_tokens,
    times,
)
from rlc.pricing.tokens import (
    Tokens,
    compared,
    heldout_tokens,
    most_tries,
    played_data,
    played_tokens,
    reference_tokens,
    replaced_groups,
    sampling_tokens,
    sequences,
    tasks_of,
    with_tries,
)
from rlc.records import evolve, field, frozen

if TYPE_CHECKING:
    from rlc.data import Criterion

ASKED = ("teacher", "judge", "opponent", "samples")  # lines of a bill


@frozen
class AskedTokens:
    """The tokens of a model that a stage asks in one step, or evaluation, and before the first.
    ``kind`` is one of :data:`ASKED`."""

    kind: str
    model: ModelPlan | EndpointPlan
    step: Tokens = field(factory=Tokens)
    before: Tokens = field(factory=Tokens)

    def total(self, times: int) -> Tokens:
        """Return the tokens of so many steps, and of what comes before them."""
        return self.step * times + self.before


def asked_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """Yield the tokens of each model that a stage asks."""
    yield from _teacher_tokens(stage, level)
    yield from _as_seen(
        stage, level, (*_judge_tokens(stage, level), *opponent_tokens(stage, level))
    )
    if is_training(stage) and stage.preference and (reference := stage.preference.reference):
        before = Tokens(prefill=reference_tokens(stage, level))
        yield AskedTokens("reference", reference.model, before=before)
    for played in played_data(stage, level):
        if not played.data.from_policy:
            yield AskedTokens("samples", played.model, before=played.tokens(stage, level))
    if is_training(stage) and stage.heldout is not None:
        each = heldout_tokens(stage, level) * compared(stage) / stage.steps
        yield AskedTokens("evaluation", stage.model, Tokens(prefill=each))


def _as_seen(stage: StagePlan, level: Level, asked: Sequence[AskedTokens]) -> Iterator[AskedTokens]:
    """Yield the tokens of judges and opponents in a step, so many as they took where that was
    seen."""
    played = [(env, groups * size) for env, groups, size in _IN_STEP[stage](stage, level)]
    took = [
        rollouts * env.asked
        for env, rollouts in played
        if isinstance(env, MeasuredEnv) and env.asked is not None
    ]
    assumed = sum(one.step.total for one in asked)
    factor = sum(took) / assumed if assumed and len(took) == len(played) else 1.0
    yield from (evolve(one, step=one.step * factor) for one in asked)


def opponent_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """Yield the tokens of each opponent: for each of its seats those of a seat that is trained."""
    for env in stage.played:
        if env.play is None or env.play.is_self_play or env.play.script is not None:
            continue  # a program samples nothing
        model = stage.model if env.play.opponent is None else env.play.opponent.model
        most = env.play.max_tokens or env.rollouts.max_tokens
        theirs = evolve(env, rollouts=evolve(env.rollouts, max_tokens=most))
        trained = len(trained_seats(env))
        shape = rollout_shape(theirs, model, stage.sampling, level)
        matches = tasks_of(env, stage.played, _MATCHES[stage](stage, env, level), level)
        own = sampling_tokens(shape, matches, env.rollouts.group, level != "high")
        own = with_tries(own, stage, env, level)
        yield AskedTokens("opponent", model, own * ((len(seats_of(env)) - trained) / trained))


def _matches_in_step(stage: Training, env: EnvPlan, level: Level) -> float:
    batch = stage.of(Rollouts).batch
    return batch.count if batch.kind == "groups" else _episodes(stage, env, level)


def _episodes(stage: Training, env: EnvPlan, level: Level) -> float:
    """Return the tasks of a batch that is counted in turns; at most each has one turn or loses one
    reply, and the last are played side by side."""
    batch, sampling = stage.of(Rollouts).batch, stage.of(Rollouts).sampling
    if level == "high":
        return batch.count - 1 + batch.most_lost - 1 + (batch.parallel or 1)
    shape = rollout_shape(env, stage.model, sampling, "expected")
    return batch.count / sum(episode.copies * episode.played_turns for episode in shape)


_MATCHES: Table[Callable[[Any, EnvPlan, Level], float]] = Table(
    {Rollouts: _matches_in_step, FromData: lambda *_: 0, Evaluation: lambda stage, *_: stage.tasks},
    by="source",
)


# Of a demonstration, in a field of a row that cannot be read.
DEMONSTRATION_TOKENS = {"low": 20, "expected": 200, "high": 2_000}


def _teacher_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    """Yield the tokens of each teacher in one step: it reads every sequence that is played in its
    environments once, uncached, and what it is shown beside that. To name its most likely tokens it
    samples one after each."""
    if not is_training(stage) or (objective := stage.policy_gradient) is None:
        return
    for teacher in objective.teacher:
        more = 0.0 if teacher.demonstration is None else DEMONSTRATION_TOKENS[level]
        if teacher.system:
            from rlc.data import text_of  # few recipes show a teacher more

            with suppress(DataError):  # which `rlc check` reports
                more += text_tokens(text_of(teacher.system), stage.model, level)
            more += CHAT_TOKENS[level]
        envs = [
            env
            for env in stage.source.environments
            if teacher_of(objective.teacher, env.name) is teacher
        ]
        count = sequences(stage, envs, level)
        read = played_tokens(stage, envs, level).reference + times(more, count)
        sampled = count if teacher_traits(teacher.kind).targets else 0.0
        yield AskedTokens("teacher", teacher.model.model, Tokens(prefill=read, sample=sampled))


# An environment, how many groups of it are played, and their size.
_Groups = tuple[EnvPlan, float, int]


def _judge_tokens(stage: StagePlan, level: Level) -> Iterator[AskedTokens]:
    for groups in _IN_STEP[stage](stage, level):
        for model, tokens in _judged(stage, groups, level):
            yield AskedTokens("judge", model, tokens)
    for data in played_data(stage, level):
        for model, tokens in _judged(stage, (data.env, data.tasks, data.size), level):
            yield AskedTokens("judge", model, before=tokens)


def _judged(
    stage: StagePlan, played: _Groups, level: Level
) -> Iterator[tuple[ModelPlan | EndpointPlan, Tokens]]:
    """Yield the judges of groups that are played, with their tokens."""
    env, groups, size = played
    groups *= most_tries(stage, level)
    for _, judging, judge in rubrics_of(env):
        questions = {"score": size, "ranking": 1, "pairwise": size * (size - 1)}[judging.by]
        asked = groups * questions * (judge.attempts if level == "high" else 1)
        given = stage.model, stage.sampling, env, judging, judge, size, level
        model = judge.model if isinstance(judge.model, EndpointPlan) else judge.model.model
        reply = judge.max_tokens * REPLY_SHARE[level]
        yield model, Tokens(prefill=question_tokens(*given), sample=reply) * asked
    for _, _, learnt in reward_models_of(env):  # which reads each episode, whole
        shape = rollout_shape(env, stage.model, stage.sampling, level)
        read = Tokens(prefill=groups * size * rollout_tokens(shape))
        for state in filter(None, (learnt.model, learnt.reference)):
            yield state.model, read


def question_tokens(
    model: ModelPlan,
    sampling: SamplingPlan | None,
    env: EnvPlan,
    judging: JudgingPlan,
    judge: JudgePlan,
    size: int,
    level: Level,
) -> float:
    """Return the tokens of one question to a judge, in a group of ``size`` that ``model`` has
    played."""
    from rlc.data import judge_question, read_rubric, read_text, rubric_text

    asked = judge.model if isinstance(judge.model, EndpointPlan) else judge.model.model
    replies = {"score": 1, "ranking": size, "pairwise": 2}[judging.by]
    text, fields = "", list[str]()  # of a rubric that cannot be read, which `rlc check` reports
    with suppress(DataError):
        rubric = read_rubric(judge.rubric)
        fields += rubric.fields
        if judge.criteria is not None and (state := file_state(env.id)) is not None:
            own = _row_criteria(env.id, state, judge.criteria)[level]
            rubric = evolve(rubric, criteria=(*rubric.criteria, *own))
        text = rubric_text(rubric)
        if judge.prompt is None:
            # A scale that cannot be read, which `rlc check` reports, is None.
            scaled = evolve(judge, low=judge.low or 0.0, high=judge.high or 0.0)
            text = judge_question(scaled, judging.by, "", [""] * replies, rubric)
        else:
            text += read_text(judge.prompt)
    episode = rollout_shape(env, model, sampling, level)[0]
    reply = episode.reply
    if judging.whole or episode.turns > 1:
        around = text_tokens("\n\nUser: \n\nAssistant: ", asked, level)
        reply = episode.datum_tokens() + episode.turns * around
    question = 2 * CHAT_TOKENS[level] + text_tokens(text, asked, level)
    if fields and (rows := row_tokens(env.id, tuple(fields), asked)) is not None:
        question += rows.at(level)
    return question + episode.prompt + replies * reply


@lru_cache(maxsize=16)
def _row_criteria(
    path: str,
    state: FileState,  # noqa: ARG001 (a file that changed is read again)
    field: str,
) -> Mapping[Level, tuple[Criterion, ...]]:
    """Return the shortest, the median and the longest criteria that rows of a file have."""
    from rlc.data import row_criteria, rows_of

    found: list[tuple[Criterion, ...]] = [()]
    with suppress(DataError):  # which `rlc check` reports
        rows = islice(rows_of(path), FIRST_ROWS)
        found = [row_criteria(row.fields, field) for row in rows] or found
    found.sort(key=lambda own: sum(len(one.name) + len(one.text) for one in own))
    return {"low": found[0], "expected": found[len(found) // 2], "high": found[-1]}


def endpoint_dollars(plan: EndpointPlan, prompt: float, reply: float) -> float | None:
    """Return what so many tokens cost at an endpoint; None if that is not known."""
    if plan.prompt_price is None or plan.reply_price is None:
        return None
    return (prompt * plan.prompt_price + reply * plan.reply_price) / 1e6  # of a million tokens


def _groups_in_step(stage: Training, level: Level) -> Iterator[_Groups]:
    rollouts = stage.of(Rollouts)
    again = replaced_groups(stage, level)
    for env in rollouts.envs:
        groups, size = float(rollouts.batch.count), env.rollouts.group
        if rollouts.batch.kind == "turns":
            groups, size = _episodes(stage, env, level), 1
        yield env, tasks_of(env, rollouts.envs, groups, level) + again, size


def _groups_in_evaluation(stage: Evaluation, level: Level) -> Iterator[_Groups]:
    for env in stage.envs:
        yield env, tasks_of(env, stage.envs, stage.tasks, level), stage.samples


_IN_STEP: Table[Callable[[Any, Level], Iterator[_Groups]]] = Table(
    {Rollouts: _groups_in_step, FromData: lambda *_: iter(()), Evaluation: _groups_in_evaluation},
    by="source",
)
