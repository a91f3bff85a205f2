"""Agents: programs that own their loop, and ask the policy at an endpoint.

Each request of an agent is a turn of its episode, sampled by the player. The recipe decides how
replies are sampled: an agent may ask for shorter ones, and for text that ends them. A reply counts
once it is handed to the agent.
"""

from __future__ import annotations

import asyncio
import secrets
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from rlc.chat import (
    Action,
    ChatFormat,
    ChatHistory,
    Ends,
    EnvError,
    Message,
    Observation,
    TranscriptPrompt,
    TranscriptTree,
    conversation,
    reply_message,
    whole_conversation,
)
from rlc.envs import (
    AgentError,
    Deadline,
    PolicyReply,
    PolicyRequest,
    RunningEpisode,
    place,
    validated,
)
from rlc.errors import first_line
from rlc.plan import RolloutsPlan
from rlc.runtime.concurrency import cancel_all
from rlc.runtime.records import FORM_RETRIES
from rlc.runtime.rollouts.player import (
    Attempt,
    Player,
    call_environment,
    fitting_steps,
    sampled_turn,
)
from rlc.runtime.rollouts.tokens import TOKEN, EpisodeTokens, first_of
from rlc.seeds import derive_seed
from rlc.service import (
    TOO_LONG,
    UNRENDERED,
    BegunReply,
    Caller,
    ChatModel,
    FormError,
    Generation,
    OnToken,
    RefusedRequest,
    ReplyRequest,
    SamplingRequest,
    Tool,
    asking,
    endpoint_app,
    parts_of,
    sampled_tokens,
    serving,
)

if TYPE_CHECKING:
    from tinker import types


OVER = "This episode is over."
MODEL = "policy"  # the name of the model for agents; any other name will do


