"""Histories: they take each observation and each sampled reply, and return the next prompt.

Sampled tokens are kept as they are, never decoded and encoded again; where a renderer changes
earlier turns, the prompt is written anew. Messages are plain data in OpenAI's form: ``role`` and
``content``, with ``tool_calls`` of earlier replies, and ``tool_call_id`` and ``name`` of a tool's
result. The first is a system message with ``tools``: a list of ``name``, ``description`` and
``parameters`` (a JSON schema). A content may be a list of parts, texts and images as data URIs.
Templates with a name have the wording of GEM's guide, to compare with its published curves.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache, partial
from threading import Lock
from typing import Any, Protocol

from attrs import define, evolve

from rlc.catalog import OBSERVED, ChatTurns
from rlc.chat.seams import Rendering, Seams
from rlc.chat.turns import (
    ANY_QUESTION,
    NO_CHUNKS,
    Action,
    Chunks,
    EnvError,
    Observation,
    split_chunks,
)
from rlc.data import Chat, Message, read_template
from rlc.errors import first_line

Template = Callable[[str], str]

_REASON = "Please reason step by step, and put your final answer within \\boxed{}."


def _chatml(user: str) -> str:
    return f"<|im_start|>user\n{user}\n{_REASON}<|im_end|>\n<|im_start|>assistant\n"


_TEMPLATES = {
    "no": "{observation}",
    "qwen3_general": _chatml("Question: {observation}"),
    "qwen3_game": _chatml(
        "You are playing language games. Make valid actions to win.\nObservation: {observation}"
    ),
}


def load_template(name: str) -> Template:
    """Return a template by name, or of a file with ``{{ observation }}``, or raise DataError."""
    if name.endswith((".j2", ".jinja")):
        template = read_template(name, OBSERVED)
        return lambda observation: template(observation=observation)
    text = _TEMPLATES[name]
    return lambda observation: text.replace("{observation}", observation)


_LONGEST = 4_096  # characters of a text that is cached
_MOST = 2_048  # texts in the cache


class ChatFormat:
    """The renderer of chats, how each begins and goes on, and caches."""

    def __init__(self, renderer: Any, history: ChatTurns = "sampled", **begins: Any) -> None:
        """``begins``: the arguments of :func:`opening` that are the same for all chats."""
        self.renderer = renderer
        self.seams = Seams(renderer, partial(prompt_of, renderer))
        # A template that leaves earlier turns alone shows their sampled tokens, too.
        alone = renderer.has_extension_property and not self.seams.by_text
        self.goes_on = history == "sampled" or alone
        self._begins = begins
        # All members of a group are asked the same question, and often told the same.
        self.asked = lru_cache(maxsize=1_024)(lambda text: self.opened((_user(text),)))

    def opened(self, shown: Sequence[Mapping[str, Any]]) -> tuple[list[Message], Rendering]:
        """Return the first messages, and the prompt of the first reply."""
        messages = opening(self.renderer, shown, **self._begins)
        return messages, prompt_of(self.renderer, messages)


class ChatHistory:
    """A chat through a renderer. If its turns go on, each prompt extends the previous one and what
    was sampled, and the episode is one sequence; if not, each turn is a prompt of its own."""

    def __init__(self, chats: ChatFormat, whole: bool = False) -> None:
        """``whole``: an action's text is the whole reply, markup and thinking included."""
        self.stop = chats.seams.stop
        self.chunks: Chunks = NO_CHUNKS
        self._chats = chats
        self._whole = whole
        self._messages: list[Message] = []  # of a chat that is written anew
        self._tokens: list[int] = []
        self._reply: list[int] = []

    @property
    def length(self) -> int:
        """The tokens of the last prompt, with those of a reply to it that are kept."""
        return len(self._tokens)

    def copy(self) -> ChatHistory:
        """Return a chat that goes on from here in its own way."""
        other = copy(self)
        other._messages = [*self._messages]
        return other

    def observe(self, observation: Observation) -> list[int]:
        """Return the next prompt. Raise EnvError for messages that the renderer cannot show."""
        shown, chats = observation.messages or (_user(observation.text),), self._chats
        if not self._tokens:
            read = chats.opened(shown) if observation.messages else chats.asked(observation.text)
            self._messages, (self._tokens, chunks) = [*read[0]], read[1]
        elif chats.goes_on:
            seam, chunks = chats.seams.after(self._reply, [*map(rendered, shown)])
            self._tokens = self._tokens + seam
        else:
            self._messages += map(rendered, shown)
            self._tokens, chunks = prompt_of(chats.renderer, self._messages)
        self.chunks = {**self.chunks, **chunks} if chunks else self.chunks
        return self._tokens

    def reply(self, tokens: list[int], ended_by: int | None = None) -> Action:
        """Record the tokens of a reply: the sampled ones, behind a beginning that it was given. One
        that something else has ended is read as if ``ended_by`` had. The action's message is the
        parsed reply, and its text is without thinking, unless it is whole."""
        renderer = self._chats.renderer
        message, _ = renderer.parse_response(tokens if ended_by is None else [*tokens, ended_by])
        last_is_end = bool(tokens) and tokens[-1] in self.stop
        closed = last_is_end or ended_by is not None
        self._reply = tokens
        if self._chats.goes_on:
            self._tokens = self._tokens + tokens
        else:
            self._messages.append(_as_sampled(message))
        if not self._whole:
            return Action(text_of(message), message)
        text = renderer.tokenizer.decode(tokens[:-1] if last_is_end else tokens)
        return Action(text, message, cut_off=not (closed or self._chats.seams.by_text))


