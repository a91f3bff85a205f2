"""Workflows of rLLM (0.3) as agents: ``agent("module:MyWorkflow", tasks = …)``.

A class is a workflow if it takes a ``rollout_engine`` and has a coroutine ``run(task, uid)``. Each
episode is a fresh object, whose engine is the policy. Its reward is the mean of the rewards of its
trajectories, which are metrics too. Where it takes a ``reward_function`` that the recipe does not
give, it is given the graders of the environment; other functions and classes that it takes are
named in ``args`` as ``module:attr``.
"""

from __future__ import annotations

import inspect
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import fmean
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from attrs import define, field, frozen

from rlc.chat import ContractError
from rlc.data import as_number, load_attribute, parameter_names, signature_of
from rlc.envs.base import PolicyClient, PolicyRequest
from rlc.plan import SOLVED

_ENGINE, _EXECUTOR, _REWARD = "rollout_engine", "executor", "reward_function"
_NAMES_CODE = ("_function", "_fn", "_cls", "_class")  # ends of names of arguments
_OF_LIBRARY = "rllm.engine.rollout.rollout_engine"


def is_workflow(found: Any) -> bool:
    """Return whether code that a recipe names is a class of workflows."""
    if not isinstance(found, type):
        return False
    run = getattr(found, "run", None)
    return inspect.iscoroutinefunction(run) and _ENGINE in parameter_names(found)


@frozen(eq=False)
class PolicyEngine:
    """A policy as an engine of rLLM: only what workflows ask it for."""

    policy: PolicyClient
    tokenizer: Any = None
    chat_parser: Any = None
    is_validation: bool = False

    async def get_model_response(
        self, messages: Sequence[Mapping[str, Any]], **settings: Any
    ) -> Any:
        """Return a reply. The recipe decides how it is sampled: of the settings, tools count."""
        tools = settings.get("tools") or ()
        reply = await self.policy.reply(PolicyRequest(messages, tools))
        message = reply.message
        made, call = _library()
        calls = [
            call(name=one["function"]["name"], arguments=json.loads(one["function"]["arguments"]))
            for one in message.get("tool_calls") or ()
        ]
        return made(
            text=message["content"],
            content=message["content"],
            reasoning=message.get("reasoning_content") or "",
            tool_calls=calls or None,
            completion_ids=[*reply.tokens],
            logprobs=[*reply.logprobs],
            completion_length=len(reply.tokens),
            finish_reason="length" if reply.cut_off else "stop",
        )


def _library() -> tuple[Any, Any]:
    """Return rLLM's classes of outputs and of calls of tools, or others with the same fields."""
    if find_spec("rllm") is None:
        return SimpleNamespace, SimpleNamespace
    tools = import_module("rllm.tools.tool_base")
    return import_module(_OF_LIBRARY).ModelOutput, tools.ToolCall


@define(eq=False)
class Workflow:
    """The workflows of a class, which reward themselves."""

    target: str
    args: Mapping[str, Any]
    made_by: Any
    _executor: ThreadPoolExecutor = field(factory=ThreadPoolExecutor, init=False)

    async def run(self, run: Any) -> dict[str, float]:
        """Run one to its end; return its reward and its metrics."""
        given = {name: self._value(name, value) for name, value in self.args.items()}
        signature = signature_of(self.made_by)
        kinds = {one.kind for one in signature.parameters.values()} if signature else set()
        if _EXECUTOR in parameter_names(self.made_by) or inspect.Parameter.VAR_KEYWORD in kinds:
            given[_EXECUTOR] = self._executor
        if run.grade is not None and _REWARD in parameter_names(self.made_by):
            given.setdefault(_REWARD, partial(_verdict, run.grade))
        workflow = self.made_by(**{_ENGINE: PolicyEngine(run.policy)}, **given)
        try:
            episode = await workflow.run(task=dict(run.task), uid=uuid4().hex)
        except Exception as error:
            if type(error).__name__ != "TerminationEvent":
                raise
            episode = None
        if episode is None:  # it has committed what it did
            episode = workflow.postprocess_episode(workflow.collect_trajectories())
        return self._outcome(episode)

    def close(self) -> None:
        self._executor.shutdown(wait=False)

    def _value(self, name: str, value: Any) -> Any:
        is_code = name.endswith(_NAMES_CODE) and isinstance(value, str) and ":" in value
        return load_attribute(value) if is_code else value

    def _outcome(self, episode: Any) -> dict[str, float]:
        rewards = defaultdict[str, list[float]](list)
        for one in getattr(episode, "trajectories", ()):
            reward = one.reward
            if reward is None:
                reward = sum(step.reward for step in one.steps)
            rewards[one.name].append(float(reward))
        if not rewards:
            what = f"`{self.target}` gave a {type(episode).__name__} without trajectories"
            raise ContractError(what, "let `run` return an `Episode` that has some")
        metrics = {str(name): as_number(value) for name, value in (episode.metrics or {}).items()}
        return {
            **{name: value for name, value in metrics.items() if value is not None},
            **{f"reward_{name}": fmean(values) for name, values in rewards.items()},
            "is_correct": float(bool(episode.is_correct)),
            "reward": fmean([value for values in rewards.values() for value in values]),
        }


def _verdict(grade: Callable[[str], float], _: Any, reply: Any) -> Any:
    """Return the reward of a reply to a task as rLLM's reward functions give it."""
    reward = grade(str(getattr(reply, "action", reply)))
    return SimpleNamespace(reward=reward, is_correct=reward >= SOLVED, metadata={})
