"""Where the modules that a recipe names are, found without any of them being imported."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from threading import RLock

from rlc.data.errors import CodeError, PackageMissingError

IMPORTING = RLock()  # held where modules are imported, or the finders' caches changed
# What stands in a package whose modules may come from elsewhere.
_MAKES_MODULES = ("__path__", "sys.modules")


def module_file(name: str, folders: Sequence[str]) -> str | None:
    """The file of the Python text of a module, which is looked for among what is installed, then in
    some folders; None if it has none, or may be made by something else.

    Raise CodeError if a package has no such module, and PackageMissingError if nothing has the
    name of the outermost one: it may be installed where the recipe is run.
    """
    with IMPORTING:
        importlib.invalidate_caches()
    top, *rest = name.split(".")
    spec, known = _outermost(top, folders), top
    if spec is None:
        meant = did_you_mean(top, own_modules(folders))
        what = f"there is no module `{top}` among what is installed, here, or beside the recipe"
        raise PackageMissingError(what, meant)
    for part in rest:
        inside = spec.submodule_search_locations
        # By its last name: that of the package would be looked up among imported modules.
        found = None if inside is None else PathFinder.find_spec(part, list(inside))
        if found is None:
            if _makes_modules(spec):
                return None
            names = (path.stem for folder in inside or () for path in Path(folder).glob("*.py"))
            meant = did_you_mean(part, names)
            raise CodeError(f"there is no module `{part}` in `{known}`", meant)
        spec, known = found, f"{known}.{part}"
    file = spec.origin if spec.has_location else None
    return file if file is not None and file.endswith(".py") and os.path.isfile(file) else None


def _outermost(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if (spec := finder.find_spec(name, None)) is not None:
            return spec
    return PathFinder.find_spec(name, list(folders))


def _makes_modules(spec: ModuleSpec) -> bool:
    """Whether a module may make others when it is imported."""
    if not spec.has_location or spec.origin is None:
        return spec.submodule_search_locations is None  # a folder without `__init__.py` makes none
    try:
        text = Path(spec.origin).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # of a module that is written in C
        return True
    return any(word in text for word in _MAKES_MODULES)


def own_modules(folders: Sequence[str]) -> Iterator[str]:
    """The user's own modules that could have been meant."""
    for entry in dict.fromkeys((str(Path.cwd()), *folders, *sys.path)):
        folder = Path(entry)
        if folder.is_dir() and folder.name not in ("site-packages", "lib-dynload"):
            yield from (path.stem for path in folder.glob("*.py"))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`?" if close else None
