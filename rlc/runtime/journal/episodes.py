"""The episodes of a run in its files: ``rollouts.jsonl``, and the tokens in ``tokens.bin``.

The rollouts of a long run have gigabytes. Of each line only its beginning is parsed, which says
what the episode is and how it went; its turns are parsed when they are asked for.

Each step appends one block to the tokens. It begins with two lines of JSON: its step, and the sizes
of what follows; then what sequences there are, of which episodes. The numbers of each sequence come
after that, deflated: token ids as 32-bit integers, then columns of floats for each token that was
sampled, of 32 bits where these hold them exactly, else of 64. An incomplete block, which a crash
has cut off, ends the file. Older files have only what was trained on, in 32 bits.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from attrs import define, field, frozen

from rlc.runtime.journal.metrics import ROLLOUTS_FILE, Record, parse_line
from rlc.runtime.records import grouped

TOKENS_FILE = "tokens.bin"
USUAL, ALL = 64, "all"  # numbers of episodes of a step whose tokens are kept
_LEVEL = 1  # of zlib: the quickest
_COLUMNS = ("logprobs_S", "trainer_S", "advantages_S")
TopTokens = tuple[Sequence[Sequence[int]], Sequence[Sequence[float]], Sequence[float]]


@frozen
class EpisodeKey:
    """The key of an episode in its step; ``reply`` counts those of one role from 0."""

    env: str
    task: int
    member: int
    role: str = ""
    reply: int = 0


@frozen(eq=False)
class SequenceTokens:
    """One sequence of an episode, with values for each token that was sampled, in their order.

    Attributes:
        tokens: all ids, the prompts included; marks of what is not text are negative.
        spans: the turn, the begin and the end of each reply.
        logprobs_S: the sampler's logprobs.
        trainer_S: the trainer's logprobs when it computed the gradient; NaN without one.
        advantages_S: the advantages, before the weights of the aggregation.
        weight: that of the aggregation; None if all advantages are 0 and there was no gradient.
        scored: logprobs under other models, ``reference`` or ``teacher``, NaN where unknown.
        topk: a teacher's most likely tokens [S][K], their shares [S][K], and what these add up to.
    """

    tokens: Sequence[int]
    spans: Sequence[tuple[int, int, int]]
    logprobs_S: Sequence[float]
    trainer_S: Sequence[float]
    advantages_S: Sequence[float]
    weight: float | None = None
    scored: Mapping[str, Sequence[float]] = field(factory=dict)
    topk: TopTokens | None = None


@frozen(eq=False)
class EpisodeTokens:
    """The sequences of an episode."""

    key: EpisodeKey
    sequences: Sequence[SequenceTokens]


def first_groups(episodes: Sequence[EpisodeTokens], most: int | None) -> list[EpisodeTokens]:
    """Return the episodes of the first groups, at most so many, but of one group unless it is 0."""
    if most is None or len(episodes) <= most:
        return list(episodes)
    kept = list[EpisodeTokens]()
    for group in grouped(episodes, lambda one: (one.key.env, one.key.task)).values():
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
            kinds, parts = "", [_packed(one.tokens, "i")]
            columns = [*(getattr(one, name) for name in _COLUMNS), *one.scored.values()]
            width = len(one.topk[0][0]) if one.topk is not None and one.topk[0] else 0
            if one.topk is not None and width:
                tokens_SK, shares_SK, mass_S = one.topk
                parts.append(_packed([token for row in tokens_SK for token in row], "i"))
                columns += [[share for row in shares_SK for share in row], mass_S]
            for column in columns:
                kind, written = _smallest(column)
                kinds += kind
                parts.append(written)
            bodies.append(zlib.compress(b"".join(parts), _LEVEL))
            who = [key.env, key.task, key.member, key.role, key.reply]
            spans = [list(map(int, span)) for span in one.spans]
            row = [*who, len(one.tokens), spans, one.weight, len(bodies[-1])]
            rows.append([*row, {"kinds": kinds, "scored": [*one.scored], "k": width}])
    if not rows:
        return
    about, body = f"{json.dumps(rows)}\n".encode(), b"".join(bodies)
    sizes = {"about": len(about), "body": len(body), "crc": zlib.crc32(about + body)}
    start = f"{json.dumps({'stage': stage, 'step': step, **sizes})}\n".encode()
    with (folder / TOKENS_FILE).open("ab") as file:
        file.write(start + about + body)


def keep_blocks(folder: Path, steps: set[tuple[str, int]]) -> None:
    """Delete the blocks of other steps; the old file stays until the new one is there."""
    path = folder / TOKENS_FILE
    if not path.exists():
        return
    fresh = path.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)
    append_blocks(path, fresh, steps)
    fresh.replace(path)


def append_blocks(source: Path, target: Path, steps: Container[tuple[str, int]]) -> None:
    """Append the blocks of steps in a file, if there is one, to another file."""
    if not source.is_file():
        return
    with source.open("rb") as file, target.open("ab") as kept:
        for block in _blocks(file, 0):
            file.seek(block.start)
            content = file.read(block.end - block.start)
            if (block.stage, block.step) in steps and block.fits(content):
                kept.write(content)


@frozen
class _Block:
    """The place of a step's block, of the list of its sequences, and of their numbers."""

    stage: str
    step: int
    start: int
    about: int
    body: int
    end: int
    crc: int

    def fits(self, content: bytes) -> bool:
        return zlib.crc32(content[self.about - self.start :]) == self.crc


