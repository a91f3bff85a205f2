"""One task played by all members of a group, against a sampling client, and its credit."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attrs import define, evolve, field

from rlc.chat import (
    Action,
    ContractError,
    EnvError,
    Observation,
    PromptBuilder,
    calls_of,
    chunks_of,
    ended_reply,
    model_input,
    stop_of,
)
from rlc.data import DataError, Steps, TaskFacts, read_steps
from rlc.envs import (
    AsyncEpisode,
    Deadline,
    JoiningEpisode,
    PlayableEnv,
    Responder,
    RunningEpisode,
    all_of,
    validated,
)
from rlc.plan import FailurePlan, RolloutsPlan, SamplingPlan
from rlc.runtime.concurrency import EventLoopYield
from rlc.runtime.records import Rollout, RunError, Turn, TurnView, Usage, failure_of
from rlc.runtime.rollouts.credit import credited, unplayed_credit
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.rollouts.tokens import TOKEN, EpisodeTokens, first_of
from rlc.seeds import derive_seed
from rlc.service import SamplingClient, ServiceLostError, pending_call, sampling_params

if TYPE_CHECKING:
    from tinker import types


_T = TypeVar("_T")


@define(eq=False)
class Attempt:
    """One attempt at one member's episode, with its turns however it ends."""

    task: Task
    member: int
    seed: int
    seconds: dict[str, float]
    turns: list[Turn] = field(factory=list)
    digest: str = ""  # of the first observation, once the episode is over
    about: TaskFacts | None = None  # the task, once it is open
    begun: bool = False  # from then on it closes its episode itself
    unplayed: Observation | None = None  # the end of an episode without a turn

    def add_span(self, kind: str, spent: Deadline) -> None:
        """Add a span; its wait for a free place, if any, counts as ``waiting``."""
        self.seconds[kind] += spent.worked
        if spent.waited:
            self.seconds["waiting"] = self.seconds.get("waiting", 0.0) + spent.waited


def sampled_turn(sampled: types.SampledSequence, action: Action, topk: int, **more: Any) -> Turn:
    """Return a sampled reply as a turn with ``topk`` tokens. Raise RunError without logprobs."""
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


def fitting_steps(seen: Observation, text: str) -> Steps | None:
    """Return the process rewards of a reply. Raise ContractError if one is of none of its parts."""
    if not seen.steps:
        return seen.steps
    try:
        return read_steps(seen.steps, len(text))
    except DataError as error:
        raise ContractError(f"process rewards of a reply: {error.what}") from error