def _as_sampled(message: Message) -> Message:
    """Return a parsed reply for later prompts, with the calls that could not be parsed as text."""
    kept = {key: value for key, value in message.items() if key != "unparsed_tool_calls"}
    unread = message.get("unparsed_tool_calls")
    if unread and isinstance(kept["content"], list):
        shown = text_of(kept)  # a call without an end is there already
        lost = [call.raw_text for call in unread if call.raw_text not in shown]
        kept["content"] = [*kept["content"], *({"type": "text", "text": t} for t in lost)]
    return kept


def prompt_of(renderer: Any, messages: Sequence[Message]) -> tuple[list[int], Chunks]:
    """Return messages as a prompt, with chunks. Raise EnvError if the renderer cannot show them, or
    leaves out an image."""
    from tinker_cookbook.exceptions import RendererError

    contents = [content for m in messages if not isinstance(content := m.get("content"), str)]
    images = sum(part["type"] == "image" for content in contents for part in content or ())
    prompt = None
    try:
        prompt = renderer.build_generation_prompt(messages)
    except RendererError as error:
        if not images:
            what = f"the model's chat format cannot show these messages: {first_line(error)}"
            raise EnvError(what) from error
    seen = 0 if prompt is None else sum(chunk.type == "image" for chunk in prompt.chunks)
    if prompt is None or seen < images:
        raise EnvError(f"{_named(renderer)} shows no images; take a model that sees")
    return split_chunks(prompt)


def opening(
    renderer: Any,
    shown: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
    *,
    solved: Sequence[Mapping[str, Any]] = (),
    instruction: str = "",
    system: str = "",
) -> list[Message]:
    """Return the first messages of a chat: ``solved`` ones, and those ``shown``, behind the system
    message of either or ``system``, with ``tools`` in the renderer's own words. ``instruction`` is
    added to the user's last message. Raise EnvError if the renderer cannot show tools, there are
    two system messages, or none takes the instruction."""
    head, *rest = shown if shown[0]["role"] == "system" else ({"role": "system"}, *shown)
    own, tools = text_of(head), [*tools, *(head.get("tools") or ())]
    if own and system:
        raise EnvError(
            "the prompt has a system message of its own, and `chat(system = …)` gives another",
            "leave one of them out",
        )
    messages = with_instruction([rendered(message) for message in rest], instruction)
    text = own or system
    prefix: list[Message] = [{"role": "system", "content": text}] if text else []
    if tools:
        try:
            prefix = renderer.create_conversation_prefix_with_tools(list(tools), text)
        except NotImplementedError as error:
            raise EnvError(
                f"{_named(renderer)} has no way to show tools; take a model that was "
                "trained to call them, or another `renderer`"
            ) from error
    return [*prefix, *map(rendered, solved), *messages]


