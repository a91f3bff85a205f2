"""Playing one task of an OpenReward environment: replies to tool calls, results to messages.

    reply                                    what happens
    calls of tools                           made in order; their results are the next messages
    calls that cannot be read, or are wrong  the model is told why, and goes on
    plain text, and the environment has a
    terminal tool                            the text goes to it, which ends the episode
    plain text, and it has none              the episode ends, though not by itself

The reward of a turn is the sum of what its calls gave; None where no call gave any. Metrics count
from the start of the episode: ``tool_calls``, ``tool_errors`` (calls that were refused) and
``parse_errors`` (replies with a call that could not be read).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.envs.base import Action, EnvError, Observation
from rlc.envs.openreward.client import Connection, ended, sdk
from rlc.envs.tool_chat import calls_of, readable, text_of, unread_calls

Plain = dict[str, Any]


class Slots(Protocol):
    """Free places for sessions."""

    async def acquire(self) -> Any: ...

    def release(self) -> None: ...


@define(eq=False)
class Play:
    """A session that is begun, with its opening. It holds a slot until it is closed."""

    connection: Connection
    session: Any
    slots: Slots
    _over: bool = field(default=False, init=False)

    async def opening(self, allowed: Sequence[str]) -> Observation:
        """What the task says first. ``allowed`` names the tools to show; none: all."""
        messages = await self.connection.call(lambda: self.session.get_messages(format=None))
        tools = await self.connection.call(self.session.list_tools)
        shown = [_tool(tool) for tool in tools if not allowed or tool.name in allowed]
        head, *rest = _with_head(opening_messages(messages))
        return Observation(readable(rest), messages=({**head, "tools": shown}, *rest))

    async def call(self, name: str, arguments: str) -> Any:
        """The output of a tool. Raises the SDK's ToolCallError for a call that is wrong."""
        try:
            given = json.loads(arguments)
        except ValueError as error:
            raise _wrong("bad_input_shape", f"the arguments are not JSON: {error}") from error
        return await self._made(lambda: self.session.call_tool(name, given))

    async def say(self, text: str) -> Any:
        """The output of the terminal tool; None where there is none."""
        if not await self.connection.call(self.session.is_assistant_message_final):
            return None
        return await self._made(lambda: self.session.call_terminal_tool(text))

    async def scored(self, candidates: Sequence[Any]) -> Sequence[Any]:
        """What the environment gives each of these transcripts, in comparison."""
        scores: Sequence[Any] = await self.connection.call(
            lambda: self.session.score_group(candidates)
        )
        return scores

    async def close(self) -> None:
        if not self._over:
            self._over = True
            try:
                await ended(self.session)
            finally:
                self.slots.release()

    async def _made(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The SDK's refusal of a call is an answer, not a failure."""
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
    """One member's play of a task; its session is begun with its first action.

    See :class:`rlc.envs.base.AsyncEpisode`.
    """

    first: Observation
    begin: Callable[[], Awaitable[Play]]
    allowed: Sequence[str]
    _play: Play | None = None
    _counts: Counter[str] = field(factory=Counter, init=False)

    async def play(self, action: Action) -> Observation:
        """Raises EnvError for a tool or a session that fails."""
        if self._play is None:
            self._play = await self.begin()
        reply: Mapping[str, Any] = action.message or {"content": action.text}
        unread, calls = unread_calls(reply), list(calls_of(reply))
        self._counts["parse_errors"] += bool(unread)
        if not calls and not unread:
            return self._ended(await self._play.say(text_of(reply)))
        outputs = list[_Output]()
        for call in calls:
            outputs.append(await self._call(*call))
            if outputs[-1].finished:
                break
        messages = (*(out.message for out in outputs), *map(_unread, unread))
        return self._observed(outputs, messages)

    async def close(self) -> None:
        if self._play is not None:
            await self._play.close()

    async def _call(self, call_id: str, name: str, arguments: str) -> _Output:
        assert self._play is not None
        self._counts["tool_calls"] += 1
        message = {"role": "tool", "tool_call_id": call_id, "name": name}
        refusal = sdk().api.errors.ToolCallError
        try:
            if self.allowed and name not in self.allowed:
                raise _wrong("not_found", f"there is no tool {name!r}")
            output = await self._play.call(name, arguments)
        except refusal as error:
            self._counts["tool_errors"] += 1
            said = f"Error ({error.reason}): {error.detail}"
            return _Output({**message, "content": said}, None, error.reason == "episode_finished")
        content = _content(output.blocks)
        return _Output({**message, "content": content}, output.reward, output.finished)

    def _ended(self, output: Any) -> Observation:
        if output is None:
            return Observation("", None, True, self._metrics(), truncated=True)
        said = text_of({"content": _content(output.blocks)})
        return Observation(said, output.reward, True, self._metrics())

    def _observed(
        self, outputs: Sequence[_Output], messages: tuple[Mapping[str, Any], ...]
    ) -> Observation:
        rewards = [out.reward for out in outputs if out.reward is not None]
        reward = fsum(rewards) if rewards else None
        done = any(out.finished for out in outputs)
        return Observation(readable(messages), reward, done, self._metrics(), messages)

    def _metrics(self) -> dict[str, float]:
        kinds = ("tool_calls", "tool_errors", "parse_errors")
        return {kind: float(self._counts[kind]) for kind in kinds}


@frozen
class _Output:
    message: Plain
    reward: float | None
    finished: bool


def opening_messages(messages: Sequence[Any]) -> list[Plain]:
    """The SDK's messages as plain data. Raises EnvError for what is no text and no image."""
    return [plain for message in messages for plain in _message(message)]


def _message(message: Any) -> Iterator[Plain]:
    """One turn, with each result of a tool as a message of its own."""
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
        plain["tool_calls"] = [_made_call(block) for block in calls]
    yield plain


def _made_call(block: Any) -> Plain:
    function = {"name": block.name, "arguments": json.dumps(dict(block.input))}
    return {"type": "function", "id": block.id, "function": function}


def _with_head(messages: list[Plain]) -> list[Plain]:
    if messages and messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": ""}, *messages]


def _tool(tool: Any) -> Plain:
    schema = sdk().sanitize_tool_schema(tool.input_schema, "openai")
    parameters = schema or {"type": "object", "properties": {}}
    return {"name": tool.name, "description": tool.description, "parameters": parameters}


def _content(blocks: Sequence[Any]) -> str | list[Plain]:
    """The text of blocks; text and images in turn where there are images."""
    if all(block.type == "text" for block in blocks):
        return "\n".join(block.text for block in blocks)
    return [_part(block) for block in blocks]


def _part(block: Any) -> Plain:
    if block.type == "text":
        return {"type": "text", "text": block.text}
    if block.type != "image":
        raise EnvError(f"the environment shows a block of the type {block.type}")
    return {"type": "image", "image": f"data:{block.mimeType};base64,{block.data}"}


def _unread(why: str) -> Plain:
    return {"role": "user", "content": f"Error: a tool call could not be read ({why})."}


def _wrong(reason: str, detail: str) -> Exception:
    error: Exception = sdk().api.errors.ToolCallError(reason, detail)
    return error
