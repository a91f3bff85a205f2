"""Groups that an OpenReward environment scores as a whole (`score_group`, in the SDK from 0.1.157).

The score of a member comes on top of what its own session gave, with its last turn. Members that
failed or were cut off are not scored. Who is done leaves its session at once, for those who still
play; the group is scored in a session of its own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.envs.base import Action, AsyncEpisode, Observation
from rlc.envs.group_rewards import GroupRewards
from rlc.envs.openreward.client import sdk
from rlc.envs.openreward.episode import Play
from rlc.envs.tool_chat import calls_of, rendered

SCORE = "group_score"  # the metric


@define(eq=False)
class ScoredGroup:
    """One group; ``begin`` begins a session of its task."""

    target: str
    size: int
    begin: Callable[[], Awaitable[Play]]
    _said: dict[int, Sequence[Any]] = field(factory=dict, init=False)
    _open: set[int] = field(init=False)
    _group_rewards: GroupRewards[float] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._open = set(range(self.size))
        self._group_rewards = GroupRewards(self.target, self.size, self._scores)

    async def score(self, member: int, said: Sequence[Any]) -> float:
        """What the comparison gives a member that is done; ``said`` are the SDK's messages."""
        self._said[member] = said
        return await self._group_rewards.finish(member)

    def close(self, member: int) -> None:
        """A member is done with, however it ended. Safe to call twice."""
        self._group_rewards.leave(member)
        self._open.discard(member)
        if not self._open:
            self._group_rewards.close()

    async def _scores(self, members: list[int]) -> list[float]:
        play = await self.begin()
        try:
            scores = await play.scored([self._said[member] for member in members])
        finally:
            await play.close()
        return [float(score.reward) for score in scores]


@define(eq=False)
class ScoredEpisode:
    """One member's episode. See :class:`rlc.envs.base.AsyncEpisode`."""

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
        """The last turn waits until no other member is playing."""
        seen = await self.episode.play(action)
        said = action.message or {"content": action.text}
        self._said += [{**said, "role": "assistant"}, *seen.messages]
        if not seen.done:
            return seen
        await self.episode.close()
        score = await self.group.score(self.member, transcript(self._said))
        metrics = {**seen.metrics, SCORE: score}
        return evolve(seen, reward=(seen.reward or 0.0) + score, metrics=metrics)

    async def close(self) -> None:
        self.group.close(self.member)
        await self.episode.close()


def transcript(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Messages of plain data as the SDK's; the result of a tool is something a user says."""
    types = sdk().api.environments.types
    spoken = [(message, _blocks(types, message)) for message in messages]
    return [
        types.Message("user" if message["role"] == "tool" else message["role"], blocks)
        for message, blocks in spoken
        if blocks
    ]


def _blocks(types: Any, message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blocks = [_block(types, part) for part in parts]
    if message["role"] == "tool":
        return [types.ToolResultBlock(message["tool_call_id"], blocks)]
    calls = calls_of(rendered(message))
    return blocks + [types.ToolCallBlock(id_, tool, _read(given)) for id_, tool, given in calls]


def _read(arguments: str) -> dict[str, Any]:
    """The arguments of a call, of one that cannot be read too."""
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
