"""The tokens that steps trained on: ``tokens.bin``, beside the texts of ``rollouts.jsonl``.

Each step appends one block. It begins with two lines of JSON: its step, and the sizes of what
follows; then what sequences there are, of which episodes. The numbers of each sequence come after
that, deflated: token ids as 32-bit integers, then 32-bit floats for each token that was trained on.
A block that is not whole ends the file: a crash has cut it off.
"""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from attrs import define, field, frozen

TOKENS_FILE = "tokens.bin"
USUAL, ALL = 64, "all"  # of how many episodes of a step they are kept
_LEVEL = 1  # of zlib: the quickest
_LAYOUT = ("tokens", "logprobs_S", "trainer_S", "advantages_S")


@frozen
class EpisodeKey:
    """Which of the episodes of a step; ``reply`` counts those of one role from 0."""

    env: str
    task: int
    member: int
    role: str = ""
    reply: int = 0


@frozen(eq=False)
class SequenceTokens:
    """One sequence of an episode, with numbers for each token that was trained on, in their order.

    Attributes:
        tokens: all ids, the prompts included; marks of what is not text are negative.
        spans: the turn, the begin and the end of each reply that was trained on.
        logprobs_S: the sampler's logprobs.
        trainer_S: the trainer's, as it computed its gradient; NaN where it did not.
        advantages_S: the advantages, before the aggregation weighs them.
        weight: that of the aggregation; None if the sequence was left out, because none of its
            advantages is other than 0.
    """

    tokens: Sequence[int]
    spans: Sequence[tuple[int, int, int]]
    logprobs_S: Sequence[float]
    trainer_S: Sequence[float]
    advantages_S: Sequence[float]
    weight: float | None = None


@frozen(eq=False)
class EpisodeTokens:
    """The sequences of an episode that have a token to train on."""

    key: EpisodeKey
    sequences: Sequence[SequenceTokens]


def first_groups(episodes: Sequence[EpisodeTokens], most: int | None) -> list[EpisodeTokens]:
    """Return the episodes of the first groups, whole ones, no more than ``most`` of them; one group
    at least, unless it is 0. None stands for all."""
    if most is None or len(episodes) <= most:
        return list(episodes)
    groups: dict[tuple[str, int], list[EpisodeTokens]] = {}
    for episode in episodes:
        groups.setdefault((episode.key.env, episode.key.task), []).append(episode)
    kept = list[EpisodeTokens]()
    for group in groups.values():
        if not most or (kept and len(kept) + len(group) > most):
            break
        kept += group
    return kept


def append_tokens(folder: Path, stage: str, step: int, episodes: Iterable[EpisodeTokens]) -> None:
    """Append the block of a step, if there is anything in it."""
    rows, bodies = list[list[Any]](), list[bytes]()
    for episode in episodes:
        key = episode.key
        for one in episode.sequences:
            parts = [_written(getattr(one, name), name) for name in _LAYOUT]
            bodies.append(zlib.compress(b"".join(parts), _LEVEL))
            who = [key.env, key.task, key.member, key.role, key.reply]
            spans = [list(map(int, span)) for span in one.spans]
            rows.append([*who, len(one.tokens), spans, one.weight, len(bodies[-1])])
    if not rows:
        return
    about, body = f"{json.dumps(rows)}\n".encode(), b"".join(bodies)
    sizes = {"about": len(about), "body": len(body), "crc": zlib.crc32(about + body)}
    start = f"{json.dumps({'stage': stage, 'step': step, **sizes})}\n".encode()
    with (folder / TOKENS_FILE).open("ab") as file:
        file.write(start + about + body)


def keep_blocks(folder: Path, steps: set[tuple[str, int]]) -> None:
    """Leave nothing but the blocks of some steps; the old file stays until the new one is there."""
    path = folder / TOKENS_FILE
    if not path.exists():
        return
    fresh = path.with_suffix(".tmp")
    with path.open("rb") as file, fresh.open("wb") as kept:
        for block in _blocks(file, 0):
            file.seek(block.start)
            whole = file.read(block.end - block.start)
            if (block.stage, block.step) in steps and block.fits(whole):
                kept.write(whole)
    fresh.replace(path)


