"""Which values of two plans differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlc.algo import Program
from rlc.plan.codec import plan_hash
from rlc.plan.leaves import leaves
from rlc.plan.records import Plan
from rlc.plan.units import shown_value
from rlc.records import evolve, frozen

_VALUE_WIDTH = 48  # columns of a change from one value to another


@frozen
class ComparedValue:
    """A value and where it came from. ``exists`` is false where a plan has no such value."""

    value: Any = None
    origin: str = ""
    exists: bool = True

    def is_same(self, other: ComparedValue) -> bool:
        """Whether the other is the same value, of the same type: 1 and true differ."""
        mine = (self.exists, type(self.value), self.value)
        return mine == (other.exists, type(other.value), other.value)


class WrittenValue(str):
    """A value as a recipe writes it already."""

    __slots__ = ()

    def isidentifier(self) -> bool:
        return True  # no quotes


ABSENT = ComparedValue(exists=False)


@frozen
class Change:
    """One value that is not the same. ``path``: ``main.optimizer.learning_rate``."""

    path: str
    before: ComparedValue
    after: ComparedValue


def value_changes(before: Plan, after: Plan) -> Iterator[Change]:
    """In the order of the plans; a stage that only one has is one change."""
    yield from changes_between(plan_values(before), plan_values(after))


def differing_paths(plans: Sequence[Mapping[str, ComparedValue]]) -> list[str]:
    """Return the paths of what is not the same in all of several plans, by their
    :func:`plan_values`; of a stage that some have not, only its name."""
    first, *others = plans
    return list(
        dict.fromkeys(change.path for other in others for change in changes_between(first, other))
    )


def changes_between(
    old: Mapping[str, ComparedValue], new: Mapping[str, ComparedValue]
) -> Iterator[Change]:
    """What differs between values by path, in their order; what is only in one, with all that is
    inside of it, is one change."""
    paths = dict.fromkeys([*old, *new])
    parts = list(dict.fromkeys(map(_part, paths)))  # what is of one part of a stage comes together
    changed = [
        path
        for path in sorted(paths, key=lambda path: parts.index(_part(path)))
        if not old.get(path, ABSENT).is_same(new.get(path, ABSENT))
    ]
    whole = {path for path in changed if "." not in path and (path in old) != (path in new)}
    for path in changed:
        if path not in whole and path.partition(".")[0] in whole:
            continue  # of something that only one has
        if path not in whole and any(other.startswith(f"{path}.") for other in changed):
            continue  # a part took the place of `none`: its own values say so
        yield Change(path, old.get(path, ABSENT), new.get(path, ABSENT))


def _part(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")[:2])


def plan_values(plan: Plan) -> dict[str, ComparedValue]:
    """Return every value of a plan by its dotted path: ``main.optimizer.learning_rate``."""
    origin = plan.provenance
    found = {
        "seed": ComparedValue(plan.seed, origin.get("seed", "")),
        "schema_version": ComparedValue(plan.schema_version),
    }
    for stage in plan.stages:
        prefix = f"stages.{stage.name}"
        found[stage.name] = ComparedValue(stage.kind, origin.get(f"{prefix}.name", ""))
        for path, value in leaves(stage, prefix):
            found[path.removeprefix("stages.")] = ComparedValue(value, origin.get(path, ""))
    for one in plan.expectations:
        name = f"expect {one.compared}"
        found[name] = ComparedValue(WrittenValue(one.right), origin.get(name, ""))
    return found


def change_lines(changes: Sequence[Change], dim: Callable[[str], str] = str) -> Iterator[str]:
    """One line for each value that changed, with where both came from, in the style ``dim``."""
    rows = []
    for change in changes:
        given = (change.before.origin, change.after.origin)
        rows.append((change.path, _change(change), " → ".join(dict.fromkeys(filter(None, given)))))
    paths = max((len(path) for path, _, _ in rows), default=0)
    values = min(max((len(value) for _, value, _ in rows), default=0), _VALUE_WIDTH)
    for path, value, origins in rows:
        yield f"{path:{paths}}  {value:{values}}  {dim(origins)}".rstrip()


def difference_lines(before: Plan, after: Plan) -> list[str]:
    """The same, indented, for a message; empty if both plans do the same, on any data."""
    if plan_hash(evolve(before, data=())) == plan_hash(evolve(after, data=())):
        return []
    lines = [f"  {line}" for line in change_lines(list(value_changes(before, after)))]
    return lines or ["  the graph of the job"]


def _change(change: Change) -> str:
    name = change.path.rpartition(".")[2]
    if "." not in change.path and not (change.before.exists and change.after.exists):
        here, how = (change.after, "added") if change.after.exists else (change.before, "removed")
        return f"sweep {how}" if here.value == "sweep" else f"{here.value} stage {how}"
    if isinstance(change.before.value, Program) and isinstance(change.after.value, Program):
        return "another expression"
    return " → ".join(
        shown_value(name, side.value) if side.exists else "—"
        for side in (change.before, change.after)
    )
