"""Records behave as attrs' frozen classes do, and cattrs and attrs take them for such."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import cattrs
import pytest

from rlc.record import asdict, define, evolve, field, field_names, frozen


@frozen
class Point:
    x: int
    y: int = 2
    tags: dict[str, int] = field(factory=dict)
    note: str = field(default="", eq=False, repr=False)


@frozen
class Deep(Point):
    inner: tuple[Point, ...] = ()


@define
class Box:
    value: int
    seen: list[int] = field(factory=list)
    double: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.double = 2 * self.value


@attrs.frozen
class Reference:
    x: int
    y: int = 2
    tags: dict[str, int] = attrs.field(factory=dict)
    note: str = attrs.field(default="", eq=False, repr=False)


@pytest.mark.parametrize("cls", [Point, Reference])
def test_they_behave_as_those_of_attrs(cls: Any) -> None:
    one, same, other = cls(1, note="a"), cls(x=1, y=2, note="b"), cls(1, 3)
    assert one == same
    assert one != other
    assert one != (1, 2)
    assert repr(one) == f"{cls.__name__}(x=1, y=2, tags={{}})"
    with pytest.raises(AttributeError):
        one.x = 2
    with pytest.raises(AttributeError):
        del one.x
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(TypeError):
        cls(1, z=1)
    assert cls(1).tags is not cls(1).tags
    assert attrs.evolve(one, y=5) == cls(1, 5)
    assert attrs.asdict(one) == {"x": 1, "y": 2, "tags": {}, "note": "a"}
    assert [a.name for a in attrs.fields(cls)] == ["x", "y", "tags", "note"]
    match one:
        case Point(1, 2) | Reference(1, 2):
            return
    pytest.fail("it does not match by position")


def test_equal_ones_hash_alike() -> None:
    assert hash(Deep(1, tags=())) == hash(Deep(1, tags=(), note="x"))  # type: ignore[arg-type]
    assert hash(Deep(1, tags=())) != hash(Deep(2, tags=()))  # type: ignore[arg-type]


def test_fields_are_inherited_in_order() -> None:
    deep = Deep(1, inner=(Point(2),))
    assert field_names(deep) == ("x", "y", "tags", "note", "inner")
    assert field_names(3) is None
    assert deep != Point(1)


def test_mutable_ones_set_up_the_rest_themselves() -> None:
    box = Box(3)
    box.value = 4
    box.seen.append(1)
    assert (box.double, box) == (6, box)
    assert Box(1).seen == []
    assert evolve(box, value=1).double == 2


def test_they_are_copied_and_pickled() -> None:
    deep = Deep(1, inner=(Point(2),))
    assert copy.deepcopy(deep) == deep
    assert pickle.loads(pickle.dumps(deep)) == deep
    assert evolve(deep, x=3) == Deep(3, inner=(Point(2),))
    assert evolve(Reference(1), y=4) == Reference(1, 4)


def test_they_become_plain_data() -> None:
    deep = Deep(1, inner=(Point(2, tags={"a": 1}),))
    assert asdict(deep) == attrs.asdict(deep)  # type: ignore[arg-type]


def test_cattrs_takes_them_for_its_own() -> None:
    converter = cattrs.Converter(forbid_extra_keys=True)
    deep = Deep(1, inner=(Point(2, tags={"a": 1}),))
    assert converter.structure(converter.unstructure(deep), Deep) == deep
    with pytest.raises(cattrs.BaseValidationError):
        converter.structure({"x": 1, "z": 1}, Point)
