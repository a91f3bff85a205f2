"""``--set`` values: the recipe's own grammar, put into the syntax tree before it is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from rlc.catalog import DECLARATIONS, TRAINING
from rlc.check import Amendment, is_made, known_values, nodes_in
from rlc.lang import (
    Amend,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Field,
    Label,
    Name,
    Recipe,
    Source,
    Span,
    ValueDecl,
)
from rlc.lang.syntax import parse_field
from rlc.records import evolve

_BARE = re.compile(r"[\w./:@~-]+")  # a text without its quotes
_STATE = re.compile(r"""state\(\s*".*"\s*\)""")
WEIGHTS = "--weights"  # an override of its own, which stands for the weights of a model


def apply_overrides(
    recipe: Recipe, overrides: Mapping[str, str] | Iterable[str], folder: str, found: Diagnostics
) -> Recipe:
    """Return the recipe with ``name=value`` and ``decl.field=value`` put in, the last of each name.
    ``--weights=runs/x`` are those of the model that is trained first. Paths in the values start at
    ``folder``."""
    if isinstance(overrides, Mapping):
        overrides = [f"{name}={value}" for name, value in overrides.items()]
    for text in overrides:
        name, _, value = text.partition("=")
        source = Source(f"--set {name.strip()}", text, folder)
        if name == WEIGHTS:
            model = _first_trained(recipe)
            if model is None:
                source = Source(WEIGHTS, value, folder)
                message = "no stage of this recipe trains a model that it declares by a name"
                found.error("RL0106", Span(source, 0, len(value)), message)
                continue
            value = value if _STATE.fullmatch(value.strip()) else json.dumps(value)
            source = Source(WEIGHTS, f"{model}.weights = {value}", folder)
        found.report_keys(source)
        override, wrong = parse_field(source)
        if any(item.severity == "error" for item in wrong) and _BARE.fullmatch(value.strip()):
            quoted = f"""--set '{name.strip()}="{value.strip()}"'"""
            advice = f"a text needs its quotes, and the shell takes those off: `{quoted}`"
            wrong = Diagnostics(evolve(item, help=advice, fix=None) for item in wrong)
        found.extend(wrong)
        if override is not None:
            recipe = put_in(recipe, *override, found)
    return recipe


def _first_trained(recipe: Recipe) -> str | None:
    """Return the declared model that the first stage trains; None if it has no name."""
    decls = [d for d in recipe.decls if isinstance(d, BlockDecl | ValueDecl)]
    known = {decl.name.id for decl in decls if decl.kind.id == "model"}
    stages = [d for d in decls if isinstance(d, BlockDecl) and d.kind.id in TRAINING]
    given = [field.value for stage in stages for field in stage.fields if field.name.id == "model"]
    return next((v.id for v in given if isinstance(v, Name) and v.id in known), None)


def put_in(
    recipe: Recipe,
    path: Sequence[Name],
    value: Expr,
    found: Diagnostics,
    written: str = "--set '{}=…'",
) -> Recipe:
    """Return the recipe with one value put in, where ``path`` names a declaration or a part of one;
    ``written`` is the form of such a change in messages."""
    head = path[0]
    known = {d.name.id: d for d in recipe.decls if isinstance(d, BlockDecl | ValueDecl)}
    if (old := known.get(head.id)) is None:
        if head.id not in recipe.unread:
            advice = known_values(list(known), head.id) if known else None
            found.error("RL0106", head.span, f"this recipe declares no `{head.id}`", advice)
        return recipe
    change = Amendment(
        *(path, value, known, found, "RL0106"),
        whole=lambda whole: f"set the whole: `{written.format(whole)}`",
        declared=lambda inside: f"set it where it is declared: `{written.format(inside)}`",
    )
    new = _changed(old, change, found)
    return evolve(recipe, decls=tuple(new if decl is old else decl for decl in recipe.decls))


def _changed(
    decl: BlockDecl | ValueDecl, change: Amendment, found: Diagnostics
) -> BlockDecl | ValueDecl:
    path, value = change.path, change.value
    names = [name.id for name in path[1:]]
    own = decl.parameters or ()
    if any(names == [parameter.name.id] for parameter in own):
        _report_without_effect(decl, change, found)
        new = (evolve(p, default=value) if names == [p.name.id] else p for p in own)
        return evolve(decl, parameters=tuple(new))
    declared = DECLARATIONS.get(decl.kind.id)
    if declared is None:
        return decl  # its kind is misspelt, which is reported
    if isinstance(decl, BlockDecl):
        if not _has_field(decl, decl.fields, path, found):
            return decl
        return evolve(decl, fields=change.in_fields(decl.fields, 1))
    made = decl.value
    if not (is_made(decl, change.decls) and isinstance(made, Amend | Call)):
        return evolve(decl, value=change.in_expr(made, 1))
    # What an amendment does not say, it says from now on.
    amend = made if isinstance(made, Amend) else Amend(made.span, made, ())
    if (call := _made_by(decl, amend.base, change)) is not None:
        base = change.in_call(call, 1)
        return evolve(decl, value=base if call is made else evolve(amend, base=base))
    if not _has_field(decl, amend.fields, path, found):
        return decl
    part = ".".join([*names, ""])
    given = any(part.startswith(f"{field.name.id}.") for field in amend.fields)
    fields = change.in_fields(amend.fields, 1) if given else (*amend.fields, change.field(1))
    return evolve(decl, value=evolve(amend, fields=fields))


def _report_without_effect(
    decl: BlockDecl | ValueDecl, change: Amendment, found: Diagnostics
) -> None:
    """Refuse a default of a parameter that each use of the declaration gives a value."""
    name = change.path[1]
    place = [parameter.name.id for parameter in decl.parameters or ()].index(name.id)

    def gives_it(call: Call) -> bool:
        named = [each.name.id if each.name else None for each in call.args]
        return name.id in named or named[place : place + 1] == [None]

    uses = [
        (user, node)
        for user in change.decls.values()
        for node in nodes_in(user)
        if isinstance(node, Call) and isinstance(node.func, Name) and node.func.id == decl.name.id
    ]
    if not uses or not all(gives_it(call) for _, call in uses):
        return
    user, call = uses[0]
    made = user.value if isinstance(user, ValueDecl) else None
    is_named = call in (made, made.base if isinstance(made, Amend) else None)
    advice = change.declared(f"{user.name.id}.{name.id}") if is_named else "change it there"
    message = f"each use of `{decl.name.id}` gives `{name.id}` a value, so this changes nothing"
    found.error("RL0106", name.span, message, advice, Label(call.span, "gives its own"))


def _made_by(decl: ValueDecl, base: Expr, change: Amendment) -> Call | None:
    """Return the use of a declaration that makes a block, if the path names a parameter of it."""
    if not (isinstance(base, Call) and isinstance(base.func, Name)) or len(change.path) < 2:
        return None
    used, name = change.decls.get(base.func.id), change.path[1].id
    names = [each.name.id for each in (used.parameters or ())] if used else []
    fields = [param.name for param in DECLARATIONS[decl.kind.id].fields]
    return base if name in names and name not in fields else None


def _has_field(
    decl: BlockDecl | ValueDecl, fields: Sequence[Field], path: Sequence[Name], found: Diagnostics
) -> bool:
    own = [field.name.id for field in fields]
    if len(path) == 1:
        names = ", ".join(f"`{decl.name.id}.{name}`" for name in own)
        message = f"`{decl.name.id}` has fields and no value of its own"
        found.error("RL0106", path[0].span, message, f"set {names}" if own else None)
        return False
    name, declared = path[1], DECLARATIONS[decl.kind.id]
    known = [param.name for param in declared.fields]
    if isinstance(decl, BlockDecl):
        fits = name.id in own or (name.id in known and len(path) == 2)
    else:
        fits = declared.open or name.id in known or name.id in own
    if not fits:
        advice = known_values(own if len(path) > 2 and own else known, name.id)
        message = f"`{decl.name.id}` has no field `{name.id}` to set"
        found.error("RL0106", name.span, message, advice)
    return fits