@define(eq=False)
class AgentEpisode:
    """The requests of one episode. ``over`` is its end by a limit or a failure of the service;
    ``idle`` the deadline from one request to the next."""

    player: Player
    attempt: Attempt
    tokenizer: Any
    chats: ChatFormat
    idle: Deadline
    context: Context = field(factory=copy_context)  # in which replies are sampled
    over: asyncio.Future[str] = field(factory=lambda: asyncio.get_running_loop().create_future())
    refused: str | None = None  # the limit that the last request met, or "form"
    transcript: Sequence[Message] = ()  # the conversation of the last reply, which ends it
    _tokens: EpisodeTokens = field(factory=EpisodeTokens, init=False)
    _limits: RolloutsPlan = field(init=False)
    _tree: TranscriptTree = field(init=False)
    _counts: Counter[bytes] = field(factory=Counter, init=False)  # how often each prompt was
    _dropped: int = field(default=0, init=False)  # tokens of replies without their form
    _retries: int = field(default=0, init=False)
    _replying: set[asyncio.Task[types.SampleResponse]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._limits = self.attempt.task.env.plan.rollouts
        self._tree = TranscriptTree(partial(ChatHistory, self.chats, whole=True))

    def metrics(self) -> Mapping[str, float]:
        """Return how many requests began a conversation, how many rewrote its history, and how many
        replies were sampled again for their form."""
        kinds = self._tree.kinds
        found = {"conversations": float(kinds["begun"]), "rewritten": float(kinds["rewritten"])}
        return found | ({FORM_RETRIES: float(self._retries)} if self._retries else {})

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool]) -> TranscriptPrompt:
        """Return the prompt of a chat. Raise EnvError if it cannot be shown to the model, and
        Refused (400) for an image."""
        return self._written(lambda: conversation(messages, [tool.shown() for tool in tools]))

    async def reply(self, request: PolicyRequest) -> PolicyReply:
        """See :class:`rlc.envs.base.PolicyClient`."""
        asked = ReplyRequest(SamplingRequest(max_tokens=None), request.messages)
        try:
            prompt = self._written(lambda: whole_conversation(request.messages, request.tools))
            (reply,) = self.keep(await self.replies(asked, prompt))
        except RefusedRequest as error:
            raise EnvError(str(error)) from error
        return reply

    def _written(self, read: Callable[[], Observation]) -> TranscriptPrompt:
        try:
            messages = read().messages
            _require_text(messages)
            return self._tree.write(messages)
        except UNRENDERED as error:
            what = f"the model's chat format cannot show these messages: {first_line(error)}"
            raise EnvError(what) from error

    async def replies(
        self, request: ReplyRequest, prompt: TranscriptPrompt | None = None
    ) -> AgentReplies:
        """Return replies to a chat, by default with the prompt that it makes, or to one text. Raise
        Refused if a limit forbids them."""
        self._require_open()
        sampling, model = self._decided(request.sampling), self.model()
        begun = BegunReply()
        if request.messages is None:
            (given,), ends = request.texts, model.text_ends(sampling.stop)
            tokens = list(given)
        else:
            prompt = prompt or self.prompt(request.messages, request.tools)
            begun = model.opened(prompt.tokens, request)
            tokens, ends = [*prompt.tokens, *begun.opening], model.chat_ends(sampling.stop)
        self._require_room(tokens, sampling.n)
        key = blake2b(array(TOKEN, tokens).tobytes(), digest_size=16).digest()
        seed = derive_seed(self.attempt.seed, "request", key.hex(), self._counts[key])
        self._counts[key] += sampling.n
        replies = partial(AgentReplies, request, prompt, tokens, sampling, ends, begun.opening)
        seeded = evolve(sampling, seed=seed % 2**31)
        try:
            return replies(await model.formed(tokens, seeded, ends, request, begun))
        except FormError as error:  # the policy learns from what it could not do
            self.refused = "form"
            texts = [self.tokenizer.decode(one.tokens) for one in error.response.sequences]
            sent = [(text, {"role": "assistant", "content": text}) for text in texts]
            self.keep(replies(error.response), sent)
            raise

    def model(self, name: str = MODEL) -> AgentModel:
        """Return the policy as a model; the recipe limits its context."""
        client: Any = self  # as far as :meth:`sample` goes
        end = frozenset({self.tokenizer.eos_token_id})
        given = name, MODEL, client, self.tokenizer, self.chats.renderer, None, end
        return AgentModel(*given, episode=self)

    def _require_open(self) -> None:
        if self.over.done():
            raise RefusedRequest(401, OVER)

    def _decided(self, request: SamplingRequest) -> SamplingRequest:
        """Return the sampling of the recipe, with the shorter length and the stops of a request."""
        sampling, longest = self._limits.sampling(self.player.sampling), self._limits.max_tokens
        most = min(request.max_tokens or longest, longest)
        stop = *request.stop, *sampling.stop
        return request.sampled(evolve(sampling, max_tokens=most, stop=stop))

    def may_retry(self, prompt: Sequence[int], replies: Sequence[types.SampledSequence]) -> bool:
        """Return whether others are sampled for replies that have not their form: these count as
        tokens of the episode, too."""
        dropped = self._dropped + sum(len(reply.tokens) for reply in replies)
        if self.player.limit_reached(self._tokens, prompt, self._limits, dropped):
            return False
        self._dropped, self._retries = dropped, self._retries + len(replies)
        return True

    def _require_room(self, prompt: list[int], count: int) -> None:
        """Raise Refused for a prompt that leaves no room: the agent may send a shorter one. Too
        many turns or tokens end the episode."""
        limit = self.player.limit_reached(self._tokens, prompt, self._limits, self._dropped)
        if sum(self._counts.values()) + count > self._limits.max_turns:
            limit = "turns", f"max_turns = {self._limits.max_turns}"
        self.refused = None if limit is None else limit[0]
        if limit is None:
            return
        name, words = limit
        if name in ("turns", "tokens"):
            self.over.set_result(name)
        if name == "turns":
            text = f"The episode has no reply left: {words}."
        else:
            text = (
                f"The prompt has {len(prompt)} tokens; with the longest reply that is over {words}."
            )
        raise RefusedRequest(400, text, code=TOO_LONG)

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        **more: Any,
    ) -> types.SampleResponse:
        """Sample replies; see :class:`rlc.service.interface.SamplingClient`."""
        if not self._replying:
            self.idle.pause()
        work = self._sampled(prompt, num_samples, sampling_params, more)
        replying = asyncio.get_running_loop().create_task(work, context=self.context)
        self._replying.add(replying)
        replying.add_done_callback(self._replied)
        try:
            return await replying
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not replying.cancelled() or (waiting and waiting.cancelling()):
                raise
            raise RefusedRequest(401, OVER) from None  # another request has met a limit

    async def _sampled(
        self,
        prompt: types.ModelInput,
        count: int,
        params: types.SamplingParams,
        more: dict[str, Any],
    ) -> types.SampleResponse:
        try:
            with asking():
                async with Deadline(self._limits.turn_timeout, "a turn"):
                    return await self.player.sample(self.attempt, prompt, count, params, **more)
        except Exception as error:  # the agent could only guess why it has no answer
            if not self.over.done():
                self.over.set_exception(error)
            raise RefusedRequest(503, "The model does not answer any more.") from error

    def _replied(self, replying: asyncio.Task[types.SampleResponse]) -> None:
        self._replying.discard(replying)
        if not self._replying:
            self.idle.resume(renewed=True)

    async def close(self) -> None:
        """Cancel the replies under way."""
        await cancel_all(self._replying)
        self.over.cancel()

    def keep(
        self, replies: AgentReplies, sent: Sequence[tuple[str, Message]] = ()
    ) -> list[PolicyReply]:
        """Make each reply a turn, and return it. ``sent`` has its text and its message, if the
        agent gets them in another form than OpenAI's. Raise Refused if the episode is over."""
        self._require_open()
        asked, prompt, kept = replies.request.messages, replies.prompt, list[PolicyReply]()
        for number, sampled in enumerate(replies.response.sequences):
            turn, (text, message) = len(self.attempt.turns), sent[number] if sent else ("", None)
            if prompt is None or asked is None:
                action, observation = Action(text), self.tokenizer.decode(replies.tokens)
                before: Sequence[Message] = [{"role": "user", "content": observation}]
            else:
                whole = [*replies.opening, *sampled.tokens]
                action = self._tree.answer(prompt, whole, message)
                observation, before = prompt.text, asked
            message = message or reply_message(action, turn)
            self.transcript = (*before, message)
            tokens = self._tokens.extend(replies.tokens, sampled.tokens)
            more = {"prompt": tokens, "observation": observation, "reward": None}
            played = sampled_turn(sampled, action, self.player.topk, **more)
            self.attempt.turns.append(played)
            sampled_as = played.tokens, played.logprobs, action.cut_off, played.prompt
            kept.append(PolicyReply(message, turn, *sampled_as))
        return kept


