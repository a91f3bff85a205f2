"""Environments of verifiers (0.1.14 to 0.3.1) as a source: ``verifiers("wordle")``.

The environment owns its loop: its rollout asks a client for each reply, and ours hands the question
to the runtime, so that what is trained on is what was sampled, token for token. Where the
environment goes on from the conversation so far, an episode is one sequence; where it edits what
was said, that turn is one of its own.

The sampling is the recipe's: what the environment asks for (a temperature, a length) does not
count. A model that judges within a rubric is asked by the environment's own client, with its key.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from attrs import define, field

from rlc.data.about import About
from rlc.data.code.functions import called, explained, load_attribute
from rlc.data.sets.problems import Listed
from rlc.envs.base import AsyncEpisode, EnvError, Observation, PolicyClient, TaskKey
from rlc.envs.callback import CallbackEpisode, begin_alike
from rlc.envs.group_rewards import GroupRewards, require_whole
from rlc.envs.tool_chat import readable
from rlc.envs.verifiers.client import MODEL, plain_message, verifiers_client
from rlc.envs.verifiers.rubrics import compares, prepare_rubrics, score
from rlc.envs.workers.event_loop_thread import EventLoopThread

# Conditions by which an environment cuts an episode off, which has no end of its own by then.
_CUT_OFF = {"max_total_completion_tokens_reached", "prompt_too_long", "timeout_reached"}
Scored = tuple[float, dict[str, float]]


class VerifiersSource:
    """The tasks of one environment, ``count`` of them. See :class:`rlc.envs.base.AsyncSource`.

    If its rubric compares the rollouts of a group, each member's last turn waits for the others'.
    """

    def __init__(
        self,
        name: str,
        loader: str,
        args: Mapping[str, Any],
    ) -> None:
        """``loader``: what makes the environment, ``module:load_environment``; ``args``: those of
        the recipe. Raise EnvError or DataError if it cannot be made, or has no such tasks."""
        self._name = name
        self._loop = EventLoopThread()
        try:
            self._env = self._loop.run(_made(name, loader, args["args"]))
            prepare_rubrics(self._env, args["weights"])
            self._rows = _rows(self._env, name, args["split"])
            samples = args["samples"]
            if (samples or 0) > len(self._rows):
                there = f"{len(self._rows):,} tasks, and {samples:,} are asked for"
                raise EnvError(f"`{name}` has {there}")
            self._tasks = Listed(range(len(self._rows)), args["shuffle"]).first(samples)
        except BaseException:
            self._loop.close()
            raise
        self.count = self._tasks.count

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        rubric = self._env.rubric
        group = None
        if compares(rubric):
            require_whole(self._name, members, task.size)
            group = Group(
                self._name, task.size, lambda states: self._loop.call(score(rubric, states))
            )
        row = self._rows[self._tasks.row(task.order, task.number)]
        others = {key: row[key] for key in ("answer", "info", "task") if row.get(key)}
        about = About(f"{self._name}:{row['example_id']}", row["example_id"], others)
        episodes = [self._episode(row, about, group, at) for at in range(len(members))]
        await begin_alike(self._name, episodes)
        return [*episodes]

    async def close(self) -> None:
        try:
            await self._loop.call(self._env._teardown())
        finally:
            self._loop.close()

    def _episode(
        self, row: Mapping[str, Any], about: About, group: Group | None, member: int
    ) -> CallbackEpisode[Any]:
        def rollout(policy: PolicyClient) -> Coroutine[Any, Any, Any]:
            client = verifiers_client(policy)
            rollout: Coroutine[Any, Any, Any] = self._env.rollout(dict(row), client, MODEL, {})
            return rollout

        async def finish(state: Any) -> Observation:
            _require_sound(state)
            if group is not None:
                scored = await group.score(member, state)
            else:
                (scored,) = await self._loop.call(score(self._env.rubric, [state]))
            return _end(self._env, state, *scored)

        left = (lambda: None) if group is None else (lambda: group.leave(member))
        return CallbackEpisode(self._name, self._loop, rollout, finish, about, left)


@define(eq=False)
class Group:
    """The end states of a group that is scored as a whole."""

    name: str
    size: int
    score_all: Callable[[list[Any]], Awaitable[Sequence[Scored]]]
    _states: dict[int, Any] = field(factory=dict, init=False)
    _rewards: GroupRewards[Scored] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rewards = GroupRewards(
            self.name, self.size, lambda members: self.score_all([self._states[m] for m in members])
        )

    async def score(self, member: int, state: Any) -> Scored:
        self._states[member] = state
        return await self._rewards.finish(member)

    def leave(self, member: int) -> None:
        self._rewards.close(member)


async def _made(name: str, loader: str, args: Mapping[str, Any]) -> Any:
    """The environment, made in the loop in which it will run."""
    try:
        from verifiers.envs import environment
    except ImportError as error:
        import verifiers

        installed = verifiers.__version__
        raise EnvError(
            f"`{name}` is made by `load_environment`, and verifiers {installed}, which is "
            "installed, has no such environments: pip install 'verifiers<0.4'"
        ) from error
    with _MAKING, _signals_left_alone(environment):
        env = called(loader, load_attribute(loader), args)
    if not isinstance(env, environment.Environment):
        raise EnvError(f"`{loader}` gave a {type(env).__name__}, not an environment of verifiers")
    return env


_MAKING = threading.Lock()


@contextmanager
def _signals_left_alone(module: ModuleType) -> Iterator[None]:
    """While environments are made, which would take Ctrl-C over from the runtime, and tear
    themselves down when the process ends."""
    own = {name: getattr(module, name) for name in ("signal", "atexit")}
    nothing = {"signal": lambda *_: None, "register": lambda *_: None}
    for name, library in own.items():
        setattr(module, name, SimpleNamespace(**{**vars(library), **nothing}))
    try:
        yield
    finally:
        for name, library in own.items():
            setattr(module, name, library)


def _rows(env: Any, name: str, split: str) -> Sequence[Mapping[str, Any]]:
    """The tasks of a split. Raise EnvError if there are none."""
    if split == "train":
        env.build_dataset()
        rows = env.dataset
    else:  # get_eval_dataset() would give the training tasks, if there are no others
        env.build_eval_dataset()
        rows = env.eval_dataset
    if rows is None or not len(rows):
        kind, other = ("training", "test") if split == "train" else ("evaluation", "train")
        raise EnvError(f"`{name}` has no tasks for {kind}: try `split = {other}`")
    return rows  # type: ignore[no-any-return]


def _require_sound(state: Any) -> None:
    """Raise EnvError if a rollout ended with an error, which verifiers keeps as a part of it."""
    error = state.get("error")
    if error is not None:
        cause = error.__cause__ or error
        raise EnvError(f"the rollout failed: {explained(cause)}") from error


def _end(env: Any, state: Any, reward: float, metrics: Mapping[str, float]) -> Observation:
    why = state.get("stop_condition")
    # A single-turn environment also stops at its last turn, which is an end of its own.
    limited = why == "max_turns_reached" and getattr(env, "max_turns", 1) != 1
    last = state.get("final_env_response") or []
    said = last if isinstance(last, str) else readable([plain_message(each) for each in last])
    return Observation(said, reward, True, metrics, truncated=limited or why in _CUT_OFF)
