"""Tasksets of verifiers (0.4 on) as a source: ``verifiers("owner/name")``.

A task is worked on by a program of verifiers, the harness, in a runtime on this machine. It asks
the model at an address that verifiers serves, and verifiers asks a client; ours hands the question
to the runtime of rlc, so that what is trained on is what was sampled, token for token. The branches
of the trace that verifiers keeps are the sequences of the episode.

The sampling is the recipe's, and so are the numbers of turns and tokens.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from rlc.catalog.packages import TASKSETS, lacking
from rlc.chat import EnvError, Observation
from rlc.data import ListedProblems, TaskFacts, explained, load_module
from rlc.envs.base import AsyncEpisode, PolicyClient, PolicyRequest, TaskKey
from rlc.envs.verifiers.callback import CallbackEpisode, begin_alike
from rlc.envs.verifiers.environments import RubricError
from rlc.envs.workers.threads import EventLoopThread

_MODEL = "policy"  # the name of the model that programs see
_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


class TasksetSource:
    """An :class:`rlc.envs.base.AsyncSource` of ``count`` tasks."""

    def __init__(self, name: str, target: str, args: Mapping[str, Any]) -> None:
        """``target``: ``module:…``; ``args``: those of the recipe, in which those of the taskset
        are the ``env`` block of a configuration of verifiers. Raise EnvError or DataError if the
        taskset cannot be loaded, or has no such tasks."""
        if wrong := lacking(TASKSETS):
            raise EnvError(f"`{name}` is a taskset, which needs {TASKSETS} ({wrong})")
        if args["split"] != "train":
            raise EnvError(f"`{name}` has one list of tasks, and no others for evaluation")
        self._name = name
        self._loop = EventLoopThread()
        self._serving = AsyncExitStack()
        self._clients: dict[str, Any] = {}  # of the episodes that are played, by address
        try:
            self._loop.run(self._open(load_module(target).__name__, args))
        except BaseException:
            self._loop.close()
            raise
        self.count = self._order.count

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        chosen = self._tasks[self._order.row(task.order, task.number)]
        own = chosen.data.model_dump(exclude=self._usual, exclude_none=True)
        which = chosen.data.idx if chosen.data.id is None else chosen.data.id
        about = TaskFacts(f"{self._name}:{which}", which, own)
        episodes = [self._episode(chosen, about) for _ in members]
        await begin_alike(self._name, episodes)
        return [*episodes]

    async def close(self) -> None:
        try:
            await self._loop.call(self._serving.aclose())
        finally:
            self._loop.close()

    async def _open(self, module: str, args: Mapping[str, Any]) -> None:
        import verifiers.v1 as vf

        try:
            self._env = vf.load_environment(vf.resolve_env_config(_block(module, args)))
            tasks = self._env.taskset
            if args["samples"] is not None:
                tasks = tasks.take(args["samples"])
            elif not tasks.bounded:
                raise EnvError(f"`{self._name}` has tasks without end: say how many, `samples = …`")
            self._tasks = list(tasks)
        except Exception as error:  # a package may raise anything
            if isinstance(error, EnvError):
                raise
            raise EnvError(f"the taskset `{self._name}` fails: {_explained(error)}") from error
        if len(self._tasks) < (args["samples"] or 1):
            there = f"{len(self._tasks):,} tasks, and {args['samples'] or 1:,} are asked for"
            raise EnvError(f"`{self._name}` has {there}")
        self._order = ListedProblems(range(len(self._tasks)), args["shuffle"])
        self._usual = {*vf.TaskData.model_fields}
        self._require_here(vf)
        await self._serving.enter_async_context(self._env.serving())
        server = await self._serving.enter_async_context(_server(self._clients, self._env))
        self._env._interception = server

    def _require_here(self, vf: Any) -> None:
        """Raise EnvError for what is not played on this machine, or limits of tokens, and
        RubricError for weights of functions that do not exist."""
        config, task = self._env.config, self._tasks[0]
        seats = {name: one for name, one in config if isinstance(one, vf.AgentConfig)}
        if not self._env._runs_local():
            raise EnvError(f"`{self._name}` plays in a runtime elsewhere: name one that is here")
        for name, seat in seats.items():
            if given := [limit for limit in _LIMITS if getattr(seat, limit) is not None]:
                raise EnvError(f"`{given[0]}` of `{name}` is the recipe's: `rollouts(…)`")
            boxed = type(task).NEEDS_CONTAINER or task.data.image
            if boxed and seat.runtime.type == "subprocess":
                docker = f'args = {{ {name} = {{ runtime = {{ type = "docker" }} }} }}'
                raise EnvError(f"the tasks of `{self._name}` need a container", docker)
        try:
            task.hooks("reward")
        except ValueError as error:  # of a weight
            raise RubricError(f"`{self._name}`: {error}") from error

    def _episode(self, task: Any, about: TaskFacts) -> CallbackEpisode[Any]:
        def rollout(policy: PolicyClient) -> Coroutine[Any, Any, Any]:
            return self._played(task, policy)

        async def finish(episode: Any) -> Observation:
            return self._end(episode)

        return CallbackEpisode(self._name, self._loop, rollout, finish, about)

    async def _played(self, task: Any, policy: PolicyClient) -> Any:
        """Play an episode of verifiers to its end. Raise EnvError if it fails."""
        import verifiers.v1 as vf

        address = f"policy-{id(policy)}"
        self._clients[address] = _client(policy)
        try:
            client = vf.TrainClientConfig(base_url=address, api_key_var="RLC_NONE")
            episode = await self._env.run_episode(task, vf.ModelContext(_MODEL, client))
            errors = [*episode.errors, *(one for t in episode.traces for one in t.errors)]
            if errors:
                raise EnvError(f"the rollout failed: {errors[-1].type}: {errors[-1].message}")
            return episode
        finally:
            del self._clients[address]

    def _end(self, episode: Any) -> Observation:
        """Return the last observation. Raise EnvError if several programs asked the policy."""
        traces = [one for one in episode.traces if one.agent.config.client.type == "train"]
        if len(traces) != 1:
            several = f"{len(traces)} programs that ask the policy, and one is rewarded"
            raise EnvError(f"an episode of `{self._name}` has {several}")
        (trace,) = traces
        rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        metrics = {name: float(value) for name, value in trace.metrics.items() if value is not None}
        metrics |= {name: reward.score for name, reward in rewards.items()}
        why = trace.stop_condition or ""
        cut = trace.is_timeout or why.startswith("max_") or why == "compaction_failed"
        said = trace.root_reply or ""
        return Observation(said, trace.reward, True, metrics, truncated=cut)


def _block(module: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``env`` block of a configuration. Programs run on this machine unless it says
    where; and unless it, or the taskset, names one, it is the plain conversation: verifiers takes
    ``bash``, which executes what the model writes."""
    import verifiers.v1 as vf

    block = {**args["args"]}
    taskset = {**block.get("taskset", {}), "id": module}
    if weights := args["weights"]:
        task = {**taskset.get("task", {})}
        rewards = {**task.get("rewards", {}), **{n: {"weight": w} for n, w in weights.items()}}
        taskset["task"] = {**task, "rewards": rewards}
    block["taskset"] = taskset
    config = vf.env_config_type(module, block.get("id", ""))
    for name, field in config.model_fields.items():
        if not isinstance(field.default, vf.AgentConfig):
            continue
        seat, usual = {**block.get(name, {})}, field.default
        if "runtime" not in usual.model_fields_set:
            seat.setdefault("runtime", {"type": "subprocess"})
        if usual.harness is None and vf.default_harness_id(module) == "bash":
            seat.setdefault("harness", {"id": "null"})
        block[name] = seat
    return block


