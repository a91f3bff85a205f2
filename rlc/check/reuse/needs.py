"""What reuse needs of the evaluator, which needs it in turn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from rlc.catalog import Param
from rlc.check.scalars import Scalars
from rlc.check.scope import NamedDecl, Scope
from rlc.check.values import Value
from rlc.lang import BlockDecl, Call, Diagnostics, Expr, Name


class Copies(Protocol):
    """What is needed of :class:`rlc.check.reuse.uses.Uses`."""

    def copy(self, call: Call) -> NamedDecl | None: ...

    def labelled(self, decl: NamedDecl, call: Call) -> AbstractContextManager[None]: ...


class ReuseContext(Protocol):
    """What is needed of :class:`rlc.check.evaluate.Evaluator`."""

    scope: Scope
    found: Diagnostics
    scalars: Scalars

    @property
    def uses(self) -> Copies: ...

    def value(self, expr: Expr, want: Param) -> Value | None: ...

    def made(self, decl: NamedDecl) -> Value | None: ...

    def block(self, decl: NamedDecl, name: Name) -> BlockDecl | None: ...

    def may_use(self, decl: NamedDecl, name: Name) -> bool: ...

    def inside(self, name: str) -> AbstractContextManager[None]: ...
