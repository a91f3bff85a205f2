"""What is measured of a server, and what it is asked for."""

from __future__ import annotations

from attrs import frozen

from rlc.errors import Error


@frozen
class MeasuredDifference:
    """A difference that was measured, and the largest that is allowed."""

    what: str
    found: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.found <= self.allowed  # not so for NaN


@frozen
class TokenCount:
    """Tokens that the server was asked to process."""

    prefill: int = 0
    sample: int = 0
    train: int = 0


class DiffersError(Error):
    """What a server does is not what the protocol says, and the check cannot go on."""
