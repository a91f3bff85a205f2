"""Programs put together from source as it stands: the pieces that are used, and what these use, be
it in other pieces or in rooms of rlc."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from attrs import evolve, field, frozen

from rlc.emit.script.literals import WIDTH

_PIECES = "rlc.emit.pieces."
_JOB = f"{_PIECES}job"  # the values that each script gives anew
# The pieces in the order of a program, and those that stand there only where they are asked for; of
# two with one name the first is taken.
_NAMED = """
    records prompts rows tasks grading gem_games cookbook limits single rollouts
    rlc.algo.episode_statistics datums penalty imitation preferences training
"""
_SECTIONS = tuple(one if "." in one else _PIECES + one for one in _NAMED.split())
_VARIANTS = tuple(_PIECES + one for one in ("cookbook", "limits", "single"))
MARK = "# ---- pieces\n"  # where they stand in a body


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
    definitions: dict[tuple[str, str], Definition] = field(factory=dict)
    imports: set[Import] = field(factory=set)
    values: set[str] = field(factory=set)

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
                definition = self.definitions[module, name] = code.definitions[name]
                self.add(definition.reads, code)


def stitched(body: str, imports: str, instead: Sequence[str] = ()) -> str:
    """Return a program without its docstring; ``body`` is what is written for it alone.

    All pieces that the body reads stand before it, and theirs before them; of the ``imports`` those
    that something reads. The pieces of the modules ``instead`` stand for others of their name.
    """
    usual = (one for one in _SECTIONS if one not in _VARIANTS)
    order = (*(_PIECES + one for one in instead), _JOB, *usual)
    pieces = {name: module for module in reversed(order) for name in code_of(module).definitions}
    own = _code("", ast.parse(body), body)
    needed = _Needed(pieces)
    around = ModuleCode("", {}, _code("", ast.parse(imports), imports).imports)
    needed.add(names_in(ast.parse(body)) - {*own.definitions}, around)
    assert needed.values <= {*own.definitions}, needed.values - {*own.definitions}
    constants, _, functions = body.partition(MARK)
    parts = [_import_lines(needed.imports), constants.strip("\n"), *_texts(needed)]
    return _spaced([*parts, functions.strip("\n")])


def _texts(needed: _Needed) -> Iterator[str]:
    """Yield the definitions by sections, those of rooms in the first that needs them."""
    left = dict(needed.definitions)
    for module in (*_SECTIONS, ""):
        reached = _Needed(needed.pieces)
        for (home, _), one in needed.definitions.items():
            if home == module or not module:
                reached.add({one.name}, code_of(home))
        chosen = {k: v for k, v in reached.definitions.items() if k in left}
        chosen = {k: v for k, v in chosen.items() if k[0] not in _SECTIONS or k[0] == module}
        for home in dict.fromkeys(home for home, _ in sorted(chosen, key=lambda k: k[0] == module)):
            for name in code_of(home).definitions:
                if (home, name) in chosen:
                    yield left.pop((home, name)).text


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
        defines = part.startswith(("def ", "async def ", "class ", "@", "# ----"))
        gap = "\n\n\n" if defines or before else "\n\n"
        text, before = text + (gap if text else "") + part, defines
    return text.rstrip("\n") + "\n"
