"""Programs put together from the source of pieces: those that are used, and what these use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from attrs import frozen

import rlc.emit.pieces

_FOLDER = Path(rlc.emit.pieces.__file__).parent
# In the order of a program.
_MODULES = (
    *("seeds", "records", "prompts", "games", "rollouts"),
    *("advantages", "aggregate", "datums", "imitation"),
    *("schedules", "budget", "training"),
)
_WIDTH = 88


@frozen
class Piece:
    """One definition of a module of pieces: its text, and the names that it reads."""

    name: str
    module: str
    text: str
    reads: frozenset[str]


@frozen
class Import:
    """``from module import name as alias``; without a name ``import module as alias``."""

    module: str
    name: str | None
    alias: str | None

    @property
    def binds(self) -> str:
        return self.alias or self.name or self.module.partition(".")[0]


def stitched(head: str, body: str, imports: str) -> str:
    """Return a program: ``head`` is its docstring, ``body`` what is written for it alone.

    All pieces that the body reads stand before it, and theirs before them; of the ``imports`` those
    that something reads.
    """
    pieces, known = _pieces()
    reads, needed = names_in(ast.parse(body)), set[str]()
    waiting = [*reads]
    while waiting:
        name = waiting.pop()
        if name in pieces and name not in needed:
            needed.add(name)
            waiting += pieces[name].reads
    read = reads.union(*(pieces[name].reads for name in needed))
    defined = {one.binds: one for one in (*known, *_imports(ast.parse(imports)))}
    used = [one for name, one in defined.items() if name in read]
    constants, _, functions = body.partition(MARK)
    parts = [head, _import_lines(used), constants.strip("\n")]
    titles = _titles()
    for module in _MODULES:
        chosen = [
            one.text for one in pieces.values() if one.module == module and one.name in needed
        ]
        if chosen:
            parts += [f"# ---- {titles[module]}", *chosen]
    return _spaced([*parts, "# ---- This job", functions.strip("\n")])


MARK = "# ---- pieces\n"  # where they stand in a body


def names_in(tree: ast.AST) -> frozenset[str]:
    """The names that a piece of code reads, wherever they come from."""
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


@cache
def _pieces() -> tuple[dict[str, Piece], list[Import]]:
    """Every piece by its name, and what the modules of pieces import from elsewhere."""
    found, imports = dict[str, Piece](), list[Import]()
    for module in _MODULES:
        text = (_FOLDER / f"{module}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        imports += _imports(tree)
        for node in tree.body:
            if (name := _name_of(node)) is None:
                continue
            lines = text.splitlines()[_first_line(node) - 1 : node.end_lineno]
            piece = Piece(name, module, "\n".join(lines), names_in(node) - {name})
            found.setdefault(name, piece)
    return found, imports


@cache
def _titles() -> dict[str, str]:
    titles = {}
    for module in _MODULES:
        doc = ast.get_docstring(ast.parse((_FOLDER / f"{module}.py").read_text(encoding="utf-8")))
        titles[module] = (doc or "").splitlines()[0].rstrip(".")
    return titles


def _name_of(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return None


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, None, alias.asname) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module != "__future__" and not module.startswith("rlc."):
                yield from (Import(module, alias.name, alias.asname) for alias in node.names)


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
            if len(line) > _WIDTH:
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
