"""What one run of an agent asks: each request a turn of its episode, sampled by the player.

The endpoint (:mod:`rlc.runtime.agents.endpoint`) hands requests over; here is what a request
becomes. The recipe decides how replies are sampled: an agent may ask for shorter ones, and for text
that ends them. A reply counts once it was handed to the agent.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field

from rlc.envs.deadlines import Span
from rlc.envs.tool_chat import calls_of
from rlc.plan.environments import RolloutsPlan
from rlc.runtime.agents.conversations import Conversations, Message, Written
from rlc.runtime.records import Turn
from rlc.runtime.rollouts.attempts import Attempt, Replies
from rlc.runtime.rollouts.tokens import TOKEN, EpisodeTokens
from rlc.runtime.updates.scores import first_of
from rlc.seeds import derive_seed
from rlc.service.chats.draw import Draw
from rlc.service.http.refusals import Refused
from rlc.service.pending_calls import asking

if TYPE_CHECKING:
    from tinker import types

    from rlc.service.http.inference.endpoint import Answered


@define(eq=False)
class Requests:
    """The requests of one episode. ``over`` is how it ended, if a limit or a failure of the service
    has ended it; ``idle`` the deadline from one request to the next."""

    player: Replies
    attempt: Attempt
    conversations: Conversations
    tokenizer: Any
    idle: Span
    context: Context = field(factory=copy_context)  # in which replies are sampled
    over: asyncio.Future[str] = field(factory=lambda: asyncio.get_running_loop().create_future())
    refused: str | None = None  # the limit that the last request met
    _tokens: EpisodeTokens = field(factory=EpisodeTokens, init=False)
    _written: dict[bytes, Written] = field(factory=dict, init=False)
    _asked: Counter[bytes] = field(factory=Counter, init=False)  # how often each prompt was
    _sampled: dict[tuple[bytes, bytes], types.SampledSequence] = field(factory=dict, init=False)
    _transcript: tuple[Message, ...] = field(default=(), init=False)
    _replying: set[asyncio.Task[types.SampleResponse]] = field(factory=set, init=False)

    @property
    def limits(self) -> RolloutsPlan:
        return self.attempt.task.env.plan.rollouts

    @property
    def transcript(self) -> Sequence[Message]:
        """The conversation that was answered last, with the answer."""
        return self._transcript

    def metrics(self) -> Mapping[str, float]:
        """How many requests began a conversation, and how many came with a history that is not what
        was sampled."""
        kinds = self.conversations.kinds
        return {"conversations": float(kinds["begun"]), "rewritten": float(kinds["rewritten"])}

    def write(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
        """Return the prompt of a chat."""
        written = self.conversations.write(messages, [tool.shown() for tool in tools])
        self._written[_key(written.tokens)] = written
        return written.tokens

    def decide(self, draw: Draw) -> Draw:
        """Return how a request is sampled, as the recipe says."""
        longest, sampling = self.limits.max_tokens, self.player.sampling
        return evolve(
            draw,
            max_tokens=min(draw.max_tokens or longest, longest),
            temperature=self.limits.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stops=(*draw.stops, *self.limits.stop),
        )

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        **more: Any,
    ) -> types.SampleResponse:
        """Sample replies to a prompt; see :class:`rlc.service.interface.SamplingClient`. Raise
        Refused for one that a limit forbids."""
        if self.over.done():
            raise Refused(401, "This episode is over.")
        tokens = prompt.to_ints()
        self._require_room(tokens, num_samples)
        key = _key(tokens)
        seed = derive_seed(self.attempt.seed, "request", key.hex(), self._asked[key])
        self._asked[key] += num_samples
        if include_prompt_logprobs:
            more |= {"include_prompt_logprobs": True, "topk_prompt_logprobs": topk_prompt_logprobs}
        params = sampling_params.model_copy(update={"seed": seed % 2**31})
        if not self._replying:
            self.idle.pause()
        replying = asyncio.get_running_loop().create_task(
            self._reply(prompt, num_samples, params, more), context=self.context
        )
        self._replying.add(replying)
        replying.add_done_callback(self._replied)
        response = await replying
        for sequence in response.sequences:
            self._sampled[key, _key(sequence.tokens)] = sequence
        asked = more.get("topk_sample_logprobs", 0)  # by the agent, which gets no more than that
        return replace(
            response,
            sequences=[
                replace(one, topk_logprobs_np=first_of(one.topk_logprobs_np, asked))
                for one in response.sequences
            ],
        )

    async def _reply(
        self,
        prompt: types.ModelInput,
        count: int,
        params: types.SamplingParams,
        more: dict[str, Any],
    ) -> types.SampleResponse:
        try:
            with asking():
                async with Span(self.limits.turn_timeout, "a turn"):
                    return await self.player.sample(self.attempt, prompt, count, params, **more)
        except Exception as error:  # the agent could only guess why it has no answer
            if not self.over.done():
                self.over.set_exception(error)
            raise Refused(503, "The model does not answer any more.") from error

    def _replied(self, replying: asyncio.Task[types.SampleResponse]) -> None:
        self._replying.discard(replying)
        if not self._replying:
            self.idle.resume(renewed=True)

    async def close(self) -> None:
        """Stop sampling what nobody waits for any more."""
        left = [*self._replying]
        for replying in left:
            replying.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _require_room(self, prompt: list[int], count: int) -> None:
        """Raise Refused for a prompt that leaves no room, which an agent may answer by a shorter
        one. More turns or tokens than an episode may have end it."""
        asked = sum(self._asked.values())
        limit = self.player.limit_reached(self._tokens, prompt, self.limits)
        if asked + count > self.limits.max_turns:
            limit = "turns", f"max_turns = {self.limits.max_turns}"
        self.refused = None if limit is None else limit[0]
        if limit is None:
            return
        name, words = limit
        if name in ("turns", "tokens"):
            self.over.set_result(name)
        said = f"The prompt has {len(prompt)} tokens; with the longest reply that is over {words}."
        raise Refused(400, said, code="context_length_exceeded")

    def answered(self, answered: Answered) -> None:
        """Keep what was sampled for a request, as turns of the episode."""
        if self.over.done():
            return
        for number, choice in enumerate(answered.choices):
            tokens = list(answered.prompts[number // answered.draw.n])
            reply, calls = list(choice.token_ids), tuple[tuple[str, str, str], ...]()
            if answered.messages is None:
                said, action = self.tokenizer.decode(tokens), choice.text
                self._transcript = ({"role": "user", "content": said}, choice.message)
            else:
                written = self._written[_key(tokens)]
                read = self.conversations.answer(written, choice.message, reply)
                said, action, calls = written.said, read.text, (*calls_of(read.message or {}),)
                self._transcript = (*answered.messages, choice.message)
            sampled = self._sampled.get((_key(tokens), _key(reply)))
            self.attempt.turns.append(
                Turn(
                    prompt=self._tokens.extend(tokens, reply),
                    tokens=array(TOKEN, reply),
                    logprobs=array("d", choice.logprobs),
                    observation=said,
                    action=action,
                    reward=None,
                    stop_reason=choice.stop_reason,
                    calls=calls,
                    sequence_id=sampled.sequence_id if sampled else "",
                    likeliest=first_of(sampled.topk_logprobs_np, self.player.likeliest)
                    if sampled
                    else None,
                )
            )


def _key(tokens: Sequence[int]) -> bytes:
    """What stands for some tokens."""
    return blake2b(array(TOKEN, tokens).tobytes(), digest_size=16).digest()
