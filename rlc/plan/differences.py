"""Which values of two plans differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from rlc.plan.codec import plan_hash
from rlc.plan.leaves import leaves
from rlc.plan.records import Plan, kind_of
from rlc.plan.units import shown_value

_VALUE_WIDTH = 48  # columns of a change from one value to another
Values = Mapping[str, tuple[Any, str]]  # path: value and origin


@frozen
class Side:
    """A value and where it came from. ``exists`` is false where a plan has no such value."""

    value: Any = None
    origin: str = ""
    exists: bool = True


ABSENT = Side(exists=False)


@frozen
class Change:
    """One value that is not the same. ``path``: ``main.optimizer.learning_rate``."""

    path: str
    before: Side
    after: Side


def value_changes(before: Plan, after: Plan) -> Iterator[Change]:
    """In the order of the plans; a stage that only one has is one change."""
    old, new = _values(before), _values(after)
    paths = _in_parts([*old, *new])
    changed = [path for path in paths if _value(old, path) != _value(new, path)]
    whole = {path for path in changed if "." not in path and (path in old) != (path in new)}
    for path in changed:
        if path not in whole and path.partition(".")[0] in whole:
            continue  # of a stage that only one has
        if path not in whole and any(other.startswith(f"{path}.") for other in changed):
            continue  # a part took the place of `none`: its own values say so
        yield Change(path, _side(old, path), _side(new, path))


def _in_parts(paths: list[str]) -> list[str]:
    """Each path once, those of one part of a stage together."""
    parts = {part: place for place, part in enumerate(dict.fromkeys(map(_part, paths)))}
    return sorted(dict.fromkeys(paths), key=lambda path: parts[_part(path)])


def _part(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")[:2])


def _value(values: Values, path: str) -> Any:
    """A value with its type, so that 1 and true differ; None if there is none."""
    if path not in values:
        return None
    value = values[path][0]
    return type(value), value


def _side(values: Values, path: str) -> Side:
    return Side(*values[path]) if path in values else ABSENT


def _values(plan: Plan) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {
        "seed": (plan.seed, plan.provenance.get("seed", "")),
        "schema_version": (plan.schema_version, ""),
    }
    for stage in plan.stages:
        prefix = f"stages.{stage.name}"
        found[stage.name] = (kind_of(stage), plan.provenance.get(f"{prefix}.name", ""))
        for path, value in leaves(stage, prefix):
            found[path.removeprefix("stages.")] = (value, plan.provenance.get(path, ""))
    return found


def change_lines(changes: Sequence[Change], dim: Callable[[str], str] = str) -> Iterator[str]:
    """One line for each value that changed, with where both came from, in the style ``dim``."""
    rows = [(change.path, _change(change), _origins(change)) for change in changes]
    paths = max((len(path) for path, _, _ in rows), default=0)
    values = min(max((len(value) for _, value, _ in rows), default=0), _VALUE_WIDTH)
    for path, value, origins in rows:
        yield f"{path:{paths}}  {value:{values}}  {dim(origins)}".rstrip()


def difference_lines(before: Plan, after: Plan) -> list[str]:
    """The same, indented, for a message; empty if both plans do the same."""
    if plan_hash(before) == plan_hash(after):
        return []
    lines = [f"  {line}" for line in change_lines(list(value_changes(before, after)))]
    return lines or ["  the graph of the job"]


def _change(change: Change) -> str:
    name = change.path.rpartition(".")[2]
    if "." not in change.path and not (change.before.exists and change.after.exists):
        return (
            f"{change.before.value} stage removed"
            if change.before.exists
            else (f"{change.after.value} stage added")
        )
    return f"{_shown(name, change.before)} → {_shown(name, change.after)}"


def _shown(name: str, side: Side) -> str:
    return shown_value(name, side.value) if side.exists else "—"


def _origins(change: Change) -> str:
    origins = [side.origin for side in (change.before, change.after) if side.origin]
    return " → ".join(dict.fromkeys(origins))
