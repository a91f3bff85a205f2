"""What the compiler says about a recipe: one record for every mistake."""

from __future__ import annotations

from enum import StrEnum

from rlc.lang.source import Span
from rlc.record import frozen


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@frozen
class Label:
    """A second place that explains the first ("declared here")."""

    span: Span
    text: str


@frozen
class Diagnostic:
    """One finding.

    ``message`` is one plain sentence without a full stop; ``help`` says what to do.
    ``span`` is None only when there is no text to point at (an unreadable file): then
    ``file`` names it.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None
    help: str | None = None
    labels: tuple[Label, ...] = ()
    file: str | None = None


class Diagnostics(list[Diagnostic]):
    """The findings of one run, in the order they were found."""

    def error(
        self, code: str, span: Span, message: str, help: str | None = None, *labels: Label
    ) -> None:
        self.append(Diagnostic(code, Severity.ERROR, message, span, help, labels))

    def warning(
        self, code: str, span: Span, message: str, help: str | None = None, *labels: Label
    ) -> None:
        self.append(Diagnostic(code, Severity.WARNING, message, span, help, labels))

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self)
