"""OpenAI's API: what a request means, and how its answer is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from attrs import evolve, field, frozen
from pydantic import Field

from rlc.service.chats.model import Generation, ScoredToken
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import End, Step, Whole
from rlc.service.http import RefusedRequest
from rlc.service.inference.endpoint import Body, Strict, image_part
from rlc.service.interface import SampledToken, SamplingRequest

_MOST_CHOICES = 128  # of a request
_MOST_LIKELIEST = 20
_SHORT = 16  # tokens of a text that says nothing of its length, as in OpenAI's API


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class _Request(Body):
    """What both kinds of requests have."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
        "service_tier": ("auto", "default"),
    }

    model: str
    n: int | None = Field(None, ge=1, le=_MOST_CHOICES)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)  # an extension
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None
    return_token_ids: bool | None = None  # an extension, as vLLM has it

    def sampling(self, max_tokens: int | None, topk: int | None) -> SamplingRequest:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not all(stops):
            raise RefusedRequest(400, "A stop must not be empty.", param="stop")
        if self.top_k == 0:
            raise RefusedRequest(400, "top_k is -1 (all) or at least 1.", param="top_k")
        if self.stream_options is not None and not self.stream:
            said = "stream_options are for requests with stream = true."
            raise RefusedRequest(400, said, param="stream_options")
        return SamplingRequest(
            n=self.n or 1,
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or -1,
            seed=self.seed,
            stop=tuple(stops),
            top_logprobs=topk or 0,
        )

    @property
    def streams_usage(self) -> bool:
        """Whether a stream ends with the usage."""
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
    """A message. Clients send what they have received as it is, with empty fields."""

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


class _Function(Strict):
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(Strict):
    type: Literal["function"]
    function: _Function


