"""Examples from the rows of a file, as sequences of tokens; each message of a chat after the very
prompt that it is sampled from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.catalog import code_of_data, preference_traits
from rlc.chat import (
    ANY_QUESTION,
    ChatFormat,
    ChatHistory,
    EnvError,
    chunks_of,
    encoded_reply,
    fitting_renderer,
    observation_of,
    opening,
    rendered,
    split_chunks,
)
from rlc.data import (
    Chat,
    DataError,
    DataRow,
    FilePlace,
    Message,
    at_place,
    hashed,
    read_chat,
    read_comparison,
    read_labelled,
    read_pair,
    read_ratings,
    reader_of,
    rows_in,
    rows_of,
    said,
)
from rlc.plan import (
    Chats,
    LabelledReplies,
    Pairs,
    ReadData,
    RowData,
    Rows,
    StagePlan,
    has_rows,
)
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, TokenSequence

_CALLED: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
_REASONED: Message = {
    "role": "assistant",
    "content": [{"type": "thinking", "thinking": "."}, {"type": "text", "text": "."}],
}


@define(slots=False)
class SupervisedRenderer:
    """Renders chats; ``differing`` counts messages after others than their sampling prompts."""

    renderer: Any
    name: str
    differing: int = field(default=0, init=False)

    def sequences(self, chat: Chat) -> list[TokenSequence]:
        """Return the sequences of the trained messages, joined if they extend each other.

        The weights are those of ``build_supervised_examples`` of tinker-cookbook 0.5.8, except
        that a token of the prompt is never trained on. Raise DataError for a chat that the renderer
        does not show as it is.
        """
        self._require_shown(chat)
        try:
            messages = opening(self.renderer, chat.messages, chat.tools)
        except EnvError as error:
            raise DataError(str(error)) from error
        added = len(messages) - len(chat.messages)  # a system message with the tools
        sequences = list[TokenSequence]()
        for turn, at in enumerate(chat.trained):
            try:
                sequence = self._sequence(messages[: at + added + 1], turn)
            except DataError as error:
                raise DataError(f"message {at + 1}: {error.what}", error.hint) from error
            known = len(sequences[-1].tokens) if sequences else 0
            if known and sequence.tokens[:known] == sequences[-1].tokens:
                sequence.turns[:known] = sequences.pop().turns
            sequences.append(sequence)
        return sequences

    def _sequence(self, messages: list[Message], turn: int) -> TokenSequence:
        from tinker_cookbook.exceptions import RendererError
        from tinker_cookbook.renderers import TrainOnWhat

        try:
            prompt, _ = split_chunks(self.renderer.build_generation_prompt(messages[:-1]))
            shown, weights = self.renderer.build_supervised_example(
                messages, train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE
            )
        except RendererError as error:
            raise DataError(str(error)) from error
        tokens, chunks = split_chunks(shown)
        turns = [turn if weight else NOT_SAMPLED for weight in weights.tolist()]
        if turn not in turns:
            raise DataError(f"the renderer `{self.name}` leaves nothing of it to train on")
        self.differing += tokens[: len(prompt)] != prompt
        return TokenSequence(tokens, [0.0] * len(tokens), turns, chunks)

    def _require_shown(self, chat: Chat) -> None:
        """Raise DataError for content that the renderer would silently leave out."""
        if any(message.get("tool_calls") for message in chat.messages) and not self._shows_calls:
            what = f"the renderer `{self.name}` does not write calls of tools"
            raise DataError(what, "use a model that was trained to call tools")
        reasoned = (at for at in chat.trained if not isinstance(chat.messages[at]["content"], str))
        if next(reasoned, None) is not None and not self._shows_reasoning:
            what = f"the renderer `{self.name}` leaves out the reasoning of what is trained on"
            raise DataError(what, "use a renderer that thinks, or data without reasoning")
        if chat.images and not hasattr(self.renderer, "image_processor"):
            raise DataError(f"the renderer `{self.name}` shows no images; take a model that sees")

    @cached_property
    def _shows_calls(self) -> bool:
        return self._differ(_CALLED, {**_CALLED, "tool_calls": []})

    @cached_property
    def _shows_reasoning(self) -> bool:
        return self._differ(_REASONED, {"role": "assistant", "content": "."})

    def _differ(self, one: Message, other: Message) -> bool:
        """Return whether the renderer writes two replies differently, or refuses to write one."""
        from tinker_cookbook.exceptions import RendererError

        try:
            shown = [
                self.renderer.build_supervised_example([ANY_QUESTION, rendered(reply)])[0].to_ints()
                for reply in (one, other)
            ]
        except RendererError:
            return True  # and says so of the chat itself
        return bool(shown[0] != shown[1])


Row = Mapping[str, Any]


@frozen
class RowSequences:
    """The sequences of a row by its parts, texts to show, the weight of each trained token, and the
    ratings that the loss reads."""

    parts: Mapping[str, list[TokenSequence]]
    shown: Mapping[str, str] = field(factory=dict)
    weight: float = 1.0
    ratings: Mapping[str, float] = field(factory=dict)

    @property
    def length(self) -> int:
        return max(len(sequence.tokens) for part in self.parts.values() for sequence in part)

    def record(self, place: FilePlace) -> dict[str, Any]:
        """Return the record of the run folder."""
        parts = {name: [s.written() for s in part] for name, part in self.parts.items()}
        more: dict[str, Any] = {"shown": self.shown} if self.shown else {}
        more |= {"weight": self.weight} if self.weight != 1 else {}
        more |= {RATINGS: self.ratings} if self.ratings else {}
        return {"place": str(place), **parts, **more}


# The parts of an example: the imitated sequences, or the better and the worse reply.
LEARNT, CHOSEN, REJECTED = "sequences", "chosen", "rejected"
RATINGS = "ratings"  # what a record calls those of its row


def file_examples(
    stage: StagePlan, data: ReadData, tokenizer: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the examples of a stage's file, as records of the run folder, and notes on them.

    Raise DataError for a row that cannot be used; RunError for rows that are too long, unless the
    plan drops them, and if none is left.
    """
    model, ties = stage.model, 0
    conversations = SupervisedRenderer(fitting_renderer(tokenizer, model.renderer), model.renderer)
    limits = [limit for limit in (data.max_tokens, model.context) if limit is not None]
    records, notes, long = list[dict[str, Any]](), list[str](), list[tuple[FilePlace, int]]()
    for place, made in _read(stage, data, tokenizer, conversations):
        if made is None:
            ties += 1
        elif limits and made.length > min(limits):
            long.append((place, made.length))
        else:
            records.append(made.record(place))
    if long:
        place, length = long[0]
        what = (
            f"{len(long):,} of {len(long) + len(records):,} rows of {data.read} have more than "
            f"{min(limits):,} tokens; the first is {place} with {length:,}"
        )
        if data.too_long == "stop" or not records:
            raise RunError(what, "`too_long = drop` leaves such rows out")
        notes.append(f"{stage.name}: left out, {what}")
    lacks = "a better reply" if data.compares else "a token that is trained on"
    if ties and not records:
        raise RunError(f"none of the {ties:,} rows of {data.read} has {lacks}")
    if ties:
        notes.append(f"{stage.name}: left out, {ties:,} rows of {data.read} without {lacks}")
    if conversations.differing:
        notes.append(
            f"{stage.name}: the renderer `{model.renderer}` writes {conversations.differing:,} of "
            "the messages that are trained on after something else than the prompt that it samples "
            "them with"
        )
    return records, notes


