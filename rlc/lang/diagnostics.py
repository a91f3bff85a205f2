"""The compiler's messages about a recipe: one record for every mistake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from rlc.lang.secrets import keys_in, masked
from rlc.lang.source import Source, Span
from rlc.records import Record, frozen


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@frozen
class Label(Record):
    """A second place that explains the first ("declared here")."""

    span: Span
    text: str


@frozen
class Fix(Record):
    """A change of the text: each span of ``edits`` is replaced by the text beside it.

    ``title`` is an instruction, as in "write `=`". A safe fix is the only sensible reading of the
    text, so that it may be applied unseen; any other is a proposal.
    """

    title: str
    edits: tuple[tuple[Span, str], ...]
    safe: bool = True


def replace(span: Span, text: str, title: str, safe: bool = True) -> Fix:
    """Return the fix that puts ``text`` in place of ``span``."""
    return Fix(title, ((span, text),), safe)


@frozen
class Diagnostic(Record):
    """One finding.

    ``message`` is one plain sentence without a full stop; ``help`` says what to do, ``fix`` how.
    ``span`` is None only when there is no text to point at (an unreadable file): then
    ``file`` names it. With ``hides`` its text is a secret, and no excerpt shows it.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None
    help: str | None = None
    labels: tuple[Label, ...] = ()
    file: str | None = None
    fix: Fix | None = None
    hides: bool = False

    @property
    def file_name(self) -> str:
        """The name of the file that the finding is in."""
        return self.span.source.name if self.span else self.file or ""


class Diagnostics(list[Diagnostic]):
    """The findings of one run, in the order in which they were found."""

    def error(
        self,
        code: str,
        span: Span,
        message: str,
        help: str | None = None,
        *labels: Label,
        fix: Fix | None = None,
        hides: bool = False,
    ) -> None:
        text = masked(message), help and masked(help)
        self.append(
            Diagnostic(code, Severity.ERROR, text[0], span, text[1], labels, None, fix, hides)
        )

    def warning(
        self,
        code: str,
        span: Span,
        message: str,
        help: str | None = None,
        *labels: Label,
        fix: Fix | None = None,
    ) -> None:
        text = masked(message), help and masked(help)
        self.append(Diagnostic(code, Severity.WARNING, text[0], span, text[1], labels, None, fix))

    def report_keys(self, source: Source) -> None:
        """Report the keys in a text, comments included."""
        for span in keys_in(source):
            message = "a key stands here, and recipes are shown, kept and shared"
            advice = "remove it, and put it into a variable of the environment"
            self.error("RL0323", span, message, advice)

    def note(
        self,
        role: str,
        span: Span,
        what: object = None,
        want: object = None,
        owner: str | None = None,
    ) -> None:
        """Note the meaning of a part of a text, for editors; ignored here."""

    def note_arguments(
        self, owner: object, span: Span, items: Sequence[object], params: Sequence[object]
    ) -> None:
        """Note the arguments of a call, or the fields of a block, for editors; ignored here."""

    def drop_repeated(self) -> None:
        """Keep only the first of findings with the same code, place and message."""
        first: dict[tuple[str, Span | None, str], Diagnostic] = {}
        for item in self:
            first.setdefault((item.code, item.span, item.message), item)
        self[:] = first.values()

    @property
    def has_errors(self) -> bool:
        return any(item.severity is Severity.ERROR for item in self)


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the findings sorted by file and place."""

    def key(item: Diagnostic) -> tuple[str, int, int, str]:
        start, end = (item.span.start, item.span.end) if item.span else (-1, -1)
        return item.file_name, start, end, item.code

    return sorted(diagnostics, key=key)
