"""Functions and classes of the user's own as they are written: looked at, never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Any

from rlc.data.code.modules import did_you_mean
from rlc.data.errors import CodeError, DataError, FilePlace

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What makes names that nobody sees in the text.
_MAKES_NAMES = {"*", "__getattr__", "globals", "locals", "vars", "exec", "setattr"}


def written_signature(file: str, name: str) -> Signature | None:
    """How the function or class of that name in a Python file is called, with ``-> None`` for a
    function that has no ``return`` with a value; None if something else makes the name, so that
    only running the file shows what it is. Raise DataError if nothing does, or the file is not
    Python."""
    try:
        with open(file, "rb") as opened:
            module = ast.parse(opened.read(), file)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}") from error
    except SyntaxError as error:
        place = FilePlace(file, error.lineno or 1, error.lineno or 1, error.offset)
        raise DataError(f"this is not Python: {error.msg}", place=place) from error
    except (ValueError, RecursionError) as error:  # a null byte; thousands of brackets
        raise DataError(f"{file} is not Python: {error}") from error
    bound = [*_bound(module)]
    makers = [maker for known, maker in bound if known == name]
    if not makers:
        used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
        if _MAKES_NAMES & {*used, *(known for known, _ in bound)}:
            return None
        meant = did_you_mean(name, (known for known, maker in bound if maker is not None))
        raise CodeError(f"{file} has no `{name}`", meant)
    if len(makers) > 1 or makers[0] not in module.body:  # the last one, or one of them, counts
        return None
    maker = makers[0]
    assert isinstance(maker, Function | ast.ClassDef)
    return _of_class(maker) if isinstance(maker, ast.ClassDef) else _of_function(maker)


def lacks(file: str, name: str, attribute: str) -> bool:
    """Whether ``name`` is a class that a Python file defines by itself, where an attribute of that
    name is nowhere written. The file is known to be Python."""
    with open(file, "rb") as opened:
        module = ast.parse(opened.read(), file)
    made = next((maker for known, maker in _bound(module) if known == name), None)
    if not isinstance(made, ast.ClassDef) or _of_class(made) is None:
        return False
    parts = [vars(node) for node in ast.walk(module)]
    return all(attribute not in (p.get("attr"), p.get("name"), p.get("id")) for p in parts)


def _bound(node: ast.AST) -> Iterator[tuple[str, Function | ast.ClassDef | None]]:
    """The names that a module has, each with its definition; None for other ways to make one."""
    waiting = [*ast.iter_child_nodes(node)]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Function | ast.ClassDef):
            yield inner.name, inner
            yield from ((n, None) for own in ast.walk(inner) for n in _declared_global(own))
            continue
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id, None
        elif isinstance(inner, ast.alias):
            yield (inner.asname or inner.name).partition(".")[0], None
        elif isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name is not None:
            yield inner.name, None
        waiting += ast.iter_child_nodes(inner)


def _declared_global(node: ast.AST) -> list[str]:
    return node.names if isinstance(node, ast.Global) else []


def _of_function(function: Function, bound: int = 0) -> Signature | None:
    """The parameters of a function but the first ``bound``; None if a decorator may change them."""
    if function.decorator_list:
        return None
    its = function.args
    kinds: list[Any] = [Parameter.POSITIONAL_ONLY] * len(its.posonlyargs)
    kinds += [Parameter.POSITIONAL_OR_KEYWORD] * len(its.args)
    named = [*zip([*its.posonlyargs, *its.args], kinds, strict=True)]
    optional = len(named) - len(its.defaults)
    parameters = [
        Parameter(each.arg, kind, default=Parameter.empty if index < optional else ...)
        for index, (each, kind) in enumerate(named)
    ][bound:]
    if its.vararg is not None:
        parameters.append(Parameter(its.vararg.arg, Parameter.VAR_POSITIONAL))
    for each, default in zip(its.kwonlyargs, its.kw_defaults, strict=True):
        value = Parameter.empty if default is None else ...
        parameters.append(Parameter(each.arg, Parameter.KEYWORD_ONLY, default=value))
    if its.kwarg is not None:
        parameters.append(Parameter(its.kwarg.arg, Parameter.VAR_KEYWORD))
    returns = Signature.empty if _returns_something(function) else None
    return Signature(parameters, return_annotation=returns)


def _returns_something(function: Function) -> bool:
    """Whether a function's own text has a ``return`` with a value, or a ``yield``."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Yield | ast.YieldFrom):
            return True
        if isinstance(inner, ast.Return) and inner.value is not None:
            return True
        if not isinstance(inner, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(inner)
    return False


def _of_class(made: ast.ClassDef) -> Signature | None:
    """How a class is called; None if a base, a decorator or ``__new__`` may decide it."""
    if made.decorator_list or made.bases or made.keywords:
        return None
    own = {node.name: node for node in made.body if isinstance(node, Function)}
    others = {name for name, maker in _bound(ast.Module(made.body, [])) if maker is None}
    if "__new__" in own or others & {"__init__", "__new__", "__call__"}:
        return None
    made_by = _of_function(own["__init__"], bound=1) if "__init__" in own else Signature()
    return made_by and made_by.replace(return_annotation=Signature.empty)  # the object
