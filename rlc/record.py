"""Immutable records that cost nothing until they are used.

``rlc check`` defines some eighty records and makes instances of half of them. attrs writes and
compiles several methods for each class as it is defined, and importing it takes longer than
checking a recipe. The records of the compiler therefore have methods that are made at their first
use: the same declarations, the same behaviour, and attrs' own protocol for whoever asks, so that
cattrs, ``attrs.fields``, ``attrs.evolve`` and ``attrs.asdict`` work on them (attrs is imported
then).

What is here is the part of attrs that the compiler needs: :func:`frozen`, :func:`define` (the same
but mutable), :func:`field`, :func:`evolve` and :func:`asdict`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_NOTHING: Any = object()


class Field:
    """What a class body says of a field."""

    __slots__ = ("default", "eq", "factory", "init", "repr")

    def __init__(
        self, default: Any, factory: Callable[[], Any] | None, init: bool, repr: bool, eq: bool
    ) -> None:
        self.default = default
        self.factory = factory
        self.init = init
        self.repr = repr
        self.eq = eq


_PLAIN = Field(_NOTHING, None, True, True, True)


def field(
    *,
    default: Any = _NOTHING,
    factory: Callable[[], Any] | None = None,
    init: bool = True,
    repr: bool = True,
    eq: bool = True,
) -> Any:
    """A field with settings of its own. ``eq = False`` leaves it out of comparison and hash."""
    return Field(default, factory, init, repr, eq)


class FrozenInstanceError(AttributeError):
    """An attempt to change an immutable record."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class an immutable record of its annotated fields, hashable and compared by value."""
    _make_record(cls, frozen=True)
    return cls


@dataclass_transform(field_specifiers=(field,))
def define(cls: type[T]) -> type[T]:
    """Make a class a mutable record of its annotated fields, compared by value."""
    _make_record(cls, frozen=False)
    return cls


def field_names(node: object) -> tuple[str, ...] | None:
    """The names of a record's fields in order; None for anything else."""
    return getattr(node, "__field_names__", None)


def evolve(node: T, **changes: Any) -> T:
    """A copy of a record with other values for some fields."""
    names = field_names(node)
    if names is None:
        import attrs

        return attrs.evolve(node, **changes)  # type: ignore[misc]
    if node.__is_plain__ and changes.keys() <= node.__fields__.keys():  # type: ignore[attr-defined]
        copy = object.__new__(type(node))
        copy.__dict__.update(node.__dict__, **changes)
        return copy
    fields = node.__fields__  # type: ignore[attr-defined]
    kept = {name: getattr(node, name) for name in names if fields[name].init}
    return type(node)(**{**kept, **changes})


def mapped(node: T, change: Callable[[Any], Any]) -> T:
    """A copy of a record with ``change`` applied to every field."""
    if not node.__is_plain__:  # type: ignore[attr-defined]
        return evolve(node, **{n: change(getattr(node, n)) for n in field_names(node) or ()})
    copy = object.__new__(type(node))
    copy.__dict__.update({name: change(value) for name, value in node.__dict__.items()})
    return copy


def asdict(node: object) -> dict[str, Any]:
    """The fields of a record by name; records within, and in lists, tuples and dicts, likewise."""
    return {name: _plain(getattr(node, name)) for name in field_names(node) or ()}


def _plain(value: Any) -> Any:
    if field_names(value) is not None:
        return asdict(value)
    if isinstance(value, list | tuple):
        return type(value)([_plain(item) for item in value])
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _make_record(cls: Any, frozen: bool) -> None:
    """Note the fields, and leave the methods for later."""
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= base.__dict__.get("__fields__", {})
    for name in cls.__annotations__:
        given = cls.__dict__.get(name, _NOTHING)
        if isinstance(given, Field):
            fields[name] = given
            delattr(cls, name)
        else:
            fields[name] = _PLAIN if given is _NOTHING else Field(given, None, True, True, True)
    cls.__fields__ = fields
    cls.__field_names__ = tuple(fields)
    setattr(cls, "__match_args__", tuple(fields))  # noqa: B010 (mypy knows it as final)
    # Whether an instance's attributes are its fields and nothing else, made by no code of its own.
    cls.__is_plain__ = not any(
        name == "__attrs_post_init__" or isinstance(value, cached_property)
        for base in cls.__mro__
        for name, value in base.__dict__.items()
    )
    cls.__attrs_attrs__ = _Attributes()
    cls.__init__ = _FirstInit()
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if "__eq__" not in cls.__dict__:
        cls.__eq__ = _eq
        cls.__hash__ = _hash if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse


class _FirstInit:
    """Stands for ``__init__`` until a first instance is made."""

    def __get__(self, instance: Any, owner: type) -> Any:
        for cls in owner.__mro__:
            if cls.__dict__.get("__init__") is self:
                cls.__init__ = _init_of(cls)  # type: ignore[misc]
        made: Any = owner.__init__  # type: ignore[misc]
        return made if instance is None else made.__get__(instance)


def _init_of(cls: Any) -> Any:
    """``__init__`` of a record, written out: one assignment a field."""
    parameters, body = [], ["d = self.__dict__"]
    names: dict[str, Any] = {}
    for name, spec in cls.__fields__.items():
        value = name
        if spec.factory is not None:
            names[f"_factory_{name}"] = spec.factory
            value = f"_factory_{name}()"
            if spec.init:
                names["_nothing"] = _NOTHING
                parameters.append(f"{name}=_nothing")
                value = f"{value} if {name} is _nothing else {name}"
        elif spec.default is not _NOTHING:
            names[f"_default_{name}"] = spec.default
            value = f"_default_{name}"
            if spec.init:
                parameters.append(f"{name}=_default_{name}")
                value = name
        elif spec.init:
            parameters.append(name)
        else:
            continue  # set in __attrs_post_init__
        body.append(f"d[{name!r}] = {value}")
    if hasattr(cls, "__attrs_post_init__"):
        body.append("self.__attrs_post_init__()")
    lines = [
        f"def __init__({', '.join(['self', *parameters])}):",
        *(f"    {line}" for line in body),
    ]
    exec("\n".join(lines), names)  # the text is made of field names only
    return names["__init__"]


def _compared(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name, f in record.__fields__.items() if f.eq])


def _eq(self: Any, other: object) -> Any:
    if self is other:
        return True
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _compared(self) == _compared(other)


def _hash(self: Any) -> int:
    return hash((self.__class__, _compared(self)))


def _repr(self: Any) -> str:
    shown = (f"{n}={getattr(self, n)!r}" for n, f in self.__fields__.items() if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


class _Attributes:
    """``__attrs_attrs__``: what attrs would have put there, made when it is asked for."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        import attrs

        hints: dict[str, Any] = {}
        for base in reversed(owner.__mro__[:-1]):
            hints |= base.__annotations__
        specs = {}
        for name, spec in owner.__fields__.items():
            given: dict[str, Any] = {}
            if spec.factory is not None:
                given["factory"] = spec.factory
            elif spec.default is not _NOTHING:
                given["default"] = spec.default
            specs[name] = attrs.field(
                type=hints[name], init=spec.init, repr=spec.repr, eq=spec.eq, **given
            )
        made = attrs.make_class(owner.__name__, specs)
        owner.__attrs_attrs__ = made.__attrs_attrs__  # type: ignore[attr-defined]
        return owner.__attrs_attrs__
