"""The user's own Python files, with what they import and open: found without being run."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from attrs import define, field

_MOST_BYTES = 100_000_000  # of a file that code names


@define(eq=False)
class CodeFiles:
    """What Python files need, of one's own files and of packages.

    ``folders``: where modules are looked for, beside the folder of the file that imports them.
    """

    folders: tuple[Path, ...]
    files: dict[Path, None] = field(factory=dict, init=False)  # in the order they were found
    packages: dict[str, None] = field(factory=dict, init=False)  # as pip calls them

    def add(self, path: Path) -> None:
        """Add a file with all that it needs."""
        path = Path(os.path.abspath(path))
        if path in self.files:
            return
        self.files[path] = None
        for folder in path.parents:  # of a package, what is imported before it
            if not (folder / "__init__.py").is_file():
                break
            self.add(folder / "__init__.py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places = (path.parent, *self.folders)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._imported(alias.name, (), places)
            elif isinstance(node, ast.ImportFrom):
                at = places if not node.level else (path.parents[node.level - 1],)
                self._imported(node.module or "", [alias.name for alias in node.names], at)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._named(node.value, places)

    def _imported(self, module: str, names: Iterable[str], places: Iterable[Path]) -> None:
        parts = module.split(".") if module else []
        if parts[:1] == ["rlc"]:  # every job has it
            return
        for place in places:
            own = list(_files_of(place.joinpath(*parts), names))
            if own:
                for path in own:
                    self.add(path)
                return
        if parts and parts[0] not in sys.stdlib_module_names:
            for package in packages_distributions().get(parts[0], ())[:1]:
                self.packages[package] = None

    def _named(self, text: str, places: Iterable[Path]) -> None:
        """A text that is the name of a file that is there."""
        if not 2 < len(text) < 200 or "\n" in text or "\0" in text or text.startswith(("/", "~")):
            return
        for path in (place / text for place in places):
            if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                self.files[Path(os.path.abspath(path))] = None
                return


def _files_of(path: Path, names: Iterable[str]) -> Iterator[Path]:
    """The files of a module, and of those of the ``names`` in it that are modules."""
    if path.with_suffix(".py").is_file() and path.name:
        yield path.with_suffix(".py")
    if (path / "__init__.py").is_file():
        yield path / "__init__.py"
    for name in names:
        if (path / f"{name}.py").is_file():
            yield path / f"{name}.py"
