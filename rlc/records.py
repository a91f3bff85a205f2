"""Records: classes as attrs makes them, without what that costs when a command starts.

attrs writes and compiles the methods of each class when it is defined, and takes 100 million
instructions to import; ``rlc check`` defines a hundred and fifty records. Those of the rooms that
it loads share their methods instead. To a type checker they are attrs' own, and attrs sees them as
such (``__attrs_attrs__``), so cattrs and ``attrs.evolve`` work with them too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

_NOTHING: Final = object()
_OWN = "_record_fields"
IF_ANY = "if_any"  # in the metadata of a field: where it is None, it is no part of a plan


class _Field:
    """What is known of one field. ``factory`` makes its default, given the record."""

    __slots__ = (
        "converter",
        "eq",
        "factory",
        "init",
        "metadata",
        "name",
        "repr",
        "value",
    )

    def __init__(
        self,
        default: Any = _NOTHING,
        factory: Callable[[], Any] | None = None,
        converter: Callable[[Any], Any] | None = None,
        metadata: Mapping[Any, Any] = {},
        init: bool = True,
        eq: bool = True,
        repr: bool = True,
    ) -> None:
        self.name = ""
        self.value, self.converter, self.metadata = default, converter, metadata
        self.factory = None if factory is None else lambda _: factory()
        self.init, self.eq, self.repr = init, eq, repr

    def default(self, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Decorate the method which finds the default."""
        self.factory = method
        return method


class _AttrsFields:
    """The fields of a record as attrs has them, made when somebody asks."""

    def __get__(self, record: object, kind: type) -> Any:
        import attrs

        made = {}
        for one in getattr(kind, _OWN).values():
            default = attrs.NOTHING if one.value is _NOTHING else one.value
            if one.factory is not None:
                default = attrs.Factory(one.factory, takes_self=True)
            made[one.name] = attrs.field(
                default=default,
                init=one.init,
                eq=one.eq,
                repr=one.repr,
                converter=one.converter,
                metadata=dict(one.metadata),
                type=_annotation(kind, one.name),
            )
        owner: Any = next(base for base in kind.__mro__ if _OWN in vars(base))
        owner.__attrs_attrs__ = attrs.fields(
            attrs.make_class(kind.__name__, made, init=False, repr=False, eq=False, slots=False)
        )
        return owner.__attrs_attrs__


def _annotation(kind: type, name: str) -> Any:
    return next(
        notes[name]
        for base in kind.__mro__
        if name in (notes := vars(base).get("__annotations__", {}))
    )


def _record(kind: Any = None, *, eq: bool = True, frozen: bool = True) -> Any:
    """Decorate a class: give it the fields that it annotates, and what goes with them."""
    if kind is None:
        return lambda kind: _record(kind, eq=eq, frozen=frozen)
    own = vars(kind)
    found: dict[str, _Field] = {}
    for base in kind.__mro__[:0:-1]:
        found |= vars(base).get(_OWN, {})
    for name, annotation in own.get("__annotations__", {}).items():
        if annotation.startswith("ClassVar"):
            continue
        value = own.get(name, _NOTHING)
        if value is not _NOTHING:
            delattr(kind, name)
        one = value if isinstance(value, _Field) else _Field(value)
        one.name = name
        found.pop(name, None)
        found[name] = one
    setattr(kind, _OWN, found)
    kind.__attrs_attrs__ = _AttrsFields()
    if "__init__" not in own:
        kind.__init__ = _initialiser(kind, tuple(found.values()))
    setattr(kind, "__match_args__", tuple(one.name for one in found.values() if one.init))  # noqa: B010
    if "__repr__" not in own:
        kind.__repr__ = _shown
    if eq and "__eq__" not in own:
        kind.__eq__ = _equals
        if "__hash__" not in own or own["__hash__"] is None:
            kind.__hash__ = _hash if frozen else None
    if frozen:
        kind.__setattr__ = kind.__delattr__ = _refuse
    return kind


