"""What a declaration stands for."""

from __future__ import annotations

from typing import TypeGuard

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import KINDS, find_builtin
from rlc.lang.ast import BlockDecl, Call, Name, ValueDecl

# Of which declarations a parameter may name one. Each has its name in the plan.
NAMEABLE = {"model": ("model", "sft", "train")}


def is_made(decl: BlockDecl | ValueDecl) -> TypeGuard[ValueDecl]:
    """Whether a declaration is written as a value, and stands for a block."""
    if isinstance(decl, BlockDecl) or not DECLARATIONS[decl.kind.id].is_block:
        return False
    func = decl.value.func if isinstance(decl.value, Call) else None
    return not (isinstance(func, Name) and find_builtin(decl.kind.id, func.id))


def declared_as(decl: BlockDecl | ValueDecl) -> str:
    """What a declaration declares, as a message names it."""
    nouns = {"train": "a training stage", "param": "a param"}
    nouns |= {"sft": "a training stage", "eval": "an evaluation", "sweep": "a sweep"}
    return nouns.get(decl.kind.id) or KINDS[decl.kind.id].noun
