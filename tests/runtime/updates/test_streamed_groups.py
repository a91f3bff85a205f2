"""Parts of a batch: of the groups that are in, or always of the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from rlc.runtime.rollouts.batches import StreamedGroups


def groups(count: int) -> list[asyncio.Future[Any]]:
    """Groups under way; a group of this test is its number alone."""
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


@define
class Made:
    """Groups under way, of which one of ``equals`` waits for all others."""

    tasks: Sequence[Any]
    equals: Collection[Any] = ()

    async def group(self, task: asyncio.Future[Any]) -> Any:
        return await task

    def waits(self, group: list[Any], /) -> bool:
        return group[0] in self.equals

    async def rest(self, groups: Iterable[tuple[asyncio.Future[Any], list[Any]]]) -> list[Any]:
        assert all(task.result() == group for task, group in groups)
        return [f"for {number}" for _, (number,) in groups]


async def settled() -> None:
    """Let all that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


def begun(parts: int, group: Sequence[asyncio.Future[Any]], **settings: Any) -> Any:
    """Groups in parts, of which a group is not what the types say."""
    made: Any = Made(group, settings.pop("equals", ()))
    streamed = StreamedGroups(made, parts, **{"fixed": False, "gradients": True} | settings)
    streamed.start()
    return streamed


def gradient() -> tuple[list[asyncio.Future[Any]], asyncio.Future[Any]]:
    output = asyncio.get_running_loop().create_future()
    return [output], output


def test_what_comes_in_while_a_gradient_is_computed_goes_together() -> None:
    async def main() -> None:
        group = groups(6)
        arrivals = begun(3, group)
        parts = [asyncio.create_task(arrivals.part()) for _ in range(3)]
        group[4].set_result(["e"])
        await settled()
        assert not parts[0].done()  # one alone is not its share
        group[1].set_result(["b"])
        assert await parts[0] == ["b", "e"]
        for number in (5, 0, 2):
            group[number].set_result([f"{number}"])
        await settled()
        assert not parts[1].done()
        submitted, output = gradient()
        arrivals.gradients_submitted(submitted)
        await settled()
        assert not parts[1].done()
        output.set_result(None)
        assert await parts[1] == ["0", "2", "5"]
        group[3].set_result(["d"])
        assert await parts[2] == ["d"]

    asyncio.run(main())


def test_once_all_are_in_nothing_is_waited_for() -> None:
    async def main() -> None:
        group = groups(4)
        arrivals = begun(2, group)
        for number in (0, 1):
            group[number].set_result([number])
        assert await arrivals.part() == [0, 1]
        arrivals.gradients_submitted(gradient()[0])  # and it stays under way
        last = asyncio.create_task(arrivals.part())
        for number in (3, 2):
            group[number].set_result([number])
        assert await last == [2, 3]
        assert await arrivals.part() == []

    asyncio.run(main())


@pytest.mark.parametrize("outcome", ["fails", "has nothing"])
def test_a_gradient_that_is_over_holds_up_nothing(outcome: str) -> None:
    async def main() -> None:
        group = groups(3)
        arrivals = begun(3, group)
        group[0].set_result([0])
        assert await arrivals.part() == [0]
        following = asyncio.create_task(arrivals.part())
        group[1].set_result([1])
        submitted, output = gradient()
        if outcome == "fails":
            arrivals.gradients_submitted(submitted)
            output.set_exception(RuntimeError("no"))
        else:
            arrivals.gradients_submitted([])
        assert await following == [1]
        group[2].set_result([2])
        await settled()

    asyncio.run(main())


def test_a_group_that_cannot_be_played_ends_all() -> None:
    async def main() -> None:
        group = groups(3)
        arrivals = begun(2, group)
        part = asyncio.create_task(arrivals.part())
        await settled()
        group[1].set_exception(ValueError("the cause"))
        with pytest.raises(ValueError, match="the cause"):
            await part
        assert group[0].cancelled()
        assert group[2].cancelled()

    asyncio.run(main())


def test_a_step_that_is_called_off_takes_its_groups_along() -> None:
    async def main() -> None:
        group = groups(2)
        part = asyncio.create_task(begun(2, group).part())
        await settled()
        part.cancel()
        with pytest.raises(asyncio.CancelledError):
            await part
        assert all(one.cancelled() for one in group)

    asyncio.run(main())


@given(st.permutations(range(8)), st.integers(2, 10), st.booleans(), st.data())
def test_every_group_is_in_one_part(
    order: list[int], parts: int, fixed: bool, data: st.DataObject
) -> None:
    """Whenever gradients are done; what is held back comes last with what replaces it. Arrivals:
    no part but the last of ordinary ones is below its share. Fixed: no order changes a part."""
    done_after = data.draw(st.lists(st.booleans(), min_size=8, max_size=8))
    equals = data.draw(st.sets(st.integers(0, 7)))

    async def main() -> list[list[Any]]:
        group = groups(8)
        streamed = begun(parts, group, fixed=fixed, equals=tuple(equals))
        asked = [asyncio.create_task(streamed.part()) for _ in range(parts)]
        for number, trained in zip(order, done_after, strict=True):
            group[number].set_result([number])
            await settled()
            if trained:
                streamed.gradients_submitted([])
                await settled()
        return [await part for part in asked]

    made = asyncio.run(main())
    ordinary = [[item for item in part if isinstance(item, int)] for part in made]
    given_out = sorted(item for part in ordinary for item in part)
    assert given_out == sorted(set(range(8)) - equals)
    replacing = [item for part in made for item in part if isinstance(item, str)]
    assert replacing == [f"for {number}" for number in sorted(equals)]
    assert not equals or [part for part in made if part][-1][-1] == replacing[-1]
    if fixed:
        ends = [8 * part // parts for part in range(parts + 1)]
        for part, first, end in zip(ordinary, ends, ends[1:], strict=False):
            assert part == [n for n in range(first, end) if n not in equals]
    else:
        filled = [part for part in ordinary if part]
        assert all(len(part) >= -(-8 // parts) for part in filled[:-1])
        assert filled == ordinary[: len(filled)]


def test_where_no_gradient_is_taken_of_parts_none_is_waited_for() -> None:
    async def main() -> None:
        group = groups(4)
        streamed = begun(2, group, gradients=False)
        for number in (1, 3):
            group[number].set_result([number])
        assert await streamed.part() == [1, 3]
        last = asyncio.create_task(streamed.part())
        for number in (0, 2):
            group[number].set_result([number])
        assert await last == [0, 2]

    asyncio.run(main())
