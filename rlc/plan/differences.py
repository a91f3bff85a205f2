"""The values in which plans differ."""

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
    """A value and its origin. ``exists`` is false if a plan has no such value."""

    value: Any = None
    origin: str = ""
    exists: bool = True

    def is_same(self, other: ComparedValue) -> bool:
        """Return whether the other is the same value, of the same type: 1 and true differ."""
        own = (self.exists, type(self.value), self.value)
        return own == (other.exists, type(other.value), other.value)


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
    """Return the changes between plans, in their order; a stage that only one has is one change."""
    return changes_between(plan_values(before), plan_values(after))


def differing_paths(plans: Sequence[Mapping[str, ComparedValue]]) -> list[str]:
    """Return the paths that differ between the values of plans; of a stage some lack, its name."""
    first, *others = plans
    changes = (change for other in others for change in changes_between(first, other))
    return list(dict.fromkeys(change.path for change in changes))


def changes_between(
    old: Mapping[str, ComparedValue], new: Mapping[str, ComparedValue]
) -> Iterator[Change]:
    """Yield what differs between values by path, in order; a part that only one has is one."""
    parts: dict[str, list[str]] = {}  # the values of one part of a stage stay together
    for path in dict.fromkeys([*old, *new]):
        parts.setdefault(".".join(path.split(".")[:2]), []).append(path)
    paths = [path for part in parts.values() for path in part]
    changed = [p for p in paths if not old.get(p, ABSENT).is_same(new.get(p, ABSENT))]
    alone = {path for path in changed if "." not in path and (path in old) != (path in new)}
    for path in changed:
        if path not in alone and path.partition(".")[0] in alone:
            continue  # of something that only one has
        if path not in alone and any(other.startswith(f"{path}.") for other in changed):
            continue  # a part took the place of `none`: its own values say so
        yield Change(path, old.get(path, ABSENT), new.get(path, ABSENT))


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
    """Yield one line for each value that changed, with both origins in the style ``dim``."""
    rows = []
    for change in changes:
        origins = dict.fromkeys(filter(None, (change.before.origin, change.after.origin)))
        rows.append((change.path, _change(change), " → ".join(origins)))
    paths = max((len(path) for path, _, _ in rows), default=0)
    values = min(max((len(value) for _, value, _ in rows), default=0), _VALUE_WIDTH)
    for path, value, origin in rows:
        yield f"{path:{paths}}  {value:{values}}  {dim(origin)}".rstrip()


def difference_lines(before: Plan, after: Plan) -> list[str]:
    """Return :func:`change_lines`, indented; empty if both plans do the same, on any data."""
    if plan_hash(evolve(before, data=())) == plan_hash(evolve(after, data=())):
        return []
    lines = [f"  {line}" for line in change_lines(list(value_changes(before, after)))]
    return lines or ["  the graph of the job"]


def _change(change: Change) -> str:
    name = change.path.rpartition(".")[2]
    if "." not in change.path and not (change.before.exists and change.after.exists):
        side, how = (change.after, "added") if change.after.exists else (change.before, "removed")
        return f"sweep {how}" if side.value == "sweep" else f"{side.value} stage {how}"
    if isinstance(change.before.value, Program) and isinstance(change.after.value, Program):
        return "another expression"
    return " → ".join(
        shown_value(name, side.value) if side.exists else "—"
        for side in (change.before, change.after)
    )
