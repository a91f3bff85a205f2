"""The names that a recipe declares."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TypeGuard

from rlc.catalog import (
    DECLARATIONS,
    EXPECT,
    KINDS,
    TRAINING,
    Declaration,
    find_anywhere,
    find_builtin,
    is_taken,
)
from rlc.lang import (
    Amend,
    Binary,
    BlockDecl,
    Call,
    Decl,
    Diagnostics,
    Expectation,
    Fix,
    Label,
    Name,
    Recipe,
    Span,
    ValueDecl,
    is_slip,
    nearest,
    replace,
    sole_nearest,
)
from rlc.plan import WHERE_PATHS_START
from rlc.records import define, evolve, field

MAX_LISTED = 8


def closest(word: str, candidates: Sequence[str]) -> list[str]:
    """Return the nearest candidate, else up to three that contain the word."""
    if match := nearest(word, candidates):
        return [match]
    return [name for name in candidates if len(word) > 2 and word.lower() in name.lower()][:3]


def known_values(candidates: Sequence[str], word: str | None = None) -> str:
    """Return ``did you mean …?`` for a word close to some, else what there is to choose from."""
    likely = closest(word, candidates) if word is not None else []
    if likely:
        *others, last = (f"`{name}`" for name in likely)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    listed = ", ".join(f"`{name}`" for name in candidates[:MAX_LISTED])
    more = len(candidates) - MAX_LISTED
    rest = f" and {more} more" if more > 0 else ""
    return listed + rest if word is None else f"known: {listed}{rest}"


def advice_for_file(path: str) -> str:
    """Return what to do about a file that is not there: name the one beside it that has nearly its
    name, else where paths start."""
    folder, name = os.path.split(path)
    with suppress(OSError):
        if match := nearest(name, sorted(os.listdir(folder or "."))):
            return f"did you mean `{match}`, in the same folder?"
    return WHERE_PATHS_START


def rename(span: Span, word: str, candidates: Sequence[str], others: bool = False) -> Fix | None:
    """Return the fix that replaces the ``word`` at ``span`` by the one nearest candidate.

    It is a proposal if that may be another thing, and no slip; ``others``: there are such things
    elsewhere, as algorithms that are not in rlc. None if no single candidate is nearest.
    """
    match = sole_nearest(word, candidates)
    if match is None or span.text not in (word, f'"{word}"'):
        return None
    new = span.text.replace(word, match)
    return replace(span, new, f"write `{new}`", is_slip(word, match, others))


NamedDecl = BlockDecl | ValueDecl
# The kinds of declarations that a parameter of a type may name. Each has its name in the plan.
NAMEABLE = {"model": ("model", *TRAINING)}


@define(eq=False)
class Scope:
    """Declarations by name, which has one meaning in the whole recipe. Those with parameters are
    ``templates``: they stand for nothing until they are used."""

    decls: dict[str, NamedDecl] = field(factory=dict)
    templates: dict[str, NamedDecl] = field(factory=dict)
    expectations: list[Expectation] = field(factory=list)
    unread: frozenset[str] = frozenset()
    used: set[str] = field(factory=set)
    _of_kind: dict[tuple[str, ...], tuple[str, ...]] = field(factory=dict)

    @property
    def in_order(self) -> list[NamedDecl]:
        return list(self.decls.values())

    def declaration(self, name: str) -> NamedDecl | None:
        """Return what the recipe declares under a name, with parameters or without."""
        return self.decls.get(name) or self.templates.get(name)

    def knows(self, name: str) -> bool:
        """Return whether the recipe declares the name, even if it cannot be read."""
        return name in self.decls or name in self.templates or name in self.unread

    def of_kind(self, *kinds: str) -> tuple[str, ...]:
        """Return the names of the declarations of some kinds."""
        if kinds not in self._of_kind:
            names = (name for name, decl in self.decls.items() if decl.kind.id in kinds)
            self._of_kind[kinds] = tuple(names)
        return self._of_kind[kinds]

    def find(self, name: Name, kinds: Sequence[str], found: Diagnostics) -> NamedDecl | None:
        """Return the declaration that ``name`` refers to, or None after a report."""
        decl = self.decls.get(name.id)
        if decl is not None:
            self.used.add(name.id)
            found.note("reference", name.span, decl)
            return decl
        if name.id in self.unread:
            return None
        if (template := self.templates.get(name.id)) is not None:
            self.used.add(name.id)
            found.note("reference", name.span, template)
            label = Label(template.name.span, "declared here")
            message = f"`{name.id}` has parameters and needs its parentheses"
            needed = (part.name.id for part in template.parameters or () if part.default is None)
            advice = f"write `{name.id}({', '.join(needed)})`"
            found.error("RL0208", name.span, message, advice, label)
            return None
        builtin = find_anywhere(name.id)
        if builtin is not None and not builtin.word:
            message = f"`{name.id}` is a builtin and needs its parentheses"
            found.error("RL0208", name.span, message, f"write `{builtin.usage()}`")
            return None
        candidates = self.of_kind(*kinds)
        self.used.update(closest(name.id, candidates))
        forms = [DECLARATIONS[kind].written(name.id) for kind in kinds if kind in DECLARATIONS]
        advice = f"declare it: `{forms[0]}`" if forms else "write the value here"
        if candidates:
            advice = known_values(candidates, name.id)
        fix = rename(name.span, name.id, candidates)
        found.error("RL0102", name.span, f"`{name.id}` is not declared", advice, fix=fix)
        return None


def collect(recipe: Recipe, found: Diagnostics) -> Scope:
    """Return the declarations that have a known kind, the right form and a name of their own."""
    scope = Scope(unread=recipe.unread)
    for written in recipe.decls:
        decl = _understood(written, found)
        if isinstance(decl, Expectation):
            scope.expectations.append(decl)
        elif decl is None:
            # What it would have declared is not missing.
            scope.unread |= {written.name.id} if isinstance(written, NamedDecl) else set()
        elif (first := scope.declaration(decl.name.id)) is not None:
            label = Label(first.name.span, "first declared here")
            message = f"`{decl.name.id}` is declared twice"
            found.error("RL0109", decl.name.span, message, "give one another name", label)
        elif is_taken(decl.name.id, DECLARATIONS[decl.kind.id].value):
            message = f"`{decl.name.id}` is the name of a builtin"
            found.error("RL0113", decl.name.span, message, "choose another name")
            scope.unread |= {decl.name.id}
        elif decl.parameters is not None:
            scope.templates[decl.name.id] = decl
        else:
            scope.decls[decl.name.id] = decl
    return scope


def _understood(decl: Decl, found: Diagnostics) -> NamedDecl | Expectation | None:
    """Return the declaration, a misspelt one as it was meant; None if it cannot be used."""
    match decl:
        case Expectation(kind=Name(id="param"), comparison=Binary(op="==", left=Name() as name)):
            from rlc.lang import report_comparison  # only for a mistake

            report_comparison(decl.comparison, found)
            return ValueDecl(decl.span, decl.kind, name, None, decl.comparison.right)
    kind, span, known = decl.kind.id, decl.kind.span, DECLARATIONS.get(decl.kind.id)
    message = f"`{kind}` is not a kind of declaration"
    if isinstance(decl, Expectation):
        if known is None:
            meant = _likely_kind(decl.kind)[1] or replace(span, EXPECT, f"write `{EXPECT}`", False)
            found.error("RL0101", span, message, meant.title, fix=meant)
        elif known.form is None:
            message = f"`{kind}` is not declared like this"
            found.error("RL0303", span, message, f"write `{known.written()}`")
        return decl if known is not None and known.form is not None else None
    if not isinstance(decl, NamedDecl):  # imports were followed before: a misspelt word
        found.error("RL0101", span, message, known_values(["import", *DECLARATIONS], kind))
        return None
    if known is None:
        likely, fix = _likely_kind(decl.kind)
        advice = known_values(list(DECLARATIONS), likely[0] if likely else kind)
        found.error("RL0101", span, message, advice, fix=fix)
        if not likely or _form_problem(DECLARATIONS[likely[0]], decl):
            return None
        return evolve(decl, kind=evolve(decl.kind, id=likely[0]))
    if problem := _form_problem(known, decl):
        advice = f"write `{known.written()}`"
        if known.is_block and isinstance(decl, ValueDecl) and isinstance(decl.value, Name):
            advice += f", or `{decl.value.id} {{ … }}` with what is to change"
        found.error("RL0303", decl.kind.span, problem, advice)
        return None
    return decl


def _likely_kind(kind: Name) -> tuple[list[str], Fix | None]:
    """Return the kinds that were likely meant, by their names in other tools, and the fix."""
    if known := [d.kind for d in DECLARATIONS.values() if kind.id.lower() in d.aliases.split()]:
        return known, replace(kind.span, known[0], f"write `{known[0]}`")
    return closest(kind.id, [*DECLARATIONS]), rename(kind.span, kind.id, [*DECLARATIONS])


def _form_problem(known: Declaration, decl: NamedDecl) -> str | None:
    made = isinstance(decl, ValueDecl) and isinstance(
        decl.value, (Amend, Call, Name) if known.open else (Amend, Call)
    )
    other = known.is_block != isinstance(decl, BlockDecl) and not (known.is_block and made)
    other &= known.value is None or not known.open  # which is declared either way
    if known.form is not None or other:
        return f"`{known.kind}` is not declared like this"
    if decl.parameters is not None and not known.reusable:
        return f"a `{known.kind}` takes no parameters"
    if isinstance(decl, ValueDecl) and decl.type is not None and known.kind != "param":
        return f"only a `param` is declared with a type, not `{known.kind}`"
    return None


def is_made(
    decl: BlockDecl | ValueDecl, templates: Mapping[str, NamedDecl] = MappingProxyType({})
) -> TypeGuard[ValueDecl]:
    """Return whether a declaration is written as a value, and stands for a block; ``templates`` are
    those that it can be a use of."""
    if isinstance(decl, BlockDecl) or not DECLARATIONS[decl.kind.id].is_block:
        return False
    if isinstance(decl.value, Name):  # another name of a value
        return False
    func = decl.value.func if isinstance(decl.value, Call) else None
    if not isinstance(func, Name):
        return True
    used = templates.get(func.id)
    if isinstance(used, ValueDecl) and used.kind.id == decl.kind.id:
        return is_made(used, {name: one for name, one in templates.items() if one is not used})
    return not find_builtin(decl.kind.id, func.id)


def declared_as(decl: BlockDecl | ValueDecl) -> str:
    """Return what a declaration declares, as a message names it."""
    return DECLARATIONS[decl.kind.id].noun or KINDS[decl.kind.id].noun
