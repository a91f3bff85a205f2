"""What a training service says when it refuses."""

from __future__ import annotations


class ServiceError(Exception):
    """A request that a training service refused or could not carry out.

    The message is one sentence for the user: what is wrong, and what would be right.
    """
