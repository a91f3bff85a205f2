"""Functions of the user's own as they are written: looked at, never run."""

from __future__ import annotations

import ast
from difflib import get_close_matches

from rlc.data.errors import DataError, Place

Function = ast.FunctionDef | ast.AsyncFunctionDef


def written_function(file: str, name: str) -> Function | None:
    """The function of that name in a Python file; None if something else makes the name, so that
    only running the file tells what it is. Raise DataError if nothing does, or for what is not
    Python."""
    try:
        with open(file, "rb") as opened:
            module = ast.parse(opened.read(), file)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}") from error
    except SyntaxError as error:
        place = Place(file, error.lineno or 1, error.lineno or 1, error.offset)
        raise DataError(f"this is not Python: {error.msg}", place=place) from error
    except ValueError as error:  # a null byte
        raise DataError(f"{file} is not Python: {error}") from error
    functions, others = dict[str, Function](), set[str]()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node in module.body:
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            others.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            others.add(node.id)
        elif isinstance(node, ast.alias):
            others.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            others.add(node.name)
    if name in functions and not functions[name].decorator_list:
        return functions[name]
    if not {name, "*", "__getattr__"} & {*functions, *others}:
        meant = get_close_matches(name, [*functions], 1)
        advice = f"did you mean `{meant[0]}`?" if meant else None
        raise DataError(f"{file} has no `{name}`", advice)
    return None


def takes(function: Function, count: int) -> bool:
    """Whether a function can be called with so many arguments, by position."""
    its = function.args
    positional = len(its.posonlyargs) + len(its.args)
    needed = positional - len(its.defaults)
    most = count if its.vararg else positional
    return needed <= count <= most and all(default is not None for default in its.kw_defaults)
