"""Tokens of texts: of what a recipe writes, and of the rows of files that it names."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from math import ceil, fsum
from typing import Any, Literal

from rlc.catalog import TINY, TINY_TOKENIZER, find_builtin, tokenizer_of
from rlc.data import DataError, DataRow
from rlc.plan import DATA, AnyData, EnvPlan, ModelPlan, Rows, has_rows
from rlc.records import evolve, frozen, values_of

Level = Literal["low", "expected", "high"]
LEVELS: tuple[Level, ...] = ("low", "expected", "high")

CHARACTERS_PER_TOKEN = {"low": 5.0, "expected": 4.0, "high": 2.0}  # of a text that is not counted
FIRST_ROWS = 10_000  # of a file that are measured
_DRAWN = {"low": 0.8, "expected": 1.0}  # of their mean: few rows may be shorter than most


@frozen
class RowTokens:
    """The length of the rows of a file: its mean, and that of the longest. In tokens if they were
    ``counted`` by the model's tokenizer, else in characters; ``rows`` were read."""

    mean: float
    longest: int
    rows: int
    counted: bool

    def at(self, level: Level) -> int:
        """What a row is taken for, in tokens."""
        if level == "high":
            return ceil(self._tokens(self.longest, level))
        return ceil(self._tokens(self.mean, level) * _DRAWN[level])

    @property
    def expected(self) -> float:
        """The mean in tokens, as it is expected."""
        return self._tokens(self.mean, "expected")

    def _tokens(self, length: float, level: Level) -> float:
        return length if self.counted else length / CHARACTERS_PER_TOKEN[level]


def text_tokens(text: str, model: ModelPlan, level: Level) -> int:
    """Tokens of a text: counted if the tokenizer of the model is at hand, else by its length."""
    tokenizer = tokenizer_at_hand(model.base)
    length = _length(text, tokenizer)
    return length if tokenizer else ceil(length / CHARACTERS_PER_TOKEN[level])


def tokenizer_at_hand(base: str) -> Any:
    """The tokenizer of the included model, or of one in a folder; None for others, which come from
    a hub."""
    if tokenizer_of(base) == TINY:
        return _tokenizer_in(TINY_TOKENIZER)
    file = os.path.join(os.path.expanduser(base), "tokenizer.json")
    return _tokenizer_in(file) if os.path.isfile(file) else None


@cache
def _tokenizer_in(file: str) -> Any:
    """The tokenizer in a file; None if the package tokenizers is not installed or cannot read
    it."""
    try:
        tokenizers = importlib.import_module("tokenizers")
        return tokenizers.Tokenizer.from_file(file)
    except Exception:  # it raises no other kind for a file that it does not know
        return None


def tokens_of_rows(env: EnvPlan, model: ModelPlan) -> RowTokens | None:
    """Tokens of what an environment asks, if it takes that from a file that is there."""
    source = find_builtin("env", env.source)
    asked = [param.name for param in source.params if param.holds == "asked"] if source else []
    fields = tuple(str(env.args.get(name)) for name in asked)
    return _row_tokens(env.id, fields, model) if fields else None


def example_tokens(data: AnyData, model: ModelPlan) -> RowTokens | None:
    """Tokens of the examples in the file of a supervised stage, if it is there."""
    fields = (data.prompt, data.reply) if isinstance(data, Rows) else ()
    return None if data.file is None else _row_tokens(data.file, fields, model)


def preference_tokens(data: AnyData, model: ModelPlan) -> RowTokens | None:
    """Tokens of the preferences in a file, each with all its replies and their prompts, if it is
    there."""
    if not has_rows(data):
        return None
    try:
        stat = os.stat(data.path)
    except OSError:
        return None
    whole = evolve(data, split=None, count=None, max_tokens=None, too_long="stop")
    columns = tuple(values_of(whole).items())
    return _compared((stat.st_mtime_ns, stat.st_size), data.word, columns, model.base)


@lru_cache(maxsize=64)
def _compared(
    state: tuple[int, int],  # noqa: ARG001 (a file that changed is measured again)
    word: str,
    columns: tuple[tuple[str, Any], ...],
    base: str,
) -> RowTokens | None:
    from rlc.data import Chat, Comparison, LabelledReply, reader_of, rows_of

    data = DATA[word](**dict(columns))
    path = str(data.file)
    read, tokenizer, lengths = reader_of(data), tokenizer_at_hand(base), list[int]()
    for row in islice(_readable(rows_of(path)), FIRST_ROWS):
        try:
            found = read(row.fields)
        except DataError:
            continue  # what is wrong with it is for `rlc check` to say
        chats = list[Chat]()
        if isinstance(found, Comparison):
            chats = [found.chosen, found.rejected]
        elif isinstance(found, LabelledReply):
            chats = [found.reply]
        if chats:
            texts = (text for chat in chats for text in _texts(chat.messages))
            lengths.append(sum(_length(text, tokenizer) for text in texts))
    return _summed(lengths, tokenizer)


def _row_tokens(path: str, fields: tuple[str, ...], model: ModelPlan) -> RowTokens | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None  # a set known by name, or a file that is not there
    return _measured(path, (stat.st_mtime_ns, stat.st_size), fields, model.base)


@lru_cache(maxsize=64)
def _measured(
    path: str,
    state: tuple[int, int],  # noqa: ARG001 (a file that changed is measured again)
    fields: tuple[str, ...],
    base: str,
) -> RowTokens | None:
    from rlc.data import rows_of

    tokenizer, lengths = tokenizer_at_hand(base), list[int]()
    for row in islice(_readable(rows_of(path)), FIRST_ROWS):
        shown = [row.fields.get(name) for name in fields] if fields else row.fields
        lengths.append(sum(_length(text, tokenizer) for text in _texts(shown)))
    return _summed(lengths, tokenizer)


def _readable(rows: Iterator[DataRow]) -> Iterator[DataRow]:
    """Rows up to the first that cannot be read: what is wrong with it is for `rlc check` to say."""
    try:
        yield from rows
    except DataError:
        return


def _summed(lengths: Sequence[int], tokenizer: Any) -> RowTokens | None:
    if not lengths:
        return None
    mean = fsum(lengths) / len(lengths)
    return RowTokens(mean, max(lengths), len(lengths), tokenizer is not None)


def _length(text: str, tokenizer: Any) -> int:
    """Tokens of a text; its characters if there is no tokenizer."""
    if tokenizer is None:
        return len(text)
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a field, or in the messages that it holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)
