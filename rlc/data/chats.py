"""Chats in rows of data, to imitate or as prompts, read by pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlc.data.messages import (
    MARKS,
    Message,
    MessageError,
    read_json,
    read_message,
    read_messages,
    read_tools,
    text_part,
    transcript,
)
from rlc.data.rows import require_field, why_absent
from rlc.records import evolve, frozen

MESSAGES, SHAREGPT = "messages", "conversations"

# The names of the reply in rows that are not chats.
REPLIES = ("completion", "response", "reply", "answer", "output")


@frozen
class Chat:
    """A chat in one form. ``tools`` are without a wrapper; ``trained`` are the numbers (from 0) of
    the messages that are trained on.

    A message has a ``role``, a ``content``, and perhaps ``name``, ``tool_calls`` and
    ``tool_call_id``. A content is text, or a list of parts with a ``type``: ``text``, ``thinking``
    and ``image``, each with its value under the name of its type. A call has an ``id`` or None, and
    a ``function`` with a ``name`` and its ``arguments`` as JSON."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    trained: tuple[int, ...] = ()

    @property
    def text(self) -> str | None:
        """All of it, if it is one text of the user; else None."""
        content = self.messages[0]["content"]
        alone = len(self.messages) == 1 and not self.tools
        return content if alone and isinstance(content, str) else None

    def with_suffix(self, suffix: str) -> Chat:
        """Add text to the user's last message. Raise MessageError if the user says nothing."""
        if not suffix:
            return self
        asked = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        if not asked:
            raise MessageError("no message is the user's, to take the suffix")
        messages, at = [*self.messages], asked[-1]
        content = messages[at]["content"]
        more = content + suffix if isinstance(content, str) else [*content, text_part(suffix)]
        messages[at] = {**messages[at], "content": more}
        return evolve(self, messages=tuple(messages))

    @property
    def images(self) -> int:
        parts = (m["content"] for m in self.messages if not isinstance(m["content"], str))
        return sum(part["type"] == "image" for content in parts for part in content)


def read_chat(row: Mapping[str, Any], field: str | None, train_on: str) -> Chat:
    """Return the chat of a row. ``train_on``: ``all`` the assistant's messages, the ``last``, or
    the ``last_turn``: those after the user's last message. A message's own mark comes before that.
    Raise MessageError for a row that is not a chat, or trains nothing."""
    given = _field(row, field)
    if isinstance(given, str):  # a cell of a CSV file
        given = read_json(given, "the messages")
    messages, marks = read_messages(given)
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if not replies:
        raise MessageError("no message is the assistant's, so there is nothing to train on")
    asked = [at for at in range(replies[-1]) if messages[at]["role"] == "user"]
    chosen = {
        "all": replies,
        "last": replies[-1:],
        "last_turn": [at for at in replies if not asked or at > asked[-1]],
    }[train_on]
    trained = [at for at in replies if (at in chosen if marks[at] is None else marks[at])]
    if not trained:
        marked = ", ".join(f"`{name}`" for name in MARKS)
        raise MessageError(f"none of the assistant's messages is trained on: see their {marked}")
    system = row.get("system")
    if system and not row.get(MESSAGES) and messages[0]["role"] != "system":
        messages = [read_message({"role": "system", "content": system}, "`system`"), *messages]
        trained = [at + 1 for at in trained]
    return Chat(tuple(messages), read_tools(row.get("tools")), tuple(trained))


def read_prompt(
    row: Mapping[str, Any],
    field: str,
    system: bool = False,
    one_text: bool = False,
    cut: bool = False,
) -> Chat:
    """Return the prompt of a row: text, or messages, the last of the user or of a tool. ``system``:
    it has no system message of its own. ``one_text``: it is no more than one text. ``cut``: the
    assistant's messages at the end are left out. Raise MessageError for others."""
    require_field(row, field, "prompt")
    value, tools = row[field], read_tools(row.get("tools"))
    if isinstance(value, str):
        said = transcript(value) if cut else None
        messages: Sequence[Message] = said or [{"role": "user", "content": value}]
    else:
        messages, _ = read_messages(value)
    while cut and len(messages) > 1 and messages[-1]["role"] == "assistant":
        messages = messages[:-1]
    first, last = messages[0]["role"], messages[-1]["role"]
    if last not in ("user", "tool"):
        raise MessageError(
            f"the field `{field}` ends with a message of the {last}; a prompt ends with one of "
            "the user or of a tool, which the model then answers",
            "`replied = cut` leaves a reply at its end out" if last == "assistant" else None,
        )
    if system and first == "system":
        raise MessageError(
            f"the field `{field}` has a system message, and `chat(system = …)` gives another",
            "leave one of them out",
        )
    prompt = Chat(tuple(messages), tools)
    if one_text and prompt.text is None:
        what = f"the field `{field}` has to be one text: a game puts it into its own words"
        raise MessageError(what)
    return prompt


def read_solved(row: Mapping[str, Any], field: str, **rules: bool) -> Chat:
    """Return a prompt to show with its answer. Raise MessageError for a system message or tools."""
    prompt = read_prompt(row, field, **rules)
    if prompt.tools or prompt.messages[0]["role"] == "system":
        raise MessageError("a solved problem has no system message and no tools")
    return prompt


def read_pair(row: Mapping[str, Any], prompt: str, reply: str) -> tuple[Chat, str]:
    """Return prompt and reply of a row. Raise MessageError or FieldError if one is unusable."""
    asked = read_prompt(row, prompt)
    require_field(row, reply, "text")
    return asked, str(row[reply])


def _field(row: Mapping[str, Any], field: str | None) -> Any:
    names = (field,) if field else (MESSAGES, SHAREGPT)
    for name in names:
        if row.get(name) not in ("", None):
            return row[name]
    what = why_absent(row, names)
    reply = next((name for name in REPLIES if name in row), None)
    prompt = next((name for name in ("prompt", "question", "instruction") if name in row), None)
    if not prompt or not reply:
        raise MessageError(what)
    raise MessageError(what, f'take `rows(…, prompt = "{prompt}", reply = "{reply}")`')
