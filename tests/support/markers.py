"""The markers of tests by what they need, and a guard that keeps them true.

``pytest.mark.engine`` and ``pytest.mark.server`` stand on a folder (`FOLDERS`), on a file
(``pytestmark = pytest.mark.engine``, on one line) or on a test. So does ``pytest.mark.plain``,
which lets the double of `plain_service` answer in place of the embedded engine; a test in such a
file that asks about the engine is marked ``engine``, too.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).parents[1]
FOLDERS = {
    "envs/cookbook": {"engine"},
    "foreign": {"engine", "foreign", "server", "slow"},
    "service/bridge": {"engine"},
    "service/hosted": {"engine"},
    "service/inference": {"engine", "server"},
    "service/server": {"engine", "server"},
    "service/engine": {"engine"},
}
QUICK = "quick"  # what a test is marked with that has none of `NEEDS`
NEEDS = frozenset({"engine", "plain", "cuda", "server", "kill", "slow", "foreign"})
FOREIGN = "foreign"  # left out unless an expression names it, or RLC_SKYRL is in the environment
_BROKEN = (
    "a test without the marker `{}` {}: mark the test, or its file (see tests/support/markers)"
)


@cache
def marks_of(path: Path) -> frozenset[str]:
    """Return the markers that hold for all tests of a file or folder, without importing it."""
    inside = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
    marks = {
        m for folder in FOLDERS if f"{inside}/".startswith(f"{folder}/") for m in FOLDERS[folder]
    }
    if path.suffix == ".py" and path.name.startswith("test_"):
        for line in re.findall(r"^pytestmark = (.+)$", path.read_text(encoding="utf-8"), re.M):
            own = set(re.findall(r"pytest\.mark\.(\w+)", line))
            marks = own | (marks - {"engine"} if "plain" in own else marks)
    return frozenset(marks)


def leaves_out(expression: str, path: Path) -> bool:
    """Return whether a marker expression rules out a file of tests, or all of a folder's."""
    files = path.rglob("test_*.py") if path.is_dir() else [path]
    ruled_out = [deselects(expression, marks_of(file)) for file in files]
    return bool(ruled_out) and all(ruled_out)


def deselects(expression: str, marks: Iterable[str]) -> bool:
    """Return whether a marker expression, of the form ``not a and not b``, ``quick`` or
    ``foreign``, rules out the marks of a file."""
    if expression == QUICK:
        return bool(NEEDS & set(marks))
    if expression == FOREIGN or FOREIGN in marks:
        return FOREIGN not in marks or not (FOREIGN in expression or "RLC_SKYRL" in os.environ)
    terms = [re.fullmatch(r"\s*not (\w+)\s*", term) for term in expression.split(" and ")]
    return all(terms) and bool(set(marks) & {term[1] for term in terms if term})


class Guard(MetaPathFinder, Loader):
    """Raise `RuntimeError` where a test imports torch or listens at a port without its marker.

    A module that was imported before is not seen: run ``-m "not engine"`` to see every import.
    """

    def __init__(self) -> None:
        self.allowed = frozenset({"engine", "server"})  # outside of tests and of their files
        self.broken: str | None = None
        self._listen = socket.socket.listen

    def install(self) -> None:
        """Look at all imports and sockets of this process from now on."""
        guard, listen = self, self._listen

        def guarded(self: socket.socket, *args: Any) -> None:
            if self.family != getattr(socket, "AF_UNIX", None):
                guard.require("server", "opens a listening socket")
            listen(self, *args)

        socket.socket.listen = guarded  # type: ignore[assignment, method-assign]
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Stand in the way of torch, which may be looked for, but not imported."""
        if fullname != "torch" or "engine" in self.allowed:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Raise: this is where a module would be executed."""
        self.require("engine", "imports torch")

    def require(self, mark: str, what: str) -> None:
        """Raise unless the running test has the mark."""
        if mark not in self.allowed:
            self.broken = _BROKEN.format(mark, what)
            raise RuntimeError(self.broken)

    @contextmanager
    def allowing(self, marks: Iterable[str]) -> Iterator[None]:
        """Allow what these markers stand for until the block ends."""
        before, self.allowed = self.allowed, frozenset(marks)
        if "plain" in self.allowed:
            self.allowed |= {"engine"}  # the SDK's types load torch, too
        try:
            yield
        finally:
            self.allowed = before