@frozen(eq=False)
class AgentReplies:
    """Replies to one request: to a chat, or to a text in tokens."""

    request: ReplyRequest
    prompt: TranscriptPrompt | None  # of a chat
    tokens: list[int]  # of the prompt, with the opening
    sampling: SamplingRequest
    ends: Ends
    opening: tuple[int, ...]  # of the replies, which is not sampled
    response: types.SampleResponse


@define(eq=False)
class AgentGeneration(Generation):
    """Replies of the policy to one request of an agent: to a chat, or to each of its texts."""

    request: ReplyRequest = field(kw_only=True)
    episode: AgentEpisode = field(kw_only=True)
    _given: dict[int, AgentReplies] = field(factory=dict, init=False)

    async def sample(self, number: int, on_token: OnToken) -> types.SampleResponse:
        request, texts = self.request, self.request.texts
        one = evolve(request, texts=texts[number : number + 1]) if texts else request
        self._given[number] = reply = await self.episode.replies(one)
        if not texts:
            self.prompts = (tuple(reply.tokens),)
        self.sampling, self.ends, self.opening = reply.sampling, reply.ends, reply.opening
        wanted = request.sampling.top_logprobs  # the policy's reply may have more
        own = [
            replace(each, topk_logprobs_np=first_of(each.topk_logprobs_np, wanted))
            for each in reply.response.sequences
        ]
        response = replace(reply.response, sequences=own)
        for token in sampled_tokens(response):
            on_token(token)
        return response

    def keep(
        self,
        texts: Sequence[str],
        messages: Sequence[Message],
        tokens: Sequence[Sequence[int]],  # noqa: ARG002
    ) -> None:
        if self.episode.over.done():
            return
        sent = [*zip(texts, messages, strict=True)]
        for number, replies in sorted(self._given.items()):
            self.episode.keep(replies, sent[number * self.n : (number + 1) * self.n])


@frozen(eq=False)
class AgentModel(ChatModel):
    """The policy, for the requests of one episode."""

    episode: AgentEpisode = field(kw_only=True)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> TranscriptPrompt:
        """See :meth:`AgentEpisode.prompt`."""
        return self.episode.prompt(messages, tools)

    def may_retry(self, prompt: Sequence[int], replies: Sequence[types.SampledSequence]) -> bool:
        return self.episode.may_retry(prompt, replies)

    def start(self, request: ReplyRequest) -> AgentGeneration:
        _require_text(request.messages or ())
        prompts = tuple(map(tuple, request.texts)) or ((),)
        sampling, ends = request.sampling, self.text_ends()  # both are decided with the reply
        return AgentGeneration(self, prompts, sampling, ends, request=request, episode=self.episode)


def _require_text(messages: Sequence[Message]) -> None:
    if any(part["type"] == "image" for message in messages for part in parts_of(message)):
        raise RefusedRequest(
            400, "An agent's episode holds text only, no images.", param="messages"
        )


