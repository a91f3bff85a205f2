"""Requests of OpenAI's API, and what they ask to sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from attrs import evolve
from pydantic import Field

from rlc.service.chats.draw import Draw
from rlc.service.chats.prompts import Message, Tool
from rlc.service.http.inference.messages import image_part
from rlc.service.http.inference.strict import Body, Strict
from rlc.service.http.refusals import Refused

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

    def draw(self, max_tokens: int | None, topk: int | None) -> Draw:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not all(stops):
            raise Refused(400, "A stop must not be empty.", param="stop")
        if self.top_k == 0:
            raise Refused(400, "top_k is -1 (all) or at least 1.", param="top_k")
        if self.stream_options is not None and not self.stream:
            said = "stream_options are for requests with stream = true."
            raise Refused(400, said, param="stream_options")
        return Draw(
            n=self.n or 1,
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or -1,
            seed=self.seed,
            stops=tuple(stops),
            topk=topk or 0,
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

    def how(self) -> Draw:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            said = "max_tokens and max_completion_tokens differ: give one of them."
            raise Refused(400, said, param="max_tokens")
        if self.top_logprobs and not self.logprobs:
            raise Refused(400, "top_logprobs need logprobs = true.", param="top_logprobs")
        return self.draw(next(iter(limits), None), self.top_logprobs)

    def offered(self) -> list[Tool]:
        """The tools that the model may call. Raise Refused (400) for a ``tool_choice`` that nothing
        here can enforce, and for strict ones that cannot be checked."""
        if self.tool_choice not in (None, "auto", "none"):
            said = "tool_choice is auto or none: this server cannot force a call."
            raise Refused(400, said, param="tool_choice")
        if self.tool_choice is not None and not self.tools:
            raise Refused(400, "tool_choice needs tools.", param="tool_choice")
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
        raise Refused(400, f"{where} has no content.", param=f"{where}.content")
    if message.tool_calls and role != "assistant":
        raise Refused(400, f"{where}: only the assistant calls tools.", param=f"{where}.tool_calls")
    if (role == "tool") != (message.tool_call_id is not None):
        said = f"{where}: a message of a tool has a tool_call_id, and no other has one."
        raise Refused(400, said, param=f"{where}.tool_call_id")
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
        raise Refused(400, said, param=where)
    if role != "user":
        raise Refused(400, f"{where}: only the user shows images.", param=where)
    if part.image_url.get("detail") not in (None, "auto"):
        raise Refused(400, f"{where}: the detail of an image is auto.", param=where)
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

    def how(self) -> Draw:
        """How to sample. Raise Refused (400) for parameters that contradict each other."""
        if self.max_tokens == 0 and not self.echo:
            raise Refused(400, "max_tokens = 0 needs echo = true.", param="max_tokens")
        if self.echo and self.stream:
            raise Refused(400, "What echoes its prompt cannot be streamed.", param="echo")
        limit = _SHORT if self.max_tokens is None else max(self.max_tokens, 1)
        how = self.draw(limit, self.logprobs)
        return evolve(how, scores_prompts=bool(self.echo) and self.logprobs is not None)

    def prompts(self, tokenizer: Any) -> list[list[int]]:
        """Its prompts as tokens. Raise Refused (400) for none, or an empty one."""
        given: list[Any] = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt)
        if given and isinstance(given[0], int):
            given = [given]
        prompts = [tokenizer.encode(p) if isinstance(p, str) else list(p) for p in given]
        if not prompts or not all(prompts):
            raise Refused(400, "A prompt has at least one token.", param="prompt")
        if len(prompts) * (self.n or 1) > _MOST_CHOICES:
            said = f"A request has at most {_MOST_CHOICES} choices, over all prompts."
            raise Refused(400, said, param="prompt")
        return prompts
