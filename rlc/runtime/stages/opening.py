"""How each kind of training stage is opened, and what later stages need, tried before the first
one is paid for: their data is read, and each of their environments is made and reset once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from attrs import evolve

from rlc.catalog import AS_THEY_COME, UNDECIDED, source_traits
from rlc.envs import Deadline, TaskKey, build_env
from rlc.errors import Error
from rlc.plan import (
    EnvPlan,
    Likelihood,
    PolicyGradient,
    PreferenceLoss,
    StagePlan,
    Table,
    Training,
    has_rows,
)
from rlc.plan.leaves import asked_models
from rlc.runtime.concurrency import in_thread
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.player import close_all, close_envs
from rlc.runtime.stages.base import Setup, Stage
from rlc.runtime.stages.examples import make_file_examples
from rlc.runtime.stages.file_examples import read_all
from rlc.runtime.stages.from_data import open_likelihood, open_preferences
from rlc.runtime.stages.train import open_policy_gradient

OPENERS: Table[Callable[[Setup, Training], Awaitable[Stage[Any]]]] = Table(
    {
        PolicyGradient: open_policy_gradient,
        Likelihood: open_likelihood,
        PreferenceLoss: open_preferences,
    }
)


NOTICED = 1.0  # seconds, after which a note says how long this took


async def try_later_stages(
    folder: RunFolder,
    stages: Iterable[StagePlan],
    now: StagePlan,
    tokenizer: Any,
    note: Callable[[str], None],
) -> None:
    """Try the data and environments of ``stages``, which run after ``now``.

    Environments of another base model than that of ``now``, whose ``tokenizer`` is there, are tried
    if they can be made without theirs. Raise RunError, with the stage, for what cannot be used.
    """
    started, tried = time.perf_counter(), list[str]()
    made = [_bare(env) for env in now.environments]
    for stage in stages:
        known = stage.model.base == now.model.base
        try:
            files = [data for data in stage.data if has_rows(data)]
            if known:
                await make_file_examples(folder, stage, tokenizer, note)
            for data in files:
                if not known:
                    await in_thread(read_all, stage, data)
                tried.append(stage.name)
            for env in stage.environments:
                bare = _bare(env)
                if any(asked_models(env)):  # a reset may use them, which has to be paid
                    continue
                if bare in made or not (known or source_traits(env.source).prompts == "chat"):
                    continue
                made.append(bare)
                tried.append(stage.name)
                await _reset_once(env, tokenizer, stage.model.renderer)
        except Exception as error:
            what = str(error) or type(error).__name__
            hint = error.hint if isinstance(error, Error) else None
            raise RunError(f"`{stage.name}`, a later stage, cannot be run: {what}", hint) from error
    spent = time.perf_counter() - started
    if spent > NOTICED:
        listed = ", ".join(dict.fromkeys(tried))
        note(f"tried the data and environments of later stages in {spent:.0f} s: {listed}")


def _bare(env: EnvPlan) -> EnvPlan:
    """Return an environment without what does not affect its construction and reset."""
    return evolve(env, name="", weight=0.0, rollouts=UNDECIDED, reward=AS_THEY_COME)


async def _reset_once(env: EnvPlan, tokenizer: Any, renderer: str) -> None:
    """Open one episode, or a group where the environment has groups of one size only."""
    size = env.rollouts.group if source_traits(env.source).fixed_groups else 1
    playable = await in_thread(build_env, env, tokenizer, renderer)
    try:
        async with Deadline(env.rollouts.step_timeout, f"the first reset of `{env.name}`"):
            await close_all(await playable.source.open(TaskKey(0, 0, 0, size), range(size)))
    finally:
        await close_envs([playable])