def _blocks(file: BinaryIO, offset: int) -> Iterator[_Block]:
    """Yield the blocks from an offset on, up to an incomplete one."""
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
        """Return whether there are tokens of any episode of a step."""
        return self._found(stage, step) is not None

    def episode(self, stage: str, step: int, key: EpisodeKey) -> list[SequenceTokens]:
        """Return the sequences of an episode; none if they were not kept, or are damaged."""
        return self._sequences(stage, step, key).get(key, [])

    def step(self, stage: str, step: int) -> dict[EpisodeKey, list[SequenceTokens]]:
        """Return the sequences of all episodes of a step that were kept, and are not damaged."""
        return self._sequences(stage, step)

    def _sequences(
        self, stage: str, step: int, only: EpisodeKey | None = None
    ) -> dict[EpisodeKey, list[SequenceTokens]]:
        found: dict[EpisodeKey, list[SequenceTokens]] = {}
        if (block := self._found(stage, step)) is None:
            return found
        with (self.folder / TOKENS_FILE).open("rb") as file:
            file.seek(block.start)
            content = file.read(block.end - block.start)
        if not block.fits(content):
            return found
        at = block.body - block.start
        for row in json.loads(content[block.about - block.start : at]):
            key, size = EpisodeKey(*row[:5]), row[8]
            if only in (None, key):
                body = zlib.decompress(content[at : at + size])
                found.setdefault(key, []).append(_read(body, *row[5:8], *row[9:]))
            at += size
        return found

    def _found(self, stage: str, step: int) -> _Block | None:
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