def _explained(error: Exception) -> str:
    """Return what is wrong, in a sentence; of a configuration, with the name of its field."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return explained(error)
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}"


def _server(clients: Mapping[str, Any], env: Any) -> Any:
    """Return the server of addresses at which programs ask these clients."""
    from verifiers.v1.interception import InterceptionServer

    class PolicyServer(InterceptionServer):  # type: ignore[misc]
        def _client(self, config: Any) -> Any:
            own = clients.get(config.base_url)
            return super()._client(config) if own is None else own

    tools = env._shared_tools.values()
    secrets = tuple(tool.state_secret for tool in tools if tool.state_secret)
    return PolicyServer(state_service_secrets=secrets)


def _client(policy: PolicyClient) -> Any:
    import verifiers.v1 as vf
    from verifiers.v1.clients.train import serialize_completion
    from verifiers.v1.dialects.chat import ChatDialect, message_to_wire

    class TasksetClient(vf.Client):  # type: ignore[misc]
        async def get_response(self, dialect: Any, body: Any, *_: Any, **__: Any) -> Any:
            if not isinstance(dialect, ChatDialect):
                what = "its program speaks another API than that of OpenAI's chats"
                raise vf.ProviderError(f"{what}, which is not played here", status_code=400)
            request = dialect.parse_request(body)
            tools = [
                {"name": t.name, "description": t.description, "parameters": t.parameters}
                for t in request.tools or ()
            ]
            messages = [message_to_wire(message) for message in request.messages]
            try:
                reply = await policy.reply(PolicyRequest(messages, tools))
            except EnvError as error:  # a program need not try again
                raise vf.ProviderError(str(error), status_code=400) from error
            said = reply.message
            calls = [
                vf.ToolCall(id=call["id"], **call["function"])
                for call in said.get("tool_calls", ())
            ]
            message = vf.AssistantMessage(
                content=said["content"] or None,
                reasoning_content=said.get("reasoning_content"),
                tool_calls=calls or None,
            )
            tokens = vf.TurnTokens(
                prompt_ids=list(reply.prompt),
                completion_ids=list(reply.tokens),
                completion_logprobs=list(reply.logprobs),
            )
            response = vf.Response(
                id="",
                created=0,
                model=_MODEL,
                message=message,
                finish_reason="length" if reply.cut_off else "tool_calls" if calls else "stop",
                usage=vf.Usage(
                    prompt_tokens=len(reply.prompt), completion_tokens=len(reply.tokens)
                ),
                tokens=tokens,
            )
            response.raw = serialize_completion(response, _MODEL)
            return response

    return TasksetClient()
