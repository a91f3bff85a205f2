"""What the records of the compiler share: comparison and ``repr``, written once.

attrs writes and compiles these for each class when it is defined, and `rlc check` defines almost a
hundred records whenever it starts. So those that are compared or printed only now and then derive
from :class:`Record`, and switch off (``eq = False``, ``repr = False``) what attrs would add.
"""

from __future__ import annotations

from attrs import fields, frozen


@frozen(eq=False, repr=False)
class Record:
    """A record that is compared and shown by its fields, and cannot be hashed.

    ``is_whole``: in a plan it is one value, and its fields are no parts of the plan.
    """

    is_whole = False

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        compared = (field.name for field in fields(type(self)) if field.eq)
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (field.name for field in fields(type(self)) if field.repr)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({values})"
