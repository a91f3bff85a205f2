"""Which tests one worker runs: those of a file, and those of a folder that share what takes long
to make."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling

_TOGETHER = ("tests/service/inference/",)  # they share a model that is trained to call a tool


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> Any:
        shared = (folder for folder in _TOGETHER if nodeid.startswith(folder))
        return next(shared, None) or super()._split_scope(nodeid)
