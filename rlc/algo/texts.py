"""Formulas that come with rlc, as texts of the language: the files in ``formulas/``.

A declaration in one, with the comment above it, is a builtin: the catalogue has its parameters from
the head, and its formula is read when arguments are put in. A file with a name before the point,
such as ``verl.advantages.rl``, holds the builtins of that library, ``verl.grpo``.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rlc.algo.expressions.program import ExpressionError, Kind, Program
from rlc.records import frozen

if TYPE_CHECKING:
    from rlc.algo.expressions.reader import ExpressionReader
    from rlc.lang import BlockDecl

FOLDER = os.path.join(os.path.dirname(__file__), "formulas")
_COMMENT, _HEAD, _BODY = r"^((?:#[^\n]*\n)*)", r"(\w+) (\w+)", r"(\([^)]*\)|) ({\n.*?^})$"
_DECLARATION = re.compile(_COMMENT + _HEAD + _BODY, re.MULTILINE | re.DOTALL)
_DIGITS = "-.0123456789"
_PARAMETER = re.compile(r"(\w+) = ([\w.+-]+)")


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
        from rlc.lang import BlockDecl, Source
        from rlc.lang.syntax import parse

        recipe, found = parse(Source(self.name, self.text))
        (decl,) = recipe.decls
        assert isinstance(decl, BlockDecl)
        assert not found, found[0].message
        return decl

    @property
    def defaults(self) -> dict[str, Any]:
        """The parameters with their defaults: numbers, words, truth values, or None."""
        words = {"none": None, "true": True, "false": False}
        return {
            name: float(value) if value[0] in _DIGITS else words.get(value, value)
            for name, value in _PARAMETER.findall(self.head)
        }

    def read(
        self, kind: Kind, given: Mapping[str, Any], inputs: Collection[str] = ()
    ) -> ExpressionReader:
        """Return a reader that has read the formula, its parameters as ``given``: numbers, words
        and truth values; those among ``inputs`` are read like inputs. Raise ExpressionError if it
        cannot be read with these."""
        from rlc.algo.expressions.reader import ExpressionReader

        reader = ExpressionReader(kind, inputs, given)
        for field in self.decl.fields:
            try:
                reader.define(field)
            except ExpressionError as error:
                raise ExpressionError(f"{field.span.text} of {self.name}: {error}", "") from error
        return reader

    def program(
        self, kind: Kind, given: Mapping[str, Any], inputs: Collection[str] = ()
    ) -> Program:
        """Return the program of the last part, as :meth:`read` reads it."""
        reader = self.read(kind, given, inputs)
        node = reader.parts[self.decl.fields[-1].name.id]
        assert node is not None
        return reader.builder.program(node)


def formula_texts(kind: str) -> Mapping[str, FormulaText]:
    """Return the formulas of a kind of declarations, by name, in the order of their files."""
    return _texts()[kind]


@cache
def _texts() -> Mapping[str, Mapping[str, FormulaText]]:
    """Return the formulas of all kinds: each file is read once."""
    found: defaultdict[str, dict[str, FormulaText]] = defaultdict(dict)
    files = (name for name in os.listdir(FOLDER) if name.endswith(".rl"))
    for file in sorted(files, key=lambda name: (name.count("."), name)):
        library = f"{file.split('.')[0]}." if file.count(".") > 1 else ""
        with open(os.path.join(FOLDER, file), encoding="utf-8") as opened:
            declarations = _DECLARATION.findall(opened.read())
        for comment, word, name, head, body in declarations:
            doc = " ".join(line.removeprefix("#").strip() for line in comment.splitlines())
            text = f"{word} {name}{head} {body}"
            found[word][library + name] = FormulaText(library + name, doc, head, text)
    return {kind: MappingProxyType(texts) for kind, texts in found.items()}
