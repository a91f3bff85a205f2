"""The files of a job: the recipe and every file that it reads, laid out as they are here."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import chain, count
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from rlc.catalog import (
    ADAPTER_CONFIG,
    code_of_stage,
    find_weights,
    is_run_weights,
    project_file,
    with_files,
)
from rlc.catalog.packages import installed_with
from rlc.data import DataError, data_files, module_file, parts_of
from rlc.emit.errors import EmitError
from rlc.lang import ImportDecl, read_source
from rlc.lang.syntax import parse
from rlc.models import CARD, export_model
from rlc.plan import ModelPlan, Plan, file_part, is_saved_set, located
from rlc.plan.leaves import children_of, models_of

_MOST_BYTES = 100_000_000  # of a file that code names


@define(eq=False)
class CodeFiles:
    """The files and packages that Python files need; modules may be in ``folders``, too."""

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
        for folder in (place.joinpath(*parts) for place in places):
            files = [folder.with_suffix(".py")] if folder.name else []
            files += [folder / "__init__.py", *(folder / f"{name}.py" for name in names)]
            if own := [file for file in files if file.is_file()]:
                for path in own:
                    self.add(path)
                return
        others = parts and parts[0] not in sys.stdlib_module_names
        if others and (package := installed_with(parts[0])):
            self.packages[package] = None

    def _named(self, text: str, places: Iterable[Path]) -> None:
        """Add a file that a text names."""
        if not 2 < len(text) < 200 or "\n" in text or "\0" in text or text.startswith(("/", "~")):
            return
        for path in (place / text for place in places):
            if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                self.files[Path(os.path.abspath(path))] = None
                return


TREE = "recipe"  # the folder of a job that they are in
_ELSEWHERE = "elsewhere"  # in that, what comes from outside of the project
_SKIPPED = {"__pycache__", ".git", ".venv", "node_modules"}
_COPY = "copy it into the recipe's folder, and name it from there"


@define(eq=False)
class Contents:
    """The files of a job. ``plans`` are all that it may run, the first is that of the recipe;
    ``as_written``: the recipe is compiled where the job is run, so that its paths stay as they are;
    ``keeps_cwd``: modules and paths of the command line start in the working directory."""

    plans: Sequence[Plan]
    as_written: bool
    extra: Sequence[Path] = ()
    keeps_cwd: bool = field(default=False, init=False)
    code: CodeFiles = field(init=False)
    _recipe: Path = field(init=False)
    _named: dict[Path, None] = field(factory=dict, init=False)  # files and folders
    _outside: dict[Path, str] = field(factory=dict, init=False)  # and their names in the job
    _weights: dict[str, ModelPlan] = field(factory=dict, init=False)  # by their names in the plans

    def __attrs_post_init__(self) -> None:
        self._recipe = Path(os.path.abspath(self.plans[0].recipe))
        self.code = CodeFiles((self._recipe.parent, Path.cwd()))
        for path in (*imported_files(self._recipe), *map(Path.absolute, self.extra)):
            self._take(path)
        if self.as_written and (settings := project_file(str(self._recipe.parent))) is not None:
            self._take(Path(settings))
        for stage in (stage for plan in self.plans for stage in plan.stages):
            found = {model.weights: model for _, model in models_of(stage) if model.weights}
            self._weights |= found
        for plan in self.plans:
            with_files(plan, self._note)
            for code in (code for stage in plan.stages for code in code_of_stage(stage)):
                self._module(code.target.rpartition(":")[0])
            envs = (env for stage in plan.stages for env in stage.environments)
            for text in (text for env in envs for text in _texts(env)):
                self._command(text)
        for path in self.code.files:
            self._take(path)

    @property
    def root(self) -> Path:
        """The folder whose layout the job keeps."""
        near = [path for path in self._named if path not in self._outside]
        starts = [self._recipe.parent, *near, *([Path.cwd()] if self.keeps_cwd else [])]
        weights = (Path(located(file_part(n), str(self._recipe))) for n in self._run_weights())
        return Path(os.path.commonpath([*starts, *(path.parent for path in weights)]))

    @property
    def recipe(self) -> str:
        """The path of the recipe in the job."""
        return self._place(self._recipe)

    @property
    def folder(self) -> str:
        """The folder in the job that it is run in."""
        here = Path.cwd()
        return self._place(here) if self.keeps_cwd and here.is_relative_to(self.root) else "."

    def write(self, job: Path) -> None:
        """Copy everything into the folder of a job."""
        for path in (self._recipe, *self._named):
            for file in files_in(path):
                target = job / self._place(path) / file.relative_to(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():
                    shutil.copyfile(file, target)
        for name in self._run_weights():
            model = self._weights[name]
            here = located(name, str(self._recipe))
            places = [self._place(Path(here))]
            if self.as_written:  # a recipe need not say which of a run
                stage = here.rpartition(":")[0] or here
                places += [self._place(Path(one)) for one in (file_part(here), stage)]
            for place in dict.fromkeys(places):
                target = job / place
                if not model.with_optimizer:
                    _write_adapter(evolve(model, weights=here), target)
                elif not target.exists():  # an adapter has no optimiser
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(find_weights(here).place, target)

    def moved(self, plan: Plan, job: Path) -> Plan:
        """Return a plan with the paths that it has in the job, once that is written."""
        recipe, names = self.recipe, dict[str, str]()
        for path in (self._recipe, *imported_files(self._recipe)):
            for name in (str(path), os.path.relpath(path)):
                names[name.replace(os.sep, "/") + ":"] = self._place(path) + ":"

        def renamed(origin: str) -> str:
            old = next((name for name in names if name in origin), None)
            return origin.replace(old, names[old]) if old else origin

        def change(path: str) -> str:
            if path in self._weights and self._weights[path].hosted:
                return find_weights(located(path, plan.recipe)).place  # the service keeps them
            part = file_part(path)
            start = located(path if path in self._weights else part, str(self._recipe))
            if os.path.isabs(os.path.expanduser(path)) or Path(start) in self._outside:
                moved = os.path.relpath(self._place(Path(start)), os.path.dirname(recipe) or ".")
                dotted = moved if moved.startswith(".") else f"./{moved}"
                return dotted + path[len(part) :]
            return path

        moved = evolve(with_files(plan, change), recipe=str(job / recipe))
        named = [os.path.relpath(path, self._recipe.parent) for path in self.code.files]
        paths = [*(file.path for file in plan.data), *named]
        read = data_files(map(change, paths), moved.recipe)
        origins = {key: renamed(origin) for key, origin in plan.provenance.items()}
        return evolve(moved, data=read, provenance=origins)

    def _note(self, path: str) -> str:
        if path in self._weights:  # written as an adapter, not copied
            return path
        part = file_part(path)
        place = Path(located(part, str(self._recipe)))
        if part.endswith(".py") and place.is_file():
            self.code.add(place)
        if is_saved_set(part) and not _is_near(place, self._recipe.parent):
            problem = "the folder of this data set is not beside the recipe"
            raise EmitError.of_file(str(place), problem, _COPY)
        for one in map(Path, parts_of(str(place))) if is_saved_set(part) else (place,):
            self._take(one, os.path.isabs(os.path.expanduser(part)))
        return path

    def _take(self, place: Path, absolute: bool = False) -> None:
        """Take a file along, or a folder, or the files that match a pattern."""
        if not place.exists():
            for found in sorted(glob(str(place))):
                self._take(Path(found), absolute)
            return
        self._named[place] = None
        near = _is_near(place, self._recipe.parent)
        if self.as_written and (absolute or not near):
            problem = "this file is not beside the recipe, which is compiled where the sweep is run"
            raise EmitError.of_file(str(place), problem, _COPY)
        if not near:
            names = chain([place.name], (f"{number}-{place.name}" for number in count(2)))
            self._outside[place] = next(n for n in names if n not in self._outside.values())

    def _module(self, module: str) -> None:
        """Take a module of the user along: one beside the recipe, or in the working directory."""
        if not module or module.endswith(".py"):
            return
        home, here = self._recipe.parent, Path.cwd()
        try:
            file = module_file(module, [str(here), str(home)])
        except DataError:  # reported elsewhere
            return
        if file is None or "site-packages" in Path(file).parts:
            return
        path = Path(os.path.abspath(file))
        if path.is_relative_to(home) or path.is_relative_to(here):
            self.keeps_cwd |= not path.is_relative_to(home)
            self.code.add(path)

    def _command(self, text: str) -> None:
        """Take the files along that a command names."""
        words = list[str]()
        with suppress(ValueError):  # no command
            words = shlex.split(text) if len(text) < 1_000 else []
        for word in words:
            place = Path(located(word, str(self._recipe)))
            if place.is_file() and _is_near(place, self._recipe.parent):
                self._note(word)

    def _run_weights(self) -> Iterator[str]:
        for name, model in self._weights.items():
            if is_run_weights(name) and not model.hosted:
                yield name

    def _place(self, path: Path) -> str:
        """Return the path in the job of a path of this machine."""
        if path in self._outside:
            return f"{TREE}/{_ELSEWHERE}/{self._outside[path]}"
        return os.path.normpath(os.path.join(TREE, os.path.relpath(path, self.root)))


def imported_files(recipe: Path) -> list[Path]:
    """Return the files that a recipe imports, and those that they import."""
    found, waiting = dict[Path, None](), [recipe]
    while waiting:
        path = waiting.pop()
        source, _ = read_source(path)
        if source is None or path in found:
            continue
        found[path] = None
        imports = (one for one in parse(source)[0].decls if isinstance(one, ImportDecl))
        waiting += [Path(os.path.normpath(path.parent / one.path.value)) for one in imports]
    return [path for path in found if path != recipe]


def _is_near(path: Path, home: Path) -> bool:
    """Return whether a path can keep its place relative to the recipe: the folder that holds both
    is a project, not a home directory or a whole disk."""
    shared = Path(os.path.commonpath([path, home]))
    far = {Path("/"), Path.home(), *Path.home().parents, Path(tempfile.gettempdir())}
    return shared == home or shared not in far


def files_in(path: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, in order; a file itself."""
    if path.is_file():
        yield path
        return
    for folder, inside, names in os.walk(path):
        inside[:] = sorted(set(inside) - _SKIPPED)
        yield from (Path(folder) / name for name in sorted(names))


def _texts(node: Any) -> Iterator[str]:
    """Yield the texts in a part of a plan."""
    if isinstance(node, str):
        yield node
    parts: Iterable[Any] = node if isinstance(node, list) else (children_of(node) or {}).values()
    for part in parts:
        yield from _texts(part)


def _write_adapter(model: ModelPlan, folder: Path) -> None:
    """Write weights of the embedded engine as an adapter of PEFT, without paths of this machine."""
    if folder.exists():
        return
    print(f"writing {model.weights} as an adapter", file=sys.stderr)
    export_model(model, folder)
    (folder / CARD).unlink()
    config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    parts = Path(config["base_model_name_or_path"]).parts
    config["base_model_name_or_path"] = "/".join(parts[-4:] if len(parts) > 4 else parts)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
