"""Programs put together from source as it stands: the pieces that are used, and what these use, be
it in other pieces or in rooms of rlc."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from attrs import evolve, field, frozen

from rlc.emit.script.literals import WIDTH

_PIECES = "rlc.emit.pieces."
_JOB = f"{_PIECES}job"  # the values that each script gives anew
# The pieces in the order of a program.
_NAMED = """
    records prompts rows tasks grading gem_games cookbook rollouts curricula
    rlc.algo.episode_statistics datums penalty imitation preferences training
"""
_SECTIONS = tuple(one if "." in one else _PIECES + one for one in _NAMED.split())


_CALLED = ("def ", "async def ", "class ", "@")


@frozen
class Import:
    """``from module import name as alias``; without a name ``import module as alias``."""

    module: str
    name: str | None
    alias: str | None

    @property
    def binds(self) -> str:
        return self.alias or self.name or self.module.partition(".")[0]


@frozen
class Definition:
    """One definition of a module: its text, and the names that it reads from around it."""

    module: str
    name: str
    text: str
    reads: frozenset[str]

    @property
    def is_called(self) -> bool:
        return self.text.startswith(_CALLED)


@frozen
class ModuleCode:
    """What a module defines, and what it imports, by name."""

    title: str
    definitions: dict[str, Definition]
    imports: dict[str, Import]


@frozen(eq=False)
class _Needed:
    """What a program needs: definitions in the order of their modules, and imports."""

    pieces: dict[str, str]  # the module of each name
    known: Mapping[str, Any]  # values of the job
    definitions: dict[tuple[str, str], Definition] = field(factory=dict)
    imports: set[Import] = field(factory=set)
    values: set[str] = field(factory=set)
    chosen: dict[Definition, Definition] = field(factory=dict)  # by the whole ones, each made once

    def add(self, names: Iterable[str], within: ModuleCode) -> None:
        for name in sorted(names):
            module = self.pieces.get(name)
            if module is None and name in within.definitions:
                module = within.definitions[name].module
            one = within.imports.get(name)
            if module is None and one is not None:
                if one.module.startswith("rlc."):
                    module = _home(one)
                else:
                    self.imports.add(one)
            if module == _JOB:
                self.values.add(name)
            elif module is not None and (module, name) not in self.definitions:
                code = code_of(module)
                whole = code.definitions[name]
                if (definition := self.chosen.get(whole)) is None:
                    definition = self.chosen[whole] = chosen(whole, self.known)
                self.definitions[module, name] = definition
                self.add(definition.reads, code)


def stitched(loop: str, constants: Mapping[str, tuple[Any, str]], functions: str) -> str:
    """Return a program without its docstring that does what ``train`` of the piece ``loop`` does.

    It has all pieces that this reads, and theirs, of which branches stay out that the values of the
    job rule out. Of the ``constants``, values with their texts, it has those that something reads;
    ``functions`` are written for it alone.
    """
    order = (_PIECES + loop, _JOB, *_SECTIONS)
    pieces = {name: module for module in reversed(order) for name in code_of(module).definitions}
    own = _code("", ast.parse(functions), functions)
    needed = _Needed(pieces, {name: value for name, (value, _) in constants.items()})
    around = ModuleCode("", {}, _code("", ast.parse(_IMPORTS), _IMPORTS).imports)
    read = names_in(ast.parse(functions + _ENTRY))
    needed.add(read - {*own.definitions}, around)
    assert needed.values <= {*constants, *own.definitions}, needed.values
    values = [text for name, (_, text) in constants.items() if name in needed.values | read]
    needed.add(names_in(ast.parse("\n".join(values))) - {*own.definitions}, around)
    before = (one for one in _SECTIONS if one != _PIECES + loop)
    found = [*_ordered(needed, (*before, _PIECES + loop, ""))]
    defined = {one.name for one in found if one.is_called}
    plain = [one for one in found if not (one.is_called or one.reads & defined)]
    texts = (one.text for one in found if one not in plain)
    values += [one.text for one in plain]
    head, end = functions.strip("\n"), _ENTRY.strip("\n")
    return _spaced([_import_lines(needed.imports), "\n".join(values), head, *texts, end])


# What the functions that are written for a script read.
_IMPORTS = """
import argparse
import asyncio
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tinker import types
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search_tool import SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from rlc.data.grading.countdown import problem
from rlc.data.grading.graders import completed, graded_countdown, graded_exact, graded_numeric
from rlc.data.grading.graders import graded_regex, right_answer
from rlc.data.problems import permutation, rows_of_countdown, rows_of_countdown_tasks
from rlc.data.problems import rows_of_gsm8k, rows_of_math
"""
_ENTRY = """
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=STAGE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--metrics", default="metrics.jsonl")
    asyncio.run(train(**vars(parser.parse_args())))
