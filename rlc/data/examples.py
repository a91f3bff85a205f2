"""Examples in rows of data: the reader of each kind, and preferences as TRL's data sets, HH-RLHF,
UltraFeedback, HelpSteer3, SafeRLHF, the arena's and tinker-cookbook's comparisons have them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rlc.data.chats import MESSAGES, REPLIES, Chat, read_chat, read_pair
from rlc.data.errors import DataError
from rlc.data.messages import (
    Message,
    MessageError,
    read_json,
    read_messages,
    read_tools,
    transcript,
)
from rlc.data.rows import first_of, why_absent
from rlc.plan import AnyData, Chats, LabelledReplies, Pairs, Rows
from rlc.records import frozen

# The names of fields where a recipe gives none; the first that a row has is taken.
PROMPTS = ("prompt", "question", "instruction", "query", "input", "context")
CHOSEN = ("chosen", "chosen_response")
REJECTED = ("rejected", "rejected_response")

# What a row may call its ratings, by the argument that names another field.
RATED: Mapping[str, tuple[str, ...]] = {
    **{
        f"{side}_rating": (f"{side}_rating", f"score_{side}", f"{side}_score", f"{side}-rating")
        for side in ("chosen", "rejected")
    },
    "margin": ("margin",),
    "rating": ("rating", "score"),
}
_STRENGTH = "overall_preference"  # of HelpSteer3: its size is a margin

# Two replies, and what says which is better: fields of the replies, of the verdict, and what the
# verdict is for the first, for the second, and for neither; a number is judged by its sign.
_VERDICTS: tuple[tuple[str, str, str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("conversation_a", "conversation_b", "winner", ("model_a", "a", "A"), ("model_b", "b", "B")),
    ("completion_A", "completion_B", "label", ("A",), ("B",)),
    ("response_0", "response_1", "better_response_id", (0,), (1,)),
)
_NEITHER = ("tie", "both_bad", "tie (bothbad)", "bothbad", "neither")
_TRUE, _FALSE = (True, 1, "true", "1"), (False, 0, "false", "0")


class ComparisonError(DataError):
    """A row that says nothing about which reply is better, or good."""


@frozen
class Comparison:
    """A better and a worse reply to one prompt, the first ``asked`` messages of both chats."""

    chosen: Chat
    rejected: Chat
    asked: int


@frozen
class LabelledReply:
    """A reply that is good or bad: a chat whose first ``asked`` messages are the prompt."""

    reply: Chat
    asked: int
    good: bool


def read_comparison(row: Mapping[str, Any], data: Pairs) -> Comparison | None:
    """Return the comparison of a row; None for a tie. Raise MessageError or ComparisonError."""
    system, tools = row.get("system"), read_tools(row.get("tools"))
    given = (data.prompt, data.chosen, data.rejected)
    found = None if any(given) else _judged(row)
    if found is None:
        prompt = first_of(row, PROMPTS, data.prompt)
        chosen, rejected = (
            _required(row, usual, name)
            for usual, name in ((CHOSEN, data.chosen), (REJECTED, data.rejected))
        )
    else:
        prompt, chosen, rejected = found
        if chosen is None:
            return None
    asked = None if prompt is None else _with_system(_prompt(prompt), system)
    sides = [
        _whole(reply, asked, name) for reply, name in ((chosen, "better"), (rejected, "worse"))
    ]
    if sides[0] == sides[1]:
        return None
    shared = _shared(sides[0], sides[1])
    better, worse = (_chat(side, shared, tools) for side in sides)
    return Comparison(better, worse, shared)


def read_labelled(row: Mapping[str, Any], data: LabelledReplies) -> LabelledReply:
    """Return the labelled reply of a row. Raise MessageError or ComparisonError for others."""
    tools = read_tools(row.get("tools"))
    prompt = first_of(row, PROMPTS, data.prompt)
    reply = _required(row, REPLIES, data.reply)
    label = _required(row, ("label",), data.label)
    word = label.strip().lower() if isinstance(label, str) else label
    if isinstance(word, float) and word.is_integer():
        word = int(word)
    if not isinstance(word, str | bool | int) or word not in (*_TRUE, *_FALSE):
        raise ComparisonError(f"the label is {label!r}; it is true or false")
    asked = None if prompt is None else _with_system(_prompt(prompt), row.get("system"))
    whole = _whole(reply, asked, "labelled")
    if asked is None:
        last = [at for at, message in enumerate(whole) if message["role"] == "user"]
        asked = whole[: last[-1] + 1] if last else []
    return LabelledReply(_chat(whole, len(asked), tools), len(asked), word in _TRUE)


def rating_columns(data: AnyData, name: str) -> tuple[str, ...]:
    """Return the arguments of data whose fields an input of a loss, such as ``rating_margin``, is
    made of. A margin is that of both ratings if the recipe names these, and no margin; the rating
    of a reply is that of its side, if it comes from a pair."""
    if name == "rating" and isinstance(data, Pairs):
        return data.ratings[:2]
    if name != "rating_margin":
        return (name,)
    named = [column for column in data.ratings if getattr(data, column) is not None]
    return data.ratings[:2] if named and "margin" not in named else ("margin",)


def read_ratings(row: Mapping[str, Any], data: AnyData, names: Sequence[str]) -> dict[str, float]:
    """Return what the inputs ``names`` of a loss are in a row; in place of ``rating`` in a pair,
    that of each side. Raise ComparisonError for one that is not there, or no finite number."""
    found = dict[str, float]()
    for name in names:
        columns = rating_columns(data, name)
        if columns == ("margin",) and "margin" not in row and not getattr(data, columns[0]):
            if row.get(_STRENGTH) is not None:
                found[name] = abs(_number(row[_STRENGTH], _STRENGTH))
                continue
            columns = data.ratings[:2]
        values = [_rating(row, data, name, column) for column in columns]
        if name == "rating_margin":
            found[name] = values[0] - values[1] if len(values) > 1 else values[0]
        else:
            found |= zip(columns, values, strict=True)
    return found


def _known(row: Mapping[str, Any], data: AnyData, column: str) -> list[str]:
    """Return the fields of a row that may have what an argument names, and have it."""
    named = getattr(data, column)
    return [one for one in ((named,) if named else RATED[column]) if row.get(one) is not None]


def _rating(row: Mapping[str, Any], data: AnyData, name: str, column: str) -> float:
    if fields := _known(row, data, column):
        return _number(row[fields[0]], fields[0])
    named = getattr(data, column)
    wanted = (named,) if named else RATED[column]
    if not named and name == "rating_margin":
        wanted = (*RATED["margin"], *wanted)
    hint = "give every row a number, or leave such rows out"
    if not any(one in row for one in wanted):
        argument = "margin" if name == "rating_margin" and not named else column
        hint = f"name the field that has it: `{data.word}(…, {argument} = …)`"
    raise ComparisonError(f"the loss reads `{name}`, and {why_absent(row, wanted)}", hint)


def _number(value: Any, field: str) -> float:
    """Return a number of a row; in a CSV file it is text. Raise ComparisonError for another value,
    and for what is not finite."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ComparisonError(f"`{field}` is {value!r}; a rating is a finite number")
    return number


