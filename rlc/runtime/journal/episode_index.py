"""Where the episodes of a run are in ``rollouts.jsonl``, without keeping what is in them.

The file of a long run has gigabytes. Of each line only its beginning is parsed, which says what the
episode is and how it went; its turns are parsed when they are asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from rlc.runtime.journal.history import Record, parse_line
from rlc.runtime.journal.metrics import ROLLOUTS_FILE

_BUFFER = 1 << 20  # bytes
_TEXT = rb'("(?:[^"\\]|\\.)*")'
_START = re.compile(
    rb'\{"stage": %b, "step": (\d+), "env": %b, "task": (\d+), "member": (\d+), "role": %b, '
    rb'"digest": %b, "reward": ([-+.\w]+), "ended": %b, "error": (?:null|%b)' % ((_TEXT,) * 6)
)


@define(eq=False)
class EpisodeHead:
    """The beginning of an episode's record, and its line: ``size`` bytes from ``offset``.

    ``reply`` counts from 1 the episodes that have all of its ``key``, replies in one role; 0 if it
    is the only one so far.
    """

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
        """What tells the episode from others of its run, but for another reply in the same role."""
        return self.stage, self.step, self.env, self.task, self.member, self.role


@define(eq=False)
class EpisodeIndex:
    """The episodes in the folder of a run, which may still be writing them.

    Only whole lines count: one that is being written is read once it is complete, or if it is the
    last one and an object as it is. Damaged lines are passed over.
    """

    folder: Path
    _end: int = field(default=0, init=False)
    _file: int = field(default=0, init=False)  # the inode of what was read so far
    _names: dict[bytes, str] = field(factory=dict, init=False)
    _newest: dict[tuple[object, ...], EpisodeHead] = field(
        factory=dict, init=False
    )  # of one step, by key

    @property
    def path(self) -> Path:
        return self.folder / ROLLOUTS_FILE

    def read_share(self) -> float:
        """Return how much of the file has been looked at, from 0 to 1."""
        size = self.path.stat().st_size if self.path.is_file() else 0
        return min(1.0, self._end / size) if size else 1.0

    def was_replaced(self) -> bool:
        """Whether what was read before is no longer there, as after a resume; then the next
        :meth:`read_on` begins anew."""
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
        """Yield the episodes after those that were read before, in the order they were written,
        each with its line.

        Lines that begin with nothing of ``starts_with`` are passed over unparsed.
        """
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
                if line.startswith(starts_with) and (head := self._head(line, offset)) is not None:
                    self._count(head)
                    yield head, line

    def _count(self, head: EpisodeHead) -> None:
        """Number an episode among those of its key, which its step has written at once."""
        newest = next(iter(self._newest.values()), head)
        if (newest.stage, newest.step) != (head.stage, head.step):
            self._newest.clear()
        if (before := self._newest.get(head.key)) is not None:
            before.reply = before.reply or 1
            head.reply = before.reply + 1
        self._newest[head.key] = head

    def line(self, head: EpisodeHead) -> bytes:
        """Return the line of an episode as it is in the file."""
        with self.path.open("rb") as file:
            file.seek(head.offset)
            return file.read(head.size)

    def record(self, head: EpisodeHead) -> Record | None:
        """Return an episode as it was written; None if it is no longer where it was."""
        try:
            return episode_of(self.line(head))
        except FileNotFoundError:
            return None

    def _head(self, line: bytes, offset: int) -> EpisodeHead | None:
        found = _START.match(line)
        if found is None:  # written by another version, or by hand
            record = episode_of(line) or {}
            try:
                return EpisodeHead(
                    str(record["stage"]),
                    int(record["step"]),
                    str(record["env"]),
                    int(record["task"]),
                    int(record["member"]),
                    str(record.get("role") or ""),
                    float(record["reward"]),
                    str(record["ended"]),
                    None if record["error"] is None else str(record["error"]),
                    offset,
                    len(line),
                )
            except (KeyError, TypeError, ValueError):
                return None
        stage, step, env, task, member, role, _, reward, ended, error = found.groups()
        return EpisodeHead(
            self._text(stage),
            int(step),
            self._text(env),
            int(task),
            int(member),
            self._text(role),
            float(reward),
            self._text(ended),
            None if error is None else json.loads(error),
            offset,
            len(line),
        )

    def _text(self, written: bytes) -> str:
        """Return a JSON string; the few names there are stay one object each."""
        if written not in self._names:
            self._names[written] = json.loads(written)
        return self._names[written]


def episode_of(line: bytes) -> Record | None:
    """Return the record on a line of ``rollouts.jsonl``; None if it is damaged."""
    return parse_line(line.decode("utf-8", errors="replace"))
