"""Formulas that come with rlc, as texts of the language: the files in ``formulas/``.

A declaration in one, with the comment above it, is a builtin: the catalogue has its parameters from
the head, and its formula is read when arguments are put in. A file with a name before the point,
such as ``verl.advantages.rl``, holds the builtins of that library, ``verl.grpo``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlc.algo.expressions.program import ExpressionError, Kind, Program
from rlc.records import frozen

if TYPE_CHECKING:
    from rlc.algo.expressions.reader import ExpressionReader
    from rlc.lang import BlockDecl

FOLDER = os.path.join(os.path.dirname(__file__), "formulas")
_DECLARATION = re.compile(
    r"^((?:#[^\n]*\n)*)(\w+) (\w+)([^\n]*\{\n.*?^\})$", re.MULTILINE | re.DOTALL
)

_NUMBER = re.compile(r"(\w+) = ([-+.\de]+)")


@frozen(eq=False)
class FormulaText:
    """A formula that comes with rlc: its ``name``, the comment above it, and its text."""

    kind: str
    name: str
    doc: str
    text: str

    @cached_property
    def decl(self) -> BlockDecl:
        """The declaration in the text."""
        from rlc.lang import BlockDecl, Source
        from rlc.lang.syntax import parse

        recipe, found = parse(Source(self.name, self.text))
        (decl,) = recipe.decls
        assert isinstance(decl, BlockDecl)
        assert not found, found[0].message
        return decl

    @property
    def defaults(self) -> dict[str, float]:
        """The numbers that parameters are where they are left out."""
        head = self.text.partition("{")[0]
        return {name: float(value) for name, value in _NUMBER.findall(head)}

    def program(self, kind: Kind, given: Mapping[str, Any] | None = None) -> Program:
        """Return the program of the last field; without parameters ``given`` they are inputs."""
        reader = self.read(kind, given)
        output = reader.parts[self.decl.fields[-1].name.id]
        assert output is not None
        return reader.builder.program(output)

    def read(self, kind: Kind, given: Mapping[str, Any] | None) -> ExpressionReader:
        """Return a reader that has read the formula, its parameters as ``given``: numbers, words
        and truth values; None: numbers that are read like inputs. Raise ExpressionError if it
        cannot be read with these."""
        from rlc.algo.expressions.reader import ExpressionReader

        reader = ExpressionReader(kind, self.defaults if given is None else (), given)
        for field in self.decl.fields:
            try:
                reader.define(field)
            except ExpressionError as error:
                raise ExpressionError(f"{field.span.text} of {self.name}: {error}", "") from error
        return reader


@cache
def formula_texts(kind: str) -> Mapping[str, FormulaText]:
    """Return the formulas of a kind of declarations, by name, in the order of their files."""
    found: dict[str, FormulaText] = {}
    files = (name for name in os.listdir(FOLDER) if name.endswith(".rl"))
    for file in sorted(files, key=lambda file: (file.count("."), file)):
        library = f"{file.split('.')[0]}." if file.count(".") > 1 else ""
        with open(os.path.join(FOLDER, file), encoding="utf-8") as opened:
            text = opened.read()
        for comment, word, name, rest in _DECLARATION.findall(text):
            if word == kind:
                doc = " ".join(line.removeprefix("#").strip() for line in comment.splitlines())
                found[library + name] = FormulaText(
                    kind, library + name, doc, f"{word} {name}{rest}"
                )
    return MappingProxyType(found)
