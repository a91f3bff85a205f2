"""The losses of recipes/lib/losses.rl, read for tests of their mathematics alone."""

from __future__ import annotations

from functools import cache

from paths import ROOT

from rlc.algo import ExpressionReader, Program
from rlc.lang import ast
from rlc.lang.source import Source
from rlc.lang.syntax import parse

PATH = ROOT / "recipes" / "lib" / "losses.rl"


@cache
def library() -> dict[str, ast.BlockDecl]:
    """The declarations of the file, by name."""
    recipe, diagnostics = parse(Source(str(PATH), PATH.read_text("utf-8")))
    assert not list(diagnostics)
    return {d.name.id: d for d in recipe.decls if isinstance(d, ast.BlockDecl)}


def library_loss(name: str, **more: float) -> Program:
    """Return one of them, with its defaults but for those that are given."""
    reader = ExpressionReader("loss", given=more)
    for parameter in library()[name].parameters or ():
        if parameter.name.id not in more and parameter.default is not None:
            reader.parts[parameter.name.id] = reader.node(parameter.default)
    *_, result = map(reader.define, library()[name].fields)
    assert result is not None
    assert reader.builder.shape(result) == library()[name].fields[-1].name.id
    return reader.builder.program(result)
