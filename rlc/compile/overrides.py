"""``--set`` values: the recipe's own grammar, put into the syntax tree before it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import find_anywhere
from rlc.check.suggest import known_values
from rlc.lang.ast import Argument, Binary, BlockDecl, Call, Expr, Field, Name, Recipe, ValueDecl
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source
from rlc.lang.syntax import parse_field


def apply_overrides(
    recipe: Recipe,
    overrides: Mapping[str, str] | Iterable[str],
    folder: str,
    found: Diagnostics,
) -> Recipe:
    """The recipe with ``name=value`` and ``decl.field=value`` put in, the last of each name.

    Paths in the values start at ``folder``.
    """
    if isinstance(overrides, Mapping):
        overrides = [f"{name}={value}" for name, value in overrides.items()]
    for text in overrides:
        source = Source(f"--set {text.partition('=')[0].strip()}", text, folder)
        found.report_keys(source)
        override, wrong = parse_field(source)
        found.extend(wrong)
        if override is not None:
            recipe = put_in(recipe, *override, found)
    return recipe


def put_in(recipe: Recipe, path: Sequence[Name], value: Expr, found: Diagnostics) -> Recipe:
    """The recipe with one value put in, where ``path`` names a declaration or a part of one."""
    head = path[0]
    decls = list(recipe.decls)
    names = {d.name.id: i for i, d in enumerate(decls) if isinstance(d, BlockDecl | ValueDecl)}
    index = names.get(head.id)
    if index is None:
        if head.id not in recipe.unread:
            advice = known_values(list(names), head.id) if names else None
            found.error("RL0106", head.span, f"this recipe declares no `{head.id}`", advice)
        return recipe
    decl = decls[index]
    assert isinstance(decl, BlockDecl | ValueDecl)
    if isinstance(decl, BlockDecl):
        decls[index] = _in_block(decl, path, value, found)
    else:
        decls[index] = evolve(decl, value=_in_expr(decl.value, path, 1, value, found))
    return evolve(recipe, decls=tuple(decls))


def _in_block(decl: BlockDecl, path: Sequence[Name], value: Expr, found: Diagnostics) -> BlockDecl:
    if len(path) == 1:
        names = ", ".join(f"`{decl.name.id}.{field.name.id}`" for field in decl.fields)
        message = f"`{decl.name.id}` has fields and no value of its own"
        found.error("RL0106", path[0].span, message, f"set {names}")
        return decl
    name = path[1]
    known = [param.name for param in DECLARATIONS[decl.kind.id].fields]
    fields = list(decl.fields)
    index = next((i for i, field in enumerate(fields) if field.name.id == name.id), None)
    if index is None:
        if name.id not in known or len(path) > 2:
            advice = known_values([f.name.id for f in fields] if len(path) > 2 else known, name.id)
            message = f"`{decl.name.id}` has no field `{name.id}` to set"
            found.error("RL0106", name.span, message, advice)
            return decl
        fields.append(Field(name.span.to(value.span), name, value))
    else:
        inner = _in_expr(fields[index].value, path, 2, value, found)
        fields[index] = evolve(fields[index], value=inner)
    return evolve(decl, fields=tuple(fields))


def _in_expr(expr: Expr, path: Sequence[Name], depth: int, value: Expr, found: Diagnostics) -> Expr:
    """``expr`` with the part that the rest of the path names replaced."""
    rest = path[depth:]
    if not rest:
        return value
    if isinstance(expr, Binary) and expr.op == "|>":  # the call that it starts with
        return evolve(expr, left=_in_expr(expr.left, path, depth, value, found))
    if len(rest) == 1 and isinstance(expr, Call):
        return _with_argument(expr, rest[0], value)
    message = f"there is nothing to set at `{'.'.join(name.id for name in path)}`"
    whole = ".".join(name.id for name in path[:depth])
    found.error("RL0106", rest[0].span, message, f"set the whole: `--set '{whole}=…'`")
    return expr


def _with_argument(call: Call, name: Name, value: Expr) -> Call:
    """The call with one argument replaced or added; unknown names are left to the checker."""
    builtin = find_anywhere(call.func.id) if isinstance(call.func, Name) else None
    params = builtin.params if builtin else ()
    names = [param.name for param in params]
    now = {old: param.name for param in params for old in param.formerly}
    argument = Argument(name.span.to(value.span), name, value)
    args = list(call.args)
    for index, old in enumerate(args):
        own = old.name.id if old.name else names[index] if index < len(names) else None
        if now.get(own or "", own) == now.get(name.id, name.id):
            args[index] = argument if old.name else evolve(argument, name=None)
            return evolve(call, args=tuple(args))
    return evolve(call, args=(*args, argument))
