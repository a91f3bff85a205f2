"""Answers of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from rlc.service.chats.model import Generation, ScoredToken
from rlc.service.chats.prompts import Message
from rlc.service.chats.replies import End, Step, Whole
from rlc.service.http.inference.openai.requests import (
    ChatRequest,
    CompletionRequest,
    reply_message,
)
from rlc.service.interface import SampledToken

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
                    "top_logprobs": [self._likelihood(*other) for other in token.likeliest],
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
                    {self._text_of(other): max(lp, _LOWEST) for other, lp in token.likeliest}
                    or None
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
