"""Groups that an OpenReward environment scores as a whole (`score_group`, in the SDK from 0.1.157).

The score of a member is added to what its own session gave, with its last turn. Members that failed
or were cut off are not scored. A member that is done ends its session at once, to free the slot for
those that still play; the group is scored in a session of its own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.chat import Action, Observation, calls_of, rendered
from rlc.envs.base import AsyncEpisode
from rlc.envs.group_rewards import GroupRewards
from rlc.envs.openreward.client import sdk
from rlc.envs.openreward.episode import OpenSession

SCORE = "group_score"  # the metric


ScoredGroup = GroupRewards[list[Any], float]  # by what was said


def scored_group(
    target: str, size: int, begin: Callable[[], Awaitable[OpenSession]]
) -> ScoredGroup:
    """Return the rewards of a group; ``begin`` begins a session of its task."""

    async def scores(said: Sequence[list[Any]]) -> list[float]:
        session = await begin()
        try:
            return [float(score.reward) for score in await session.scored(said)]
        finally:
            await session.close()

    return GroupRewards(target, size, scores)


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
    """Messages of plain data as the SDK's, in which a user says the results of tools."""
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
    """The arguments of a call; those that cannot be parsed as they are."""
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
