"""Chats in which the model calls tools, through the tool support of tinker-cookbook's renderers.

The messages of an observation are plain data in OpenAI's form: ``role`` and ``content``, with
``tool_calls`` of earlier replies, and ``tool_call_id`` and ``name`` of a tool's result. The first
is a system message with ``tools``: a list of ``name``, ``description`` and ``parameters`` (a JSON
schema). A content may be a list of parts, texts and images; an image is a data URI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define

from rlc.envs.base import Action, EnvError, Observation
from rlc.envs.chunks import NO_CHUNKS, Chunks, split_chunks

Message = dict[str, Any]

# A short conversation, to render a later turn behind it.
_ASKED: Message = {"role": "user", "content": "."}
_ANSWERED: Message = {"role": "assistant", "content": ""}


class ToolChatHistory:
    """The prompt side of one episode with tools.

    If the renderer keeps earlier turns as they were, each prompt extends the previous sampled
    tokens, so that the episode is one datum. If it rewrites them, each turn is a prompt of its own.
    """

    def __init__(self, renderer: Any, instruction: str = "") -> None:
        """``instruction`` is added to what the user says first."""
        self.stop: list[int] | list[str] | None = renderer.get_stop_sequences()
        self.chunks: Chunks = NO_CHUNKS
        self._renderer = renderer
        self._instruction = instruction
        self._stops = frozenset(stop for stop in self.stop or () if isinstance(stop, int))
        self._keeps = bool(renderer.has_extension_property and self._stops)
        self._messages: list[Message] = []
        self._tokens: list[int] = []

    def observe(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole next prompt. Raise EnvError for tools that the renderer
        cannot show."""
        shown = observation.messages or ({"role": "user", "content": observation.text},)
        if not self._messages:
            self._messages = self._opening(shown)
            self._tokens = self._prompt(self._messages)
            return self._tokens
        new = [rendered(message) for message in shown]
        self._messages += new
        self._tokens = (
            self._tokens + self._after_reply(new) if self._keeps else self._prompt(self._messages)
        )
        return self._tokens

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens. The action's text is the whole reply, markup included; its
        message is the parsed reply."""
        message, _ = self._renderer.parse_response(tokens)
        # Later prompts show calls that could not be parsed as they were sampled.
        kept = {key: value for key, value in message.items() if key != "unparsed_tool_calls"}
        unread = message.get("unparsed_tool_calls")
        if unread and isinstance(kept["content"], list):
            said = [{"type": "text", "text": call.raw_text} for call in unread]
            kept["content"] = [*kept["content"], *said]
        self._messages.append(kept)
        closed = bool(tokens) and tokens[-1] in self._stops
        # A reply cut off at max_tokens must still end before the next turn begins.
        end = [] if closed or not self._keeps else [next(iter(self.stop or ()))]
        self._tokens = self._tokens + tokens + end  # type: ignore[operator]
        return Action(self._renderer.tokenizer.decode(tokens[:-1] if closed else tokens), message)

    def _opening(self, shown: Sequence[Mapping[str, Any]]) -> list[Message]:
        """The first messages, with the tools in the renderer's own words."""
        head, *rest = shown if shown[0]["role"] == "system" else ({"role": "system"}, *shown)
        messages = [rendered(message) for message in rest]
        asked = next((message for message in messages if message["role"] == "user"), None)
        if self._instruction and asked is not None:
            content = asked["content"]
            asked["content"] = (
                f"{content.rstrip()}\n{self._instruction}"
                if isinstance(content, str)
                else [*content, {"type": "text", "text": f"\n{self._instruction}"}]
            )
        system, tools = text_of(head), head.get("tools")
        if not tools:
            return [*([{"role": "system", "content": system}] if system else []), *messages]
        try:
            prefix = self._renderer.create_conversation_prefix_with_tools(list(tools), system)
        except NotImplementedError as error:
            raise EnvError(
                f"{self._named} has no way to show tools; take a model that was "
                "trained to call them, or another `renderer`"
            ) from error
        return [*prefix, *messages]

    def _after_reply(self, new: list[Message]) -> list[int]:
        """The tokens that messages and the next generation prompt add after a reply.

        Rendered behind a short conversation, and cut after the stop token of its reply.
        """
        left = 1 + sum(token in self._stops for token in self._prompt([_ASKED]))
        tokens = self._prompt([_ASKED, _ANSWERED, *new])
        for at, token in enumerate(tokens):
            left -= token in self._stops
            if not left:
                return tokens[at + 1 :]
        raise EnvError("the model's renderer does not end a turn with its stop token")

    def _prompt(self, messages: list[Message]) -> list[int]:
        """Messages as tokens. Raise EnvError if the renderer leaves an image out, as some do
        silently."""
        from tinker_cookbook.exceptions import RendererError

        contents = [content for m in messages if not isinstance(content := m.get("content"), str)]
        images = sum(part["type"] == "image" for content in contents for part in content or ())
        prompt = None
        try:
            prompt = self._renderer.build_generation_prompt(messages)
        except RendererError:
            if not images:
                raise
        seen = 0 if prompt is None else sum(chunk.type == "image" for chunk in prompt.chunks)
        if prompt is None or seen < images:
            raise EnvError(f"{self._named} shows no images; take a model that sees")
        tokens, chunks = split_chunks(prompt)
        self.chunks = {**self.chunks, **chunks} if chunks else self.chunks
        return tokens

    @property
    def _named(self) -> str:
        return f"the model's renderer ({type(self._renderer).__name__.removesuffix('Renderer')})"


