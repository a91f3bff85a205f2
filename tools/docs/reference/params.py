"""Parameters as a table."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from rlc.catalog.index import KINDS, builtins_of
from rlc.catalog.records import Param
from rlc.explanation.entries import default_of, meaning_of, type_of
from tools.docs.markdown import code, escaped, table

FOLDER = "reference/builtins"


def kind_path(kind: str) -> str | None:
    """Return the page of a kind of builtins; None if it has none."""
    return f"{FOLDER}/{kind}.md" if builtins_of(kind) else None


def params_table(params: Sequence[Param], at: str, of: str = "parameter") -> str:
    """Return the parameters with types, defaults and meanings; types that have a page are links,
    as seen from the page ``at``."""
    rows = [(code(p.name), _type(p, at), _default(p), escaped(meaning_of(p))) for p in params]
    return table((of, "type", "default", "meaning"), rows)


def _default(param: Param) -> str:
    default = default_of(param)
    return default if default in ("required", "…") else code(default)


def _type(param: Param, at: str) -> str:
    noun, path = escaped(type_of(param)), kind_path(param.type)
    if path is None or param.type not in KINDS:
        return noun
    return f"[{noun}]({posixpath.relpath(path, posixpath.dirname(at))})"
