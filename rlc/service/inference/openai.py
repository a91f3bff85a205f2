"""OpenAI's API: what a request means, and how its answer is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from attrs import evolve, field, frozen
from pydantic import Field, ValidationError

from rlc.service.chats.forms import ReplyForm
from rlc.service.chats.model import ChatModel, Generation, ScoredToken
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import End, FullReply, Step
from rlc.service.http import RefusedRequest
from rlc.service.inference.endpoint import (
    MOST_MESSAGES,
    Body,
    Strict,
    image_part,
    must_call,
    require,
)
from rlc.service.interface import SampledToken, SamplingRequest

_MOST_CHOICES = 128  # of a request
_MOST_LIKELIEST = 20
_SHORT = 16  # tokens of a text that says nothing of its length, as in OpenAI's API


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class SampledRequest(Body):
    """What requests of all OpenAI's forms say of sampling."""

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)  # an extension of responses
    stream: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    def sampled(self, max_tokens: int | None, **more: Any) -> SamplingRequest:
        return SamplingRequest(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            **more,
        )

    def labels(self) -> tuple[str | None, dict[str, str]]:
        return self.user, self.metadata or {}


def shown_sampling(sampling: SamplingRequest) -> dict[str, Any]:
    """Return what an answer says of its sampling."""
    return {"temperature": sampling.temperature, "top_p": sampling.top_p}


