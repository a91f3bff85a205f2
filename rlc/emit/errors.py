"""Plans that cannot be written as a job or as a script."""

from __future__ import annotations

from collections.abc import Sequence

from rlc.errors import Error
from rlc.lang import Diagnostic, Diagnostics, Severity


class EmitError(Error, ValueError):
    """A plan that cannot be written. ``diagnostics`` has a finding for each obstacle."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        from rlc.lang.render import render_human

        super().__init__(render_human(Diagnostics(diagnostics), color=False).rstrip())
        self.diagnostics = Diagnostics(diagnostics)

    def __reduce__(self) -> tuple[type[EmitError], tuple[list[Diagnostic]]]:
        return type(self), (list(self.diagnostics),)

    @classmethod
    def of_file(cls, file: str, message: str, advice: str) -> EmitError:
        """Return the error for a file that a job cannot take along."""
        return cls([Diagnostic("RL0825", Severity.ERROR, message, None, advice, file=file)])