"""


def _ordered(needed: _Needed, sections: Sequence[str]) -> Iterator[Definition]:
    """Yield the definitions by sections, those of rooms in the first that needs them."""
    left = dict(needed.definitions)
    for module in sections:
        reached = _Needed(needed.pieces, needed.known, chosen=needed.chosen)
        for (home, _), one in needed.definitions.items():
            if home == module or not module:
                reached.add({one.name}, code_of(home))
        here = {k: v for k, v in reached.definitions.items() if k in left}
        here = {k: v for k, v in here.items() if k[0] not in sections or k[0] == module}
        for home in dict.fromkeys(home for home, _ in sorted(here, key=lambda k: k[0] == module)):
            for name in code_of(home).definitions:
                if (home, name) in here:
                    yield left.pop((home, name))


def chosen(one: Definition, known: Mapping[str, Any]) -> Definition:
    """Return a definition without the branches that known values rule out."""
    text: str | None = None if one.reads.isdisjoint(known) else one.text
    while text is not None:
        one = evolve(one, text=text)
        text = _with_choice(text, known)
    return evolve(one, reads=names_in(ast.parse(one.text).body[0]) - {one.name})


def _with_choice(text: str, known: Mapping[str, Any]) -> str | None:
    """Return code in which one choice more is made that known values decide; None without any."""
    lines, tree = text.splitlines(), ast.parse(text)
    parts = [getattr(node, name, None) for node in ast.walk(tree) for name in ("body", "orelse")]
    for block in (part for part in parts if isinstance(part, list)):
        for node in (one for one in block if isinstance(one, ast.If)):
            test = node.test
            joined = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
            tests = test.values if isinstance(test, ast.BoolOp) and joined else [test]
            decided = [one for one in tests if names_in(one) and names_in(one) <= {*known}]
            if not decided:
                continue
            codes = (compile(ast.Expression(one), "", "eval") for one in decided)
            stays, start, first = all(eval(code, {**known}) for code in codes), node.lineno, []
            if stays and (left := [one for one in tests if one not in decided]):
                texts = [str(ast.get_source_segment(text, one)) for one in left]
                first = [f"{' ' * node.col_offset}if {' and '.join(texts)}:"]
                return "\n".join([*lines[: start - 1], *first, *lines[start:]])
            end, after = int(node.body[-1].end_lineno or 0), int(node.end_lineno or 0)
            if stays and isinstance(node.body[-1], ast.Return | ast.Raise):
                after = int(block[-1].end_lineno or 0)
            if not stays:  # what is behind `else:`, if there is one
                start, end = end + bool(node.orelse), after
                if lines[start - 1].lstrip().startswith("elif "):
                    start -= 1
                    lines[start] = lines[start].replace("elif", "if", 1)
            kept = indent(dedent("\n".join(lines[start:end])), " " * node.col_offset)
            return "\n".join([*lines[: node.lineno - 1], *kept.splitlines(), *lines[after:]])
    return None


@cache
def code_of(module: str) -> ModuleCode:
    """Return the code of a module of rlc."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    return _code(module, ast.parse(text), text)


def _code(module: str, tree: ast.Module, text: str) -> ModuleCode:
    lines, found, imports = text.splitlines(), dict[str, Definition](), dict[str, Import]()
    for node in tree.body:
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in imported(node.body if isinstance(node, ast.If) and typing_only else [node]):
            imports[one.binds] = one
        for name in _names_of(node):
            own = "\n".join(lines[_first_line(node) - 1 : node.end_lineno])
            found.setdefault(name, Definition(module, name, own, names_in(node) - {name}))
    title = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
    return ModuleCode(title, found, imports)


def _home(one: Import) -> str:
    """Return the module that defines what is imported from a module or at the door of a room."""
    name, code = one.name or "", code_of(one.module)
    if name in code.definitions:
        return one.module
    if name in code.imports:
        return _home(code.imports[name])
    return _home(evolve(one, module=vars(import_module(one.module))["__getattr__"].homes[name]))


def names_in(tree: ast.AST) -> frozenset[str]:
    """Return the names that code reads from around it."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    inside = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if not isinstance(tree, ast.Module):
        inside |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return frozenset(node.id for node in names) - inside


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def imported(code: ast.Module | Sequence[ast.stmt]) -> Iterator[Import]:
    """Yield what code imports at its top."""
    for node in code.body if isinstance(code, ast.Module) else code:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, None, alias.asname) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            yield from (Import(node.module or "", one.name, one.asname) for one in node.names)


def _import_lines(imports: Iterable[Import]) -> str:
    """Imports as formatters sort them."""
    sections: tuple[list[Import], list[Import]] = ([], [])
    for one in imports:
        sections[one.module.partition(".")[0] not in sys.stdlib_module_names].append(one)
    texts = ["from __future__ import annotations"]
    for section in sections:
        whole = sorted({one for one in section if one.name is None}, key=lambda one: one.module)
        lines = [
            f"import {one.module}" + (f" as {one.alias}" if one.alias else "") for one in whole
        ]
        for module in sorted({one.module for one in section if one.name is not None}):
            names = {one.name for one in section if one.module == module and one.name}
            ordered = sorted(names, key=lambda name: (not name.isupper(), name.islower(), name))
            line = f"from {module} import {', '.join(ordered)}"
            if len(line) > WIDTH:
                inside = "".join(f"    {name},\n" for name in ordered)
                line = f"from {module} import (\n{inside})"
            lines.append(line)
        if lines:
            texts.append("\n".join(lines))
    return "\n\n".join(texts)


def _spaced(parts: Iterable[str]) -> str:
    """Join the parts of a program, with the lines between them that formatters leave."""
    text, before = "", False
    for part in filter(None, parts):
        defines = part.startswith((*_CALLED, "# fmt"))
        gap = "\n\n\n" if defines or before else "\n\n"
        text, before = text + (gap if text else "") + part, defines
    return text.rstrip("\n") + "\n"
