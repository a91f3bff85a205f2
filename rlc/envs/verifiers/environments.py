"""Environments of verifiers (0.1.14 to 0.3.1) as a source: ``verifiers("wordle")``.

The environment owns its loop: its rollout asks a client for each reply, and ours hands the question
to the runtime, so that what is trained on is what was sampled, token for token. Where the
environment goes on from the conversation so far, an episode is one sequence; where it edits what
was said, that turn is one of its own. It runs in an event loop of its own, where code that blocks
delays other episodes of its source, but nothing else.

The sampling is the recipe's: what the environment asks for (a temperature, a length) does not
count. A model that judges within a rubric is asked by the environment's own client, with its key.
Rubrics give 0 for a function that raises; here that is a failure, never a reward.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

from rlc.catalog.packages import ENVIRONMENTS, too_new
from rlc.chat import (
    EnvError,
    Observation,
    Plain,
    readable,
)
from rlc.data import ListedProblems, TaskFacts, called, explained, load_attribute
from rlc.envs.base import AsyncEpisode, PolicyClient, PolicyReply, PolicyRequest, TaskKey
from rlc.envs.group_rewards import GroupRewards, require_whole
from rlc.envs.verifiers.callback import CallbackEpisode, begin_alike
from rlc.envs.workers.threads import EventLoopThread

# Conditions by which an environment cuts an episode off, which has no end of its own by then.
_CUT_OFF = {"max_total_completion_tokens_reached", "prompt_too_long", "timeout_reached"}
ScoredGroup = GroupRewards[Any, tuple[float, dict[str, float]]]  # by the end states of members
# Errors of functions while one rollout, or one group, was scored.
_RAISED: ContextVar[list[tuple[str, Exception]]] = ContextVar("raised")
_MODEL = "policy"  # the name of the model that environments see


class VerifiersSource:
    """An :class:`rlc.envs.base.AsyncSource` of ``count`` tasks. If the rubric compares the rollouts
    of a group, each member's last turn waits for the others'."""

    def __init__(self, name: str, loader: str, args: Mapping[str, Any]) -> None:
        """``loader``: ``module:load_environment``; ``args``: those of the recipe. Raise EnvError or
        DataError if the environment cannot be made, or has no such tasks."""
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
            self._tasks = ListedProblems(range(len(self._rows)), args["shuffle"]).first(samples)
        except BaseException:
            self._loop.close()
            raise
        self.count = self._tasks.count

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        rubric = self._env.rubric
        group: ScoredGroup | None = None
        if rubric.has_group_rewards:
            require_whole(self._name, members, task.size)
            group = GroupRewards(
                self._name, task.size, lambda states: self._loop.call(score(rubric, states))
            )
        row = self._rows[self._tasks.row(task.order, task.number)]
        others = {key: row[key] for key in ("answer", "info", "task") if row.get(key)}
        about = TaskFacts(f"{self._name}:{row['example_id']}", row["example_id"], others)
        episodes = [self._episode(row, about, group, at) for at in range(len(members))]
        await begin_alike(self._name, episodes)
        return [*episodes]

    async def close(self) -> None:
        try:
            await self._loop.call(self._env._teardown())
        finally:
            self._loop.close()

    def _episode(
        self, row: Mapping[str, Any], about: TaskFacts, group: ScoredGroup | None, member: int
    ) -> CallbackEpisode[Any]:
        env = self._env

        def rollout(policy: PolicyClient) -> Coroutine[Any, Any, Any]:
            client = _client(policy)
            rollout: Coroutine[Any, Any, Any] = env.rollout(dict(row), client, _MODEL, {})
            return rollout

        async def finish(state: Any) -> Observation:
            if (failure := state.get("error")) is not None:  # kept as a part of the state
                cause = failure.__cause__ or failure
                raise EnvError(f"the rollout failed: {explained(cause)}") from failure
            if group is not None:
                reward, metrics = await group.finish(member, state)
            else:
                scoring = score(env.rubric, [state])
                ((reward, metrics),) = await self._loop.call(scoring)
            why = state.get("stop_condition")
            # A single-turn environment also stops at its last turn, which is an end of its own.
            limited = why == "max_turns_reached" and getattr(env, "max_turns", 1) != 1
            last = state.get("final_env_response") or []
            said = last if isinstance(last, str) else readable([_plain(each) for each in last])
            return Observation(said, reward, True, metrics, truncated=limited or why in _CUT_OFF)

        def left() -> None:
            if group is not None:
                group.close(member)

        return CallbackEpisode(self._name, self._loop, rollout, finish, about, left)


async def _made(name: str, loader: str, args: Mapping[str, Any]) -> Any:
    try:
        from verifiers.envs import environment
    except ImportError as error:
        import verifiers

        installed = verifiers.__version__
        advice = too_new(ENVIRONMENTS) or f"pip install '{ENVIRONMENTS}'"
        raise EnvError(
            f"`{name}` is made by `load_environment`, and verifiers {installed}, which is "
            f"installed, has no such environments: {advice}"
        ) from error
    with _MAKING, _signals_left_alone(environment):
        env = called(loader, load_attribute(loader), args)
    if not isinstance(env, environment.Environment):
        raise EnvError(f"`{loader}` gave a {type(env).__name__}, not an environment of verifiers")
    return env


_MAKING = threading.Lock()


@contextmanager
def _signals_left_alone(module: ModuleType) -> Iterator[None]:
    """Keep environments that are made from handling Ctrl-C and the end of the process."""
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


def _client(policy: PolicyClient) -> Any:
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class VerifiersClient(Client):  # type: ignore[misc]
        def setup_client(self, _: Any) -> Any:
            raise EnvError("the policy that is trained has no address")

        async def to_native_tool(self, tool: Any) -> Plain:
            return {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }

        async def to_native_prompt(self, messages: Any) -> tuple[list[Plain], dict[str, Any]]:
            return [_plain(message) for message in messages], {}

        async def get_native_response(
            self,
            prompt: Sequence[Plain],
            model: str,  # noqa: ARG002
            sampling_args: Mapping[str, Any],  # noqa: ARG002 (the recipe's count)
            tools: Sequence[Plain] | None = None,
            **_: Any,
        ) -> PolicyReply:
            return await policy.reply(PolicyRequest(prompt, tools or ()))

        async def raise_from_native_response(self, response: PolicyReply) -> None:
            """Whatever the policy says is a reply."""

        async def from_native_response(self, response: PolicyReply) -> Any:
            said = response.message
            calls = [
                ToolCall(id=call["id"], **call["function"]) for call in said.get("tool_calls", ())
            ]
            finished = "length" if response.cut_off else "tool_calls" if calls else "stop"
            message = ResponseMessage(
                content=said["content"],
                reasoning_content=said.get("reasoning_content"),
                tool_calls=calls or None,
                finish_reason=finished,
                is_truncated=response.cut_off,
            )
            return Response(id="", created=0, model=_MODEL, message=message)

        async def close(self) -> None:
            """Nothing is held."""

    return VerifiersClient(policy)


def _plain(message: Any) -> Plain:
    """Return a message of verifiers in OpenAI's form. Raise EnvError if it is not of a chat."""
    plain: Plain = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    if plain.get("role") not in ("system", "user", "assistant", "tool"):
        raise EnvError("the environment asks for completions of a text, and this trains on chats")
    calls = [
        call
        if "function" in call
        else {
            "type": "function",
            "id": call["id"],
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in plain.get("tool_calls") or ()
    ]
    known = ("role", "content", "tool_call_id")
    shown: Plain = {name: plain[name] for name in known if name in plain}
    return {**shown, "tool_calls": calls} if calls else shown


class RubricError(EnvError):
    """A function of a rubric raised, or does not exist."""

    cause = "reward"


def prepare_rubrics(env: Any, weights: Mapping[str, float]) -> None:
    """Give the functions of an environment's rubrics these weights, by name, and note what they
    raise. Raise RubricError for a name that none of them has."""
    known = dict[str, None]()
    for rubric in _rubrics(env):
        for at, function in enumerate(rubric.funcs):
            name = function.__name__
            known[name] = None
            rubric.weights[at] = float(weights.get(name, rubric.weights[at]))
            rubric.funcs[at] = _noting(function)
    for name in weights:
        if name not in known:
            listed = ", ".join(f"`{one}`" for one in known) or "none"
            raise RubricError(f"its rubric has no function `{name}`; there is {listed}")


def _rubrics(env: Any) -> Iterator[Any]:
    waiting = [env.rubric]
    for inner in getattr(env, "env_map", {}).values():
        yield from _rubrics(inner)
    while waiting:
        rubric = waiting.pop(0)
        waiting += getattr(rubric, "rubrics", ())
        yield rubric


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            _RAISED.get([]).append((function.__name__, error))
            raise

    return noting


async def score(rubric: Any, states: list[Any]) -> list[tuple[float, dict[str, float]]]:
    """Return reward and metrics of each end state. Raise RubricError if a function raised."""
    raised = list[tuple[str, Exception]]()
    _RAISED.set(raised)
    if rubric.has_group_rewards:
        await rubric.score_group(states)
    else:
        for state in states:
            await rubric.score_rollout(state)
    for state in states:
        await rubric.cleanup(state)
    if raised:
        name, error = raised[0]
        raise RubricError(f"`{name}` of its rubric raised {explained(error)}") from error
    return [
        (
            float(state["reward"]),
            {str(name): float(value) for name, value in (state["metrics"] or {}).items()},
        )
        for state in states
    ]
