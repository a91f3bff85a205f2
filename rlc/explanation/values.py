"""The values of a stage, each with where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, takewhile
from typing import Any

from rlc.algo import Program
from rlc.explanation.layout import ROOM, UNKNOWN, Lines, wrap
from rlc.lang.render import Paint
from rlc.plan import Plan, StagePlan, shown_value
from rlc.plan.leaves import leaves
from rlc.records import frozen

_VALUE_WIDTH = 32
_NO_BREAK = "\N{NO-BREAK SPACE}"  # a name stays with its value


@frozen
class ValueRow:
    """A value of a stage: ``group`` is the part of the stage, ``name`` the value's name there."""

    group: str
    name: str
    value: Any
    origin: str

    @property
    def text(self) -> str:
        """Return the value as a recipe writes it."""
        return shown_value(self.name, self.value)

    @property
    def decided(self) -> bool:
        """Return whether the user has written the value."""
        return not self.origin.startswith(("default", "catalogue", "sampling of "))


def value_lines(plan: Plan, stage: StagePlan, paint: Paint) -> Lines:
    """Yield the values of a stage: for each part those that were decided, then defaults."""
    rows = value_rows(plan, stage)
    earlier = takewhile(lambda other: other is not stage, plan.stages)
    same = next((other.name for other in earlier if other.model == stage.model), None)
    if same is not None:  # the very same model need not be shown again
        rows = [row for row in rows if row.group != "model"]
        rows.insert(0, ValueRow("model", "name", stage.model.name, f"as in {same}"))
    decided = [row for row in rows if row.decided]
    head = max(len(row.group) for row in rows)
    names = max((len(row.name) for row in decided), default=0)
    values = min(max((len(row.text) for row in decided), default=0), _VALUE_WIDTH)
    for label, mine in groupby(rows, key=lambda row: row.group):
        for line in _part_lines(mine, (names, values), ROOM - head - 2, paint):
            yield f"{label:{head}}  {line}"
            label = ""


def _part_lines(
    rows: Iterable[ValueRow], widths: tuple[int, int], room: int, paint: Paint
) -> Lines:
    """Yield one part of a stage in ``room`` columns, its names and values in columns of
    ``widths``."""
    defaults: dict[str, list[str]] = {}
    for row in rows:
        name = f"{row.name:{widths[0]}}  "
        start = f"{name}{row.text:{widths[1]}}  "
        if not row.decided:
            value = f"{row.name} {row.text}".replace(" ", _NO_BREAK)
            defaults.setdefault(row.origin, []).append(value)
        elif len(start) + len(row.origin) <= room:
            yield start + paint.dim(row.origin)
        else:
            indent = " " * len(name)
            yield from wrap(row.text, room, first=name, later=indent)
            yield indent + paint.dim(row.origin)
    for origin, values in defaults.items():
        for line in wrap(f"{origin}: {', '.join(values)}", room, later="  "):
            yield paint.dim(line.replace(_NO_BREAK, " "))


def value_rows(plan: Plan, stage: StagePlan) -> list[ValueRow]:
    """Return the values of a stage with their origins, without those that a name implies."""
    prefix = f"stages.{stage.name}."
    rows = []
    for path, value in leaves(stage, prefix.removesuffix(".")):
        origin = plan.provenance.get(path, UNKNOWN)
        inside = path.removeprefix(prefix)
        implied = (
            origin.startswith("definition of ")
            or inside == "name"
            or (inside == "after" and value is None)
            or (inside.endswith("with_optimizer") and not value)
            or isinstance(value, Program)  # which is shown as a formula
            or (inside.endswith("max_turns") and f"{path[:-9]}args.max_turns" in plan.provenance)
        )
        if not implied:
            rows.append(ValueRow(*_heading(inside, stage), value, origin))
    groups = {group: place for place, group in enumerate(dict.fromkeys(r.group for r in rows))}
    return sorted(rows, key=lambda row: groups[row.group])  # stable: the recipe's order


def _heading(path: str, stage: StagePlan) -> tuple[str, str]:
    """Return the part of a value and its name there: ``env guess``, ``chat.instruction``."""
    group, _, name = path.partition(".")
    if group == "envs":
        env, _, name = name.partition(".")
        return f"env {env}", _without(name, "wrappers", "graders", "judging", "judges", "args")
    if group == "advantage" and name.startswith("steps.") and (objective := stage.policy_gradient):
        steps = [type(step).__name__.lower() for step in objective.advantage.steps]
        return group, _numbered(name.removeprefix("steps."), steps)
    if group == "metrics":
        return group, _numbered(name, [metric.name for metric in stage.metrics])
    return (group, _without(name, "config", "wrappers", "args")) if name else ("stage", group)


def _numbered(name: str, items: list[str]) -> str:
    """Return ``baseline.over`` for ``0.over``; a second one of a name has a number."""
    index, _, field = name.partition(".")
    if not index.isdigit():  # different names stand for themselves
        return name
    item = items[int(index)]
    number = items[: int(index) + 1].count(item)
    return f"{item}{number if number > 1 else ''}.{field}"


def _without(path: str, *parts: str) -> str:
    """Return a path without some of its parts, unless it is one of them."""
    return ".".join(name for name in path.split(".") if name == path or name not in parts)
