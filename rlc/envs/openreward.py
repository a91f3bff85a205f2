"""The environment ``openreward()``: tasks of an OpenReward server, played in its sessions.

    reply                                     what happens
    tool calls                                made in order; their results are the next messages
    calls that cannot be parsed or are wrong  the model is shown why, and continues
    plain text, with a terminal tool          the text goes to the tool, which ends the episode
    plain text, without a terminal tool       the episode is truncated

The reward of a turn is the sum over its calls; None if no call gave any. Metrics count from the
start of the episode: ``tool_calls``, ``tool_errors`` (calls that were refused) and ``parse_errors``
(replies with a call that could not be parsed).

An environment may score whole groups (`score_group`, in the SDK from 0.1.157). The score of a
member is added to its last reward. Members that failed or were cut off are not scored. A member
that is done ends its session at once, to free the slot; the group is scored in one of its own.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from difflib import get_close_matches
from math import fsum
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.chat import (
    Action,
    ContractError,
    EnvError,
    Observation,
    calls_of,
    conversation,
    readable,
    rendered,
    text_of,
    unread_calls,
)
from rlc.data import ListedProblems
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.group_rewards import GroupRewards, require_whole
from rlc.envs.openreward_client import KEY, Connection, ServerAddress, end_session, sdk
from rlc.plan import EnvPlan

Plain = dict[str, Any]


@frozen
class OpenSession:
    """A session that has begun. ``held`` ends it and frees its slot when it is closed."""

    connection: Connection
    session: Any
    held: AsyncExitStack

    async def opening(self, allowed: Sequence[str]) -> Observation:
        """Return the first observation. ``allowed`` names the tools to show; empty: all."""
        messages = await self.connection.call(lambda: self.session.get_messages(format=None))
        tools = await self.connection.call(self.session.list_tools)
        shown = list[Plain]()
        for tool in tools:
            if not allowed or tool.name in allowed:
                schema = sdk().sanitize_tool_schema(tool.input_schema, "openai")
                parameters = schema or {"type": "object", "properties": {}}
                about = {"description": tool.description, "parameters": parameters}
                shown.append({"name": tool.name, **about})
        return conversation([plain for message in messages for plain in _message(message)], shown)

    async def call(self, name: str, arguments: str) -> Any:
        """Return the output of a tool. Raise the SDK's ToolCallError for a call that is wrong."""
        try:
            given = json.loads(arguments)
        except ValueError as error:
            raise _wrong("bad_input_shape", f"the arguments are not JSON: {error}") from error
        return await self._output(lambda: self.session.call_tool(name, given))

    async def say(self, text: str) -> Any:
        """Return the output of the terminal tool; None if there is none."""
        if not await self.connection.call(self.session.is_assistant_message_final):
            return None
        return await self._output(lambda: self.session.call_terminal_tool(text))

    async def close(self) -> None:
        await self.held.aclose()

    async def _output(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Return the output of a call. The SDK's refusal of one is an answer, and not repeated."""
        refusal = sdk().api.errors.ToolCallError

        async def answered() -> Any:
            try:
                return await call()
            except refusal as error:
                return error

        output = await self.connection.call(answered)
        if isinstance(output, refusal):
            raise output
        return output


@define(eq=False)
class OpenRewardEpisode:
    """An :class:`rlc.envs.base.AsyncEpisode`, whose session begins with its first action."""

    first: Observation
    begin: Callable[[], Awaitable[OpenSession]]
    allowed: Sequence[str]
    _session: OpenSession | None = None
    _counts: Counter[str] = field(factory=Counter, init=False)

    async def play(self, action: Action) -> Observation:
        if self._session is None:
            self._session = await self.begin()
        reply: Mapping[str, Any] = action.message or {"content": action.text}
        unread, calls = unread_calls(reply), list(calls_of(reply))
        self._counts["parse_errors"] += bool(unread)
        if not calls and not unread:
            output = await self._session.say(text_of(reply))
            if output is None:
                return Observation("", None, True, self._metrics(), truncated=True)
            said = text_of({"content": _content(output.blocks)})
            return Observation(said, output.reward, True, self._metrics())
        messages, rewards, done = list[Plain](), list[float](), False
        for call in calls:
            message, reward, done = await self._call(*call)
            messages.append(message)
            if reward is not None:
                rewards.append(reward)
            if done:
                break
        messages += unread
        total = fsum(rewards) if rewards else None
        return Observation(readable(messages), total, done, self._metrics(), tuple(messages))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _call(
        self, call_id: str, name: str, arguments: str
    ) -> tuple[Plain, float | None, bool]:
        """Return the message of a call's result, its reward, and whether it ends the episode."""
        assert self._session is not None
        self._counts["tool_calls"] += 1
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        refusal = sdk().api.errors.ToolCallError
        try:
            if self.allowed and name not in self.allowed:
                raise _wrong("not_found", f"there is no tool {name!r}")
            output = await self._session.call(name, arguments)
        except refusal as error:
            self._counts["tool_errors"] += 1
            said = f"Error ({error.reason}): {error.detail}"
            return {**message, "content": said}, None, error.reason == "episode_finished"
        return {**message, "content": _content(output.blocks)}, output.reward, output.finished

    def _metrics(self) -> dict[str, float]:
        kinds = ("tool_calls", "tool_errors", "parse_errors")
        return {kind: float(self._counts[kind]) for kind in kinds}


def _message(message: Any) -> Iterator[Plain]:
    """Yield a turn of the SDK as messages of plain data, with one for each result of a tool. Raise
    EnvError for a block that is neither text nor an image."""
    by_type: dict[str, list[Any]] = {}
    for block in message.blocks:
        by_type.setdefault(block.type, []).append(block)
    for block in by_type.get("tool_result", ()):
        content = _content(block.blocks)
        yield {"role": "tool", "tool_call_id": block.tool_call_id, "name": "", "content": content}
    rest = [block for block in message.blocks if block.type in ("text", "image")]
    calls = by_type.get("tool_call", ())
    if not rest and not calls and "tool_result" in by_type:
        return
    content = _content(rest)
    plain: Plain = {"role": message.role, "content": content}
    if thinking := [block.text for block in by_type.get("reasoning", ())]:
        thought = [{"type": "thinking", "thinking": text} for text in thinking]
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        plain["content"] = [*thought, *said]
    if calls:
        plain["tool_calls"] = [
            {
                "type": "function",
                "id": call.id,
                "function": {"name": call.name, "arguments": json.dumps(dict(call.input))},
            }
            for call in calls
        ]
    yield plain


def _content(blocks: Sequence[Any]) -> str | list[Plain]:
    if all(block.type == "text" for block in blocks):
        return "\n".join(block.text for block in blocks)
    parts = list[Plain]()
    for block in blocks:
        if block.type == "text":
            parts.append({"type": "text", "text": block.text})
        elif block.type == "image":
            image = f"data:{block.mimeType};base64,{block.data}"
            parts.append({"type": "image", "image": image})
        else:
            raise EnvError(f"the environment shows a block of the type {block.type}")
    return parts


def _wrong(reason: str, detail: str) -> Exception:
    error: Exception = sdk().api.errors.ToolCallError(reason, detail)
    return error


SCORE = "group_score"  # the metric


ScoredGroup = GroupRewards[list[Any], float]  # by what was said


@define(eq=False)
class ScoredEpisode:
    """An episode whose group is scored. See :class:`rlc.envs.base.AsyncEpisode`."""

    episode: AsyncEpisode
    group: ScoredGroup
    member: int
    _said: list[Mapping[str, Any]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._said = list(self.first.messages)

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        """Play one turn; the last one waits until no other member is playing."""
        seen = await self.episode.play(action)
        said = action.message or {"content": action.text}
        self._said += [{**said, "role": "assistant"}, *seen.messages]
        if not seen.done:
            return seen
        await self.episode.close()
        score = await self.group.finish(self.member, transcript(self._said))
        metrics = {**seen.metrics, SCORE: score}
        return evolve(seen, reward=(seen.reward or 0.0) + score, metrics=metrics)

    async def close(self) -> None:
        self.group.close(self.member)
        await self.episode.close()


def transcript(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return messages of plain data as the SDK's, in which users say the results of tools."""
    types = sdk().api.environments.types
    said = []
    for message in messages:
        content, role = message.get("content") or [], message["role"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = [_block(types, part) for part in parts]
        if role == "tool":
            role, blocks = "user", [types.ToolResultBlock(message["tool_call_id"], blocks)]
        else:
            for id_, tool, arguments in calls_of(rendered(message)):
                blocks.append(types.ToolCallBlock(id_, tool, _parsed(arguments)))
        if blocks:
            said.append(types.Message(role, blocks))
    return said


def _parsed(arguments: str) -> dict[str, Any]:
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    return given if isinstance(given, dict) else {"arguments": arguments}


def _block(types: Any, part: Mapping[str, Any]) -> Any:
    if part["type"] == "thinking":
        return types.ReasoningBlock(part["thinking"])
    if part["type"] == "image":
        kind, _, data = part["image"].removeprefix("data:").partition(";base64,")
        return types.ImageBlock(data, kind)
    return types.TextBlock(part["text"])


@define(eq=False)
class OpenRewardSource:
    """An :class:`rlc.envs.base.AsyncSource` of a split. Every member has a session of its own, and
    at most ``sessions`` are open. A group is opened with one; the others begin with their members'
    first moves. If groups are scored, each member's last turn waits for the others'."""

    id: str
    args: Mapping[str, Any]
    _connection: Connection = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _tasks: ListedProblems[int] | None = field(default=None, init=False)
    _scores: bool = field(default=False, init=False)  # whole groups; known with the tasks
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        if importlib.util.find_spec("openreward") is None:
            raise EnvError("OpenReward is not installed: pip install 'rlc[openreward]'")
        self._connection = Connection(ServerAddress.of(self.id, self.args))
        self._slots = asyncio.Semaphore(self.args["sessions"])

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Raise EnvError if a session does not begin, or begins with what cannot be shown."""
        index = await self._index(task)
        if self._scores:
            require_whole(self.id, members, task.size)
        tools = self.args["tools"]
        session, first = await self._begin_with_opening(index)

        async def another() -> OpenSession:
            """Begin the session of another member, which must begin like the first."""
            other, opening = await self._begin_with_opening(index)
            if opening != first:
                await other.close()
                raise ContractError(
                    f"task {index} of `{self.id}` begins differently in each session, so "
                    "there is no group to compare"
                )
            return other

        episodes: list[AsyncEpisode] = [
            OpenRewardEpisode(first, another, tools, session if at == 0 else None)
            for at in range(len(members))
        ]
        if not self._scores:
            return episodes

        async def scores(said: Sequence[list[Any]]) -> list[float]:
            scoring = await self._begin(index)
            try:
                session = scoring.session
                scored = await self._connection.call(lambda: session.score_group(said))
                return [float(score.reward) for score in scored]
            finally:
                await scoring.close()

        group = GroupRewards(self.id, task.size, scores)
        return [ScoredEpisode(one, group, at) for at, one in enumerate(episodes)]

    async def close(self) -> None:
        await self._connection.close()

    async def _begin_with_opening(self, index: int) -> tuple[OpenSession, Observation]:
        session = await self._begin(index)
        try:
            return session, await session.opening(self.args["tools"])
        except BaseException:
            await session.close()
            raise

    async def _begin(self, index: int) -> OpenSession:
        async with AsyncExitStack() as held:
            await held.enter_async_context(place(self._slots))
            session = await self._connection.session(self.args["split"], index)
            held.push_async_callback(end_session, session)
            return OpenSession(self._connection, session, held.pop_all())

    async def _index(self, task: TaskKey) -> int:
        async with self._listing:
            if self._tasks is None:
                count = await self._connection.count(self.args["split"])
                self._scores = await self._connection.scores_groups()
                self._tasks = task_order(count, self.args["shuffle"], self.args["samples"])
        return self._tasks.row(task.order, task.number)


def task_order(count: int, shuffle: bool, samples: int | None) -> ListedProblems[int]:
    """Return the numbers of tasks in the order of play. Raise EnvError if there are too few."""
    if not count or (samples or 0) > count:
        raise EnvError(f"the split has {count:,} tasks, and {samples or 1:,} are asked for")
    return ListedProblems(range(count), shuffle).first(samples)


def openreward_problems(envs: Sequence[EnvPlan]) -> list[str]:
    """Return a sentence for each thing that is wrong. Blocks, also within an event loop."""

    async def ask_all() -> list[str | None]:
        return await asyncio.gather(*map(_problem, envs))

    with ThreadPoolExecutor(max_workers=1) as pool:
        found = pool.submit(asyncio.run, ask_all()).result()
    return list(dict.fromkeys(filter(None, found)))


async def _problem(env: EnvPlan) -> str | None:
    """Return the first thing that is wrong with an environment, as its server says."""
    address = ServerAddress.of(env.id, env.args)
    if missing := address.missing():
        where = "in the environment or in .env, and it is not set"
        return f"`{env.name}` needs {', '.join(missing)} {where}"
    connection, split = Connection(address), env.args["split"]
    try:
        if split not in (splits := await connection.splits()):
            raise EnvError(f"it has no split {_unknown(split, splits)}")
        task_order(await connection.count(split), env.args["shuffle"], env.args["samples"])
        given = {"api_key", KEY.lower(), *(name.lower() for name in env.args["secrets"])}
        required = await connection.required_secrets()
        if missing := [name for name in required if name.lower() not in given]:
            quoted = ", ".join(f'"{name}"' for name in missing)
            raise EnvError(f"it asks for secrets: `secrets = [{quoted}]`")
        if env.args["tools"]:
            session = await connection.session(split, 0)  # an environment may have tools of a task
            try:
                names = [tool.name for tool in await connection.call(session.list_tools)]
            finally:
                await end_session(session)
            for name in env.args["tools"]:
                if name not in names:
                    raise EnvError(f"it has no tool {_unknown(name, names)}")
    except EnvError as error:
        return f"`{env.name}` cannot be played: {error}"
    finally:
        await connection.close()
    return None


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    advice = f"; did you mean `{close[0]}`?" if close else ""
    listed = ", ".join(f"`{one}`" for one in known) or "none"
    return f"`{name}`: there is {listed}{advice}"
