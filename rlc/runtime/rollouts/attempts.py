"""One attempt at an episode, and what whoever plays it asks of the player."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, field

from rlc.chat import Action, EnvError, Observation, calls_of
from rlc.data import TaskFacts
from rlc.envs import Deadline
from rlc.plan import RolloutsPlan, SamplingPlan
from rlc.runtime.records import RunError, Turn
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.rollouts.tokens import TOKEN, EpisodeTokens
from rlc.runtime.scores import first_of
from rlc.service import pending_call

if TYPE_CHECKING:
    from tinker import types

T = TypeVar("T")


@define(eq=False)
class Attempt:
    """One attempt at one member's episode: what was played, however it ends."""

    task: Task
    member: int
    seed: int
    seconds: dict[str, float]
    turns: list[Turn] = field(factory=list)
    digest: str = ""  # of the first observation, once the episode is over
    about: TaskFacts | None = None  # the task, once it is open
    begun: bool = False  # from then on it closes its episode itself
    unplayed: Observation | None = None  # how an episode ended in which it had no turn

    def add_span(self, kind: str, spent: Deadline) -> None:
        """Add a span; the time it waited for a free place, if any, has an entry of its own."""
        self.seconds[kind] += spent.worked
        if spent.waited:
            self.seconds["waiting"] = self.seconds.get("waiting", 0.0) + spent.waited


def sampled_turn(sampled: types.SampledSequence, action: Action, topk: int, **more: Any) -> Turn:
    """Return a sampled reply, which was read as an action, as a turn with ``more``; ``topk``
    tokens are kept in the place of each. Raise RunError if it has no logprobs."""
    if sampled.logprobs is None:
        raise RunError("the service returned no logprobs for a sampled sequence")
    return Turn(
        tokens=array(TOKEN, sampled.tokens),
        logprobs=array("d", sampled.logprobs),
        action=action.text,
        stop_reason=sampled.stop_reason,
        calls=tuple(calls_of(action.message or {})),
        sequence_id=sampled.sequence_id,
        topk=first_of(sampled.topk_logprobs_np, topk),
        **more,
    )


class Replies(Protocol):
    """What gives replies: the player."""

    @property
    def sampling(self) -> SamplingPlan: ...

    @property
    def topk(self) -> int:
        """How many of the most likely tokens come with each reply, in the place of each token."""

    def limit_reached(
        self, tokens: EpisodeTokens, prompt: list[int], rollouts: RolloutsPlan
    ) -> tuple[str, str] | None:
        """Return the limit that another reply could exceed: how the episode ends, and in words."""

    async def sample(
        self,
        attempt: Attempt,
        prompt: types.ModelInput,
        count: int,
        params: types.SamplingParams,
        **more: Any,
    ) -> types.SampleResponse:
        """Ask the service for replies, and count what they take."""


async def call_environment(call: Awaitable[T], holds: bool = True) -> T:
    """Return the result of code that is not rlc's own.

    If it exits the program, or raises what looks like our own cancellation, only this call fails.
    With ``holds`` the service waits for the call before it answers the next wave of requests; not
    so in a game, where the call may itself wait for replies to other members.
    """
    try:
        with pending_call() if holds else nullcontext():
            return await call
    except SystemExit as error:
        raise EnvError("the environment raised SystemExit") from error
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is None or ours.cancelling():
            raise
        raise EnvError("the environment raised CancelledError") from error