def tool_chat_history(
    tokenizer: Any, renderer_name: str, instruction: str = ""
) -> Callable[[], ToolChatHistory]:
    """Return a factory of tool chats with a renderer of tinker-cookbook."""
    from tinker_cookbook.renderers import get_renderer

    sight: Any = Sight(str(tokenizer.name_or_path))
    renderer = get_renderer(renderer_name, tokenizer, image_processor=sight)
    return lambda: ToolChatHistory(renderer, instruction)


@define
class Sight:
    """A model's image processor, which is loaded with the first image."""

    model: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up when the object is copied
            raise AttributeError(name)
        from tinker_cookbook.image_processing_utils import get_image_processor

        try:
            processor = get_image_processor(self.model)
        except (OSError, ValueError) as error:
            raise EnvError(f"there is no image processor of {self.model}") from error
        return getattr(processor, name)


def conversation(prompt: Any, tools: Any = None) -> Observation:
    """A prompt of a row of a file: text, or messages; either may have ``tools``.

    Raise EnvError for messages without a role.
    """
    if isinstance(prompt, str) and not tools:
        return Observation(prompt)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise EnvError("each message of a conversation is an object with a `role` and a `content`")
    if not messages or messages[0]["role"] != "system":
        messages = [{"role": "system", "content": ""}, *messages]
    head, *rest = messages
    return Observation(readable(rest), messages=({**head, "tools": tools or []}, *rest))


def readable(messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages as text for people."""
    return "\n\n".join(text for text in map(text_of, messages) if text)


def text_of(message: Mapping[str, Any]) -> str:
    """A message as text for people, without its thinking."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    shown = (part for part in content if part["type"] in ("image", "text"))
    return "".join("[image]" if part["type"] == "image" else str(part["text"]) for part in shown)


def calls_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Id, tool and arguments (JSON) of each call in a reply; calls without an id are numbered."""
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield call.id or f"call_{number}", call.function.name, call.function.arguments


def unread_calls(message: Mapping[str, Any]) -> list[str]:
    """Why calls in a reply could not be parsed."""
    return [call.error for call in message.get("unparsed_tool_calls") or ()]


def rendered(message: Mapping[str, Any]) -> Message:
    """A message of plain data in the form of the cookbook's renderers."""
    from tinker_cookbook.renderers.base import ToolCall

    content = message.get("content")
    made: Message = {**message, "content": "" if content is None else content}
    if made.get("tool_calls"):
        made["tool_calls"] = [ToolCall.model_validate(call) for call in made["tool_calls"]]
    return made
