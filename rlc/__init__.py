"""rlc: a compiler for reinforcement-learning post-training recipes.

From Python: ``load``, ``load_plan``, ``explain`` (:mod:`rlc.api`), ``run`` and ``resume``
(:mod:`rlc.runtime.start`).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing is left alone: it takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from rlc.api import Explanation, Recipe, RecipeError, explain, load, load_plan
    from rlc.runtime.start import resume, run

__version__ = "0.1.0"

__all__ = ["Explanation", "Recipe", "RecipeError", "explain", "load", "load_plan", "resume", "run"]


def __getattr__(name: str) -> Any:
    """The names above, imported when they are asked for: `import rlc` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'rlc' has no attribute {name!r}")
    from importlib import import_module

    module = "rlc.runtime.start" if name in ("run", "resume") else "rlc.api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