def _read(
    stage: StagePlan, data: ReadData, tokenizer: Any, conversations: SupervisedRenderer
) -> Iterator[tuple[FilePlace, RowSequences | None]]:
    if has_rows(data):
        names = rating_names(stage)
        for row in _rows(data):
            with at_place(row.place):
                made = READERS[type(data)](data, conversations, row.fields)
                if made is not None and names:
                    made = evolve(made, ratings=read_ratings(row.fields, data, names))
                yield row.place, made
        return
    code = code_of_data(data)
    assert code is not None, "what is read and has no rows is made by code"
    from rlc.envs import builder_examples

    batch = stage.source.size if stage.source else 1
    examples = builder_examples(code, str(data.split), batch, tokenizer, stage.model.renderer)
    for number, example in enumerate(islice(examples, data.count), start=1):
        turns = [0 if trained else NOT_SAMPLED for trained in example.trained]
        zeros = [0.0] * len(turns)
        sequence = TokenSequence(example.tokens, zeros, turns, example.chunks)
        read = RowSequences({LEARNT: [sequence]}, weight=example.weight) if 0 in turns else None
        yield FilePlace(code.target, number), read


def rating_names(stage: StagePlan) -> tuple[str, ...]:
    """Return the inputs of a stage's loss that the rows of its data have."""
    objective = stage.preference
    return () if objective is None else preference_traits(objective.loss).ratings