# Marks around the turns of a chat in the formats of all models.
_MARK = re.compile(r"<[|｜][^<>|｜]+[|｜]>")
_ANY_MARK = re.compile(rf"{_MARK.pattern}|</?[a-z_]+>")
_TAKE_ANOTHER = "use a renderer of the model that is loaded, or load the model that is named"


def with_instruction(messages: Sequence[Mapping[str, Any]], instruction: str) -> list[Message]:
    """Add an instruction, if any, to the user's last message. Raise EnvError without one."""
    instructed: list[Message] = [*map(dict, messages)]
    if instruction:
        last = max((at for at, m in enumerate(instructed) if m["role"] == "user"), default=None)
        if last is None:
            raise EnvError("no message of the prompt is the user's, to take the instruction")
        content = with_text(instructed[last]["content"], instruction)
        instructed[last] = {**instructed[last], "content": content}
    return instructed


def with_text(content: Any, text: str) -> Any:
    """Return a message's content with a line of text after it."""
    if isinstance(content, str):
        return content + ("" if content.endswith("\n") else "\n") + text
    return [*content, {"type": "text", "text": f"\n{text}"}]


def _named(renderer: Any) -> str:
    return f"the model's renderer ({type(renderer).__name__.removesuffix('Renderer')})"


class CachingTokenizer:
    """Any tokenizer, for several threads, with a cache: most texts are the same in every turn and
    for all of a group."""

    # Those of transformers change a setting with each text, and fail while they encode another.
    _encoding = Lock()

    def __init__(self, tokenizer: Any) -> None:
        self.latest = ""  # the text that was encoded last
        self._tokenizer = tokenizer
        self._cached = lru_cache(maxsize=_MOST)(self._encoded)

    def encode(self, text: str, **settings: Any) -> list[int]:
        self.latest = text
        encoded = self._encoded if len(text) > _LONGEST else self._cached
        return list(encoded(text, **settings))

    def _encoded(self, text: str, **settings: Any) -> tuple[int, ...]:
        with self._encoding:
            return tuple(self._tokenizer.encode(text, **settings))

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachingTokenizer) and self._tokenizer is other._tokenizer

    def __hash__(self) -> int:
        return id(self._tokenizer)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up when the object is copied
            raise AttributeError(name)
        return getattr(self._tokenizer, name)


def caching(tokenizer: Any) -> CachingTokenizer:
    """Return a tokenizer with a cache, which may be one already."""
    is_one = isinstance(tokenizer, CachingTokenizer)
    return tokenizer if is_one else CachingTokenizer(tokenizer)


def seeing_renderer(tokenizer: Any, name: str) -> Any:
    """Return a renderer of tinker-cookbook with caches, which shows images if its model can."""
    from tinker_cookbook.renderers import get_renderer

    # The renderers of gpt-oss say so of every system message, although they write it where it
    # belongs, as the developer's.
    warnings.filterwarnings("ignore", "use_system_prompt=True but messages already", UserWarning)
    sight: Any = ImageProcessor(str(tokenizer.name_or_path))
    return get_renderer(name, caching(tokenizer), image_processor=sight)


def fitting_renderer(tokenizer: Any, name: str) -> Any:
    """Return a renderer of tinker-cookbook. Raise EnvError if it needs another tokenizer: one in
    which the marks that it writes around turns are single tokens."""
    misfit = f"the renderer `{name}` does not fit the tokenizer of {tokenizer.name_or_path}"
    cached = caching(tokenizer)

    def require_token(mark: str) -> None:
        if (count := len(cached.encode(mark, add_special_tokens=False))) != 1:
            one = f"`{mark}`, with which it writes chats, is {count} tokens there instead of one"
            raise EnvError(f"{misfit}: {one}", _TAKE_ANOTHER)

    try:
        renderer = seeing_renderer(cached, name)
        prompt = renderer.build_generation_prompt([ANY_QUESTION]).to_ints()
        stops = [stop for stop in renderer.get_stop_sequences() if isinstance(stop, int)]
        renderer.parse_response([*cached.encode("Yes", add_special_tokens=False), *stops[:1]])
    except Exception as error:  # it asserts, unpacks or looks up what this tokenizer lacks
        if _ANY_MARK.fullmatch(cached.latest):
            require_token(cached.latest)
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = str(error).strip() and f": {first_line(error)}"
        why = f"{type(error).__name__}{said} in `{last.line}`"
        raise EnvError(f"{misfit}: {why}", _TAKE_ANOTHER) from error
    for mark in dict.fromkeys(_MARK.findall(tokenizer.decode([*prompt, *stops]))):
        require_token(mark)
    return renderer