class ChatRequest(_Request):
    """The body of ``chat/completions``."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        **_Request.without_effect,
        "modalities": (["text"],),
        "parallel_tool_calls": (True,),
        "response_format": ({"type": "text"},),
        "store": (False,),
        **dict.fromkeys(
            (
                "audio",
                "function_call",
                "functions",
                "moderation",
                "prediction",
                "reasoning_effort",
                "verbosity",
                "web_search_options",
            ),
            (),
        ),
    }

    messages: list[_Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=_MOST_LIKELIEST)
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    renderer: str | None = None  # an extension

    def how(self) -> SamplingRequest:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            said = "max_tokens and max_completion_tokens differ: give one of them."
            raise RefusedRequest(400, said, param="max_tokens")
        if self.top_logprobs and not self.logprobs:
            raise RefusedRequest(400, "top_logprobs need logprobs = true.", param="top_logprobs")
        return self.sampling(next(iter(limits), None), self.top_logprobs)

    def offered(self) -> list[Tool]:
        """The tools that the model may call. Raise Refused (400) for a ``tool_choice`` that nothing
        here can enforce, and for strict ones that cannot be checked."""
        if self.tool_choice not in (None, "auto", "none"):
            said = "tool_choice is auto or none: this server cannot force a call."
            raise RefusedRequest(400, said, param="tool_choice")
        if self.tool_choice is not None and not self.tools:
            raise RefusedRequest(400, "tool_choice needs tools.", param="tool_choice")
        functions = [tool.function for tool in self.tools or ()]
        return [
            Tool(
                function.name,
                function.description or "",
                function.parameters or {"type": "object", "properties": {}},
                function.parameters if function.strict else None,
            )
            for function in functions
            if self.tool_choice != "none"
        ]

    def conversation(self) -> list[Message]:
        """The messages as plain data. Raise Refused (400) for what models here cannot read."""
        return [_plain(message, f"messages[{i}]") for i, message in enumerate(self.messages)]


def reply_message(sent: Mapping[str, Any]) -> Message:
    """A message of an answer, as it is among the messages of a request that has it."""
    return _plain(_Message.model_validate(sent), "message")


def _plain(message: _Message, where: str) -> Message:
    role = "system" if message.role == "developer" else message.role
    content: Any = message.content
    if isinstance(content, list):
        content = [_part(part, role, f"{where}.content") for part in content]
        if all(part["type"] == "text" for part in content):
            content = "".join(part["text"] for part in content)
    if content is None and not message.tool_calls:
        raise RefusedRequest(400, f"{where} has no content.", param=f"{where}.content")
    if message.tool_calls and role != "assistant":
        raise RefusedRequest(
            400, f"{where}: only the assistant calls tools.", param=f"{where}.tool_calls"
        )
    if (role == "tool") != (message.tool_call_id is not None):
        said = f"{where}: a message of a tool has a tool_call_id, and no other has one."
        raise RefusedRequest(400, said, param=f"{where}.tool_call_id")
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
    if part.type != "image_url" or not isinstance(part.image_url, dict):
        said = f"{where} has a part of type {part.type!r}; models here read text, and some images."
        raise RefusedRequest(400, said, param=where)
    if role != "user":
        raise RefusedRequest(400, f"{where}: only the user shows images.", param=where)
    if part.image_url.get("detail") not in (None, "auto"):
        raise RefusedRequest(400, f"{where}: the detail of an image is auto.", param=where)
    return image_part(part.image_url.get("url"), where)


class CompletionRequest(_Request):
    """The body of ``completions``."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        **_Request.without_effect,
        "best_of": (1,),
        "suffix": ("",),
    }

    prompt: str | list[str] | list[int] | list[list[int]] = Field(union_mode="left_to_right")
    logprobs: int | None = Field(None, ge=0, le=_MOST_LIKELIEST)
    max_tokens: int | None = Field(None, ge=0)  # none with `echo`: only the prompt is scored
    echo: bool | None = None

    def how(self) -> SamplingRequest:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        if self.max_tokens == 0 and not self.echo:
            raise RefusedRequest(400, "max_tokens = 0 needs echo = true.", param="max_tokens")
        if self.echo and self.stream:
            raise RefusedRequest(400, "What echoes its prompt cannot be streamed.", param="echo")
        limit = _SHORT if self.max_tokens is None else max(self.max_tokens, 1)
        how = self.sampling(limit, self.logprobs)
        return evolve(how, prompt_logprobs=bool(self.echo) and self.logprobs is not None)

    def prompts(self, tokenizer: Any) -> list[list[int]]:
        """Its prompts as tokens. Raise Refused (400) for none, or an empty one."""
        given: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if given and isinstance(given[0], int):
            given = [given]
        prompts = [tokenizer.encode(p) if isinstance(p, str) else list(p) for p in given]
        if not prompts or not all(prompts):
            raise RefusedRequest(400, "A prompt has at least one token.", param="prompt")
        if len(prompts) * (self.n or 1) > _MOST_CHOICES:
            said = f"A request has at most {_MOST_CHOICES} choices, over all prompts."
            raise RefusedRequest(400, said, param="prompt")
        return prompts


_LOWEST = -9999.0  # what OpenAI writes for a token that cannot be
Json = dict[str, Any]
Token = SampledToken | ScoredToken


@frozen(eq=False)
class _Answer:
    """What all parts of an answer have in common."""

    id: str
    created: int
    generation: Generation

    def _head(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.generation.model.name,
        }

    def _usage(self, wholes: Sequence[Whole]) -> Json:
        prompt = sum(map(len, self.generation.prompts))
        sampled = sum(len(whole.tokens) for whole in wholes)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": self.generation.cached_tokens},
        }

    def _text_of(self, token: int) -> str:
        return str(self.generation.model.tokenizer.decode([token]))


