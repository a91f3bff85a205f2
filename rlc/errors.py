"""The error that all others of rlc derive from."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """An error that rlc reports to its user, and the base class of all of them.

    Attributes:
        message: what is wrong; also the error's ``str``.
        hint: what to do about it, or None if the message says it.
        exit_status: what the command line exits with: 1, or 2 for a mistake in its arguments.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