@define
class ImageProcessor:
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


def conversation(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
) -> Observation:
    """Return messages with tools as a first observation. Raise EnvError for one without a role."""
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise EnvError("each message of a conversation is an object with a `role` and a `content`")
    if not messages or messages[0]["role"] != "system":
        messages = [{"role": "system", "content": ""}, *messages]
    head, *rest = messages
    return Observation(readable(rest), messages=({**head, "tools": [*tools]}, *rest))


def observation_of(prompt: Chat) -> Observation:
    """Return a prompt of data as the first observation of an episode."""
    if prompt.text is not None:
        return Observation(prompt.text)
    text = "\n\n".join(f"{m['role']}: {text_of(m)}" for m in prompt.messages)
    return evolve(conversation(prompt.messages, prompt.tools), text=text)


def readable(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(text for text in map(text_of, messages) if text)


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message as text for people, without its thinking."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    shown = (part for part in content if part["type"] in ("image", "text"))
    return "".join("[image]" if part["type"] == "image" else str(part["text"]) for part in shown)


def calls_of(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield id, tool and arguments (JSON) of each call in a reply; default ids are numbers."""
    for number, call in enumerate(message.get("tool_calls") or ()):
        yield call.id or f"call_{number}", call.function.name, call.function.arguments


def unread_calls(message: Mapping[str, Any]) -> list[Message]:
    """Return a message for each call in a reply that could not be parsed, which says why."""
    return [
        {"role": "user", "content": f"Error: a tool call could not be read ({call.error})."}
        for call in message.get("unparsed_tool_calls") or ()
    ]


def rendered(message: Mapping[str, Any]) -> Message:
    """Return a message of plain data in the form of the cookbook's renderers."""
    from tinker_cookbook.renderers.base import ToolCall

    content = message.get("content")
    made: Message = {**message, "content": "" if content is None else content}
    if made.get("tool_calls"):
        made["tool_calls"] = [ToolCall.model_validate(call) for call in made["tool_calls"]]
    return made


class PromptBuilder(Protocol):
    """The prompt side of one episode."""

    @property
    def stop(self) -> list[int] | list[str] | None:
        """The renderer's own end of a turn; None: the tokenizer's end of sequence."""

    def observe(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole next prompt."""

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens; return the action for the environment."""


def chunks_of(history: PromptBuilder) -> Chunks:
    """Return the parts of the prompts so far that are not text, by their marks."""
    chunks: Chunks = getattr(history, "chunks", NO_CHUNKS)
    return chunks


class TextHistory:
    """A template that is filled with each observation: every turn is a prompt of its own."""

    stop: list[int] | list[str] | None = None  # at the tokenizer's end of sequence

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer = tokenizer
        self._template = template

    def observe(self, observation: Observation) -> list[int]:
        prompt = self._template(observation.text)
        tokens: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False)
        return tokens

    def reply(self, tokens: list[int]) -> Action:
        return Action(self._tokenizer.decode(tokens, skip_special_tokens=True))


def chat_history(
    tokenizer: Any,
    renderer_name: str,
    *,
    history: ChatTurns = "sampled",
    whole: bool = False,
    **begins: Any,
) -> Callable[[], ChatHistory]:
    """Return a factory of chats; ``begins`` as for :func:`opening`. Raise EnvError for a renderer
    that does not fit the tokenizer."""
    chats = ChatFormat(fitting_renderer(tokenizer, renderer_name), history, **begins)
    return lambda: ChatHistory(chats, whole)


def encoded_reply(reply: str, history: PromptBuilder, tokenizer: Any) -> list[int]:
    """Return a reply with its end: the history's own stop, or the end-of-sequence token."""
    tokens: list[int] = tokenizer.encode(reply, add_special_tokens=False)
    stop = history.stop
    if stop is None:
        return [*tokens, tokenizer.eos_token_id]
    if not isinstance(stop[0], int):
        raise EnvError("the renderer ends a turn with text, not with a token")
    return [*tokens, stop[0]]


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
