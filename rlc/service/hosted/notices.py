"""The SDK's log messages while it waits: pauses, full queues, missed heartbeats."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlc.plan.units import elapsed

# The SDK logs these for its own developers: they are retried, or raised as an error.
_NOT_NEWS = re.compile(
    r"Retrying request|Request failed with|Failed to |Synchronous method|DEPRECATED|====="
)
_QUEUE = re.compile(r".*\bis paused\b.*?Reason: (?P<why>.*?)\.?", re.DOTALL)
_BILLING = re.compile(r"The job is paused due to billing status.*", re.DOTALL)
_HEARTBEAT = re.compile(r"Session heartbeat failed for (?P<seconds>[\d.]+) seconds.*", re.DOTALL)


def notice(message: str) -> str | None:
    """A logged message as a sentence for the user; None if the user need not know."""
    if _NOT_NEWS.match(message):
        return None
    if _BILLING.fullmatch(message):
        return "the service has paused this account for its billing; waiting up to an hour"
    if match := _QUEUE.fullmatch(message):
        return f"waiting for the service: {match['why']}"
    if match := _HEARTBEAT.fullmatch(message):
        silence = elapsed(float(match["seconds"]))
        return f"the service could not be reached for {silence}; trying again"
    return " ".join(message.split())[:200]


def is_pause(message: str) -> bool:
    """Whether a logged message says that the service is up, but makes requests wait."""
    return any(pattern.fullmatch(message) for pattern in (_BILLING, _QUEUE))


@contextmanager
def reported_to(report: Callable[[str, bool], None]) -> Iterator[None]:
    """While open, call ``report`` with each notice, and whether it is of a pause, in the thread
    that logs it. Only with TINKER_LOG, for the user who asks for it, are they also logged."""

    class Reporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if text := notice(message):
                report(text, is_pause(message))

    logger = logging.getLogger("tinker")
    handler = Reporter(logging.WARNING)
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = propagate and bool(os.environ.get("TINKER_LOG"))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
