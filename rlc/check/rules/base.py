"""What a rule is and what it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from rlc.check.settle import Origins
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.source import Span


@frozen(eq=False, repr=False)
class View:
    """The parts of one stage that could be read, and their places."""

    parts: Mapping[str, Any]
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
        if not self._known(code, path):
            self.found.error(code, self.at(path), message, help, *labels)

    def warning(
        self, code: str, path: str, message: str, help: str | None = None, *labels: Label
    ) -> None:
        if not self._known(code, path):
            self.found.warning(code, self.at(path), message, help, *labels)

    def _known(self, code: str, path: str) -> bool:
        """Whether it was reported already, for another stage that uses the same thing."""
        span = self.at(path)
        return any(item.code == code and item.span == span for item in self.found)


@frozen(eq=False, repr=False)
class Rule:
    """A check on the parts ``needs`` of a stage."""

    needs: tuple[str, ...]
    check: Callable[[View], None]
