"""What a rule is and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlc.check.settle import Origins
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.source import Span
from rlc.record import frozen


@frozen
class View:
    """The parts of one stage that could be read, and where they stand.

    ``before`` has those of the stage that it goes on from, or evaluates.
    """

    parts: Mapping[str, Any]
    origins: Origins
    found: Diagnostics
    before: Mapping[str, Any]

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
