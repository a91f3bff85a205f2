"""What the records of the compiler share: comparison and ``repr``, written once.

attrs writes and compiles these for each class when it is defined, and `rlc check` defines almost a
hundred records whenever it starts. So those that are compared or printed only now and then derive
from :class:`Record`, and switch off (``eq = False``, ``repr = False``) what attrs would add, and
slots (``slots = False``), for which it makes each class twice.
"""

from __future__ import annotations

from functools import cache

from attrs import fields, frozen


@frozen(eq=False, repr=False, slots=False)
class Record:
    """A record that is compared and shown by its fields, and cannot be hashed.

    ``is_whole``: in a plan it is one value, and its fields are no parts of the plan.
    """

    is_whole = False

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        compared, _ = _names(type(self))  # type: ignore[arg-type]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        _, shown = _names(type(self))  # type: ignore[arg-type]
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
        return f"{type(self).__name__}({values})"


@cache
def _names(kind: type[Record]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the fields by which records of a kind are compared, and of those shown."""
    compared = tuple(field.name for field in fields(kind) if field.eq)
    return compared, tuple(field.name for field in fields(kind) if field.repr)
