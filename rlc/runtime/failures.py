"""Why rollouts fail: each distinct cause once, with the place and the traceback of the user's code.

The tracebacks of other threads, processes and executors are taken from the text that Python keeps
with an exception on its way between them.
"""

from __future__ import annotations

import json
import os
import re
import sysconfig
import traceback
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from attrs import field, frozen

import rlc

FAILURES_FILE = "failures.jsonl"

_OURS = os.path.join(os.path.dirname(os.path.realpath(rlc.__file__)), "")
_PYTHON = os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), "")
_CARRIERS = tuple(os.path.join(_PYTHON, name) for name in ("asyncio", "concurrent", "threading"))
_FRAME = re.compile(r'^[ |]+File "([^"<>]+)", line (\d+)', re.MULTILINE)
# Between an exception and what caused it, and around a traceback of another process.
_CHAINED = re.compile(
    r"^(?:The above exception was the direct|During handling of the above).*$", re.M
)
_QUOTED = (
    "concurrent.futures.process._RemoteTraceback",
    "rlc.envs.workers.processes.RemoteError",
    '"""',
)
# What differs between two failures of one cause: quoted text, numbers, addresses.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|\d+")


@frozen
class Failure:
    """A cause of failed rollouts.

    ``key`` is the same for failures of one type at one place with messages that differ in quoted
    text and numbers only. ``place`` is the last line of the user's code that was running, as
    ``file:line``; or of a library, if there is none; or None, if only rlc's own code was.
    ``stage`` and ``step`` say where it was met first, if it was in a step.
    """

    key: str
    error: str
    place: str | None
    traceback: str = field(repr=False)
    stage: str = ""
    step: int | None = None

    def __str__(self) -> str:
        told = self.place is None or self.error.endswith(f"{self.place})")
        return self.error if told else f"{self.error} ({self.place})"


def failure_of(error: BaseException) -> Failure:
    """Describe an exception, with the exceptions that caused it."""
    text = "".join(traceback.format_exception(error))
    name = type(error).__name__
    lines = str(error).strip().splitlines()
    message = f"{name}: {lines[0]}" if lines else name
    place = _place(text)
    if place is not None:
        text = _without_machinery(text)
    content = "\n".join((name, place or "", _VARYING.sub("…", message)))
    key = blake2b(content.encode(), digest_size=6).hexdigest()
    return Failure(key, message, None if place is None else _shown(place), text)


def read_failures(folder: Path) -> list[Failure]:
    """Return the causes that a run has met, in that order."""
    file = folder / FAILURES_FILE
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError, TypeError):  # damaged by a crash or an editor
            found.append(Failure(**json.loads(line)))
    return found


def _place(text: str) -> str | None:
    """Return the line of a traceback that its reader can change, or else the last outside rlc."""
    found, own = None, False
    for match in _FRAME.finditer(text):
        file, line = match.groups()
        real = os.path.realpath(file)
        if real.startswith(_OURS):
            continue
        mine = not (real.startswith(_PYTHON) or "site-packages" in real or "dist-packages" in real)
        if mine or not own:
            found, own = f"{file}:{line}", mine
    return found


def _without_machinery(text: str) -> str:
    """Return a traceback without the frames of rlc and of what carries calls between threads and
    processes, and without the exceptions of which nothing else is left."""
    parts = []
    for part in _CHAINED.split(text):
        kept, depth, skipped = list[str](), 0, False
        for line in part.strip().splitlines():
            indent = len(line) - len(line.lstrip())
            if frame := _FRAME.match(line):
                depth, skipped = indent, os.path.realpath(frame[1]).startswith((_OURS, *_CARRIERS))
            elif indent <= depth:
                skipped = False
            if not (skipped or line.startswith(_QUOTED)):
                kept.append(line)
        if any(map(_FRAME.match, kept)):
            parts.append("\n".join(kept))
    return "\n\nand then\n\n".join(parts) + "\n"


def _shown(place: str) -> str:
    """Name a file as seen from the working directory, if it is in it."""
    return place.removeprefix(os.path.join(os.getcwd(), ""))