def repeats(row: Mapping[str, Any], data: Pairs) -> bool:
    """Return whether the two replies of a row that can be read are the same, and it is no tie."""
    if read_comparison(row, data) is not None:
        return False
    judged = None if any((data.prompt, data.chosen, data.rejected)) else _judged(row)
    return judged is None or judged[1] is not None


def compares(row: Mapping[str, Any], data: Pairs) -> bool:
    """Return whether a row is learnt from; one that cannot be used counts, as it is an error."""
    try:
        return read_comparison(row, data) is not None
    except DataError:
        return True


def _judged(row: Mapping[str, Any]) -> tuple[Any, Any, Any] | None:
    """Return the prompt, the better and the worse reply of a row with two replies and a verdict;
    None if it has another form. The replies of a tie are None."""
    prompt = first_of(row, PROMPTS, None)
    if isinstance(row.get("comparison"), Mapping):  # of tinker-cookbook
        row = {**row, **row["comparison"]}
        prompt = row.get("prompt_conversation")
    for first, second, verdict, wins, loses in _VERDICTS:
        if {first, second, verdict} <= row.keys():
            said = row[verdict]
            if said in wins:
                return prompt, row[first], row[second]
            if said in loses:
                return prompt, row[second], row[first]
            if said is None or str(said).lower() in _NEITHER:
                return prompt, None, None
            known = ", ".join(repr(one) for one in (*wins[:1], *loses[:1], _NEITHER[0]))
            raise ComparisonError(f"`{verdict}` is {said!r}; known are {known}")
    sides = row.get("response1"), row.get("response2")  # of HelpSteer3
    preference = row.get(_STRENGTH)
    if None in sides or preference is None:
        return None
    if not isinstance(preference, int | float):
        raise ComparisonError(f"`{_STRENGTH}` is {preference!r}; it is a number")
    if preference == 0:
        return prompt, None, None
    return prompt, *(sides if preference < 0 else sides[::-1])


