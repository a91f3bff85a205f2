"""The error that algorithms raise."""

from __future__ import annotations

from rlc.errors import Error


class AlgorithmError(Error, ValueError):
    """Data or settings for which a formula has no value; the message says which and why."""
