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
from typing import Any

from rlc.algo.expressions.program import ExpressionError, Kind
from rlc.algo.expressions.reader import ExpressionReader
from rlc.lang import BlockDecl, Source
from rlc.records import frozen

FOLDER = os.path.join(os.path.dirname(__file__), "formulas")
_COMMENT, _HEAD, _BODY = r"^((?:#[^\n]*\n)*)", r"(\w+) (\w+)", r"(\([^)]*\)) ({\n.*?^})$"
_DECLARATION = re.compile(_COMMENT + _HEAD + _BODY, re.MULTILINE | re.DOTALL)


@frozen(eq=False)
class FormulaText:
    """A formula that comes with rlc: its ``name``, the comment above it, its parameters and their
    defaults as written in its ``head``, and the whole ``text``."""

    name: str
    doc: str
    head: str
    text: str

    @cached_property
    def decl(self) -> BlockDecl:
        """The declaration in the text."""
        from rlc.lang.syntax import parse

        recipe, found = parse(Source(self.name, self.text))
        (decl,) = recipe.decls
        assert isinstance(decl, BlockDecl)
        assert not found, found[0].message
        return decl

    def read(self, kind: Kind, given: Mapping[str, Any]) -> ExpressionReader:
        """Return a reader that has read the formula, its parameters as ``given``: numbers, words
        and truth values. Raise ExpressionError if it cannot be read with these."""
        reader = ExpressionReader(kind, given=given)
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
    for file in sorted(files, key=lambda name: (name.count("."), name)):
        library = f"{file.split('.')[0]}." if file.count(".") > 1 else ""
        with open(os.path.join(FOLDER, file), encoding="utf-8") as opened:
            declarations = _DECLARATION.findall(opened.read())
        for comment, word, name, head, body in declarations:
            if word == kind:
                doc = " ".join(line.removeprefix("#").strip() for line in comment.splitlines())
                text = f"{word} {name}{head} {body}"
                found[library + name] = FormulaText(library + name, doc, head, text)
    return MappingProxyType(found)
