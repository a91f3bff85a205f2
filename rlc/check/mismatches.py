"""Reports of expressions, and of calls, that are not of the wanted kind."""

from __future__ import annotations

from rlc.catalog import KINDS, UNSUPPORTED, Param, builtins_of, find_anywhere, how_to_make, names_of
from rlc.check.scalars import describe
from rlc.check.scope import Scope, known_values, rename
from rlc.lang import Attribute, Binary, Diagnostics, Expr, Label, ListExpr, Name, replace


def report_misfit(expr: Expr, want: Param, scope: Scope, found: Diagnostics) -> None:
    """Report an expression that makes nothing of the wanted kind."""
    noun, example = KINDS[want.type].noun, KINDS[want.type].example
    message = f"`{want.name}` takes {noun}, found {describe(expr)}"
    if isinstance(expr, Binary) and expr.op in "+-*/":
        message = f"cannot apply `{expr.op}` to {noun}"
    if isinstance(expr, Binary | ListExpr):
        example = KINDS[want.type].several or example
    candidates = scope.of_kind(want.type)
    advice = f"for example `{example}`"
    if want.type == "model" and candidates:
        advice = f"declared are {known_values(candidates)}"
    found.error("RL0201", expr.span, message, advice)


def report_call(
    func: Name | Attribute, name: str, want: Param, scope: Scope, found: Diagnostics
) -> None:
    """Report a call of what makes nothing of the wanted kind."""
    span, kind = func.span, KINDS[want.type]
    other = find_anywhere(name)
    if other is not None and other.word:
        message = f"`{name}` is a word and has no parentheses"
        found.error("RL0208", span, message, f"write `{name}`")
    elif other is not None:
        message = f"`{name}()` is {KINDS[other.kind].noun}, where {kind.noun} belongs"
        advice = how_to_make(want.type)
        if other.kind == kind.step:
            advice = f"it comes after one: `{kind.start} |> {name}(…)`"
        found.error("RL0201", span, message, advice)
    elif name in UNSUPPORTED:
        message = f"`{name}` cannot be expressed here"
        found.error("RL0115", span, message, UNSUPPORTED[name])
    elif name in scope.decls:
        scope.used.add(name)
        label = Label(scope.decls[name].name.span, "declared here")
        message = f"`{name}` is a name of this recipe and has no parentheses"
        found.error("RL0208", span, message, f"write `{name}`", label)
    elif name not in scope.unread:
        message = f"there is no `{name}()` that makes {kind.noun}"
        from rlc.catalog import alias_of

        own = [each for each, decl in scope.templates.items() if decl.kind.id == want.type]
        known = [*names_of(want.type), *own]
        advice, fix = known_values(known, name), rename(span, name, known, others=True)
        if (alias := alias_of(name, builtins_of(want.type))) is not None:
            advice = f"it is called `{alias.name}()` here"
            fix = replace(span, alias.name, f"write `{alias.name}`", safe=False)  # other defaults
        found.error("RL0103", span, message, advice, fix=fix)
