"""What a training service says when it refuses."""

from __future__ import annotations

from rlc.errors import Error


class ServiceError(Error):
    """A request that a training service refused or could not carry out.

    The message is one sentence for the user: what is wrong, and what would be right.
    """


class ServiceLostError(ServiceError):
    """The service as a whole cannot go on: another request would fare no better."""


class CheckpointError(ServiceError):
    """A saved state that is missing, damaged or expired; an older one may serve."""