def _required(row: Mapping[str, Any], usual: Sequence[str], name: str | None) -> Any:
    value = first_of(row, usual, name)
    if value is None:
        raise ComparisonError(why_absent(row, (name,) if name else usual))
    return value


def _messages(value: Any) -> list[Any] | None:
    """Return a value as a list of messages, or None. Cells of a CSV file are JSON text."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, str) and re.match(r'\s*\[\s*\{\s*"(role|content|from)"', value):
        value = read_json(value, "the messages")
    return value if isinstance(value, list) else None


def _prompt(value: Any) -> list[Message]:
    given = _messages(value)
    if given is None and isinstance(value, str):
        given = transcript(value) or [{"role": "user", "content": value}]
        if given[-1] == {"role": "assistant", "content": ""}:  # where the reply goes on
            given = given[:-1]
    messages, _ = read_messages(given if given is not None else value)
    if messages[-1]["role"] not in ("user", "tool"):
        raise MessageError(
            f"the prompt ends with a message of the {messages[-1]['role']}; a prompt ends with one "
            "of the user or of a tool, which the model then answers"
        )
    return messages


def _with_system(messages: list[Message], system: Any) -> list[Message]:
    if not isinstance(system, str) or not system.strip() or messages[0]["role"] == "system":
        return messages
    return [{"role": "system", "content": system}, *messages]


def _whole(reply: Any, asked: list[Message] | None, name: str) -> list[Message]:
    given = _messages(reply)
    if given is None and isinstance(reply, str):
        given = transcript(reply) if asked is None else [{"role": "assistant", "content": reply}]
        if given is None:
            raise ComparisonError(
                f"the {name} reply is text, and there is no prompt that it answers",
                f"name the field: `prompt = …`; usual are {', '.join(PROMPTS[:3])}",
            )
    if given is None:
        raise MessageError(f"the {name} reply is neither text nor messages")
    first = given[0] if given else None
    speaker = first.get("role") or first.get("from") if isinstance(first, Mapping) else None
    if asked is None or speaker in ("user", "human", "system"):
        whole, _ = read_messages(given)
        start = next((at for at, message in enumerate(whole) if message["role"] != "system"), 0)
        plain = [message["content"] for message in asked or () if message["role"] != "system"]
        if [message["content"] for message in whole[start : start + len(plain)]] != plain:
            raise ComparisonError(f"the {name} reply is a chat that does not begin with the prompt")
    else:
        whole, _ = read_messages([*asked, *given])
    if whole[-1]["role"] != "assistant":
        raise MessageError(f"the {name} reply ends with a message of the {whole[-1]['role']}")
    return whole


def _shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many messages two chats share. Raise ComparisonError if they part elsewhere."""
    length = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    if length in (len(one), len(other)):
        raise ComparisonError("one of the replies is the beginning of the other")
    if {one[length]["role"], other[length]["role"]} != {"assistant"}:
        raise ComparisonError("the replies do not answer the same prompt")
    if length == 0:
        raise ComparisonError("the replies have no prompt in common")
    return length


def _chat(messages: Sequence[Message], asked: int, tools: Any) -> Chat:
    said = range(asked, len(messages))
    return Chat(
        tuple(messages), tools, tuple(i for i in said if messages[i]["role"] == "assistant")
    )


Row = Mapping[str, Any]

# What reads a row of each kind of data that has rows.
_READERS: Mapping[type[AnyData], Callable[[Row, Any], object]] = {
    Rows: lambda row, data: read_pair(row, data.prompt, data.reply),
    Chats: lambda row, data: read_chat(row, data.messages, data.train_on),
    Pairs: read_comparison,
    LabelledReplies: read_labelled,
}
# The field by whose content their rows are divided into parts.
_HASHED: Mapping[type[AnyData], Callable[[Any], str]] = {
    Rows: lambda data: str(data.prompt),
    Chats: lambda data: data.messages or MESSAGES,
    Pairs: lambda data: data.prompt or PROMPTS[0],
    LabelledReplies: lambda data: data.prompt or PROMPTS[0],
}


def reader_of(data: AnyData) -> Callable[[Row], object]:
    read = _READERS[type(data)]
    return lambda row: read(row, data)


def hashed(data: AnyData) -> str:
    """Return the field by whose content the rows of such a file are divided into parts."""
    return _HASHED[type(data)](data)


def kept(data: AnyData) -> Callable[[Row], bool] | None:
    """Return the predicate of the rows that are learnt from; None if all are."""
    return partial(compares, data=data) if isinstance(data, Pairs) else None
