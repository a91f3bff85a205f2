"""Where the commands of a task run: in a container, or, as a stand-in, beside rlc itself."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from attrs import define, field, frozen

from rlc.chat.turns import EnvError
from rlc.data.commands import CONTAINERS, is_command
from rlc.data.harbor import HarborTask
from rlc.envs.guarded import guard, guarded_folder

_MOST = 1 << 20  # bytes of a command's output that are read
_GRACE = 5.0


@frozen
class Outcome:
    """What a command printed, and how it ended; None as a status: it took too long."""

    output: str
    status: int | None


class Box(Protocol):
    """One episode's machine."""

    async def open(self) -> None:
        """Raise EnvError if it cannot be started."""

    async def run(self, command: str, seconds: float, env: Mapping[str, str] = {}) -> Outcome:
        """Run a shell command in the working directory."""

    async def put(self, folder: Path, where: str) -> None:
        """Copy a folder to a path within."""

    async def read(self, path: str) -> str | None:
        """The text of a file within; None if there is none."""

    async def close(self) -> None:
        """Remove it, with all that still runs there. Safe to call twice."""


async def _execute(
    command: Sequence[str],
    seconds: float,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program in a process group of its own, which is killed when time is over, when this is
    cancelled, and when this process is killed."""
    with tempfile.TemporaryFile() as output, guard() as guarded:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        status: int | None = None
        try:
            guarded.hold_group(process.pid)
            with suppress(TimeoutError):
                status = await asyncio.wait_for(process.wait(), seconds)
        finally:
            with suppress(ProcessLookupError):  # the group may outlive its leader
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        output.seek(0)
        return Outcome(output.read(_MOST).decode(errors="replace"), status)


@define(eq=False)
class ContainerBox:
    """A container of docker or podman, by its command line."""

    program: str
    task: HarborTask
    _name: str | None = field(default=None, init=False)
    _guarded: ExitStack = field(factory=ExitStack, init=False)

    async def open(self) -> None:
        task, limits = self.task, list[str]()
        if task.cpus is not None:
            limits += ["--cpus", f"{task.cpus:g}"]
        if task.memory_mb is not None:
            limits += ["--memory", f"{task.memory_mb}m"]
        if not task.network:
            limits += ["--network", "none"]
        for name, value in task.env.items():
            limits += ["--env", f"{name}={value}"]
        if task.workdir is not None:
            limits += ["--workdir", task.workdir]
        image = task.image or await self._image()
        self._name = name = f"rlc-{uuid4().hex}"
        guarded = self._guarded.enter_context(guard())
        guarded.hold("sh", "-c", _REMOVE, self.program, name)  # before there is anything to remove
        start = ["run", "--detach", "--init", "--name", name, *limits, image, *_IDLE]
        await self._do(task.build, *start)
        await self._do(_GRACE * 6, "exec", name, "mkdir", "-p", "/logs/verifier", "/logs/agent")

    async def run(self, command: str, seconds: float, env: Mapping[str, str] = {}) -> Outcome:
        given = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        inside = ["timeout", "--kill-after=1", f"{seconds:g}", "bash", "-c", command]
        words = [self.program, "exec", *given, self._running(), *inside]
        outcome = await _execute(words, seconds + _GRACE)
        return Outcome(outcome.output, None) if outcome.status in (124, 137) else outcome

    async def put(self, folder: Path, where: str) -> None:
        await self._do(_GRACE * 12, "cp", f"{folder}/.", f"{self._running()}:{where}")

    async def read(self, path: str) -> str | None:
        outcome = await _execute([self.program, "exec", self._running(), "cat", path], _GRACE * 6)
        return outcome.output if outcome.status == 0 else None

    async def close(self) -> None:
        held, self._name = self._name, None
        with self._guarded:
            if held is not None:
                await _execute([self.program, "rm", "--force", held], _GRACE * 6)

    def _running(self) -> str:
        if self._name is None:
            raise EnvError(f"the container of `{self.task.name}` is not running")
        return self._name

    async def _image(self) -> str:
        """The image of the task's Dockerfile, which the runtime keeps once it is built."""
        folder = self.task.folder / "environment"
        name = f"rlc-harbor:{_digest(folder)}"
        await self._do(self.task.build, "build", "--quiet", "--tag", name, str(folder))
        return name

    async def _do(self, seconds: float, *words: str) -> Outcome:
        outcome = await _execute([self.program, *words], seconds)
        if outcome.status != 0:
            why = (outcome.output.strip().splitlines() or ["it took too long"])[-1]
            raise EnvError(f"`{self.program} {words[0]}` of `{self.task.name}` failed: {why}")
        return outcome


_IDLE = ("sh", "-c", "sleep infinity")
# More than once: a container may still be made when the process that asked for it is killed.
_REMOVE = 'for wait in 0 1 4; do sleep $wait; "$0" rm --force "$1"; done'


def _digest(folder: Path) -> str:
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_ROOTS = ("app", "logs", "solution", "tests", "workdir")
_ABSOLUTE = re.compile(rf"(?<![\w./-])/({'|'.join(_ROOTS)})(?![\w-])")


@define(eq=False)
class SubprocessBox:
    """A stand-in: commands run as rlc's own user, in a temporary folder. Nothing isolates them.

    /app, /logs, /solution, /tests and /workdir are folders within it, wherever commands and copied
    scripts name them. Of the Dockerfile, WORKDIR and plain COPY lines count, nothing is installed.
    """

    task: HarborTask
    _root: Path | None = field(default=None, init=False)
    _at: str = field(default="app", init=False)
    _guarded: ExitStack = field(factory=ExitStack, init=False)

    async def open(self) -> None:
        root, _ = self._guarded.enter_context(guarded_folder("rlc-harbor-"))
        self._root = root
        for name in (*_ROOTS, "logs/verifier", "logs/agent"):
            (root / name).mkdir(exist_ok=True)
        dockerfile = self.task.folder / "environment" / "Dockerfile"
        text = dockerfile.read_text(encoding="utf-8") if dockerfile.is_file() else ""
        for line in text.splitlines():
            match line.split():
                case ["WORKDIR", where]:
                    self._at = where.strip("/")
                case ["COPY", source, where] if not source.startswith("--"):
                    there = where if where.startswith("/") else f"/{self._at}/{where}"
                    self._copy(dockerfile.parent / source, root / there.lstrip("/"), where[-1:])
        if self.task.workdir is not None:
            self._at = self.task.workdir.strip("/")
        (root / self._at).mkdir(parents=True, exist_ok=True)

    async def run(self, command: str, seconds: float, env: Mapping[str, str] = {}) -> Outcome:
        root = self._open()
        known = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(root / self._at),
            "LANG": "C.UTF-8",
        }
        given = {**known, **self.task.env, **env}
        words, cwd = ["bash", "-c", self._inside(command)], str(root / self._at)
        outcome = await _execute(words, seconds, cwd=cwd, env=given)
        return Outcome(outcome.output.replace(str(root), ""), outcome.status)

    async def put(self, folder: Path, where: str) -> None:
        there = self._open() / where.lstrip("/")
        self._copy(folder, there, "/")
        for path in there.rglob("*"):
            if path.is_file():
                with suppress(UnicodeDecodeError):
                    path.write_text(self._inside(path.read_text("utf-8")), encoding="utf-8")

    async def read(self, path: str) -> str | None:
        file = self._open() / path.lstrip("/")
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None

    async def close(self) -> None:
        self._root = None
        self._guarded.close()

    def _open(self) -> Path:
        if self._root is None:
            raise EnvError(f"the folder of `{self.task.name}` is gone")
        return self._root

    def _inside(self, text: str) -> str:
        return _ABSOLUTE.sub(rf"{self._open()}/\1", text)

    def _copy(self, source: Path, there: Path, end: str) -> None:
        if source.is_dir():
            shutil.copytree(source, there, dirs_exist_ok=True)
        elif source.is_file():
            inside = there / source.name if end in ("/", ".") or there.is_dir() else there
            inside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, inside)


