"""The SDK's exceptions and log messages in plain words, one sentence each."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tinker
from attrs import evolve, frozen
from tinker.lib.retryable_exception import RetryableException
from tinker.types import RequestErrorCategory

from rlc.plan import elapsed
from rlc.service.interface import ServiceError, ServiceLostError

# The SDK logs these for its own developers: they are retried, or raised as an error.
_NOT_NEWS = re.compile(
    r"Retrying request|Request failed with|Failed to |Synchronous method|DEPRECATED|====="
)
_QUEUE = re.compile(r".*\bis paused\b.*?Reason: (?P<why>.*?)\.?", re.DOTALL)
_BILLING = re.compile(r"The job is paused due to billing status.*", re.DOTALL)
_HEARTBEAT = re.compile(r"Session heartbeat failed for (?P<seconds>[\d.]+) seconds.*", re.DOTALL)


def notice(message: str) -> str | None:
    """Return a logged message as a sentence for the user; None if the user need not know."""
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


@contextmanager
def reported_to(report: Callable[[str, bool], None]) -> Iterator[None]:
    """Call ``report`` with each `notice`, and whether the service is up but makes requests wait, in
    the thread that logs it. The messages are also logged only if TINKER_LOG is set."""

    class Reporter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if text := notice(message):
                report(text, any(pattern.fullmatch(message) for pattern in (_BILLING, _QUEUE)))

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


_LONGEST_DETAIL = 300
_SDK_FAILED = "the Tinker SDK failed: "
_POISONED = "this TrainingClient is poisoned"
_REQUEST_FAILED = re.compile(r"Request failed: (.*?) for self\.request_id=.*", re.DOTALL)


@frozen
class _Refusal:
    """The sentence for a status; ``lost``: another request would fail, too."""

    message: str
    hint: str | None = None
    lost: bool = True


_LATER = "the run can be resumed later"
_BY_STATUS = {
    400: _Refusal("{where} refused a request: {detail}", lost=False),
    401: _Refusal(
        "{where} does not accept the key: {detail}",
        "check TINKER_API_KEY; keys are made at https://tinker.thinkingmachines.ai/keys",
    ),
    402: _Refusal(
        "{where} has paused this account until its billing is in order: {detail}",
        f"settle it at https://tinker.thinkingmachines.ai; {_LATER}",
    ),
    403: _Refusal("this key is not allowed to do that on {where}: {detail}"),
    404: _Refusal(
        "{where} does not know what was asked for: {detail}",
        "a checkpoint may have expired or been deleted, and an address may be wrong",
    ),
    405: _Refusal("{where} does not speak the Tinker API: {detail}", "check the address"),
    408: _Refusal("{where} did not answer in time: {detail}", _LATER),
    409: _Refusal(
        "{where} reports a conflict: {detail}",
        "another process may be using the same names or the same session",
    ),
    410: _Refusal(
        "{where} has finished this session: {detail}",
        "resuming the run opens a new one and goes on from the last checkpoint",
    ),
    413: _Refusal("{where} refused a request as too large: {detail}", lost=False),
    415: _Refusal("{where} does not speak the Tinker API: {detail}", "check the address"),
    424: _Refusal("a request failed on {where}: {detail}", _LATER),  # what the bridge to it says
    429: _Refusal(
        "{where} keeps refusing requests as too many, after all retries: {detail}",
        f"other runs of this account count too; {_LATER}",
    ),
}
_FAILING = _Refusal("{where} keeps failing (HTTP {status}), after all retries: {detail}", _LATER)
_UNREACHABLE = _Refusal(
    "cannot reach {where}: {detail}", f"is it up, and its address right? {_LATER}"
)
_NOT_TINKER = _Refusal("{where} does not speak the API of this SDK: {detail}")


def translate(error: BaseException, where: str) -> ServiceError:
    """Return an exception of the SDK as one sentence; ``where`` names the server."""
    if isinstance(error, ServiceError):
        return error
    for cause in causes(error):
        if isinstance(cause, RuntimeError) and _POISONED in str(cause):
            first = cause.__cause__ or cause
            return _ended(f"an earlier custom loss failed: {_short(str(first))}")
        status = getattr(cause, "status_code", None)  # of the SDK's errors, and of stand-ins'
        if isinstance(status, int) and not isinstance(cause, tinker.APIResponseValidationError):
            refusal = _BY_STATUS.get(status, _FAILING if status >= 500 else _BY_STATUS[400])
            if status in (401, 402) and not isinstance(cause, tinker.APIStatusError):
                refusal = evolve(refusal, hint=None)
            said = _words(getattr(cause, "body", None)) or str(cause)
            return _say(refusal, where, _short(said), status)
        if isinstance(cause, tinker.RequestFailedError):  # accepted, and failed later
            match = _REQUEST_FAILED.fullmatch(cause.message)
            detail = _short(match[1] if match else cause.message)
            user = cause.category is RequestErrorCategory.User
            what = f"{where} refused a request" if user else f"a request failed on {where}"
            return ServiceError(f"{what}: {detail}")
        if isinstance(cause, tinker.APIResponseValidationError):
            return _say(_NOT_TINKER, where, _short(str(cause)))
        if isinstance(cause, tinker.APITimeoutError):
            return _say(_BY_STATUS[408], where, "the request timed out")
        if isinstance(cause, tinker.APIConnectionError):
            texts = [text for text in map(str, causes(cause)) if text]  # the innermost says most
            return _say(_UNREACHABLE, where, _short(texts[-1] if texts else type(cause).__name__))
        if isinstance(cause, RetryableException):
            return _say(_BY_STATUS[410], where, _short(str(cause)))
        # A 402 while a client is set up: the SDK reads a field there that it has not set yet.
        if isinstance(cause, AttributeError) and "billing_exception_time" in str(cause):
            return _say(_BY_STATUS[402], where, "payment required")
    if isinstance(error, tinker.TinkerError):  # credentials: the SDK's own sentence
        return ServiceLostError(_short(str(error)))
    return ServiceError(f"{_SDK_FAILED}{type(error).__name__}: {_short(str(error))}")


def translate_in_client(error: BaseException, where: str, loss: str) -> ServiceError:
    """Return an exception of a custom loss that this client computes, which ends the client."""
    translated = translate(error, where)
    if isinstance(translated, ServiceLostError):
        return translated
    return _ended(f"the custom loss `{loss}` failed: {str(translated).removeprefix(_SDK_FAILED)}")


def _ended(why: str) -> ServiceLostError:
    end = "the SDK takes no more requests of a training client in which that happened"
    hint = "the run can be resumed: it goes on from its last checkpoint with a new client"
    return ServiceLostError(f"{why}; this client computes it, and {end}", hint)


def _say(refusal: _Refusal, where: str, detail: str, status: int = 0) -> ServiceError:
    message = refusal.message.format(where=where, detail=detail, status=status)
    kind = ServiceLostError if refusal.lost else ServiceError
    return kind(message, refusal.hint)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it was raised from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _words(body: Any) -> str:
    """Return the message of a server, from the fields of its JSON that may have it."""
    if isinstance(body, dict):
        parts = (_words(body.get(key)) for key in ("detail", "error", "message", "msg"))
        return next((part for part in parts if part), "")
    if isinstance(body, list):
        return "; ".join(part for part in map(_words, body) if part)
    return body if isinstance(body, str) else ""


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _LONGEST_DETAIL else line[: _LONGEST_DETAIL - 2] + " …"
