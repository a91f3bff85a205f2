"""What the SDK says in its log while it waits: pauses, full queues, missed heartbeats."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The SDK logs these for its own developers: they are either retried or come back as an error.
_NOT_NEWS = re.compile(r"Retrying request|Request failed with|Failed to |Synchronous method|=====")
_QUEUE = re.compile(r".*\bis paused\b.*?Reason: (?P<why>.*?)\.?", re.DOTALL)
_BILLING = re.compile(r"The job is paused due to billing status.*", re.DOTALL)
_HEARTBEAT = re.compile(r"Session heartbeat failed for (?P<seconds>[\d.]+) seconds.*", re.DOTALL)


def notice(message: str) -> str | None:
    """A logged message as a sentence for the user; None for what is no news."""
    if _NOT_NEWS.match(message):
        return None
    if _BILLING.fullmatch(message):
        return "the service has paused this account for its billing; waiting up to an hour"
    if match := _QUEUE.fullmatch(message):
        return f"waiting for the service: {match['why']}"
    if match := _HEARTBEAT.fullmatch(message):
        return f"the service could not be reached for {float(match['seconds']):.0f} s; trying on"
    return " ".join(message.split())[:200]


def is_pause(message: str) -> bool:
    """Whether a logged message says that the service is there, and has requests wait."""
    return any(pattern.fullmatch(message) for pattern in (_BILLING, _QUEUE))


@contextmanager
def heard_by(tell: Callable[[str, bool], None]) -> Iterator[None]:
    """While open, ``tell`` gets the notices, on whatever thread they arise, in place of the log;
    each with whether it tells of a pause.

    With TINKER_LOG the user has asked for the log itself, and keeps it too.
    """
    logger = logging.getLogger("tinker")
    handler = _Teller(tell)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = propagate and bool(os.environ.get("TINKER_LOG"))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Teller(logging.Handler):
    def __init__(self, tell: Callable[[str, bool], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if text := notice(message):
            self._tell(text, is_pause(message))
