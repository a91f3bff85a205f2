"""The runtime. The room can be called as well: ``rlc.run(plan)`` is :func:`rlc.run.start.run`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from rlc.run.start import run

        return run(*args, **kwargs)


sys.modules[__name__].__class__ = _Room
