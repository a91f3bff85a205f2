"""The public Python API: the names of ``rlc.__all__``, with their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import rlc
from tools.docs.markdown import fenced, page

_INTRODUCTION, _, _REST = inspect.cleandoc(rlc.__doc__ or "").partition("::\n\n")
_EXAMPLE = inspect.cleandoc(_REST.partition("\n\nEvery error")[0])


def api_page() -> str:
    """Return the page that Sphinx fills in from the docstrings."""
    return _page({name: _directive(name) for name in rlc.__all__})


def plain_api_page() -> str:
    """Return the same page as plain Markdown, with the docstrings as they are."""
    return _page({name: _plain(name) for name in rlc.__all__})


def _page(parts: dict[str, str]) -> str:
    functions = [name for name in parts if not inspect.isclass(getattr(rlc, name))]
    return page(
        "# Python",
        f"{_INTRODUCTION}:".replace("::", ":"),
        fenced(_EXAMPLE, "python"),
        "Every error that rlc raises for its user derives from `rlc.Error`.",
        "## Functions",
        *(parts[name] for name in functions),
        "## Classes",
        *(text for name, text in parts.items() if name not in functions),
    )


def _directive(name: str) -> str:
    is_class = inspect.isclass(getattr(rlc, name))
    lines = [f".. auto{'class' if is_class else 'function'}:: rlc.{name}"]
    lines += ["   :members:"] if is_class else []
    return fenced("\n".join(lines), "{eval-rst}")


def _plain(name: str) -> str:
    return page(*(f"### `{title}`\n\n{fenced(doc)}" for title, doc in _documented(name)))


def _documented(name: str) -> Iterator[tuple[str, str]]:
    """Yield a name, then for a class its public methods, each with its signature and docstring."""
    item = getattr(rlc, name)
    yield f"rlc.{name}{_signature(item)}", inspect.getdoc(item) or ""
    if inspect.isclass(item):
        for method, function in vars(item).items():
            doc = inspect.getdoc(function)
            if not method.startswith("_") and inspect.isfunction(function) and doc:
                yield f"rlc.{name}.{method}{_signature(function)}", doc


def _signature(item: object) -> str:
    try:
        return str(inspect.signature(item))  # type: ignore[arg-type]  # ValueError if not callable
    except ValueError:
        return "()"
