"""``--set`` values: the recipe's own grammar, put into the syntax tree before it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from rlc.catalog.declarations import DECLARATIONS
from rlc.check.reuse.changes import Change
from rlc.check.suggest import known_values
from rlc.lang.ast import Amend, BlockDecl, Call, Expr, Name, Recipe, ValueDecl
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
    places = {d.name.id: i for i, d in enumerate(decls) if isinstance(d, BlockDecl | ValueDecl)}
    index = places.get(head.id)
    if index is None:
        if head.id not in recipe.unread:
            advice = known_values(list(places), head.id) if places else None
            found.error("RL0106", head.span, f"this recipe declares no `{head.id}`", advice)
        return recipe
    known = {d.name.id: d for d in decls if isinstance(d, BlockDecl | ValueDecl)}
    change = Change(
        path,
        value,
        known,
        found,
        "RL0106",
        lambda whole: f"set the whole: `--set '{whole}=…'`",
        lambda inside: f"set it where it is declared: `--set '{inside}=…'`",
    )
    decls[index] = _changed(known[head.id], change, found)
    return evolve(recipe, decls=tuple(decls))


def _changed(
    decl: BlockDecl | ValueDecl, change: Change, found: Diagnostics
) -> BlockDecl | ValueDecl:
    path, value = change.path, change.value
    for parameter in decl.parameters or ():
        if [name.id for name in path[1:]] == [parameter.name.id]:
            new = evolve(parameter, default=value)
            others = (new if each is parameter else each for each in decl.parameters or ())
            return evolve(decl, parameters=tuple(others))
    declared = DECLARATIONS.get(decl.kind.id)
    if declared is None:
        return decl  # its kind is misspelt, which is reported
    amends = isinstance(decl, ValueDecl) and isinstance(decl.value, Amend | Call)
    if isinstance(decl, ValueDecl) and not (amends and declared.is_block and len(path) > 1):
        return evolve(decl, value=change.in_expr(decl.value, 1))
    if not _has_field(decl, path, found):
        return decl
    if isinstance(decl, BlockDecl):
        return evolve(decl, fields=change.in_fields(decl.fields, 1))
    # What an amendment does not say, it says from now on.
    made = decl.value
    if isinstance(made, Call):
        made = Amend(made.span, made, ())
    assert isinstance(made, Amend)
    names = ".".join(name.id for name in path[1:])
    given = any(f"{names}.".startswith(f"{field.name.id}.") for field in made.fields)
    fields = change.in_fields(made.fields, 1) if given else (*made.fields, change.field(1))
    return evolve(decl, value=evolve(made, fields=fields))


def _has_field(decl: BlockDecl | ValueDecl, path: Sequence[Name], found: Diagnostics) -> bool:
    """Whether a block has the field to set, or may be given it; report it if not."""
    own = [field.name.id for field in decl.fields] if isinstance(decl, BlockDecl) else []
    if len(path) == 1:
        names = ", ".join(f"`{decl.name.id}.{name}`" for name in own)
        message = f"`{decl.name.id}` has fields and no value of its own"
        found.error("RL0106", path[0].span, message, f"set {names}")
        return False
    name, known = path[1], [param.name for param in DECLARATIONS[decl.kind.id].fields]
    if name.id in own or (name.id in known and (len(path) == 2 or isinstance(decl, ValueDecl))):
        return True
    advice = known_values(own if len(path) > 2 and own else known, name.id)
    message = f"`{decl.name.id}` has no field `{name.id}` to set"
    found.error("RL0106", name.span, message, advice)
    return False