def read_all(stage: StagePlan, data: RowData) -> None:
    """Raise DataError for a row of a stage's file that cannot be used."""
    read, names = reader_of(data), rating_names(stage)
    for row in _rows(data):
        with at_place(row.place):
            if read(row.fields) is not None and names:
                read_ratings(row.fields, data, names)


def _rows(data: RowData) -> Iterable[DataRow]:
    if data.split is None:  # of a plan that an older version wrote
        return islice(rows_of(data.path), data.count)
    rows = rows_in(data.path, data.split, hashed(data))
    if data.count is not None and data.count > len(rows):
        there = f"{data.path} has {len(rows):,} rows in {said(data.split)}"
        raise DataError(f"`n = {data.count}`, but {there}")
    return rows[: data.count]


def _chats(data: Any, conversations: SupervisedRenderer, row: Row) -> RowSequences:
    return RowSequences(
        {LEARNT: conversations.sequences(read_chat(row, data.messages, data.train_on))}
    )


def _compared(data: Any, conversations: SupervisedRenderer, row: Row) -> RowSequences | None:
    if (found := read_comparison(row, data)) is None:
        return None
    return _sides({CHOSEN: found.chosen, REJECTED: found.rejected}, found.asked, conversations)


def _labelled(data: Any, conversations: SupervisedRenderer, row: Row) -> RowSequences:
    found = read_labelled(row, data)
    return _sides({CHOSEN if found.good else REJECTED: found.reply}, found.asked, conversations)


def _sides(
    sides: Mapping[str, Chat], asked: int, conversations: SupervisedRenderer
) -> RowSequences:
    """Return replies as sequences, with the texts of the prompt's last message and of each."""

    def text(message: Mapping[str, Any]) -> str:
        content = message["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text", f"<{part['type']}>") for part in content)

    last = next(iter(sides.values())).messages[asked - 1]
    shown = {"prompt": text(last), **{name: text(c.messages[-1]) for name, c in sides.items()}}
    return RowSequences(
        {name: conversations.sequences(chat) for name, chat in sides.items()}, shown
    )


def _pairs(data: Any, conversations: SupervisedRenderer, row: Row) -> RowSequences:
    """Return a prompt as it is when the model is sampled, with the text of its reply after it."""
    prompt, reply = read_pair(row, data.prompt, data.reply)
    history = ChatHistory(ChatFormat(conversations.renderer))
    try:
        shown = history.observe(observation_of(prompt))
        tokens = encoded_reply(reply, history, conversations.renderer.tokenizer)
    except EnvError as error:
        raise DataError(str(error), error.hint) from error
    sequence = TokenSequence(chunks=chunks_of(history))
    sequence.append(shown, [0.0] * len(shown), NOT_SAMPLED)
    sequence.append(tokens, [0.0] * len(tokens), 0)
    return RowSequences({LEARNT: [sequence]})


# The functions that read a row; None for a row from which nothing is learnt.
READERS: Mapping[type[RowData], Callable[[Any, SupervisedRenderer, Row], RowSequences | None]] = {
    Chats: _chats,
    Rows: _pairs,
    Pairs: _compared,
    LabelledReplies: _labelled,
}
