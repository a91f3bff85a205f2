"""GEM's tools (gem-llm 0.1.0): code and searches between the turns of an environment.

GEM's own `ToolEnvWrapper` decides what the model sees, when a call counts, and how it is rewarded:
the first call in a reply is made, its result is the next observation, and the environment does not
see the reply. A reply without a call, or after the last allowed one, goes to the environment.

GEM's own runner ends code after ten seconds regardless of `timeout`, limits neither memory nor
output, and leaves children behind. A :class:`Sandbox` limits seconds, memory, the size of files,
how much output is read, and what the code can see (an empty folder, no variables of the
environment, no input). Not limited are the network and other files that the user can read: to train
a model that may attack its surroundings, run rlc in a container.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from math import ceil
from time import monotonic
from typing import IO, Any, ClassVar

from attrs import define, field, frozen

from rlc.chat import EnvError
from rlc.envs.guarded import guarded_folder

LONGEST = 10_000  # characters of the output, and of the errors, that the model is shown
_AS_ARGUMENT = 3_072  # longer code is run from a file, as GEM does

# Nothing of the user's own: no keys, no settings of Python.
_ENVIRONMENT = {
    "PATH": os.defpath,
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}

# Limits itself, then becomes the program: no Python code runs between fork and exec, which is not
# safe beside other threads. The alarm ends it even if this process is gone.
_LAUNCH = """\
import os, resource, signal, sys
seconds = int(sys.argv[1])
for kind, most in (
    (resource.RLIMIT_AS, 1024**3),
    (resource.RLIMIT_FSIZE, 16 * 1024**2),
    (resource.RLIMIT_CPU, seconds),
    (resource.RLIMIT_CORE, 0),
):
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
signal.alarm(seconds + 1)
os.execv(sys.argv[2], sys.argv[2:])
"""


@frozen
class Outcome:
    """The end of a program, and its output."""

    ok: bool
    output: str
    errors: str


@define(eq=False)
class Sandbox:
    """Runs programs one at a time. :meth:`stop`, from any thread, ends the one that runs."""

    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _stopped: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sandbox, ()  # a copy runs nothing yet

    def run(self, code: str, seconds: float) -> Outcome:
        """Run Python code. Raise TimeoutError after ``seconds``, EnvError if it was stopped."""
        if "\0" in code:
            return Outcome(False, "", "SyntaxError: source code cannot contain null bytes")
        text = code.encode("utf-8", errors="replace")
        with (
            guarded_folder("rlc-python-") as (folder, guarded),
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            program = ["-c", os.fsdecode(text)]
            if len(text) >= _AS_ARGUMENT:
                (folder / "program.py").write_bytes(text)
                program = [str(folder / "program.py")]
            launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(ceil(seconds) + 1)]
            with self._lock:
                if self._stopped:
                    raise EnvError("the tool is closed")
                self._running = process = subprocess.Popen(
                    guarded.command(*launch, sys.executable, *program),
                    cwd=folder,
                    env={**_ENVIRONMENT, "HOME": str(folder), "TMPDIR": str(folder)},
                    stdin=guarded.pipe,
                    stdout=output,  # not a pipe, which a child that outlives it would keep open
                    stderr=errors,
                    start_new_session=True,
                )
            try:
                status = process.wait(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"the program ran for {seconds:g} s") from error
            finally:
                with self._lock:
                    self._running = None
                    _kill(process)
            return Outcome(status == 0, _read(output), _read(errors).strip())

    def stop(self) -> None:
        """End the running program with its children, and refuse others. Safe to call twice."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                _kill(self._running)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    text = file.read(4 * LONGEST).decode("utf-8", errors="replace")
    if len(text) <= LONGEST and size <= 4 * LONGEST:
        return text
    return f"{text[:LONGEST]}\n[cut off after {LONGEST:,} characters]"


Call = tuple[str, Mapping[str, Any]]  # a tool of the recipe with its arguments

_FAILED = "[SearchTool Error:"  # the start of an error of GEM's search tool
_CAUSES = {  # by a word in the nested errors of an HTTP library
    "refused": "connection refused",
    "timed out": "no answer in time",
    "Name or service not known": "there is no such host",
    "name resolution": "there is no such host",
}
_IMPORT = re.compile(r"import (\w+)(?: as \w+)?")
_ADDRESS = re.compile(r" object at 0x[0-9a-f]+")


def with_tools(env: Any, tools: Sequence[Call]) -> Any:
    """Wrap a GEM environment in tools, the first of them innermost."""
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    for name, args in tools:
        tool = (
            PythonTool(args["timeout"], last_line=args["errors"] == "last_line")
            if name == "python_tool"
            else SearchTool(args["url"], args["top_k"], args["timeout"])
        )
        env = ToolEnvWrapper(
            env,
            [tool],
            tool_reward=args.get("reward_use", 0.0),
            tool_success_reward=args.get("reward_success", 0.0),
            max_tool_uses=args["uses"],
        )
    return env


