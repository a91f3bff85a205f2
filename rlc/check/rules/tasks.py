"""Rules on tasks: what chooses among them, and what plays them for demonstrations."""

from __future__ import annotations

import os

from rlc.catalog import (
    env_facts,
    files_of,
    find_builtin,
    have_tasks_in_common,
    names_of,
    players_of_role,
    source_traits,
    with_role,
)
from rlc.check.data.rules import LEARNT
from rlc.check.view import StageView, rule, rule_on_envs
from rlc.lang import Label
from rlc.plan import WHERE_PATHS_START, EnvPlan, hub_dataset


@rule_on_envs()
def _tasks_have_numbers(view: StageView, env: EnvPlan) -> None:
    """What remembers tasks needs to know which one it has, and how many there are."""
    curriculum = with_role(env, "curriculum")
    if curriculum is None:
        return
    path = f"envs.{env.name}.wrappers.{curriculum.name}"
    if not source_traits(env.source).numbered:
        numbered = (n for n in names_of("env") if source_traits(n).numbered)
        message = (
            f"`{curriculum.name}()` remembers tasks, and those of `{env.source}()` have no numbers"
        )
        advice = f"take it out; it works with {' and '.join(f'`{n}()`' for n in numbered)}"
        view.error("RL0320", path, message, advice)
    elif env_facts(env).uncounted and env.args["samples"] is None:
        message = (
            f"`{curriculum.name}()` remembers tasks, and it is not known how many `{env.name}` has"
        )
        advice = "give the number: `samples = 1_000` in its source"
        view.error("RL0320", path, message, advice)


@rule_on_envs("batch", "advantage")
def _tasks_are_compared(view: StageView, env: EnvPlan) -> None:
    """What judges a task by its rollouts needs several of them."""
    curriculum = with_role(env, "curriculum")
    if env.rollouts.group > 1 or not (curriculum or view.batch.resample):
        return
    place = f"envs.{env.name}.wrappers.{curriculum.name}" if curriculum else "batch.resample"
    what = f"`{curriculum.name}()`" if curriculum else "`resample`"
    label = Label(view.at(place), "compares the rollouts of a task")
    message = f"`{env.name}` plays each task once, so {what} has nothing to compare"
    advice = "play each task more often, for example `groups(16, group_size = 8)`"
    view.error("RL0308", f"envs.{env.name}.rollouts.group", message, advice, label)


@rule("data")
def _has_an_oracle(view: StageView) -> None:
    """Only some environments come with a player that knows the answers."""
    policy = getattr(view.data, "policy", None)
    for env in view.data.environments if policy == "oracle" else ():
        if env_facts(env).oracle:
            continue
        message = f"`{env.name}` has no oracle that could demonstrate it"
        view.error("RL0321", "data.env", message, "take `policy = model`")


@rule("data")
def _rows_are_there(view: StageView) -> None:
    for name in LEARNT:
        path = getattr(view.parts.get(name), "path", None)
        if path is None or hub_dataset(path) is not None:
            continue
        if not os.path.isfile(file := view.located(path)):
            view.error("RL0001", f"{name}.path", f'there is no file "{file}"', WHERE_PATHS_START)


@rule_on_envs()
def _arguments_count(view: StageView, env: EnvPlan) -> None:
    """A word that changes nothing about this environment is a mistake."""
    source = find_builtin("env", env.source)
    ignored = env_facts(env).ignores
    for param in source.params if source else ():
        if param.name in ignored and env.args[param.name] != param.default:
            message = f"`{param.name}` has no effect on `{env.id}`"
            advice = "it names a field of a file, and this set has fields of its own: take it out"
            view.error("RL0312", f"envs.{env.name}.args.{param.name}", message, advice)


@rule_on_envs("optimizer")
def _trains_on_training_tasks(view: StageView, env: EnvPlan) -> None:
    if env_facts(env).held_out:
        path = f"envs.{env.name}.args.split" if "split" in env.args else f"envs.{env.name}.id"
        message = f"`{env.name}` has tasks that are for testing, and this trains on them"
        advice = "nothing is left that would show how good the model is: train on another split"
        view.warning("RL0428", path, message, advice)


@rule_on_envs("metrics")
def _evaluates_on_other_tasks(view: StageView, env: EnvPlan) -> None:
    """What was trained on says how well it was learnt by heart."""
    if not all(view.has_file(path) for _, path in files_of(env)):
        return  # reported elsewhere
    for stage in view.before:
        for trained in stage.parts.get("envs", ()):
            if has_tasks_of(env, trained):
                label = Label(stage.origins.span, "trains on them")
                message = f"`{env.name}` has tasks that the model was trained on"
                others = [name for name in env_facts(env).splits or () if name == "test"]
                advice = "train on `split = first(90%)`, and evaluate on `split = last(10%)`"
                advice = "evaluate on `split = test`" if others else advice
                view.warning("RL0427", f"envs.{env.name}", message, advice, label)
                return


def has_tasks_of(one: EnvPlan, other: EnvPlan) -> bool:
    """Whether two environments have tasks in common, which only numbered ones can have."""
    if not source_traits(one.source).numbered or env_facts(one).endless:
        return False
    mine, its = (
        (env.source, env.id, env.args.get("variant"), env.args.get("base_url"))
        for env in (one, other)
    )
    return mine == its and have_tasks_in_common(one.args["split"], other.args["split"])


@rule_on_envs()
def _curriculum_leaves_tasks(view: StageView, env: EnvPlan) -> None:
    curriculum = with_role(env, "curriculum")
    if curriculum is None:
        return
    path, args = f"envs.{env.name}.wrappers.{curriculum.name}.args", curriculum.args
    if args["hopeless"] >= args["solved"]:
        message = "every task that was played is passed over: hopeless, or solved, or both"
        advice = "the share `hopeless` is below `solved`, for example 0% and 100%"
        view.error("RL0443", f"{path}.hopeless", message, advice)
    elif args["explore"] == 1:
        message = "all that would be passed over is played all the same"
        view.warning("RL0443", f"{path}.explore", message, "10% is enough to look again")


@rule_on_envs()
def _a_choice_to_judge(view: StageView, env: EnvPlan) -> None:
    game = with_role(env, "game")
    if game is not None and players_of_role(env) == 1:
        message = f"the judge of `{env.name}` has one answer to choose from"
        advice = "it is right whenever that is: `solvers = 2`, or leave the judge out"
        view.warning("RL0441", f"envs.{env.name}.wrappers.{game.name}", message, advice)