@frozen
class _Block:
    """Where the block of a step is: from ``start`` to ``end``, what it is about from ``about``, and
    its sequences from ``body``."""

    stage: str
    step: int
    start: int
    about: int
    body: int
    end: int
    crc: int

    def fits(self, whole: bytes) -> bool:
        return zlib.crc32(whole[self.about - self.start :]) == self.crc


def _blocks(file: BinaryIO, offset: int) -> Iterator[_Block]:
    """Yield the blocks from an offset on, up to one that is not whole."""
    size = file.seek(0, 2)
    while offset < size:
        file.seek(offset)
        line = file.readline()
        try:
            found = json.loads(line)
            about = offset + len(line)
            body = about + int(found["about"])
            end = body + int(found["body"])
            block = _Block(
                str(found["stage"]), int(found["step"]), offset, about, body, end, found["crc"]
            )
        except (KeyError, TypeError, ValueError):
            return
        if not line.endswith(b"\n") or not about < body < end <= size:
            return
        yield block
        offset = end


@define(eq=False)
class TokenIndex:
    """The tokens in the folder of a run, which may still be writing them."""

    folder: Path
    _steps: dict[tuple[str, int], _Block] = field(factory=dict, init=False)
    _file: int = field(default=0, init=False)  # the inode of what was read so far
    _end: int = field(default=0, init=False)

    def has(self, stage: str, step: int) -> bool:
        """Whether there are tokens of any episode of a step."""
        return self._found(stage, step) is not None

    def episode(self, stage: str, step: int, key: EpisodeKey) -> list[SequenceTokens]:
        """Return the sequences of an episode; none if they were not kept, or are damaged."""
        if (block := self._found(stage, step)) is None:
            return []
        with (self.folder / TOKENS_FILE).open("rb") as file:
            file.seek(block.start)
            whole = file.read(block.end - block.start)
        if not block.fits(whole):
            return []
        at, found = block.body - block.start, list[SequenceTokens]()
        for *who, count, spans, weight, size in json.loads(whole[block.about - block.start : at]):
            if EpisodeKey(*who) == key:
                found.append(_read(zlib.decompress(whole[at : at + size]), count, spans, weight))
            at += size
        return found

    def _found(self, stage: str, step: int) -> _Block | None:
        """Return the block of a step, as far as the file has been written."""
        path = self.folder / TOKENS_FILE
        if not path.is_file():
            return None
        now = path.stat()
        if now.st_ino != self._file or now.st_size < self._end:
            self._steps, self._file, self._end = {}, now.st_ino, 0
        if now.st_size > self._end:
            with path.open("rb") as file:
                for block in _blocks(file, self._end):
                    self._steps[block.stage, block.step] = block
                    self._end = block.end
        return self._steps.get((stage, step))


def _written(values: Sequence[float], name: str) -> bytes:
    numbers = array("i" if name == "tokens" else "f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _read(body: bytes, count: int, spans: list[list[int]], weight: float | None) -> SequenceTokens:
    """Return a sequence of ``count`` tokens from its numbers."""
    trained = sum(end - begin for _, begin, end in spans)
    rows: list[array[Any]] = []
    at = 0
    for name in _LAYOUT:
        numbers = array("i" if name == "tokens" else "f")
        size = 4 * (count if name == "tokens" else trained)
        numbers.frombytes(body[at : at + size])
        if sys.byteorder == "big":
            numbers.byteswap()
        rows.append(numbers)
        at += size
    tokens, logprobs_S, trainer_S, advantages_S = rows
    places = [(turn, begin, end) for turn, begin, end in spans]
    return SequenceTokens(tokens, places, logprobs_S, trainer_S, advantages_S, weight)
