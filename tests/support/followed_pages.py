"""Pages of the documentation, followed as a reader would: files written, commands run.

A page is read from top to bottom. A fence after ``<!-- file: NAME -->`` is written to that file,
and one after ``<!-- edit: NAME -->`` has its lines with ``-`` replaced by those with ``+``. Of a
``console`` fence the lines that begin with ``$ `` are run, in this process, and the lines after
them have to be among those printed. Numbers, durations and curves may differ, and ``…`` stands for
anything, so that a page shows what one run printed and holds for every other.

Before a fence, ``<!-- run: main.steps=3 -->`` makes its runs small, ``exit 1`` says how its
commands end, and ``any output`` that what is shown depends on the length of a run. A ``python``
fence after ``<!-- run -->`` is executed. Fences of other kinds, ``sh`` among them, are for people.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from attrs import field, frozen
from paths import ROOT

from rlc.cli.main import main

FENCE = re.compile(r"(?:^<!-- (\w+)(?:: (.*?))? -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.DOTALL)
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
# What differs from run to run; the first line has a number with its unit.
VARIES = re.compile(
    r"[−+-]?\d[\d,.]*(?:e-?\d+)?(?:[kM%]| ?(?:ms|s|min|KB|MB|million)\b)*|[▁-█]+|[▲▼■]|…"
)


@frozen
class Fence:
    """A fenced block, with the word and the text of the comment before it."""

    remark: str
    about: str
    kind: str
    text: str


def fences(page: str) -> list[Fence]:
    """Return the fenced blocks of a page in their order."""
    return [Fence(*(part or "" for part in found)) for found in FENCE.findall(page)]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console with the lines that are shown after it."""
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.M)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


def calls_of_rlc(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each call of ``rlc`` in a block of shell commands."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|(?=\s)", line.removeprefix("$ ").split(" #")[0]):
            words = shlex.split(part.split(" > ")[0])
            if words and Path(words[0]).name == "rlc":
                yield words[1:]


def missing(shown: list[str], printed: str) -> str | None:
    """Return the first line that is shown and was not printed after those before it, or None."""
    lines = iter(printed.splitlines())
    for line in filter(None, (line.strip() for line in shown)):
        if line != "…" and not any(_pattern(line).fullmatch(real.strip()) for real in lines):
            return line
    return None


def _pattern(line: str) -> re.Pattern[str]:
    """What a line may look like in another run."""
    if line.endswith("…"):
        return re.compile(f"{_pattern(line.rstrip(' …')).pattern}.*")
    text, end = "", 0
    for found in VARIES.finditer(line):
        text += _words(line[end : found.start()])
        varying = found[0]
        text += ".*" if varying == "…" else "[▲▼■]" if varying in "▲▼■" else f"(?:{VARIES.pattern})"
        end = found.end()
    return re.compile(text + _words(line[end:]))


def _words(text: str) -> str:
    return re.sub(r"(\\ )+", r"\\s+", re.escape(text))


def _sides(diff: str) -> tuple[str, str]:
    """Return what a change takes out and what it puts there; lines with a space are in both."""
    lines = diff.splitlines()
    before = (line[1:] for line in lines if line[0] in " -")
    return "\n".join(before), "\n".join(line[1:] for line in lines if line[0] in " +")


@frozen
class Reader:
    """Follows pages one after the other, in one folder."""

    folder: Path
    server: str = ""  # the address that stands for the one on the pages
    done: list[str] = field(factory=list)

    def follow(self, page: Path) -> None:
        """Do what a page says, and compare what is printed with what it shows."""
        for fence in fences(page.read_text(encoding="utf-8")):
            if fence.remark == "file":
                path = Path.cwd() / fence.about
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(fence.text, encoding="utf-8")
            elif fence.remark == "edit":
                path = Path.cwd() / fence.about
                before, after = _sides(fence.text)
                text = path.read_text(encoding="utf-8")
                assert before in text, f"{fence.about} has no\n{before}"
                path.write_text(text.replace(before, after), encoding="utf-8")
            elif fence.kind == "console":
                for command, shown in commands(fence.text):
                    self._run(command, shown, fence.about)
            elif fence.remark == "run":
                printed = self._in_python(fence.text)
                shown = re.findall(r"# → (.*)", fence.text)
                assert missing(shown, printed) is None, printed

    def _run(self, command: str, shown: list[str], about: str) -> None:
        """Run one line of a console."""
        printed, status = "", 0
        for part in command.split(" && "):
            said, _, call = part.rpartition(" | ")
            words = shlex.split(call, comments=True)
            if words[0] == "cd":
                os.chdir(words[1])
                continue
            if words[0] == "rlc":
                smaller = re.findall(r"[\w.]+=\S+", about) if words[1] == "run" else []
                more = [word for value in smaller for word in ("--set", value)]
                here = [ADDRESS.sub(self.server, word) for word in words[1:]]
                told = " ".join(shlex.split(said)[1:])
                status, text = self._rlc([*here, *more], told)
            else:
                where = {**os.environ, "PYTHONPATH": str(ROOT)}
                program = [sys.executable, "-m", *words] if words[0] == "pytest" else words
                ended = subprocess.run(program, capture_output=True, text=True, env=where)
                status, text = ended.returncode, ended.stdout + ended.stderr
            printed += text
        expected = int((re.findall(r"exit (\d+)", about) or ["0"])[0])
        assert status == expected, f"$ {command}\n{printed}"
        line = None if "any output" in about else missing(shown, printed)
        assert line is None, f"$ {command}\nshows {line!r}, and prints\n{printed}"

    def _rlc(self, words: list[str], told: str) -> tuple[int, str]:
        """Return the exit status of a command, and what it printed."""
        out, stdin = io.StringIO(), sys.stdin
        sys.stdin = io.StringIO(told)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                return main(words), out.getvalue()
        finally:
            sys.stdin = stdin
            self._forget()

    def _in_python(self, text: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, "page", "exec"), {"__name__": "__main__"})
        return out.getvalue()

    def _forget(self) -> None:
        """Let the next command import the reader's own files as they are then."""
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if path and Path(path).is_relative_to(self.folder):
                del sys.modules[name]
