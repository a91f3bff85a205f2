"""Doors: what a room shows to the others, each name imported when it is first asked for."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def door(package: str, sign: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that shows names of its modules.

    ``sign`` lists them, each module with a colon before its names: ``"codec: dumps loads graph:
    Graph"``. A module is imported when one of its names is first asked for, so that a room costs no
    more than what is used of it. ``homes`` of what is returned has the module of each name.
    """
    homes, module = dict[str, str](), ""
    for word in sign.split():
        if word.endswith(":"):
            module = f"{package}.{word[:-1]}"
        else:
            homes[word] = module

    def __getattr__(name: str) -> Any:  # noqa: N807
        from importlib import import_module

        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    __getattr__.homes = homes  # type: ignore[attr-defined]
    return __getattr__
