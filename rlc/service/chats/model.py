"""A model that answers: a sampling client with the renderer of its chats; its samples, streamed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from attrs import define, evolve, field, frozen

from rlc.chat import (
    NO_CHUNKS,
    Chunks,
    Ends,
    TranscriptPrompt,
    TranscriptTree,
    caching,
    model_input,
    text_of,
    upto_end,
)
from rlc.plan import FORM_TRIES
from rlc.seeds import derive_seed
from rlc.service.chats.forms import FREE, BegunReply, ReplyForm, opened
from rlc.service.chats.prompts import (
    ChatError,
    Message,
    Tool,
    TooLongError,
    chat_prompt,
    remembering,
)
from rlc.service.chats.replies import ChatReader, FullReply, TextReader, read_step
from rlc.service.interface import (
    SampledToken,
    SamplingClient,
    SamplingRequest,
    ServiceError,
    TokenMask,
    sampling_params,
)

if TYPE_CHECKING:
    from tinker import types

_OPENING = "<think>"
_PIECE = 2**16  # characters that are tokenised without another look
OnToken = Callable[[SampledToken], None]


@frozen
class SampledReply:
    """A reply of a model.

    Attributes:
        text: what it says, without any thinking.
        stop_reason: ``"stop"``, or ``"length"`` if it was cut off at ``max_tokens``.
        tokens: the sampled tokens, the one that ends the reply included.
        logprobs: the log-probability of each of them, in nats.
    """

    text: str
    stop_reason: str
    tokens: tuple[int, ...] = field(repr=False)
    logprobs: tuple[float, ...] = field(repr=False)


@frozen(eq=False)
class ReplyRequest:
    """Replies that are requested to a chat, or to ``texts`` (tokens) to be continued."""

    sampling: SamplingRequest
    messages: Sequence[Message] | None = None
    tools: Sequence[Tool] = ()
    texts: Sequence[Sequence[int]] = ()
    form: ReplyForm = FREE  # of replies to a chat

    @property
    def count(self) -> int:
        return self.sampling.n * max(1, len(self.texts))


@frozen(eq=False)
class ChatModel:
    """A model that answers chats and continues texts, over any sampling client. Tokens are streamed
    if the client's ``sample`` has a parameter ``on_token``."""

    name: str  # in requests
    base: str  # its base model
    client: SamplingClient
    tokenizer: Any = field(converter=caching)  # of Hugging Face, of the base model
    renderer: Any | None  # of tinker-cookbook; None: it cannot chat
    context: int | None  # tokens; None if unknown
    end_tokens: frozenset[int] = frozenset()  # of a text, without a chat's markup
    no_renderer: str = "its renderer is not known"
    # Answers that chats go on from with their tokens; None: the template writes them anew.
    answered: TranscriptTree | None = None

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> TranscriptPrompt:
        """Return the prompt of a chat. Raise ChatError if the model's format cannot show it."""
        if self.renderer is None:
            raise ChatError(f"{self.name} cannot chat: {self.no_renderer}")
        return chat_prompt(self.answered or remembering(self.renderer), messages, tools)

    def going_on(self) -> ChatModel:
        """Return the model with chats that go on with the tokens that were sampled."""
        memory = None if self.renderer is None else remembering(self.renderer)
        return evolve(self, answered=memory)

    def keep(self, prompt: TranscriptPrompt, tokens: Sequence[int], message: Message) -> None:
        """Let chats go on from an answer, which is sent as a ``message``, with its tokens."""
        if self.answered is not None:
            self.answered.answer(prompt, list(tokens), message)

    def require_short(self, texts: Sequence[str]) -> None:
        """Raise TooLongError for texts of more than two contexts, before all is tokenised."""
        characters = sum(map(len, texts))
        if self.context is None or characters <= _PIECE:
            return
        left = 2 * self.context  # twice, as the cuts between pieces add some
        for text in texts:
            for start in range(0, len(text), _PIECE):
                piece = text[start : start + _PIECE]
                left -= len(self.tokenizer.encode(piece, add_special_tokens=False))
                if left < 0:
                    raise TooLongError(
                        f"The prompt is too long: its {characters:,} characters exceed the context "
                        f"of {self.context} tokens."
                    )

    def chat_ends(self, stops: Sequence[str] = ()) -> Ends:
        given = list(cast(Any, self.renderer).get_stop_sequences())
        tokens = tuple(stop for stop in given if isinstance(stop, int))
        texts = (*stops, *(stop for stop in given if isinstance(stop, str)))
        # A format that ends with text leaves the end to a base model's own token, too.
        return Ends(tokens, texts) if tokens else self.text_ends(texts)

    def text_ends(self, stops: Sequence[str] = ()) -> Ends:
        return Ends(tuple(sorted(self.end_tokens)), tuple(stops))

    def text_reader(self, ends: Ends) -> TextReader:
        """Return a reader of a text as it is sampled."""
        return TextReader(self.tokenizer, frozenset(ends.tokens), ends.cutting(self.tokenizer))

    def chat_reader(
        self,
        prompt: Sequence[int],
        ends: Ends,
        tools: Sequence[Tool],
        opening: Sequence[int] = (),
    ) -> ChatReader:
        """Return a reader of a reply as it is sampled, whose ``opening`` ends the prompt."""
        before = prompt[: len(prompt) - len(opening)]
        reasons = self.begins_reasoning(before)
        reader = ChatReader(self.renderer, self.text_reader(ends), tools, reasons)
        for token in opening:
            reader.feed(token)
        return reader

    def begins_reasoning(self, prompt: Sequence[int]) -> bool:
        end = [token for token in prompt[-8:] if token >= 0]  # the others are of images
        return str(self.tokenizer.decode(end)).rstrip().endswith(_OPENING)

    def opened(self, prompt: Sequence[int], request: ReplyRequest) -> BegunReply:
        """Return how a reply of the form that a request has begins behind a prompt."""
        if request.form.is_free:
            return BegunReply()
        found = opened(request.form, self.renderer, self.tokenizer, request.tools)
        if found.opening or not self.begins_reasoning(prompt):
            return found
        return BegunReply()  # what it thinks first has no form

    def start(self, request: ReplyRequest) -> Generation:
        """Start sampling. Raise TooLongError if the context has no room for a reply; to a chat, the
        generation raises it, as it writes the prompt in a thread."""
        sampling = request.sampling
        if request.messages is not None:
            return _ChatGeneration(
                self, ((),), sampling, self.chat_ends(sampling.stop), request=request
            )
        for text in request.texts:
            self.require_room(len(text), sampling.max_tokens)
        prompts = tuple(map(tuple, request.texts))
        return Generation(self, prompts, sampling, self.text_ends(sampling.stop))

    def require_room(self, length: int, most: int | None) -> None:
        """Raise TooLongError if the context has no room for a prompt and ``most`` tokens."""
        if self.context and length + (most or 1) > self.context:
            limit = "" if most is None else f" and max_tokens = {most}"
            raise TooLongError(
                f"The prompt is too long: {length} tokens{limit} exceed the context of "
                f"{self.context} tokens."
            )

    async def sample(
        self,
        prompt: Sequence[int],
        request: SamplingRequest,
        ends: Ends,
        chunks: Chunks = NO_CHUNKS,
        on_token: OnToken | None = None,
        masks: Callable[[], TokenMask] | None = None,
    ) -> types.SampleResponse:
        """Sample replies of at most the tokens that the context has left, with ``masks`` where the
        client takes them. Raise TooLongError if it has none left, and ServiceError if the service
        does not answer."""
        most = request.max_tokens
        if self.context is not None:
            room = self.context - len(prompt)
            if room < 1:
                size = f"the chat has {len(prompt):,} tokens"
                raise TooLongError(f"{size}, and the context is {self.context:,}")
            most = room if most is None else min(most, room)
        limited = evolve(request, max_tokens=most)
        params = sampling_params(limited, request.seed, ends.stop(self.tokenizer))
        client: Any = self.client
        scores: dict[str, Any] = {}
        if request.prompt_logprobs:
            scores["include_prompt_logprobs"] = True
            scores["topk_prompt_logprobs"] = request.top_logprobs
        if request.top_logprobs:
            scores["topk_sample_logprobs"] = request.top_logprobs
        if masks is not None:
            scores["masks"] = masks
        streams = on_token is not None and self._takes("on_token")
        if streams:
            scores["on_token"] = on_token
        arguments = model_input(prompt, chunks), request.n, params
        response: types.SampleResponse = await client.sample(*arguments, **scores)
        if on_token is not None and not streams:
            for token in sampled_tokens(response):
                on_token(token)
        return response

    def _takes(self, name: str) -> bool:
        return name in inspect.signature(self.client.sample).parameters

    async def formed(
        self,
        prompt: Sequence[int],
        sampling: SamplingRequest,
        ends: Ends,
        request: ReplyRequest,
        begun: BegunReply,
        chunks: Chunks = NO_CHUNKS,
        on_token: OnToken | None = None,
    ) -> types.SampleResponse:
        """Sample replies of the form that a request has, behind a prompt with their opening. What
        does not fit is sampled again, and replies come when all fit. Raise FormError if some never
        do."""
        form = request.form
        if form == FREE:
            return await self.sample(prompt, sampling, ends, chunks, on_token)
        from rlc.service.chats.masks import masks_of

        def read(sequence: types.SampledSequence) -> FullReply:
            reader = self.chat_reader(prompt, ends, request.tools, begun.opening)
            reply = FullReply()
            for token in tokens_of(sequence):
                reply.add(read_step(reader, 0, token))
            return reply

        def checked(sequence: types.SampledSequence) -> tuple[types.SampledSequence, str | None]:
            reply = read(sequence)
            kept = form.kept(sequence, reply, read)
            return kept, form.misfit(reply if kept is sequence else read(kept))

        masks, tries = None, FORM_TRIES if sampling.temperature else 1
        if begun.rest is not None and self._takes("masks"):
            masks = await asyncio.to_thread(masks_of, begun, self.tokenizer)
        sequences: list[Any] = [None] * sampling.n
        wrong = dict.fromkeys(range(sampling.n), "")
        for number in range(tries):
            seed = sampling.seed
            if number and seed is not None:
                seed = derive_seed(seed, "again", number) % 2**31
            fewer = evolve(sampling, n=len(wrong), seed=seed)
            response = await self.sample(prompt, fewer, ends, chunks, masks=masks)
            for i, sequence in zip([*wrong], response.sequences, strict=True):
                sequences[i], why = await asyncio.to_thread(checked, sequence)
                if why is None:
                    del wrong[i]
                else:
                    wrong[i] = why
            misfits = [sequences[i] for i in wrong]
            if not misfits or number + 1 == tries or not self.may_retry(prompt, misfits):
                break
        response = replace(response, sequences=sequences)
        if wrong:
            raise form.error(wrong, number + 1, response)
        if on_token is not None:
            for token in sampled_tokens(response):
                on_token(token)
        return response

    def may_retry(self, prompt: Sequence[int], replies: Sequence[types.SampledSequence]) -> bool:  # noqa: ARG002
        """Return whether others are sampled for replies that have not their form."""
        return True

    def reply(self, sequence: types.SampledSequence, ends: Ends) -> SampledReply:
        """Return a sampled reply as text, without its thinking."""
        if ends.texts:
            sequence = upto_end(sequence, ends, self.tokenizer)
        tokens = tuple(sequence.tokens)
        read = list(tokens)
        if sequence.stop_reason == "stop" and not set(read[-1:]) & {*ends.tokens}:
            read += ends.tokens[:1]  # text has ended it, and it is complete
        message, _ = cast(Any, self.renderer).parse_response(read)
        logprobs = tuple(sequence.logprobs or ())
        return SampledReply(text_of(message), sequence.stop_reason, tokens, logprobs)