class _Request(SampledRequest):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
        "service_tier": ("auto", "default"),
    }

    n: int | None = Field(None, ge=1, le=_MOST_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    top_k: int | None = Field(None, ge=-1)  # an extension
    stop: str | list[str] | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None  # an extension, as vLLM has it

    def sampling(self, max_tokens: int | None, topk: int | None) -> SamplingRequest:
        """Return how to sample. Raise RefusedRequest (400) for contradictory parameters."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        require(all(stops), "stop", "A stop must not be empty.")
        require(self.top_k != 0, "top_k", "top_k is -1 (all) or at least 1.")
        can_stream = self.stream_options is None or bool(self.stream)
        problem = "stream_options are for requests with stream = true."
        require(can_stream, "stream_options", problem)
        return self.sampled(
            max_tokens,
            n=self.n or 1,
            top_k=self.top_k or -1,
            stop=tuple(stops),
            top_logprobs=topk or 0,
        )

    @property
    def streams_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class _Part(Strict):
    type: str
    text: str | None = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None
    refusal: str | None = None


class _CalledFunction(Strict):
    name: str
    arguments: str


class _Call(Strict):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction
    index: int | None = None  # in what clients put together from a stream


class _Message(Strict):
    """A message. Clients send received messages back unchanged, with empty fields."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[_Part] | None = None
    name: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = Field(None, max_length=0)


class Function(Strict):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(Strict):
    type: Literal["function"]
    function: Function


class _NamedSchema(Strict):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None  # it is checked in any case


class Schema(_NamedSchema):
    """A format of text: any, JSON, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]

    def required(self) -> dict[str, Any] | None:
        """Return the JSON schema that texts have to fit."""
        if self.type == "text":
            return None
        return {"type": "object"} if self.schema_ is None else self.schema_


class _Format(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _NamedSchema | None = None

    def required(self) -> dict[str, Any] | None:
        schema = None if self.json_schema is None else self.json_schema.schema_
        return Schema(type=self.type, schema=schema).required()


class ChatRequest(_Request):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        **_Request.without_effect,
        "modalities": (["text"],),
        "store": (False,),
        **dict.fromkeys(("audio", "function_call", "functions", "moderation", "prediction"), ()),
        **dict.fromkeys(("reasoning_effort", "verbosity", "web_search_options"), ()),
    }

    messages: list[_Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_MOST_LIKELIEST)
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: _Format | None = None
    renderer: str | None = None  # an extension

    def how(self) -> SamplingRequest:
        """Return how to sample. Raise RefusedRequest (400) for contradictory parameters."""
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        problem = "max_tokens and max_completion_tokens differ: give one of them."
        require(len(limits) < 2, "max_tokens", problem)
        has_logprobs = bool(self.logprobs or not self.top_logprobs)
        require(has_logprobs, "top_logprobs", "top_logprobs need logprobs = true.")
        return self.sampling(next(iter(limits), None), self.top_logprobs)

    def offered(self) -> list[Tool]:
        """Return the tools that the model may call. Raise ChatError for strict ones that cannot be
        checked, and RefusedRequest (400) for a choice among none."""
        functions = [tool.function for tool in self.tools or ()]
        return offered_tools(functions, self.tool_choice)

    def form(self, tools: Sequence[Tool]) -> ReplyForm:
        """Return what a reply has to be. Raise RefusedRequest (400) for a choice of no tool, and
        ChatError for what is no schema."""
        schema = None if self.response_format is None else self.response_format.required()
        return reply_form(self.tool_choice, tools, self.parallel_tool_calls, schema)

    def conversation(self) -> list[Message]:
        """Return the messages as plain data. Raise RefusedRequest (400) for unreadable content."""
        return [_plain(message, f"messages[{i}]") for i, message in enumerate(self.messages)]


def offered_tools(functions: Sequence[Function], choice: Any) -> list[Tool]:
    require(bool(functions) or choice is None, "tool_choice", "tool_choice needs tools.")
    return [
        Tool(
            function.name,
            function.description or "",
            function.parameters or {"type": "object", "properties": {}},
            function.parameters if function.strict else None,
        )
        for function in functions
        if choice != "none"
    ]


def reply_form(choice: Any, tools: Sequence[Tool], parallel: bool | None, schema: Any) -> ReplyForm:
    """Return what a reply has to be; ``choice`` is a word, or has the name of a tool. Raise
    RefusedRequest (400) for any other."""
    if isinstance(choice, dict):
        named = choice.get("function", choice)  # as chats and responses have it
        choice = (isinstance(named, dict) and named.get("name")) or ""
    called = () if choice in (None, "none") else must_call(choice, tools)
    return ReplyForm(called, parallel is False, schema)


def plain_message(message: dict[str, Any], where: str) -> Message:
    """Return a message of a body as plain data. Raise RefusedRequest (400) for one that is none."""
    try:
        return _plain(_Message.model_validate(message), where)
    except ValidationError as error:
        problem = f"{where} has what is no message: {error.errors()[0]['msg']}."
        raise RefusedRequest(400, problem, param=where) from error


def _plain(message: _Message, where: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    content: Any = message.content
    if isinstance(content, list):
        content = [_part(part, role, f"{where}.content") for part in content]
        if all(part["type"] == "text" for part in content):
            content = "".join(part["text"] for part in content)
    has_content = content is not None or bool(message.tool_calls)
    require(has_content, f"{where}.content", f"{where} has no content.")
    may_call = role == "assistant" or not message.tool_calls
    require(may_call, f"{where}.tool_calls", f"{where}: only the assistant calls tools.")
    is_result = message.tool_call_id is not None
    problem = f"{where}: a message of a tool has a tool_call_id, and no other has one."
    require((role == "tool") == is_result, f"{where}.tool_call_id", problem)
    plain: dict[str, Any] = {"role": role, "content": content or ""}
    if message.reasoning_content:
        reasoning = {"type": "thinking", "thinking": message.reasoning_content}
        plain["content"] = [reasoning, {"type": "text", "text": content or ""}]
    if message.name is not None:
        plain["name"] = message.name
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        plain["tool_calls"] = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
    return plain


def _part(part: _Part, role: str, where: str) -> dict[str, Any]:
    if part.type == "text" and part.text is not None:
        return {"type": "text", "text": part.text}
    image: Any = part.image_url if part.type == "image_url" else None
    problem = f"{where} has a part of type {part.type!r}; models here read text, and some images."
    require(isinstance(image, dict), where, problem)
    require(role == "user", where, f"{where}: only the user shows images.")
    has_detail = image.get("detail") not in (None, "auto")
    require(not has_detail, where, f"{where}: the detail of an image is auto.")
    return image_part(image.get("url"), where)


class CompletionRequest(_Request):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        **_Request.without_effect,
        "best_of": (1,),
        "suffix": ("",),
    }

    # Numbers before texts: each of thousands that is of the wrong kind is an error of its own.
    prompt: str | list[int] | list[str] | list[list[int]] = Field(union_mode="left_to_right")
    logprobs: int | None = Field(None, ge=0, le=_MOST_LIKELIEST)
    max_tokens: int | None = Field(None, ge=0)  # none with `echo`: only the prompt is scored
    echo: bool | None = None

    def how(self) -> SamplingRequest:
        """Return how to sample. Raise RefusedRequest (400) for contradictory parameters."""
        is_sampled = self.max_tokens != 0 or bool(self.echo)
        require(is_sampled, "max_tokens", "max_tokens = 0 needs echo = true.")
        is_streamed_echo = bool(self.echo and self.stream)
        require(not is_streamed_echo, "echo", "What echoes its prompt cannot be streamed.")
        limit = _SHORT if self.max_tokens is None else max(self.max_tokens, 1)
        how = self.sampling(limit, self.logprobs)
        return evolve(how, prompt_logprobs=bool(self.echo) and self.logprobs is not None)

    def prompts(self, model: ChatModel) -> list[list[int]]:
        """Return the prompts as tokens. Raise RefusedRequest (400) for none, or an empty one, and
        TooLongError for texts of more than two contexts."""
        given: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if given and isinstance(given[0], int):
            given = [given]
        model.require_short([p for p in given if isinstance(p, str)])
        prompts = [model.tokenizer.encode(p) if isinstance(p, str) else list(p) for p in given]
        require(bool(prompts) and all(prompts), "prompt", "A prompt has at least one token.")
        problem = f"A request has at most {_MOST_CHOICES} choices, over all prompts."
        require(len(prompts) * (self.n or 1) <= _MOST_CHOICES, "prompt", problem)
        return prompts


_LOWEST = -9999.0  # what OpenAI writes for a token that cannot be
Json = dict[str, Any]
Token = SampledToken | ScoredToken


@frozen(eq=False)
class _Answer:
    """An answer: in ``full``, or in chunks before (``first``), at (``step``) and after the
    sampled tokens (``last``). ``message`` is a reply as it is in a later request."""

    kind: ClassVar[str]  # of chunks

    id: str
    created: int
    generation: Generation
    request: ChatRequest | CompletionRequest

    def _head(self, kind: str) -> Json:
        name = self.generation.model.name
        return {"id": self.id, "object": kind, "created": self.created, "model": name}

    def _usage(self, replies: Sequence[FullReply]) -> Json:
        prompt = sum(map(len, self.generation.prompts))
        sampled = sum(len(reply.tokens) for reply in replies)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": self.generation.cached_tokens},
        }

    def _text_of(self, token: int) -> str:
        return str(self.generation.model.tokenizer.decode([token]))

    def _chunk(self, choices: list[Json], **more: Any) -> Json:
        usage = {"usage": None} if self.request.streams_usage else {}
        return {**self._head(self.kind), "choices": choices, **usage, **more}

    def last(self, replies: Sequence[FullReply]) -> list[Json]:
        if not self.request.streams_usage:
            return []
        return [{**self._chunk([]), "usage": self._usage(replies)}]


@frozen(eq=False)
class ChatAnswer(_Answer):
    kind = "chat.completion.chunk"

    request: ChatRequest

    def full(self, replies: Sequence[FullReply]) -> Json:
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(i, reply) for i, reply in enumerate(replies)],
            "usage": self._usage(replies),
            **self._prompt_ids(),
        }

    def _choice(self, i: int, reply: FullReply) -> Json:
        assert reply.end is not None
        reason, message = reply.end.reason, self._message(i, reply)
        choice = {"index": i, "message": message, "finish_reason": reason}
        return {**choice, **self._of_tokens(reply.tokens)}

    def _message(self, i: int, reply: FullReply) -> Json:
        message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.end is not None and reply.end.calls:
            message["content"] = reply.text or None
            message["tool_calls"] = self._calls(i, reply.end)
        return message

    def message(self, i: int, reply: FullReply) -> Message:
        return plain_message(self._message(i, reply), "message")

    def first(self) -> list[Json]:
        role = {"role": "assistant", "content": ""}
        choices = [
            {"index": i, "delta": role, "logprobs": None, "finish_reason": None}
            for i in range(self.generation.n)
        ]
        return [self._chunk([choice], **self._prompt_ids()) for choice in choices]

    def step(self, step: Step) -> list[Json]:
        delta: Json = {}
        if step.piece.reasoning:
            delta["reasoning_content"] = step.piece.reasoning
        if step.piece.text:
            delta["content"] = step.piece.text
        if step.end is not None and step.end.calls:
            calls = self._calls(step.choice, step.end)
            delta["tool_calls"] = [{"index": k, **call} for k, call in enumerate(calls)]
        chunks = []
        if delta or self.request.logprobs or self.request.return_token_ids:
            choice = {"index": step.choice, "delta": delta, "finish_reason": None}
            chunks.append(self._chunk([{**choice, **self._of_tokens([step.token])}]))
        if step.end is not None:
            last = {"index": step.choice, "delta": {}, "logprobs": None}
            chunks.append(self._chunk([{**last, "finish_reason": step.end.reason}]))
        return chunks

    def _calls(self, i: int, end: End) -> list[Json]:
        return [
            {
                "id": call.id or f"call_{self.id.removeprefix('chatcmpl-')}_{i}_{k}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for k, call in enumerate(end.calls)
        ]

    def _of_tokens(self, tokens: Sequence[SampledToken]) -> Json:
        fields: Json = {"logprobs": None}
        if self.request.logprobs:
            content = [
                {
                    **self._likelihood(token.token, token.logprob),
                    "top_logprobs": [self._likelihood(*other) for other in token.topk],
                }
                for token in tokens
            ]
            fields["logprobs"] = {"content": content, "refusal": None}
        if self.request.return_token_ids:
            fields["token_ids"] = [token.token for token in tokens]
        return fields

    def _likelihood(self, token: int, logprob: float) -> Json:
        text = self._text_of(token)
        # Bytes that are no character by themselves are not known here.
        known = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": max(logprob, _LOWEST), "bytes": known}

    def _prompt_ids(self) -> Json:
        wanted = self.request.return_token_ids
        return {"prompt_token_ids": list(self.generation.prompts[0])} if wanted else {}


@frozen(eq=False)
class CompletionAnswer(_Answer):
    kind = "text_completion"

    request: CompletionRequest
    _offsets: dict[int, int] = field(factory=dict, init=False)  # characters so far, by choice

    def full(self, replies: Sequence[FullReply]) -> Json:
        if self.request.max_tokens == 0:  # one token was sampled, which is the least
            replies = [FullReply(end=reply.end) for reply in replies]
        choices = []
        for i, reply in enumerate(replies):
            number = i // self.generation.n
            text, tokens = reply.text, list[Token](reply.tokens)
            if self.request.echo:
                prompt = self.generation.prompts[number]
                text = str(self.generation.model.tokenizer.decode(prompt)) + text
                tokens = [*self.generation.scored(number), *tokens]
            choices.append(self._choice(i, text, tokens, reply.end))
        return {**self._head(self.kind), "choices": choices, "usage": self._usage(replies)}

    def message(self, i: int, reply: FullReply) -> Message:  # noqa: ARG002
        return {"role": "assistant", "content": reply.text}

    def first(self) -> list[Json]:
        return []

    def step(self, step: Step) -> list[Json]:
        wanted = self.request.logprobs is not None or self.request.return_token_ids
        if not (step.piece.text or step.end or wanted):
            return []
        return [self._chunk([self._choice(step.choice, step.piece.text, [step.token], step.end)])]

    def _choice(self, i: int, text: str, tokens: Sequence[Token], end: End | None) -> Json:
        choice: Json = {
            "index": i,
            "text": text,
            "finish_reason": None if end is None else end.reason,
            "logprobs": None,
        }
        if self.request.logprobs is not None:
            texts = [self._text_of(token.token) for token in tokens]
            offsets = []
            for piece in texts:
                offsets.append(self._offsets.get(i, 0))
                self._offsets[i] = offsets[-1] + len(piece)
            choice["logprobs"] = {
                "tokens": texts,
                "token_logprobs": [
                    None if token.logprob is None else max(token.logprob, _LOWEST)
                    for token in tokens
                ],
                "top_logprobs": [
                    {self._text_of(other): max(lp, _LOWEST) for other, lp in token.topk} or None
                    for token in tokens
                ]
                if self.request.logprobs
                else None,
                "text_offset": offsets,
            }
        if self.request.return_token_ids:
            choice["token_ids"] = [t.token for t in tokens if isinstance(t, SampledToken)]
            if end is not None:
                choice["prompt_token_ids"] = list(self.generation.prompts[i // self.generation.n])
        return choice