def tool_metrics(env: Any) -> dict[str, float]:
    """Return the numbers of calls of each tool in the episode so far, and of those that worked."""
    return {
        f"{wrapper.tools[0].rlc_name}_{what}": float(count)
        for wrapper in _tool_wrappers(env)
        for what, count in (
            ("uses", wrapper.tool_use_counter),
            ("successes", wrapper.tool_success_counter),
        )
    }


def stop_tools(env: Any) -> None:
    """End the programs of an episode's tools. Can be called from any thread, and repeatedly."""
    for wrapper in _tool_wrappers(env):
        for tool in wrapper.tools:
            tool.stop()


def require_search(tools: Sequence[Call]) -> None:
    """Ask each search server once. Raise EnvError for one that does not answer as GEM's do."""
    for name, args in tools:
        if name == "search_tool":
            answer = SearchTool(args["url"], args["top_k"], args["timeout"]).search("test")
            if answer.startswith(_FAILED):
                text = answer.removeprefix(_FAILED).rstrip("]").strip()
                cause = text.splitlines()[0] if text else "no cause given"
                cause = next((plain for sign, plain in _CAUSES.items() if sign in text), cause)
                what = f"the server of `search_tool()`, {args['url']}, gave nothing: {cause}"
                raise EnvError(what)


def run_python(sandbox: Sandbox, code: str, seconds: float) -> Outcome:
    """Run code as GEM does: refuse what looks dangerous, and run code that misses an import again
    with the usual ones. ``seconds`` is the limit of both runs together."""
    from gem.utils.constants import BASE_IMPORTS
    from gem.utils.sandbox import check_forbidden_imports
    from gem.utils.sandbox import run_python as run_by_gem

    if check_forbidden_imports(code):
        return Outcome(*run_by_gem(code, "none"))  # only says no
    if code == "...":  # a placeholder of the prompt
        return Outcome(False, "", "SyntaxError: invalid syntax")
    end = monotonic() + seconds
    try:
        outcome = sandbox.run(code, seconds)
        if not outcome.ok and "is not defined" in outcome.errors:
            # Libraries that are not installed would fail, regardless of the code.
            imports = "\n".join(
                line
                for line in BASE_IMPORTS.splitlines()
                if not (named := _IMPORT.fullmatch(line)) or find_spec(named[1])
            )
            outcome = sandbox.run(f"{imports}\n{code}", max(0.0, end - monotonic()))
    except TimeoutError:
        return Outcome(False, "", f"\nExecution timed out after {seconds:g} seconds.")
    return outcome


def _tool_wrappers(env: Any) -> Iterator[Any]:
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    while env is not env.unwrapped:
        if isinstance(env, ToolEnvWrapper):
            yield env
        env = env.env


@define
class PythonTool:
    """GEM's `PythonCodeTool` with another runner. A copy runs nothing."""

    seconds: float
    last_line: bool  # of an error
    rlc_name: ClassVar[str] = "python_tool"
    tool_type: ClassVar[str] = "python_code"
    sandbox: Sandbox = field(factory=Sandbox, init=False)

    def instruction_string(self) -> str:
        return str(self._gem().instruction_string())

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        """Return whether there is code in the action, whether it failed, the observation, and the
        action up to the end of the code."""
        code, parsed_action, found = self._gem()._parse_action(action)
        if not found:
            return False, True, "", parsed_action
        outcome = run_python(self.sandbox, code, self.seconds)
        errors = outcome.errors.rpartition("\n")[2] if self.last_line else outcome.errors
        text = f"{outcome.output}\n{errors}" if errors else outcome.output
        observation = "Code execution result: " + text.lstrip(" \n") + "\n"
        return True, not outcome.ok, observation, parsed_action

    def stop(self) -> None:
        self.sandbox.stop()

    def _gem(self) -> Any:
        from gem.tools.python_code_tool import PythonCodeTool

        return PythonCodeTool()


@frozen
class SearchTool:
    """GEM's own tool; texts of errors leave out addresses in memory, which differ each time."""

    url: str
    top_k: int
    seconds: float
    rlc_name: ClassVar[str] = "search_tool"
    tool_type: ClassVar[str] = "search"

    def instruction_string(self) -> str:
        return str(self._gem().instruction_string())

    def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
        found, failed, observation, parsed_action = self._gem().execute_action(action)
        return found, failed, _ADDRESS.sub("", observation), parsed_action

    def search(self, query: str) -> str:
        """Return the passages as text, or what went wrong."""
        return str(self._gem()._search(query))

    def stop(self) -> None:
        """Do nothing: a search ends by itself, after its timeout."""

    def _gem(self) -> Any:
        from gem.tools.search_tool import SearchTool as GemSearchTool

        return GemSearchTool(search_url=self.url, topk=self.top_k, timeout=self.seconds)
