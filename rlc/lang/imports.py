"""``import "lib/qwen.rl"``: the declarations of other files, put in where the import stands."""

from __future__ import annotations

import os
from collections.abc import Callable

from rlc.lang.ast import BlockDecl, Decl, ImportDecl, Recipe, ValueDecl
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.read import read_source
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.records import define, evolve, field

TEST = "test"
RUNS = ("sft", "preference", "train", "eval")  # what only the recipe itself may declare

# Reads a file as :func:`rlc.lang.read.read_source` does, or as an editor has it.
Read = Callable[[str], tuple[Source | None, Diagnostics]]


def resolve_imports(recipe: Recipe, found: Diagnostics, read: Read = read_source) -> Recipe:
    """Return the recipe with every import replaced by the declarations of the file that it names.

    A path is relative to the file that it stands in. Each file is read once, however often it is
    imported. What is wrong in an imported file is reported there.
    """
    tests_alone = all(decl.kind.id in ("import", TEST) for decl in recipe.decls)
    loader = _Loader(found, {os.path.realpath(recipe.span.source.name)}, read, tests_alone)
    decls = loader.expand(recipe)
    return evolve(recipe, decls=tuple(decls), unread=recipe.unread | loader.unread)


@define(eq=False)
class _Loader:
    found: Diagnostics
    seen: set[str]
    read: Read
    tests_alone: bool  # then the stages of what it imports are what it tests
    unread: frozenset[str] = frozenset()
    open: list[str] = field(factory=list)

    def expand(self, recipe: Recipe) -> list[Decl]:
        decls: list[Decl] = []
        self.open.append(os.path.realpath(recipe.span.source.name))
        for decl in recipe.decls:
            if isinstance(decl, ImportDecl) and decl.kind.id == "import":
                decls += self._imported(decl)
            else:
                decls.append(decl)
        self.open.pop()
        return decls

    def _imported(self, decl: ImportDecl) -> list[Decl]:
        folder = os.path.dirname(decl.span.source.name)
        path = os.path.normpath(os.path.join(folder, decl.path.value))
        real = os.path.realpath(path)
        if real in self.open:
            self._error(
                decl,
                f'"{decl.path.value}" imports this file in turn',
                "remove one of the two imports",
            )
            return []
        if real in self.seen:
            return []
        self.seen.add(real)
        source, problems = self.read(path)
        if source is None:
            reason = next(iter(problems)).message
            advice = "a path starts at the folder of the file that names it"
            self._error(decl, f"cannot import this file: {reason}", advice)
            return []
        recipe, problems = parse(source)
        self.found.extend(problems)
        self.unread |= recipe.unread
        decls = self.expand(recipe)
        for stage in decls:
            if not isinstance(stage, BlockDecl | ValueDecl) or stage.parameters is not None:
                continue
            if stage.kind.id in RUNS and not self.tests_alone:
                message = f"an imported file cannot declare the stage `{stage.name.id}`"
                label = Label(decl.path.span, "imported here")
                advice = "stages belong to the recipe that is run"
                self.found.error("RL0311", stage.name.span, message, advice, label)
        return decls

    def _error(self, decl: ImportDecl, message: str, advice: str) -> None:
        self.found.error("RL0304", decl.path.span, message, advice)