def _initialiser(kind: Any, fields: tuple[_Field, ...]) -> Callable[..., None]:
    """Return the ``__init__`` of a class with these fields."""
    given = [one for one in fields if one.init]
    code = _template(len(given))
    names = {f"_{number}": one.name for number, one in enumerate(given)}
    code = code.replace(
        co_qualname=f"{kind.__qualname__}.__init__",
        co_varnames=tuple(names.get(name, name).lstrip("_") for name in code.co_varnames),
        co_consts=tuple(names.get(name, name) for name in code.co_consts),
    )
    default = tuple(o.value for o in given if o.value is not _NOTHING or o.factory)
    plain = FunctionType(code, {}, "__init__", default)
    made = tuple(one for one in fields if one.factory or one.converter or not one.init)
    finish = getattr(kind, "__attrs_post_init__", None)
    if not made and finish is None:
        return plain

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:  # noqa: N807
        plain(self, *args, **given)
        values = self.__dict__
        for one in made:
            value = values.get(one.name, one.value)
            if value is _NOTHING and one.factory:
                value = one.factory(self)
            if one.converter:
                value = one.converter(value)
            if value is not _NOTHING:
                values[one.name] = value
        if finish is not None:
            finish(self)

    __init__.__wrapped__ = plain  # type: ignore[attr-defined]  # for inspect.signature
    return __init__


@cache
def _template(count: int) -> CodeType:
    """Compile the ``__init__`` of a class with so many fields, to which others give their names:
    to compile it takes longer than all else that makes a class."""
    names = [f"_{number}" for number in range(count)]
    lines = [f"def __init__({', '.join(['self', *names])}):", " values = self.__dict__"]
    made = dict[str, Any]()
    exec("\n".join([*lines, *(f" values[{name!r}] = {name}" for name in names)]), made)
    code: CodeType = made["__init__"].__code__
    return code


@cache
def _fields_of(kind: Any) -> tuple[_Field, ...]:
    """Return the fields of a class of records, or of attrs, those of its bases first."""
    maker = next(base for base in kind.__mro__ if "__attrs_attrs__" in vars(base))
    return tuple(vars(maker)[_OWN].values()) if _OWN in vars(maker) else maker.__attrs_attrs__


@cache
def _parameters(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return what ``__init__`` calls each field that it takes, and the name of the field."""
    return tuple((one.name.lstrip("_"), one.name) for one in _fields_of(kind) if one.init)


def _equals(self: Any, other: object) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    kind: Any = type(self)
    of_self, of_other = self.__dict__, other.__dict__
    return all(
        one.name in of_self and of_self[one.name] == of_other[one.name]
        for one in _fields_of(kind)
        if one.eq
    )


def _hash(self: Any) -> int:
    kind: Any = type(self)
    return hash(tuple(getattr(self, one.name) for one in _fields_of(kind) if one.eq))


def _shown(self: Any) -> str:
    shown = [f"{o.name}={getattr(self, o.name)!r}" for o in fields(type(self)) if o.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(*_: object) -> None:
    from attrs.exceptions import FrozenInstanceError

    raise FrozenInstanceError


if TYPE_CHECKING:
    from attrs import asdict as asdict
    from attrs import define as define
    from attrs import evolve as evolve
    from attrs import field as field
    from attrs import fields as fields
    from attrs import frozen as frozen
    from attrs import has as has
else:
    field, fields, frozen = _Field, _fields_of, _record

    def define(kind: Any = None, *, eq: bool = True) -> Any:
        """Decorate a class whose records change."""
        return _record(kind, eq=eq, frozen=False)

    @cache
    def has(kind: type) -> bool:
        """Return whether a class is one of records, or of attrs."""
        return any("__attrs_attrs__" in vars(base) for base in getattr(kind, "__mro__", ()))

    def asdict(record: Any, recurse: bool = True) -> dict[str, Any]:
        """Return a record as data, as attrs does."""
        import attrs

        return attrs.asdict(record, recurse=recurse)

    def evolve(record: Any, **changes: Any) -> Any:
        """Return a record which differs in some fields."""
        kind: Any = type(record)
        own = {given: getattr(record, name) for given, name in _parameters(kind)}
        return kind(**own | changes)


@cache
def field_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a class of records."""
    return tuple(one.name for one in fields(kind))


def values_of(record: Any) -> dict[str, Any]:
    """Return the values of a record by the names of its fields."""
    kind: Any = type(record)
    return {name: getattr(record, name) for name in field_names(kind)}


@frozen
class Record:
    """A record which units, files and models are looked for in.

    ``is_whole``: in a plan it is one value, and its fields are no parts of the plan.
    """

    is_whole = False
