"""Playing one task of an OpenReward environment: replies to tool calls, results to messages.

    reply                                     what happens
    tool calls                                made in order; their results are the next messages
    calls that cannot be parsed or are wrong  the model is shown why, and continues
    plain text, with a terminal tool          the text goes to the tool, which ends the episode
    plain text, without a terminal tool       the episode is truncated

The reward of a turn is the sum of what its calls gave; None if no call gave any. Metrics count from
the start of the episode: ``tool_calls``, ``tool_errors`` (calls that were refused) and
``parse_errors`` (replies with a call that could not be parsed).

An environment may score whole groups (`score_group`, in the SDK from 0.1.157). The score of a
member is added to what its own session gave, with its last turn. Members that failed or were cut
off are not scored. A member that is done ends its session at once, to free the slot for those that
still play; the group is scored in a session of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from math import fsum
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.chat import (
    Action,
    EnvError,
    Observation,
    calls_of,
    conversation,
    readable,
    rendered,
    text_of,
    unread_calls,
)
from rlc.envs.base import AsyncEpisode
from rlc.envs.group_rewards import GroupRewards
from rlc.envs.openreward.client import Connection, sdk

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
        shown = [_tool(tool) for tool in tools if not allowed or tool.name in allowed]
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

    async def scored(self, candidates: Sequence[Any]) -> Sequence[Any]:
        """Return the environment's score of each of these transcripts, which it compares."""
        scores: Sequence[Any] = await self.connection.call(
            lambda: self.session.score_group(candidates)
        )
        return scores

    async def close(self) -> None:
        """End the session. Safe to call twice."""
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
        """Raise EnvError for a tool or a session that fails."""
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


def _tool(tool: Any) -> Plain:
    schema = sdk().sanitize_tool_schema(tool.input_schema, "openai")
    parameters = schema or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


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
