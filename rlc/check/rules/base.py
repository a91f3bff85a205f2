"""What a rule is and what it sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from rlc.check.settle import Origins
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.source import Span


@frozen
class View:
    """The parts of one stage that could be read, and where they stand."""

    parts: dict[str, Any]
    origins: Origins
    found: Diagnostics

    def __getattr__(self, name: str) -> Any:
        return self.parts[name]

    def at(self, path: str) -> Span:
        """The place of ``batch.size`` and the like."""
        return self.origins.at(path)

    def error(
        self, code: str, path: str, message: str, help: str | None = None, *labels: Label
    ) -> None:
        self.found.error(code, self.at(path), message, help, *labels)

    def warning(
        self, code: str, path: str, message: str, help: str | None = None, *labels: Label
    ) -> None:
        self.found.warning(code, self.at(path), message, help, *labels)


@frozen
class Rule:
    """A check on the parts ``needs`` of a stage."""

    needs: tuple[str, ...]
    check: Callable[[View], None]
