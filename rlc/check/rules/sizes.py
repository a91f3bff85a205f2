"""Rules on numbers of tasks, groups, updates and steps: none is of more than there is."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.catalog import env_facts
from rlc.check.data.rules import examples_of, tasks_of
from rlc.check.view import StageView, rule, rule_on_envs
from rlc.lang import Label
from rlc.plan import EnvPlan


@rule("batch", "advantage")
def _updates_have_groups(view: StageView) -> None:
    """The members of a group stay together, so an update has at least one group."""
    batch = view.batch
    if batch.updates > batch.count:
        unit = "groups" if batch.kind == "groups" else "turns"
        message = f"{batch.count:,} {unit} cannot be split into {batch.updates} updates"
        view.error("RL0327", "batch.updates", message, f"at most `updates = {batch.count}`")


@rule_on_envs()
def _samples_exist(view: StageView, env: EnvPlan) -> None:
    samples, there = env.args.get("samples"), env_facts(env).tasks
    if samples is not None and there is not None and samples > there:
        message = f"`{env.name}` has {there:,} tasks, and not {samples:,}"
        advice = f"`samples = {there:_}`, or leave it out to have all"
        view.error("RL0327", f"envs.{env.name}.args.samples", message, advice)


@rule("batch", "envs", "advantage")
def _tasks_for_a_step(view: StageView) -> None:
    """A step that goes through all tasks more than once compares them with themselves."""
    batch = view.batch
    if batch.kind == "turns":
        if batch.parallel > batch.count:
            message = f"{batch.parallel:,} episodes are played for {batch.count:,} turns"
            advice = "each has one turn at least, so the rest is thrown away: lower `parallel`"
            view.warning("RL0439", "batch.parallel", message, advice)
        return
    for env, share in _shares(view.envs):
        tasks = tasks_of(view, env)
        if tasks is None:
            continue
        if (played := int(share * batch.count)) > tasks:
            message = f"a step plays {played:,} tasks, and `{env.name}` has {tasks:,}"
            advice = f"some are played twice in a step: at most `groups({tasks:_})`"
            view.warning("RL0327", "batch.count", message, advice)
        elif batch.resample and share == 1 and batch.count + batch.resample > tasks:
            message = f"`{env.name}` has {tasks:,} tasks, and {batch.count:,} are in the step"
            spare = tasks - batch.count
            advice = f"`resample = {spare:_}` at most" if spare else "leave `resample` out"
            view.warning("RL0327", "batch.resample", message, advice)


@rule("tasks", "envs")
def _tasks_to_evaluate(view: StageView) -> None:
    for env, share in _shares(view.envs):
        tasks, played = tasks_of(view, env), int(share * view.tasks)
        if tasks is not None and played > tasks:
            message = f"{played:,} tasks are evaluated, and `{env.name}` has {tasks:,}"
            advice = f"some would count twice; `tasks = {int(tasks / share):_}` plays each once"
            view.warning("RL0327", "tasks", message, advice)


@rule("data", "batch")
def _examples_for_a_step(view: StageView) -> None:
    count = examples_of(view)
    if count is not None and view.batch > count:
        message = f"a step takes {view.batch:,} examples, and there are {count:,}"
        view.warning("RL0327", "batch", message, f"`batch = {count:_}` is all of them at once")


@rule("envs")
def _every_part_is_played(view: StageView) -> None:
    """Tasks are drawn so that each environment comes nearest to its share."""
    parts = view.parts
    if "tasks" in parts:
        drawn, what = parts["tasks"], "tasks of this evaluation"
    elif (
        {"batch", "advantage"} <= parts.keys()
        and parts.get("steps")
        and view.batch.kind == "groups"
    ):
        drawn, what = view.batch.count * view.steps, "groups of all steps"
    else:
        return
    for env, share in _shares(view.envs):
        if share * drawn < 1 / len(view.envs):
            message = f"`{env.name}` gets none of the {drawn:,} {what}"
            advice = f"its share is 1 in {1 / share:,.0f}: give it more weight, or take it out"
            view.warning("RL0433", f"envs.{env.name}.weight", message, advice)


def _shares(envs: tuple[EnvPlan, ...]) -> Iterator[tuple[EnvPlan, float]]:
    """Each environment with its share of the tasks."""
    total = sum(env.weight for env in envs)
    return ((env, env.weight / total) for env in envs)


@rule("every", "after")
def _evaluated_on_the_way(view: StageView) -> None:
    """``every`` counts the steps of a stage, which must have so many."""
    if view.every is None or not view.before:
        return
    stage = view.before[0]
    steps = stage.parts.get("steps")
    if steps and view.every > steps and not stage.is_from_command_line("steps"):
        message = f"`{view.after}` has {steps:,} steps, so none is the {view.every:,}th"
        advice = "it is evaluated at the end in any case: lower `every`, or leave it out"
        view.warning("RL0436", "every", message, advice)


@rule("steps", "save")
def _saved_on_the_way(view: StageView) -> None:
    every = view.save.every
    if view.steps and every and every > view.steps and not view.is_from_command_line("steps"):
        message = f"there are {view.steps:,} steps, so none is the {every:,}th"
        advice = "the end is saved in any case: lower the number, or leave `save` out"
        view.warning("RL0436", "save.every", message, advice)


@rule("steps", "give_up")
def _gives_up_in_time(view: StageView) -> None:
    limit = view.give_up
    if limit is None or not view.steps or not view.is_written("give_up"):
        return
    if limit.steps > view.steps and not view.is_from_command_line("steps"):
        label = Label(view.at("steps"), f"ends after {view.steps:,}")
        message = f"{limit.steps:,} failed steps in a row never come together"
        view.warning("RL0436", "give_up.steps", message, "lower it, or leave it out", label)


@rule("steps", "overlap")
def _lags_within_the_run(view: StageView) -> None:
    stale = view.overlap.max_staleness
    if view.steps and stale >= view.steps > 1 and not view.is_from_command_line("steps"):
        message = f"weights are never {stale} steps old in a stage of {view.steps:,}"
        advice = "all of it could be played with the first weights: lower `max_staleness`"
        view.warning("RL0436", "overlap.max_staleness", message, advice)