def _texts(message: Message) -> Iterator[str]:
    """Iterate over the texts of a message."""
    content = message.get("content") or ""
    for part in [{"text": content}] if isinstance(content, str) else content:
        yield part.get("text") or part.get("thinking") or ""


def sampled_tokens(response: types.SampleResponse) -> Iterator[SampledToken]:
    """Iterate over the tokens of complete samples. Raise ServiceError if they have no logprobs."""
    for number, sequence in enumerate(response.sequences):
        yield from tokens_of(sequence, number)


def tokens_of(sequence: types.SampledSequence, number: int = 0) -> Iterator[SampledToken]:
    if sequence.logprobs is None:
        raise ServiceError("the service gives no logprobs of what it samples")
    topk = sequence.topk_logprobs or [None] * len(sequence.tokens)
    for at, (token, logprob) in enumerate(zip(sequence.tokens, sequence.logprobs, strict=True)):
        is_last = at == len(sequence.tokens) - 1
        reason: Literal["stop", "length"] | None = sequence.stop_reason if is_last else None
        yield SampledToken(number, token, logprob, tuple(topk[at] or ()), reason)


@frozen
class ScoredToken:
    """A token of a prompt; the first has no logprob."""

    token: int
    logprob: float | None
    topk: tuple[tuple[int, float], ...]


