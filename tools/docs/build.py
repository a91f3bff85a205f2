"""The site, built: the source put together, Sphinx run on it, plain Markdown added."""

from __future__ import annotations

import gc
import shutil
from io import StringIO
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.console import nocolor

from tools.docs.plain import add_plain
from tools.docs.reference.plan import schema_text
from tools.docs.sources import DOCS, assets, pages


def build(site: Path, work: Path) -> str:
    """Build the site in a folder, and return the warnings. ``work`` keeps the source and what
    Sphinx knows of it, so that the next build renders only what has changed.

    Raise sphinx.errors.SphinxError if it cannot be built.
    """
    source, texts = work / "source", pages()
    for old in source.rglob("*.md"):
        if old.relative_to(source).as_posix() not in texts:
            old.unlink()
    for path, text in texts.items():
        _write(source / path, text)
    for asset in assets():
        _copy(asset, source / asset.relative_to(DOCS))
        _copy(asset, site / asset.relative_to(DOCS))
    for folder in (source, site):
        _write(folder / "reference" / "plan.schema.json", schema_text())
    nocolor()
    warnings = StringIO()
    folders = (source, DOCS, site, work / "doctrees")
    gc.disable()  # of the millions of nodes that a build makes, almost none are garbage
    try:
        Sphinx(*folders, "html", status=None, warning=warnings).build()
    finally:
        gc.freeze()  # nor are those looked at later
        gc.enable()
    add_plain(site, texts)
    return warnings.getvalue()


def _write(path: Path, text: str) -> None:
    """Write a file, if that changes it: Sphinx renders anew what is newer."""
    if not path.is_file() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to)
