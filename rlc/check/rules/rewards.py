"""Rules on rewards: graders, judges, and what shapes them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from rlc.algo import IN_TASK, AlgorithmError, Program, compares, differs_in_group, scope_of
from rlc.catalog import (
    FORMAT,
    FORMAT_COEF,
    GRADER,
    JUDGE_PROMPT,
    TEMPLATES,
    comparers_of,
    env_facts,
    files_of,
    find_builtin,
    find_model,
    finds_answers,
    grader_traits,
    is_rewarded,
    judges_of,
    players_of_role,
    reward_models_of,
    roles_of,
    rubrics_of,
    source_traits,
    with_role,
    wrapper_traits,
)
from rlc.check.rules.view import StageView, rule, rule_on_envs
from rlc.check.scope import closest
from rlc.lang import Label
from rlc.plan import (
    SOLVED,
    AnyJudge,
    EndpointPlan,
    EnvPlan,
    JudgePlan,
    JudgingPlan,
    is_text_file,
    teacher_of,
)
from rlc.records import evolve


@rule_on_envs()
def _something_rewards(view: StageView, env: EnvPlan) -> None:
    keep = getattr(view.parts.get("data"), "keep", None)
    needs_none = (
        teacher_of(view.parts.get("teacher", ()), env.name) is not None
        or ("overlap" in view.parts and "teacher" not in view.parts)  # teachers could not be read
        or (keep is not None and keep.kind == "all")
    )
    if not (needs_none or is_rewarded(env)):
        message = f"nothing rewards the replies of `{env.name}`"
        advice = (
            f'give it a grader, `{GRADER} = grade_with("rewards.py:reward")`, or a judge, '
            "`|> judged(…)`"
        )
        view.error("RL0530", f"envs.{env.name}.id", message, advice)


@rule_on_envs()
def _graders_can_grade(view: StageView, env: EnvPlan) -> None:
    able, answers = env_facts(env).graders, source_traits(env.source).answers
    for part in env.graders:
        name, path = part.grader, f"envs.{env.name}.graders.{part.name}"
        if grader_traits(name).compares and not answers:
            message = f"`{name}` compares with the answer of a row, and `{env.name}` has none"
            advice = f'take `problems("{env.id}", answer = "…")`, or a function of your own'
            view.error("RL0531", path, message, advice)
        if able and name not in able:
            message = f"`grader = {name}` cannot tell right answers of `{env.id}`"
            view.error("RL0324", path, message, f"its answers need `grader = {able[0]}`")


@rule_on_envs()
def _weights_weigh(view: StageView, env: EnvPlan) -> None:
    for part in env.graders:
        path = f"envs.{env.name}.graders.{part.name}.args.weights"
        for name, weight in part.args.get("weights", {}).items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                message = f"the weight of `{name}` is not a number"
                view.error("RL0201", f"{path}.{name}", message, "for example `0.5`")
    counts: dict[str, object] = {}
    if env.graders:
        inner = ((part.weight, part.args.get("weights") or {"": 1}) for part in env.graders)
        counts[f"envs.{env.name}.graders"] = any(w and any(ws.values()) for w, ws in inner)
    if source_traits(env.source).graded:
        counts |= {f"{path}.weight": judge.weight for path, _, judge in _judges(env)}
    if counts and not any(counts.values()):
        message = f"all weights are 0, so every reward of `{env.name}` is 0"
        advice = "give one of them a weight; those with 0 are metrics only"
        view.error("RL0532", next(iter(counts)), message, advice)


@rule_on_envs()
def _format_counts(view: StageView, env: EnvPlan) -> None:
    """Only graders that compare answers can miss one; the format is a metric, too."""
    if finds_answers(env) and any(part.name == FORMAT for part in env.graders):
        message = f"`{FORMAT}` is the metric of whether a reply has an answer at all"
        path = f"envs.{env.name}.graders.{FORMAT}"
        view.error("RL0533", path, message, "give the grader another name")
    coef = env.args.get("format_coef", FORMAT_COEF)
    if coef not in (0, FORMAT_COEF) and not finds_answers(env):
        message = "`format_coef` has no effect: no grader here compares answers"
        advice = "remove it; a function of your own returns what it likes for a bad format"
        view.error("RL0312", f"envs.{env.name}.args.format_coef", message, advice)


@rule_on_envs()
def _what_is_earned_is_paid(view: StageView, env: EnvPlan) -> None:
    """Look at what the formula of a reward pays for, by what it is for episodes made up."""
    teaches = bool(view.parts.get("teacher")) and "advantage" not in view.parts
    weights = {} if teaches else _weights(env)
    for part in env.graders:
        if part.weight < 0 and grader_traits(part.grader).compares:
            path = f"envs.{env.name}.graders.{part.name}"
            message = f"a right answer to `{env.name}` costs {-part.weight:g}"
            view.warning("RL0683", path, message, "leave the minus out")
            return
    shaped = env.reward.shaped
    if teaches or not (shaped or any(weights.values())):
        return
    from rlc.algo import reduce_rewards, reward_shape  # most checks need no rewards

    path = f"envs.{env.name}.reward.shaped" if shaped else f"envs.{env.name}.graders"
    if not shaped and not env.graders:
        path = next(f"envs.{env.name}.{at}.weight" for at, _, _ in judges_of(env))
    inputs = tuple(weights) if shaped is None else shaped.inputs
    longest = float(env.rollouts.max_tokens or 512)  # None where it cannot be read
    lengths = {
        "tokens": (1.0, longest / 4, longest / 2, longest, 8 * longest),
        "turns": (1.0, 2.0, 4.0, 8.0),
        "truncated": (0.0, 1.0),
    }

    earned = [name for name in inputs if name not in lengths]
    usual = {name: values[len(values) // 2] for name, values in lengths.items()}
    others = [  # in the group of each episode
        {**usual, **dict.fromkeys(earned, level), "tokens": tokens}
        for level, tokens in product((0.0, 1.0), (longest / 4, longest))
    ]

    def reward(values: Mapping[str, float]) -> float:
        if shaped is None:
            paid = sum(weight * values[name] for name, weight in weights.items())
        else:
            paid = _paid(shaped, values, others)
        return sum(reduce_rewards([paid], "sum", low=env.reward.low, high=env.reward.high) or ())

    try:
        shape = reward_shape(reward, earned, {n: lengths[n] for n in inputs if n in lengths})
    except AlgorithmError:  # it is undefined somewhere, which is reported by itself
        return
    coef = env.args.get("format_coef", 0.0) if finds_answers(env) else 0.0
    least = sum(min(0.0, weight) for weight in weights.values()) - coef
    if earned == ["total"] and reward({**usual, "total": least}) > reward({**usual, "total": 0.0}):
        message = f"an episode of `{env.name}` that earns {least:g} is paid more than one with 0"
        view.warning("RL0683", path, message, "keep the sign: `max(total, 0)` pays it as much")
    if shape.constant:
        message = "this reward is the same for every episode"
        view.error("RL0681", path, message, "equal rewards teach nothing")
    elif shaped is not None and not differs_in_group(shaped):
        message = "this reward is the same for all members of a group"
        view.warning("RL0681", path, message, "add what each has of its own, such as its `total`")
    elif shape.falls:
        message = f"the more an episode of `{env.name}` earns, the less it is paid"
        view.warning("RL0683", path, message, "turn the sign around")
    elif shape.free:
        message = f"an episode of `{env.name}` that earns nothing can be paid as much as any"
        view.warning("RL0684", path, message, "pay the most for what is earned, not for a length")
    elif shape.dominant is not None and shape.dominant[0] != "total":
        name, times = shape.dominant
        message = f"`{name}` moves the reward {times:,.0f} times as much as all else"
        advice = "weigh it less, or take the rest out; this takes each part for one from 0 to 1"
        view.warning("RL0685", path, message, advice)


@rule_on_envs()
def _rewards_have_peers(view: StageView, env: EnvPlan) -> None:
    size, path = view.parts.get("samples", env.rollouts.group), f"envs.{env.name}.reward.shaped"
    if not _scopes(env) or size != 1 or players_of_role(env) > 1 or env.play is not None:
        return
    what, advice = "a group of 1 has", "play each task more often, for example `group_size = 8`"
    place, batch = f"envs.{env.name}.rollouts.group", view.parts.get("batch")
    if "samples" in view.parts:
        if all(metric.name != "mean_reward" for metric in view.metrics):  # others read the raw one
            return
        what, place = "an evaluation with one sample of a task has", "samples"
        advice = "take more, for example `samples = 8`: those of a task are its group"
    elif getattr(batch, "kind", "") == "turns":
        what, place = "`turns()` plays every task once, and has", "batch"
        advice = "use `groups(16, group_size = 8)`, or a reward that compares with nothing"
    elif "data" in view.parts:
        what, place = "what is played for `data`, once for each task, has", "data"
        advice = "take an environment whose reward compares with nothing"
    message = f"{what} nothing to compare with: a mean of the group is the value itself"
    view.warning("RL0308", path, message, advice, Label(view.at(place), "each task once"))


@rule_on_envs()
def _rewards_compare_like_with_like(view: StageView, env: EnvPlan) -> None:
    path, scopes, roles = f"envs.{env.name}.reward.shaped", _scopes(env), roles_of(env)
    if "group" in scopes and len(roles) > 1:
        message = f"all roles of `{env.name}` are compared with each other here"
        view.warning("RL0425", path, message, "compare each with its like: `over = role`")
    elif "role" in scopes and not roles:
        message = f"`{env.name}` has no roles, so `role` means `group`"
        view.warning("RL0423", path, message, "write `over = group`")


def _scopes(env: EnvPlan) -> set[str]:
    """Return the scopes in which the reward of an environment is compared."""
    nodes = () if env.reward.shaped is None else env.reward.shaped.nodes
    return {scope for node in nodes if (scope := scope_of(node)) is not None}


def _paid(
    shaped: Program, values: Mapping[str, float], others: Sequence[Mapping[str, float]]
) -> float:
    """Return the shaped reward of an episode; of one that is compared, in a group with others."""
    from rlc.algo import shaped_reward, shaped_rewards

    if not compares(shaped):
        return shaped_reward(shaped, values)  # without numpy
    return shaped_rewards(shaped, [values, *others])[0]


def _weights(env: EnvPlan) -> dict[str, float]:
    """Return what each part of a reward weighs that is known before a run."""
    found: dict[str, float] = {judge.name: judge.weight for _, _, judge in judges_of(env)}
    for part in env.graders:
        for name, weight in (part.args.get("weights") or {part.name: 1.0}).items():
            if isinstance(weight, int | float):
                found[name] = part.weight * weight
    return found


_HOT = 1.0  # a judge samples its verdicts above this temperature
_LONG_RANKING, _MANY_PAIRS = 16, 8  # members of a group


def _judges(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, AnyJudge]]:
    for path, judging, judge in judges_of(env) if env.judging else ():
        yield f"envs.{env.name}.{path}", judging, judge


def _rubrics(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, JudgePlan]]:
    for path, judging, judge in rubrics_of(env) if env.judging else ():
        yield f"envs.{env.name}.{path}", judging, judge


@rule_on_envs()
def _verdicts_are_sound(view: StageView, env: EnvPlan) -> None:
    for path, judging, judge in _rubrics(env):
        if judge.low is None or judge.high is None:
            message = "`scale` is two numbers: the worst score and the best"
            view.error("RL0760", f"{path}.low", message, "for example `scale = [1, 10]`")
        elif judge.low >= judge.high:
            message = f"the worst score, {judge.low:g}, is not below the best, {judge.high:g}"
            advice = f"write `scale = [{judge.high:g}, {judge.low:g}]`"
            view.error("RL0760", f"{path}.low", message, advice if judge.low > judge.high else None)
        if judge.temperature > _HOT:
            message = f"at a temperature of {judge.temperature:g} a verdict is sampled, not given"
            advice = "the noise of a reward is learnt from, too: lower it, for example to 0"
            view.warning("RL0764", f"{path}.temperature", message, advice)
        if judge.prompt is not None and judging.by != "score":
            message = f"`prompt` asks about one reply, and `{judging.name}()` shows several"
            advice = "leave it out here; what matters to the judge can stand in its rubric"
            view.error("RL0766", f"{path}.prompt", message, advice)


@rule_on_envs()
def _others_to_compare_with(view: StageView, env: EnvPlan) -> None:
    for path, judging, judge in _judges(env):
        asked = isinstance(judge, JudgePlan)
        size, of = env.rollouts.group, path.rpartition(".judges.")[0]
        if judging.by == "score" or size is None:
            continue
        if size == 1:
            message = f"`{judging.name}()` compares the members of a group, and there is one"
            advice = "play each task more often, or use `judged()`, which scores each alone"
            view.error("RL0763", of, message, advice)
        elif asked and judging.by == "pairwise" and size > _MANY_PAIRS:
            message = f"{size} members are {size * (size - 1)} questions for each task"
            advice = "`by = ranking` asks one, or take smaller groups"
            view.warning("RL0771", of, message, advice)
        elif asked and judging.by == "ranking" and size > _LONG_RANKING:
            message = f"a ranking of {size} replies is more than most models keep apart"
            advice = "take smaller groups, or `judged()`, which scores each alone"
            view.warning("RL0771", of, message, advice)


@rule_on_envs("model")
def _judge_can_be_queried(view: StageView, env: EnvPlan) -> None:
    for path, judging, judge in _rubrics(env):
        state = None if isinstance(judge.model, EndpointPlan) else judge.model
        context = judge.model.context if isinstance(judge.model, EndpointPlan) else None
        context = state.model.context if state is not None else context
        # A model that is declared for judging may have the same base.
        if state is not None and state.after is None and state.model.name == view.model.name:
            message = f"`{judge.name}` is judged by `{view.model.name}`, which is trained here"
            advice = "it is asked as it was before training, and prefers what it would say itself; "
            advice += "use another model, or declare one for it"
            view.warning("RL0762", f"{path}.model", message, advice)
        if context is None:
            continue
        if judge.max_tokens >= context:
            message = f"an answer of {judge.max_tokens:,} tokens leaves no room in {context:,}"
            view.error("RL0765", f"{path}.max_tokens", message, "lower max_tokens")
            continue
        if None in (env.rollouts.max_tokens, env.rollouts.group):  # what decides it was not read
            continue
        from rlc.pricing import question_tokens

        located = evolve(judge, rubric=_rubric(view, judge))
        sampling, size = view.parts.get("sampling"), env.rollouts.group
        longest = question_tokens(view.model, sampling, env, judging, located, size, "high")
        if longest + judge.max_tokens > context:
            most = f"up to {longest:,.0f}" if math.isfinite(longest) else "any number of"
            message = (
                f"a question of {most} tokens with an answer of {judge.max_tokens:,} "
                f"may outgrow the judge's context of {context:,}"
            )
            advice = "shorten replies or groups, lower max_tokens, or use another judge"
            view.warning("RL0765", f"{path}.max_tokens", message, advice)


def _rubric(view: StageView, judge: JudgePlan) -> str:
    """Return the rubric of a judge, or the path of its file."""
    return view.located(judge.rubric) if is_text_file(judge.rubric) else judge.rubric


@rule_on_envs()
def _rubrics_can_be_used(view: StageView, env: EnvPlan) -> None:
    for path, _, judge in _rubrics(env):
        from rlc.check.rules.rows import labels
        from rlc.data import DataError, FieldError, read_rubric

        text = _rubric(view, judge)
        try:
            rubric = read_rubric(text)
        except DataError as error:
            # Another rule says that a file is not there.
            if not is_text_file(judge.rubric) or (view.reader is not None and os.path.isfile(text)):
                shown = labels(error.place, judge.rubric)
                view.error("RL0761", f"{path}.rubric", error.what, error.hint, *shown)
            continue
        at = f"{path}.{'rubric' if judge.criteria is None else 'criteria'}"
        if not rubric.fields and judge.criteria is None:
            continue
        if not source_traits(env.source).graded:
            message = f"`{env.name}` has no rows to take criteria from"
            advice = "`rows(…)` and `problems(…)` have rows; a rubric can have a list of criteria"
            view.error("RL0767", at, message, advice)
            continue
        from rlc.check.rules.tasks import own_rows

        rows = own_rows(view, env) if view.reader is not None else None
        if rows is None or not os.path.isfile(view.located(rows.file)):  # another rule says so
            continue
        for row in rows.read().rows:
            try:
                rubric.of_row(row.fields, judge.criteria)
            except DataError as error:
                wrong = error.field if isinstance(error, FieldError) else ""
                likely = closest(wrong, [*map(str, row.fields)])
                meant = f"did you mean `{likely[0]}`?" if likely else error.hint
                view.error("RL0767", at, error.what, meant, *labels(row.place, rows.file))
                break


@rule_on_envs()
def _verdicts_can_be_read(view: StageView, env: EnvPlan) -> None:
    """Read the shortest answer back that has a verdict, and the form that a template asks for."""
    for path, judging, judge in _rubrics(env):
        from rlc.data import (
            DataError,
            judge_question,
            question_fault,
            read_rubric,
            read_scores,
            read_template,
            rubric_text,
            shortest_verdict,
        )
        from rlc.pricing import text_tokens

        if judge.low is None or judge.high is None or judge.low >= judge.high:
            continue  # another rule says so
        try:
            rubric = read_rubric(_rubric(view, judge))
        except DataError:  # another rule says so
            continue
        names = [one.name for one in rubric.criteria if judging.by == "score"]
        least = shortest_verdict(judging.by, names, judge.high, env.rollouts.group or 2)
        asked = judge.model if isinstance(judge.model, EndpointPlan) else judge.model.model
        if judging.by == "score" and not read_scores(least, names, judge.low, judge.high):
            message = f"a score of {judge.high:g} is not read: it has too many digits"
            view.error("RL0760", f"{path}.high", message, "for example `scale = [1, 10]`")
        elif (needed := text_tokens(least, asked, "low")) > judge.max_tokens:
            message = f"no verdict fits: `{least}` alone has about {needed:,} tokens"
            advice = "raise `max_tokens`; most judges first say why, in a few sentences"
            view.error("RL0765", f"{path}.max_tokens", message, advice)
        taught = not isinstance(judge.model, EndpointPlan) and judge.model.after is not None
        if judging.by != "score" or judge.criteria is not None or taught:
            continue
        code, place, name = "RL0761", "rubric", f"the question of `{judge.name}`"
        try:
            if judge.prompt is None:
                question = judge_question(judge, "score", "", [""], rubric)
            else:
                code, place, name = "RL0516", "prompt", f'"{judge.prompt}"'
                render = read_template(view.located(judge.prompt), JUDGE_PROMPT)
                question = render(task="", reply="", rubric=rubric_text(rubric))
        except Exception:  # of a template that another rule is about
            continue
        if (fault := question_fault(question, names, judge.low, judge.high)) is not None:
            advice = f"an answer ends, for example, with `{least}`"
            view.warning(code, f"{path}.{place}", f"{name} {fault}", advice)


@rule_on_envs()
def _functions_compare_pairs(view: StageView, env: EnvPlan) -> None:
    for path, judging, judge in comparers_of(env):
        if judging.by == "pairwise":
            continue
        wants, advice = "wants a ranking", "write `by = pairwise`"
        if judging.by == "score":
            wants = "shows it one"
            advice = "use `compared(…, by = pairwise)`, or `grade_with()` for a reward of one reply"
        message = f"`{judge.name}` says which of two replies is better, and `{judging.name}()` "
        view.error("RL0826", f"envs.{env.name}.{path}.function", message + wants, advice)


@rule_on_envs()
def _judges_have_their_place(view: StageView, env: EnvPlan) -> None:
    game = with_role(env, "game")
    for path, judging, _ in _judges(env) if game or env.play else ():
        message = f"`{judging.name}()` judges the episodes of one player, and a match has several"
        advice = "remove it: a game rewards its seats, and may have one of your own that judges"
        if game is not None:
            message = f"`{game.name}()` has a judge of its own, who is trained"
            advice = f"remove `{judging.name}()`, or the game"
        view.error("RL0768", path.rpartition(".judges.")[0], message, advice)
    # A judge has a metric of its name.
    taken = {part.name: "a grader" for part in env.graders}
    if finds_answers(env):
        taken[FORMAT] = "the metric of whether a reply has an answer"
    for path, _, judge in _judges(env):
        if judge.name in taken:
            message = f"`{judge.name}` is also {taken[judge.name]} of `{env.name}`"
            advice = f"give the judge another name: `judged({{ other = {judge.name} }})`"
            view.error("RL0769", path, message, advice)
        taken[judge.name] = "another judge"


@rule_on_envs("model", "advantage", "batch")
def _compared_within_a_prompt(view: StageView, env: EnvPlan) -> None:
    """An implicit reward has an unknown offset for each prompt, which a baseline takes off."""
    if any(over in IN_TASK for _, over, _ in view.compared()):
        return
    for path, judging, judge in reward_models_of(env):
        if judging.by == "score" and judge.weight:
            message = f"`{judge.name}` says which reply to a prompt is better, not to which prompt"
            advice = (
                "subtract the mean of the replies to the same prompt, as `grpo()` does, or take "
                "`compared()`"
            )
            label = Label(view.at("advantage"), "this compares the replies to different prompts")
            view.warning("RL0778", f"envs.{env.name}.{path}", message, advice, label)


_PEEK = 65_536  # bytes of a file that are searched


@rule_on_envs()
def _reward_bounds(view: StageView, env: EnvPlan) -> None:
    low, high, path = env.reward.low, env.reward.high, f"envs.{env.name}.reward"
    if high is None:
        return
    if low is not None and low > high:
        message = f"low = {low:g} is more than high = {high:g}"
        view.error("RL0202", f"{path}.low", message, "swap them")
    if low == high and view.parts.get("kl") is None and not view.parts.get("teacher"):
        message = f"the reward of `{env.name}` is {low:g} for every reply"
        advice = "fine for a control run; otherwise nothing can be learned: remove one limit"
        view.warning("RL0430", f"{path}.high", message, advice)
    counts = [f"`{metric.name}()`" for metric in view.parts.get("metrics", ()) if metric.k]
    if (curriculum := with_role(env, "curriculum")) is not None:
        counts.append(f"`{curriculum.name}()`")
    if counts and high < SOLVED:
        message = f"rewards of `{env.name}` end at {high:g}, and {counts[0]} counts those of 1"
        advice = "every task would be called unsolved: raise `high`, or leave it out"
        view.warning("RL0444", f"envs.{env.name}.reward.high", message, advice)


@rule_on_envs("data")
def _demonstrations_are_good_enough(view: StageView, env: EnvPlan) -> None:
    high, least = env.reward.high, getattr(view.data, "min_reward", None)
    if (keep := getattr(view.data, "keep", None)) is not None:
        least = SOLVED if keep.kind == "solved" else keep.reward
    if high is not None and least is not None and least > high:
        message = f"no episode of `{env.name}` has a reward of {least:g}: they end at {high:g}"
        advice = (
            f"at most `keep = at_least({high:g})`" if keep else f"at most `min_reward = {high:g}`"
        )
        view.error("RL0444", "data.keep" if keep else "data.min_reward", message, advice)


@rule_on_envs("model")
def _answer_is_asked_for(view: StageView, env: EnvPlan) -> None:
    """What was imitated before may ask for the marks of an answer, too."""
    marks = env_facts(env).marks
    imitates = any("data" in stage.parts for stage in view.before) or "data" in view.parts
    if not marks or imitates or view.model.weights is not None or env.agent is not None:
        return  # an agent may ask for it
    if _asks(view, env, marks):
        return
    mark = marks[0].replace("\\", "\\\\")  # as a recipe writes it
    source = find_builtin("env", env.source)
    template = with_role(env, "template")
    if source is not None and any(param.name == "suffix" for param in source.params):
        path, how = f"envs.{env.name}.id", f'suffix = " Put your answer in {mark}."'
    elif template is None:
        path, how = f"envs.{env.name}.id", f'chat(instruction = "Put your answer in {mark}.")'
    else:
        path = f"envs.{env.name}.wrappers.{template.name}"
        model = find_model(view.model.base)
        asking = [n for n, known in TEMPLATES.items() if known.asks and model and model.chatml]
        how = f"template({asking[-1]})" if asking else "a template of your own that asks for it"
    message = (
        f"the reward of `{env.name}` is for what stands in `{marks[0]}`, which nothing asks for"
    )
    view.warning("RL0429", path, message, f"say it to the model: `{how}`")


def _asks(view: StageView, env: EnvPlan, marks: tuple[str, ...]) -> bool:
    asked = set[str]()
    texts = [value for value in env.args.values() if isinstance(value, str)]
    for wrapper in env.wrappers:
        traits = wrapper_traits(wrapper.name)
        if traits.prompt is None or wrapper.args[traits.prompt] is None:
            asked.update(traits.asks)
        texts += [value for value in wrapper.args.values() if isinstance(value, str)]
        if traits.role == "template" and (known := TEMPLATES.get(wrapper.args["name"])):
            asked.update(known.asks)
    for _, path in files_of(env):
        try:
            with open(view.located(path), "rb") as file:
                beginning = file.read(_PEEK)
        except OSError:  # a rule of its own
            return True
        if b"\0" in beginning:  # not a text: it may ask for anything
            return True
        texts.append(beginning.decode("utf-8", "replace"))
    words = [mark.strip("\\{}") for mark in marks]
    return not asked.isdisjoint(marks) or any(word in text for word in words for text in texts)


@rule("on_error")
def _failing_does_not_pay(view: StageView) -> None:
    penalty = view.on_error.penalty
    if penalty is not None and penalty > 0:
        message = f"a rollout that fails is rewarded with {penalty:g}"
        advice = "a model learns to make it fail; take what a wrong answer gets, such as 0"
        view.warning("RL0442", "on_error.penalty", message, advice)
