"""What the compiler says about a recipe: one record for every mistake."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

from rlc.lang.source import Span
from rlc.records import Record


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@frozen(eq=False, repr=False)
class Label(Record):
    """A second place that explains the first ("declared here")."""

    span: Span
    text: str


@frozen(eq=False, repr=False)
class Fix(Record):
    """What to write instead: each span of ``edits`` replaced by the text beside it.

    ``title`` is an instruction, as in "write `=`". A safe fix is the only sensible reading of what
    is there, so that it may be applied unseen; any other is a proposal.
    """

    title: str
    edits: tuple[tuple[Span, str], ...]
    safe: bool = True


def replace(span: Span, text: str, title: str, safe: bool = True) -> Fix:
    """The fix that puts ``text`` in place of ``span``."""
    return Fix(title, ((span, text),), safe)


@frozen(eq=False, repr=False)
class Diagnostic(Record):
    """One finding.

    ``message`` is one plain sentence without a full stop; ``help`` says what to do, ``fix`` how.
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
    fix: Fix | None = None

    @property
    def file_name(self) -> str:
        """The name of the file that the finding is in."""
        return self.span.source.name if self.span else self.file or ""


class Diagnostics(list[Diagnostic]):
    """The findings of one run, in the order they were found."""

    def error(
        self,
        code: str,
        span: Span,
        message: str,
        help: str | None = None,
        *labels: Label,
        fix: Fix | None = None,
    ) -> None:
        self.append(Diagnostic(code, Severity.ERROR, message, span, help, labels, fix=fix))

    def warning(
        self,
        code: str,
        span: Span,
        message: str,
        help: str | None = None,
        *labels: Label,
        fix: Fix | None = None,
    ) -> None:
        self.append(Diagnostic(code, Severity.WARNING, message, span, help, labels, fix=fix))

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sorted by file and place, so that output does not depend on who found what first."""

    def key(item: Diagnostic) -> tuple[str, int, int, str]:
        start, end = (item.span.start, item.span.end) if item.span else (-1, -1)
        return item.file_name, start, end, item.code

    return sorted(diagnostics, key=key)
