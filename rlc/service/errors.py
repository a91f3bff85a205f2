"""What a training service says when it refuses."""

from __future__ import annotations


class ServiceError(Exception):
    """A request that a training service refused or could not carry out.

    The message is one sentence for the user: what is wrong, and what would be right. ``hint``
    says what to do where the message alone does not.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ServiceLostError(ServiceError):
    """The service as a whole cannot go on: another request would fare no better."""


class CheckpointError(ServiceError):
    """A saved state that is missing, damaged or expired; an older one may serve."""