@define(eq=False)
class Generation:
    """Samples of some prompts, under way. Choice ``i`` is sample ``i % n`` of prompt ``i // n``."""

    model: ChatModel
    prompts: tuple[tuple[int, ...], ...]
    sampling: SamplingRequest
    ends: Ends
    chunks: Chunks = NO_CHUNKS  # what is not text among the tokens of the prompts
    opening: tuple[int, ...] = ()  # of the replies, with which the prompt ends
    _events: asyncio.Queue[tuple[int, SampledToken] | None] = field(
        factory=asyncio.Queue, init=False
    )
    _first: tuple[int, SampledToken] | None = field(default=None, init=False)
    replies: list[asyncio.Task[types.SampleResponse]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.replies = [self._request(number) for number in range(len(self.prompts))]

    def _request(self, number: int) -> asyncio.Task[types.SampleResponse]:
        def pass_on(token: SampledToken) -> None:
            self._events.put_nowait((number * self.n + token.sample, token))

        reply = asyncio.ensure_future(self.sample(number, pass_on))
        reply.add_done_callback(lambda _: self._events.put_nowait(None))
        return reply

    async def sample(self, number: int, on_token: OnToken) -> types.SampleResponse:
        """Sample replies to prompt ``number``."""
        prompt = self.prompts[number]
        return await self.model.sample(prompt, self.sampling, self.ends, self.chunks, on_token)

    def keep(
        self, texts: Sequence[str], messages: Sequence[Message], tokens: Sequence[Sequence[int]]
    ) -> None:
        """Called before the client has all of an answer, with the texts, the messages and the
        sampled tokens of its choices."""

    @property
    def n(self) -> int:
        return self.sampling.n

    async def begin(self) -> None:
        """Wait for the first token. Raise what the service raises instead, and stop sampling."""
        try:
            self._first = await self._events.get()
            self._check()
        except BaseException:
            self.cancel()
            raise

    async def tokens(self) -> AsyncIterator[tuple[int, SampledToken]]:
        """Iterate over the numbers of choices and their tokens as they are sampled, after
        :meth:`begin`; closing the iterator stops that. Raise what the service raises."""
        event, left = self._first, len(self.replies)
        try:
            while left:
                if event is None:  # a reply is done
                    left -= 1
                    self._check()
                else:
                    yield event
                event = await self._events.get() if left else None
        finally:
            self.cancel()

    def _check(self) -> None:
        for reply in self.replies:
            if reply.done():
                reply.result()

    def cancel(self) -> None:
        for reply in self.replies:
            reply.cancel()

    def scored(self, number: int) -> list[ScoredToken]:
        """Return the tokens of prompt ``number`` with their logprobs, once all is sampled."""
        reply = self.replies[number].result()
        tokens = self.prompts[number]
        logprobs = reply.prompt_logprobs or [None] * len(tokens)
        topk = reply.topk_prompt_logprobs or [None] * len(tokens)
        return [
            ScoredToken(token, logprob, tuple(best or ()))
            for token, logprob, best in zip(tokens, logprobs, topk, strict=True)
        ]

    @property
    def cached_tokens(self) -> int:
        """The number of prompt tokens that were cached, once all is sampled."""
        return sum(reply.result().prompt_cache_hit_tokens or 0 for reply in self.replies)


@define(eq=False)
class _ChatGeneration(Generation):
    """Replies to a chat, whose prompt is written and tokenised in a thread."""

    request: ReplyRequest = field(kw_only=True)
    written: TranscriptPrompt | None = field(default=None, init=False)

    def keep(
        self,
        texts: Sequence[str],  # noqa: ARG002
        messages: Sequence[Message],
        tokens: Sequence[Sequence[int]],
    ) -> None:
        assert self.written is not None, "an answer comes after its prompt"
        for sampled, message in zip(tokens, messages, strict=True):
            self.model.keep(self.written, [*self.opening, *sampled], message)

    async def sample(self, number: int, on_token: OnToken) -> types.SampleResponse:  # noqa: ARG002
        messages, tools = self.request.messages or (), self.request.tools

        def write() -> tuple[TranscriptPrompt, BegunReply]:
            self.model.require_short([text for message in messages for text in _texts(message)])
            prompt = self.model.prompt(messages, tools)
            return prompt, self.model.opened(prompt.tokens, self.request)

        prompt, begun = await asyncio.to_thread(write)
        self.written, self.chunks, self.opening = prompt, prompt.chunks, begun.opening
        self.prompts = ((*prompt.tokens, *begun.opening),)
        self.model.require_room(len(self.prompts[0]), self.sampling.max_tokens)
        return await self.model.formed(
            self.prompts[0], self.sampling, self.ends, self.request, begun, self.chunks, on_token
        )