def new_box(runtime: str, task: HarborTask) -> Box:
    """A box of a runtime: ``docker``, ``podman``, ``container`` for the one that is here, or
    ``subprocess``. Raise EnvError if there is none."""
    if runtime == "subprocess":
        return SubprocessBox(task)
    return ContainerBox(container_program(runtime), task)


def container_program(runtime: str) -> str:
    """The command of a container runtime: of those that will do the first that answers. Blocks.
    Raise EnvError if none does."""
    wanted = CONTAINERS.get(runtime, (runtime,))
    problems = dict[str, str]()
    for program in filter(is_command, wanted):
        if (problem := _problem_of(program)) is None:
            return program
        problems[program] = problem
    why = ", and ".join(f"{program} {problem}" for program, problem in problems.items())
    why = why or f"{' or '.join(wanted)} is not on this machine"
    raise EnvError(f"tasks of Harbor run in containers, and {why}")


def container_problem(runtime: str) -> str | None:
    """Why containers cannot be started here; None if they can. Blocks."""
    _problem_of.cache_clear()
    try:
        container_program(runtime)
    except EnvError as error:
        return str(error)
    return None


@cache
def _problem_of(program: str) -> str | None:
    try:
        ended = subprocess.run(
            [program, "info"], capture_output=True, text=True, timeout=_GRACE * 4
        )
    except subprocess.TimeoutExpired:
        return "does not answer"
    if ended.returncode == 0:
        return None
    why = ((ended.stderr or ended.stdout).strip().splitlines() or ["it does not say why"])[-1]
    return f"starts none: {why}"
