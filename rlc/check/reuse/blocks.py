"""Blocks made of others: ``main { steps = 400 }``, and uses of blocks with parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlc.catalog import DECLARATIONS, KINDS, find_anywhere
from rlc.check.reuse.changes import Amendment, names_of
from rlc.check.reuse.copies import marked
from rlc.check.scope import known_values, rename
from rlc.check.values import UnknownValue
from rlc.lang import Amend, BlockDecl, Call, Expr, Field, Label, Name, ValueDecl
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.check.reuse.needs import ReuseContext


def made_block(evaluator: ReuseContext, decl: ValueDecl) -> BlockDecl | None:
    """The block that ``train longer = main { … }`` stands for; None after a report."""
    made = block_of(evaluator, decl.kind.id, decl.value)
    return made and evolve(made, span=decl.span, name=decl.name, kind=decl.kind)


def block_of(evaluator: ReuseContext, kind: str, expr: Expr) -> BlockDecl | None:
    """The block of a kind that an expression stands for; None after a report."""
    match expr:
        case Amend():
            base = block_of(evaluator, kind, expr.base)
            return base and _amended(evaluator, base, expr)
        case Name():
            return _declared(evaluator, kind, expr)
        case Call(func=Name()):
            return _used(evaluator, kind, expr)
        case UnknownValue():
            return None
    message = f"`{expr.span.text}` is no block that could be amended"
    advice = f"name a declared `{kind}`"
    evaluator.found.error("RL0620", expr.span, message, advice)
    return None


def _declared(evaluator: ReuseContext, kind: str, name: Name) -> BlockDecl | None:
    scope, found = evaluator.scope, evaluator.found
    decl = scope.find(name, (kind,), found)
    if decl is None:
        return None
    label = Label(decl.name.span, "declared here")
    if not DECLARATIONS[decl.kind.id].is_block:
        what = "a param" if decl.kind.id == "param" else KINDS[decl.kind.id].noun
        message = f"`{name.id}` is {what}: it has no fields to amend"
        advice = f"give it parameters: `{decl.kind.id} {name.id}(…) = …`"
        if decl.kind.id == "param":
            advice = "a block is amended, such as a model or a stage"
        found.error("RL0620", name.span, message, advice, label)
        return None
    if decl.kind.id != kind:
        message = f"`{name.id}` is a `{decl.kind.id}`, and no `{kind}` is made of it"
        others = [each for each in scope.of_kind(kind) if isinstance(scope.decls[each], BlockDecl)]
        known = f"declared are {known_values(others)}" if others else None
        found.error("RL0621", name.span, message, known, label)
        return None
    return evaluator.block(decl, name)


def _used(evaluator: ReuseContext, kind: str, call: Call) -> BlockDecl | None:
    assert isinstance(call.func, Name)
    scope, found, name = evaluator.scope, evaluator.found, call.func
    decl = scope.templates.get(name.id)
    if decl is None:
        if name.id in scope.unread:
            return None
        candidates = [each for each, decl in scope.templates.items() if decl.kind.id == kind]
        message, labels = f"there is no `{name.id}()` that makes a `{kind}`", list[Label]()
        advice: str | None = known_values(candidates, name.id) if candidates else None
        if (known := scope.decls.get(name.id)) is not None:
            message = f"`{name.id}` is declared without parameters"
            advice = f"write `{name.id} {{ … }}`, with what is to change"
            labels.append(Label(known.name.span, "declared here"))
        elif (builtin := find_anywhere(name.id)) is not None:
            message = f"`{name.id}()` is {KINDS[builtin.kind].noun}, and no `{kind}`"
            if builtin.kind == kind:
                message = f"`{name.id}()` comes with rlc: it has no fields to amend"
                advice = "write it with other arguments"
        fix = rename(name.span, name.id, candidates)
        code = "RL0208" if labels else "RL0103"
        found.error(code, name.span, message, advice, *labels, fix=fix)
        return None
    if decl.kind.id != kind:
        label = Label(decl.name.span, "declared here")
        message = f"`{name.id}` is a `{decl.kind.id}`, and no `{kind}` is made of it"
        found.error("RL0621", name.span, message, None, label)
        return None
    if not evaluator.may_use(decl, name):
        return None
    made = evaluator.uses.copy(call)
    if not isinstance(made, ValueDecl):
        return made
    with evaluator.inside(name.id), evaluator.uses.labelled(decl, call):
        return made_block(evaluator, made)


def _amended(evaluator: ReuseContext, base: BlockDecl, amend: Amend) -> BlockDecl | None:
    """The block with the fields of an amendment in place of its own."""
    scope, found = evaluator.scope, evaluator.found
    fields, given = base.fields, list[Field]()
    decls = scope.decls | scope.templates

    def stands_for(name: Name) -> Expr | None:
        """What a part of a declared value is changed in: all but what has its name in the plan."""
        decl = scope.decls.get(name.id)
        if not isinstance(decl, ValueDecl) or decl.kind.id not in KINDS:
            return None
        if DECLARATIONS[decl.kind.id].is_block or KINDS[decl.kind.id].named:
            return None
        scope.used.add(name.id)
        return decl.value

    def another(inside: str) -> str:
        name, _, part = inside.partition(".")
        kind = decls[name].kind.id
        if not DECLARATIONS[kind].is_block:
            return f"declare another `{kind}` with its own `{part}`, and name that"
        return f"declare another, and name that: `{kind} other = {name} {{ {part} = … }}`"

    for field in amend.fields:
        first = next((one for one in given if _overlap(one.name.id, field.name.id)), None)
        if first is not None:
            label = Label(first.name.span, "first given here")
            message = f"the field `{first.name.id}` is given twice"
            found.error("RL0110", field.name.span, message, "keep one of them", label)
            continue
        given.append(field)
        change = Amendment(
            (base.name, *names_of(field.name)),
            marked(field.value, "amended at ", scope.templates),
            decls,
            found,
            "RL0623",
            lambda whole: f"write the whole: `{whole.partition('.')[2]} = …`",
            another,
            stands_for,
        )
        fields = change.in_fields(fields, 1)
    return evolve(base, fields=fields)


def _overlap(one: str, other: str) -> bool:
    """Whether one of two dotted names is the other, or a part of it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
