"""Errors of training services."""

from __future__ import annotations

from rlc.errors import Error


class ServiceError(Error):
    """A request that a training service refused or could not carry out.

    The message is one sentence for the user: what is wrong, and what would be right.
    """


class ServiceLostError(ServiceError):
    """The service as a whole has failed: another request would fail, too."""


class CheckpointError(ServiceError):
    """A saved state that is missing, damaged or expired; an older one may serve."""