async def call_environment(call: Awaitable[_T], holds: bool = True) -> _T:
    """Return the result of code that is not rlc's own.

    If it exits the program, or raises what looks like our own cancellation, only this call fails.
    With ``holds`` the service waits for the call before it answers the next batch of requests; not
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


CLOSE_SECONDS = 10.0  # that an episode, or an environment, may take to close

_log = logging.getLogger(__name__)


class AsyncClosable(Protocol):
    async def close(self) -> None: ...


async def close_envs(envs: Iterable[PlayableEnv]) -> None:
    """Release the resources of environments, including their workers and endpoints."""
    made = [*envs]
    await close_all([*(env.source for env in made), *filter(None, (env.endpoint for env in made))])


async def close_all(things: Iterable[AsyncClosable]) -> None:
    """Close episodes or sources concurrently, even if cancelled; log those that fail to close."""

    async def close(thing: AsyncClosable) -> None:
        try:
            async with Deadline(CLOSE_SECONDS, "closing it"):
                await thing.close()
        except Exception as error:
            _log.warning("an environment did not close: %s: %s", type(error).__name__, error)

    closing = asyncio.gather(*map(close, things))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


@define
class Replies:
    """A number of replies that goes up."""

    number: int = 0


@define
class Player:
    """Plays tasks with one snapshot of the weights and counts the tokens it uses.

    ``asked`` counts the replies, those of rollouts that fail included, also where a copy plays.
    ``sampling`` is the stage's; the temperature and length of replies are each environment's.
    ``topk``: how many of the most likely tokens come with each reply, in the place of each token.
    Every episode that is opened is closed, however it ends.
    """

    client: SamplingClient
    sampling: SamplingPlan
    context: int | None
    on_error: FailurePlan
    usage: Usage
    staleness: int = 0
    pasts: Mapping[int, Responder] = field(factory=dict)  # the policy as it was, as an opponent
    topk: int = 0
    asked: Replies = field(factory=Replies)
    loop_yield: EventLoopYield = field(factory=EventLoopYield)  # which copies share

    async def play(self, task: Task) -> list[Rollout]:
        """Play all members of a task; the first reply of all comes from one request."""
        shared = {"sampling": 0.0, "environment": 0.0}
        attempts = [
            Attempt(task, member, derive_seed(task.seed, "member", member), shared)
            for member in range(task.size)
        ]
        try:
            episodes, replies = await self._open(attempts, task.seed)
        except ServiceLostError:
            raise
        except Exception as error:
            return await all_of(self._retry(attempt, error) for attempt in attempts)
        try:
            return await all_of(
                self._member(attempt, episode, reply)
                for attempt, episode, reply in zip(attempts, episodes, replies, strict=True)
            )
        finally:  # close the episodes of members that were cancelled before they began
            pairs = zip(attempts, episodes, strict=True)
            if left := [episode for attempt, episode in pairs if not attempt.begun]:
                await close_all(left)

    async def _open(
        self, attempts: Sequence[Attempt], seed: int
    ) -> tuple[list[AsyncEpisode], Sequence[types.SampledSequence | None]]:
        """Open the episodes of some members, and sample their first replies in one request.

        A reply is None in a game, where it is sampled at the member's turn. If anything is raised,
        no episode is left open.
        """
        task, members = attempts[0].task, [attempt.member for attempt in attempts]
        rollouts = task.env.plan.rollouts
        async with Deadline(rollouts.step_timeout, "opening the episode") as spent:
            episodes = await call_environment(task.env.source.open(task.key, members))
        attempts[0].add_span("environment", spent)
        try:
            if len(episodes) != len(members):
                due = f"{len(members)} episodes are due, and there are {len(episodes)}"
                raise ContractError(due)
            if any(isinstance(one, JoiningEpisode | RunningEpisode) for one in episodes):
                return episodes, [None] * len(episodes)
            await self.loop_yield.if_due()
            first, history = validated(episodes[0].first), task.env.new_history()
            for attempt in attempts:
                attempt.about = first.about
            prompt = history.observe(first)
            if limit := self.limit_reached(EpisodeTokens(), prompt, rollouts):
                raise RunError(
                    f"the first prompt of `{task.env.plan.name}` has {len(prompt)} tokens; with "
                    f"max_tokens = {rollouts.max_tokens} that is over {limit[1]}"
                )
            seed = derive_seed(seed, "open")
            async with Deadline(rollouts.turn_timeout, "a turn"):
                replies = await self._sample(attempts[0], prompt, history, len(members), seed)
            return episodes, replies
        except BaseException:
            await close_all(episodes)
            raise

    async def _member(
        self, attempt: Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> Rollout:
        attempt.seconds = dict(attempt.seconds)  # from here on a member's seconds are its own
        try:
            return await self._episode(attempt, episode, reply)
        except ServiceLostError:  # not the rollout's fault, and no other would fare better
            raise
        except Exception as error:  # environments may raise anything
            if isinstance(episode, JoiningEpisode):  # a game cannot be joined again
                return self.failed(self._rollout(attempt, "failed", ()), error)
            return await self._retry(attempt, error)

    async def _retry(self, attempt: Attempt, error: Exception) -> Rollout:
        """Play a failed member again, from the same state, as often as the plan allows."""
        task, member, seconds = attempt.task, attempt.member, dict(attempt.seconds)
        errors = list[str]()
        for number in range(1, self.on_error.retries + 1):
            seed = derive_seed(task.seed, "member", member, "attempt", number)
            attempt = Attempt(task, member, seed, seconds, about=attempt.about)
            errors.append(failure_of(error).error)
            try:
                (episode,), (reply,) = await self._open([attempt], seed)
                rollout = await self._episode(attempt, episode, reply)
                return evolve(rollout, retried=tuple(errors))
            except ServiceLostError:
                raise
            except Exception as again:
                error = again
        failed = self.failed(self._rollout(attempt, "failed", ()), error)
        return evolve(failed, retried=tuple(errors))

    def failed(self, rollout: Rollout, error: Exception) -> Rollout:
        """Return what the plan makes of a rollout that failed for good, or raise RunError."""
        policy, failure = self.on_error, failure_of(error)
        if policy.then == "stop":
            place = rollout.about.place if rollout.about else ""
            where = f" ({place})" if place not in failure.error else ""
            raise RunError(f"a rollout of `{rollout.env}`{where} failed: {failure}") from error
        turns, credit = tuple[Turn, ...](), tuple[float, ...]()
        if policy.then == "penalise":
            assert policy.penalty is not None
            turns, credit = rollout.turns, (*[0.0] * (len(rollout.turns) - 1), policy.penalty)
        return evolve(
            rollout,
            turns=turns,
            ended="failed",
            credit=credit,
            error=failure.error,
            cause=str(getattr(error, "cause", None) or type(error).__name__),
            failure=failure,
        )

    def _rollout(self, attempt: Attempt, ended: str, credit: tuple[float, ...]) -> Rollout:
        return Rollout(
            env=attempt.task.env.plan.name,
            task=attempt.task.number,
            member=attempt.member,
            digest=attempt.digest,
            turns=tuple(attempt.turns),
            ended=ended,
            credit=credit,
            staleness=self.staleness,
            seconds=attempt.seconds,
            about=attempt.about,
        )

    async def _episode(
        self, attempt: Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> Rollout:
        """Play an episode to its end and close it; ``attempt`` has its turns if it fails."""
        plan, attempt.begun = attempt.task.env.plan, True
        try:
            async with Deadline(plan.rollouts.timeout, "the episode"):
                if isinstance(episode, RunningEpisode):
                    ended = await attempt.task.env.endpoint.run(self, attempt, episode)
                else:
                    ended = await self._turns(attempt, episode, reply)
            first = episode.first.text
        finally:
            await close_all([episode])
        attempt.digest = blake2b(first.encode(), digest_size=8).hexdigest()
        if (end := attempt.unplayed) is not None:
            rollout = self._rollout(attempt, ended, unplayed_credit(plan.reward, end))
            return evolve(rollout, unplayed=end.metrics)
        rollout = self._rollout(attempt, ended, ())
        # Comparisons give rewards once the group is over.
        return rollout if attempt.task.env.comparing else credited(rollout, plan.reward)

    async def _turns(
        self, attempt: Attempt, episode: AsyncEpisode, reply: types.SampledSequence | None
    ) -> str:
        """Play turn after turn; return how the episode ended."""
        task, turns, limits = attempt.task, attempt.turns, attempt.task.env.plan.rollouts
        history, tokens = task.env.new_history(), EpisodeTokens()
        views = {name: new_history() for name, new_history in task.env.views.items()}
        alone = not isinstance(episode, JoiningEpisode)
        if isinstance(episode, JoiningEpisode):  # `first` comes with this member's first turn
            async with Deadline(limits.step_timeout, "the first turn in the game") as spent:
                seen = validated(await call_environment(episode.join(), holds=False))
            attempt.add_span("environment", spent)
        else:
            seen = validated(episode.first)
        attempt.about = seen.about
        while not seen.done:
            if len(turns) == limits.max_turns:
                return "turns"
            await self.loop_yield.if_due()
            prompt = history.observe(seen)
            if limit := self.limit_reached(tokens, prompt, limits):
                return limit[0]
            shown = {name: view.observe(seen) for name, view in views.items()}
            async with Deadline(limits.turn_timeout, "a turn"):
                if turns or reply is None:
                    seed = derive_seed(attempt.seed, "turn", len(turns))
                    (reply,) = await self._sample(attempt, prompt, history, 1, seed)
                    await self.loop_yield.if_due()
                kept = tokens.extend(prompt, reply.tokens)
                action = evolve(
                    history.reply(reply.tokens),
                    tokens=reply.tokens,
                    logprobs=reply.logprobs or (),
                    prompt=prompt,
                )
                written = {name: view.reply(reply.tokens, action) for name, view in views.items()}
                async with Deadline(limits.step_timeout, "a step of the environment") as spent:
                    after = validated(await call_environment(episode.play(action), holds=alone))
            attempt.add_span("environment", spent)
            turn = sampled_turn(
                reply,
                action,
                self.topk,
                prompt=kept,
                observation=seen.text,
                reward=after.reward,
                metrics=after.metrics,
                chunks=chunks_of(history),
                components=after.components,
                steps=fitting_steps(after, action.text),
                verdicts=after.verdicts,
                move=seen.move,
                others=(*seen.others, *(after.others if after.done else ())),
            )
            seen_as = {}
            for name, view in views.items():
                own = turn.tokens if written[name] is reply.tokens else written[name]
                seen_as[name] = TurnView(shown[name], own, view.chunks)
            turns.append(evolve(turn, views=seen_as) if seen_as else turn)
            seen = after
        attempt.unplayed = seen if not (alone or turns) else None
        return "truncated" if seen.truncated else "done"

    def limit_reached(
        self,
        tokens: EpisodeTokens,
        prompt: Sequence[int],
        rollouts: RolloutsPlan,
        dropped: int = 0,
    ) -> tuple[str, str] | None:
        """Return the limit that another reply could exceed, as an end and in words, or None; so
        many tokens were sampled besides those of the episode."""
        most, whole = self.sampling.max_prompt_tokens, self.sampling.max_episode_tokens
        if self.context is not None and len(prompt) + rollouts.max_tokens > self.context:
            return "context", f"the model's context of {self.context}"
        if most is not None and len(prompt) > most:
            return "prompt", f"max_prompt_tokens = {most}"
        if whole is not None and dropped + tokens.with_prompt(prompt) + rollouts.max_tokens > whole:
            return "tokens", f"max_episode_tokens = {whole}"
        return None

    async def _sample(
        self, attempt: Attempt, prompt: list[int], history: PromptBuilder, count: int, seed: int
    ) -> Sequence[types.SampledSequence]:
        sampling = attempt.task.env.plan.rollouts.sampling(self.sampling)
        params = sampling_params(sampling, seed % 2**31, stop_of(history))
        request = model_input(prompt, chunks_of(history))
        response = await self.sample(attempt, request, count, params)
        return [ended_reply(reply, history) for reply in response.sequences]

    async def sample(
        self,
        attempt: Attempt,
        prompt: types.ModelInput,
        count: int,
        params: types.SamplingParams,
        **more: Any,
    ) -> types.SampleResponse:
        """Sample replies, and count the time and tokens that they take."""
        if self.topk:
            wanted = more.get("topk_sample_logprobs", 0)
            more["topk_sample_logprobs"] = max(wanted, self.topk)
        self.asked.number += count
        async with Deadline(None, "sampling") as spent:
            response = await self.client.sample(prompt, count, params, **more)
        attempt.add_span("sampling", spent)
        self.usage.add_samples(prompt.length, count, response)
        return response
