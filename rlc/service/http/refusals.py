"""A request that the server refuses, and the HTTP status that says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlc.errors import Error
from rlc.service.errors import ServiceError


class Refused(Error):  # noqa: N818 (it is what happened, not what went wrong here)
    """One sentence for the client.

    The status decides what the SDK does: it gives up on 400, 401, 404, 413 and 415, takes 410
    as "this will never come, ask anew", and tries 408, 409, 429 and 5xx again for minutes.
    ``param`` is the parameter that is refused and ``code`` a word for programs, in APIs that have
    them.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


@contextmanager
def refusing(status: int) -> Iterator[None]:
    """Raise Refused with this status in place of a ServiceError."""
    try:
        yield
    except ServiceError as error:
        raise Refused(status, str(error)) from error
