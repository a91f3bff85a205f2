"""Rules on tasks: what chooses among them, and what plays them for demonstrations."""

from __future__ import annotations

import os

from rlc.catalog.environments import env_facts, with_role
from rlc.catalog.index import names_of, source_traits
from rlc.check.rules.base import View, rule, rule_on_envs
from rlc.lang.diagnostics import Label
from rlc.plan.environments import EnvPlan
from rlc.plan.paths import WHERE_PATHS_START


@rule_on_envs()
def _tasks_have_numbers(view: View, env: EnvPlan) -> None:
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
def _tasks_are_compared(view: View, env: EnvPlan) -> None:
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
def _has_an_oracle(view: View) -> None:
    """Only some environments come with a player that knows the answers."""
    env = view.data.env
    if env is not None and view.data.policy == "oracle" and not env_facts(env).oracle:
        message = f"`{env.name}` has no oracle that could demonstrate it"
        view.error("RL0321", "data.env", message, "take `policy = model`")


@rule("data")
def _rows_are_there(view: View) -> None:
    path = view.data.path
    if path is not None and not os.path.isfile(file := view.located(path)):
        view.error("RL0001", "data.path", f'there is no file "{file}"', WHERE_PATHS_START)