@frozen
class EndpointAddress:
    """See :class:`rlc.envs.base.AgentEndpoint`."""

    url: str
    key: str
    policy: AgentEpisode
    model: str = MODEL

    def transcript(self) -> Sequence[Message]:
        return self.policy.transcript


@define(eq=False)
class AgentsEndpoint:
    """The endpoint of agents, as many at a time as have ``places``; it starts with the first."""

    tokenizer: Any
    chats: ChatFormat
    places: asyncio.Semaphore
    _addresses: dict[str, EndpointAddress] = field(factory=dict, init=False)
    _server: asyncio.Task[None] | None = field(default=None, init=False)
    _url: asyncio.Future[str] | None = field(default=None, init=False)
    _closing: asyncio.Event = field(factory=asyncio.Event, init=False)

    @asynccontextmanager
    async def address(self, episode: AgentEpisode) -> AsyncIterator[EndpointAddress]:
        """Give the requests of one episode an address while the block runs."""
        if self._url is None:
            self._url = asyncio.get_running_loop().create_future()
            self._server = asyncio.create_task(self._serve(self._url))
        session, url = secrets.token_hex(8), await asyncio.shield(self._url)
        key = f"rlc-{secrets.token_hex(16)}"
        address = EndpointAddress(f"{url}/s/{session}", key, episode)
        self._addresses[session] = address
        try:
            yield address
        finally:
            del self._addresses[session]

    async def run(self, player: Player, attempt: Attempt, episode: RunningEpisode) -> str:
        """Run an agent to its end; return how its episode ended. ``attempt`` has its turns.

        One that a limit ends, or that fails because of one, has a reward of 0. Raise what the agent
        raises, AgentError if it made no request, and OverdueError if it neither makes one nor ends.
        """
        limits, attempt.about = attempt.task.env.plan.rollouts, episode.first.about
        async with (
            place(self.places),
            Deadline(limits.step_timeout, "the agent, between two requests,") as idle,
        ):
            requests = AgentEpisode(player, attempt, self.tokenizer, self.chats, idle)
            async with self.address(requests) as address:
                try:
                    seen, ended = await _run_program(requests, episode, address)
                finally:
                    await requests.close()
        attempt.seconds["environment"] += idle.worked  # it waited while replies were sampled
        if not attempt.turns:
            what = f"the agent of `{attempt.task.env.plan.name}` ended without an answered request"
            hint = "its client takes the `base_url` and the `api_key` of the episode"
            if requests.refused is not None:
                hint = f"a limit of the recipe refused a request: {requests.refused}"
            raise AgentError(what, hint)
        attempt.turns[-1] = evolve(
            attempt.turns[-1],
            reward=seen.reward,
            metrics={**requests.metrics(), **seen.metrics},
            components=seen.components,
            verdicts=seen.verdicts,
            steps=fitting_steps(seen, attempt.turns[-1].action),
        )
        return ended

    def names(self) -> Mapping[str, float]:
        """See :class:`rlc.service.inference.endpoint.Models`."""
        return {MODEL: 0.0}

    async def find(self, name: str, caller: Caller) -> ChatModel:
        """Return the model of an episode. Raise Refused for another's key, or one not under way."""
        address = self._addresses.get(caller.session or "")
        if address is None or not compare_digest(caller.key or "", address.key):
            text = "No episode that is under way has this address and key."
            raise RefusedRequest(401, text, code="invalid_api_key")
        return address.policy.model(name)

    async def close(self) -> None:
        """End the server. Safe to call twice."""
        self._closing.set()
        if self._server is not None:
            await self._server

    async def _serve(self, url: asyncio.Future[str]) -> None:
        """Serve until it is closed: the server is opened and closed by one task."""
        try:
            async with serving(endpoint_app(self)) as address:
                url.set_result(address)
                await self._closing.wait()
        except Exception as error:
            if url.done():
                raise
            url.set_exception(error)


_CUT_OFF = Observation("", 0.0, True, truncated=True)


async def _run_program(
    requests: AgentEpisode, episode: RunningEpisode, address: EndpointAddress
) -> tuple[Observation, str]:
    """Run a program until it or its episode ends; return the last observation, and how it ended."""

    async def run() -> Observation:
        requests.context = copy_context()  # the service knows from it who waits for a reply
        return await episode.run(address)

    running = asyncio.ensure_future(call_environment(run()))
    try:
        awaited: set[asyncio.Future[Any]] = {running, requests.over}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if requests.over.done():
            return _CUT_OFF, requests.over.result()
        try:
            seen = validated(running.result())
        except Exception:
            if requests.refused is None:
                raise
            return _CUT_OFF, requests.refused
        return seen, "truncated" if seen.truncated else "done"
    finally:
        await cancel_all([running])