def _packed(values: Sequence[float], kind: str) -> bytes:
    numbers = array(kind, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _smallest(values: Sequence[float]) -> tuple[str, bytes]:
    """Return the type that holds floats exactly, and them in it."""
    import numpy as np  # who only reads does without

    values_S = np.asarray(values, np.float64)
    with np.errstate(over="ignore"):
        kind = "f" if np.array_equal(values_S.astype("<f4"), values_S, equal_nan=True) else "d"
    return kind, values_S.astype("<f4" if kind == "f" else "<f8").tobytes()


def _read(
    body: bytes,
    count: int,
    spans: list[list[int]],
    weight: float | None,
    more: Mapping[str, Any] | None = None,
) -> SequenceTokens:
    """Return a sequence of ``count`` tokens from its numbers; older files have no ``more``."""
    sampled, at = sum(end - begin for _, begin, end in spans), 0

    def column(kind: str, length: int) -> array[Any]:
        nonlocal at
        numbers = array(kind)
        size = numbers.itemsize * length
        numbers.frombytes(body[at : at + size])
        if sys.byteorder == "big":
            numbers.byteswap()
        at += size
        return numbers

    tokens, places = column("i", count), [(turn, begin, end) for turn, begin, end in spans]
    if more is None:
        logprobs_S, trainer_S, advantages_S = (column("f", sampled) for _ in _COLUMNS)
        return SequenceTokens(tokens, places, logprobs_S, trainer_S, advantages_S, weight)
    names, width, kinds = more["scored"], more["k"], more["kinds"]
    best = column("i", sampled * width)
    logprobs_S, trainer_S, advantages_S, *rows = (
        column(kind, sampled) for kind in kinds[: len(_COLUMNS) + len(names)]
    )
    scored = dict(zip(names, rows, strict=True))
    topk: TopTokens | None = None
    if width:
        shares, mass = column(kinds[-2], sampled * width), column(kinds[-1], sampled)
        starts = range(0, sampled * width, width)
        topk = [best[i : i + width] for i in starts], [shares[i : i + width] for i in starts], mass
    own = logprobs_S, trainer_S, advantages_S, weight
    return SequenceTokens(tokens, places, *own, scored, topk)


_BUFFER = 1 << 20  # bytes
_TEXT = rb'("(?:[^"\\]|\\.)*")'
_START = re.compile(
    rb'\{"stage": %b, "step": (\d+), "env": %b, "task": (\d+), "member": (\d+), "role": %b, '
    rb'"digest": %b, "reward": ([-+.\w]+), "ended": %b, "error": (?:null|%b)' % ((_TEXT,) * 6)
)


@define(eq=False)
class EpisodeHead:
    """The beginning of an episode's record, and its line: ``size`` bytes from ``offset``. ``reply``
    counts from 1 the episodes with its ``key``, replies in one role; 0 if it is the only one."""

    stage: str
    step: int
    env: str
    task: int
    member: int
    role: str
    reward: float
    ended: str
    error: str | None
    offset: int
    size: int
    reply: int = 0

    @property
    def key(self) -> tuple[str, int, str, int, int, str]:
        """The key in its run of the episode, and of other replies in the same role."""
        return self.stage, self.step, self.env, self.task, self.member, self.role


@define(eq=False)
class EpisodeIndex:
    """The episodes in a run folder, which may still grow; damaged lines are skipped."""

    folder: Path
    _end: int = field(default=0, init=False)
    _file: int = field(default=0, init=False)  # the inode of what was read so far
    _names: dict[bytes, str] = field(factory=dict, init=False)
    _newest: dict[object, EpisodeHead] = field(factory=dict, init=False)  # of a step, by key

    @property
    def path(self) -> Path:
        return self.folder / ROLLOUTS_FILE

    def read_share(self) -> float:
        """Return the share of the file that has been read, from 0 to 1."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        return min(1.0, self._end / size) if size else 1.0

    def was_replaced(self) -> bool:
        """Return whether the file is another one than before, and if so, read it anew next."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            replaced = self._end > 0
        else:
            replaced = self._end > now.st_size or self._file not in (0, now.st_ino)
        if replaced:
            self._end = self._file = 0
        return replaced

    def read_on(
        self, starts_with: bytes | tuple[bytes, ...] = b""
    ) -> Iterator[tuple[EpisodeHead, bytes]]:
        """Yield the episodes after those that were read before, in the order of the file, each with
        its line; lines that begin otherwise than ``starts_with`` are skipped unparsed."""
        if not self.path.is_file():
            return
        with self.path.open("rb", buffering=_BUFFER) as lines:
            self._file = os.fstat(lines.fileno()).st_ino
            lines.seek(self._end)
            for line in lines:
                if not line.endswith(b"\n") and episode_of(line) is None:
                    return  # it is being written
                offset = self._end
                self._end += len(line)
                if not line.startswith(starts_with) or (head := self._head(line, offset)) is None:
                    continue
                newest = next(iter(self._newest.values()), head)
                if (newest.stage, newest.step) != (head.stage, head.step):
                    self._newest.clear()  # a step writes all episodes at once
                if (before := self._newest.get(head.key)) is not None:
                    before.reply = before.reply or 1
                    head.reply = before.reply + 1
                self._newest[head.key] = head
                yield head, line

    def line(self, head: EpisodeHead) -> bytes:
        """Return the line of an episode as it is in the file."""
        with self.path.open("rb") as file:
            file.seek(head.offset)
            return file.read(head.size)

    def record(self, head: EpisodeHead) -> Record | None:
        """Return the record of an episode; None if it is no longer there."""
        try:
            return episode_of(self.line(head))
        except FileNotFoundError:
            return None

    def _head(self, line: bytes, offset: int) -> EpisodeHead | None:
        stage: Any
        if found := _START.match(line):
            stage, step, env, task, member, role, _, reward, ended, error = found.groups()
            stage, env, role, ended = map(self._text, (stage, env, role, ended))
            error = None if error is None else json.loads(error)
        else:  # written by another version, or by hand
            record = episode_of(line) or {}
            names = ("stage", "step", "env", "task", "member", "reward", "ended", "error")
            try:
                stage, step, env, task, member, reward, ended, error = (record[n] for n in names)
                stage, env, ended, role = (
                    str(stage),
                    str(env),
                    str(ended),
                    str(record.get("role") or ""),
                )
                error = None if error is None else str(error)
            except KeyError:
                return None
        try:
            numbers = int(step), int(task), int(member), float(reward)
        except (TypeError, ValueError):
            return None
        step, task, member, reward = numbers
        return EpisodeHead(
            stage, step, env, task, member, role, reward, ended, error, offset, len(line)
        )

    def _text(self, written: bytes) -> str:
        """Return a JSON string; equal ones are one object."""
        if written not in self._names:
            self._names[written] = json.loads(written)
        return self._names[written]


def episode_of(line: bytes) -> Record | None:
    """Return the record on a line of ``rollouts.jsonl``; None if it is damaged."""
    return parse_line(line.decode("utf-8", errors="replace"))