@frozen(eq=False)
class ChatAnswer(_Answer):
    """The answer to a chat request, whole or in chunks."""

    request: ChatRequest

    def whole(self, wholes: Sequence[Whole]) -> Json:
        """The answer that is not streamed."""
        return {
            **self._head("chat.completion"),
            "choices": [self._choice(i, whole) for i, whole in enumerate(wholes)],
            "usage": self._usage(wholes),
            **self._prompt_ids(),
        }

    def _choice(self, i: int, whole: Whole) -> Json:
        assert whole.end is not None
        return {
            "index": i,
            "message": self._message(i, whole),
            "finish_reason": whole.end.reason,
            **self._of_tokens(whole.tokens),
        }

    def _message(self, i: int, whole: Whole) -> Json:
        message: Json = {"role": "assistant", "content": whole.text, "refusal": None}
        if whole.reasoning:
            message["reasoning_content"] = whole.reasoning
        if whole.end is not None and whole.end.calls:
            message["content"] = whole.text or None
            message["tool_calls"] = self._calls(i, whole.end)
        return message

    def message(self, i: int, whole: Whole) -> Message:
        """A reply as a later request has it."""
        return reply_message(self._message(i, whole))

    def first(self) -> list[Json]:
        """The chunks before the first token."""
        role = {"role": "assistant", "content": ""}
        choices = [
            {"index": i, "delta": role, "logprobs": None, "finish_reason": None}
            for i in range(self.generation.n)
        ]
        return [self._chunk([choice], **self._prompt_ids()) for choice in choices]

    def step(self, step: Step) -> list[Json]:
        """The chunks for another token: none if it has nothing to say yet."""
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
            said = self._of_tokens([step.token])
            choice = {"index": step.choice, "delta": delta, "finish_reason": None, **said}
            chunks.append(self._chunk([choice]))
        if step.end is not None:
            last = {"index": step.choice, "delta": {}, "logprobs": None}
            chunks.append(self._chunk([{**last, "finish_reason": step.end.reason}]))
        return chunks

    def last(self, wholes: Sequence[Whole]) -> list[Json]:
        """The chunk after the last token, with the usage if that is asked for."""
        if not self.request.streams_usage:
            return []
        return [{**self._chunk([]), "usage": self._usage(wholes)}]

    def _chunk(self, choices: list[Json], **more: Any) -> Json:
        usage = {"usage": None} if self.request.streams_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": choices, **usage, **more}

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
        """What a choice says of its tokens: all that were sampled, that which ended it too."""
        said: Json = {"logprobs": None}
        if self.request.logprobs:
            content = [
                {
                    **self._likelihood(token.token, token.logprob),
                    "top_logprobs": [self._likelihood(*other) for other in token.topk],
                }
                for token in tokens
            ]
            said["logprobs"] = {"content": content, "refusal": None}
        if self.request.return_token_ids:
            said["token_ids"] = [token.token for token in tokens]
        return said

    def _likelihood(self, token: int, logprob: float) -> Json:
        text = self._text_of(token)
        # Bytes that are no character by themselves are not known here.
        known = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": max(logprob, _LOWEST), "bytes": known}

    def _prompt_ids(self) -> Json:
        asked = self.request.return_token_ids
        return {"prompt_token_ids": list(self.generation.prompts[0])} if asked else {}


@frozen(eq=False)
class CompletionAnswer(_Answer):
    """The answer to a completion request, whole or in chunks."""

    request: CompletionRequest
    _offsets: dict[int, int] = field(factory=dict, init=False)  # characters so far, by choice

    def whole(self, wholes: Sequence[Whole]) -> Json:
        """The answer that is not streamed."""
        if self.request.max_tokens == 0:  # one token was sampled, for nothing less can be
            wholes = [Whole(end=whole.end) for whole in wholes]
        choices = []
        for i, whole in enumerate(wholes):
            number = i // self.generation.n
            text, tokens = whole.text, list[Token](whole.tokens)
            if self.request.echo:
                prompt = self.generation.prompts[number]
                text = str(self.generation.model.tokenizer.decode(prompt)) + text
                tokens = [*self.generation.scored(number), *tokens]
            choices.append(self._choice(i, text, tokens, whole.end))
        return {**self._head("text_completion"), "choices": choices, "usage": self._usage(wholes)}

    def message(self, i: int, whole: Whole) -> Message:  # noqa: ARG002
        """A text as a message."""
        return {"role": "assistant", "content": whole.text}

    def first(self) -> list[Json]:
        """The chunks before the first token: none."""
        return []

    def step(self, step: Step) -> list[Json]:
        """The chunks for another token: none if it has nothing to say yet."""
        asked = self.request.logprobs is not None or self.request.return_token_ids
        if not (step.piece.text or step.end or asked):
            return []
        return [self._chunk([self._choice(step.choice, step.piece.text, [step.token], step.end)])]

    def last(self, wholes: Sequence[Whole]) -> list[Json]:
        """The chunk after the last token, with the usage if that is asked for."""
        if not self.request.streams_usage:
            return []
        return [{**self._chunk([]), "usage": self._usage(wholes)}]

    def _chunk(self, choices: list[Json]) -> Json:
        usage = {"usage": None} if self.request.streams_usage else {}
        return {**self._head("text_completion"), "choices": choices, **usage}

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
