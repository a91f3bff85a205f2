"""Records are what attrs makes of the same classes."""

from __future__ import annotations

import copy
import inspect
import pickle
from types import SimpleNamespace
from typing import Any

import attrs
import cattrs
import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from rlc import records


def classes(library: Any) -> SimpleNamespace:
    """Return the same classes made by ``library``."""
    field, frozen, define = library.field, library.frozen, library.define

    @frozen
    class Point:
        x: int
        y: float = 0.5
        tags: tuple[str, ...] = field(default=(), converter=tuple)

    @frozen
    class Named(Point):
        name: str = "no name"
        x: int = 3
        notes: list[str] = field(factory=list, eq=False, repr=False)
        length: int = field()

        @length.default  # type: ignore[attr-defined, untyped-decorator]
        def _length(self) -> int:
            return len(self.name)

    @frozen
    class Checked:
        value: int
        twice: int = field(init=False)

        def __attrs_post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.value)

    @frozen(eq=False)
    class Identity:
        value: int

    @define
    class Open:
        value: int = 0
        _private: int = 1

    return SimpleNamespace(Point=Point, Named=Named, Checked=Checked, Identity=Identity, Open=Open)


OURS, THEIRS = classes(records), classes(attrs)
NAMES = sorted(vars(OURS))
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "Point": st.fixed_dictionaries(
        {"x": st.integers()}, optional={"y": st.floats(0, 1), "tags": st.lists(st.text())}
    ),
    "Named": st.fixed_dictionaries(
        {"x": st.integers(0, 3)}, optional={"name": st.text(), "notes": st.just(["a"])}
    ),
    "Checked": st.fixed_dictionaries({"value": st.integers()}),
    "Identity": st.fixed_dictionaries({"value": st.integers()}),
    "Open": st.fixed_dictionaries({}, optional={"value": st.integers(0, 2), "private": st.just(1)}),
}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_record_is_what_attrs_makes(name: str, data: st.DataObject) -> None:
    first, second = data.draw(ARGUMENTS[name]), data.draw(ARGUMENTS[name])
    made, seen = [], []
    for kinds in (OURS, THEIRS):
        kind = getattr(kinds, name)
        one, other = kind(**first), kind(**second)
        made.append((one, other))
        same = copy.copy(one)
        seen.append(
            [
                (repr(one) if name != "Identity" else "").rsplit(".")[-1],
                one == other,
                one == same,
                one != other,
                attrs.asdict(one),
                attrs.asdict(attrs.evolve(one, **second)),
                cattrs.unstructure(one),
                attrs.asdict(cattrs.structure(first, kind)) if name == "Open" else None,
            ]
        )
    assert seen[0] == seen[1]
    one, other = made[0]
    assert records.asdict(one) == attrs.asdict(one)
    assert records.asdict(records.evolve(one, **second)) == attrs.asdict(
        attrs.evolve(one, **second)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_class_of_records_is_what_attrs_makes(name: str) -> None:
    ours, theirs = getattr(OURS, name), getattr(THEIRS, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert ours.__match_args__ == theirs.__match_args__
    assert [one.name for one in attrs.fields(ours)] == [one.name for one in attrs.fields(theirs)]
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert records.has(ours)
    assert attrs.has(ours)


def test_what_attrs_refuses_is_refused() -> None:
    for kinds in (OURS, THEIRS):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            kinds.Point()
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            kinds.Point(1, z=2)
        with pytest.raises(FrozenInstanceError):
            kinds.Point(1).x = 2
        with pytest.raises(FrozenInstanceError):
            del kinds.Point(1).x
        one = kinds.Open(1)
        one.value = 2
        assert one == kinds.Open(2)


def test_equal_records_have_one_hash_and_are_pickled() -> None:
    from rlc.plan.parts import Sampling

    one = Sampling(max_tokens=8, temperature=0.5)
    assert hash(one) == hash(Sampling(max_tokens=8, temperature=0.5))
    assert pickle.loads(pickle.dumps(one)) == one
    assert one in {one: 1}
