"""The values of a stage, each with where it came from."""

from __future__ import annotations

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
    """``group`` is the part of the stage, ``name`` the value's name there."""

    group: str
    name: str
    value: Any
    origin: str

    @property
    def text(self) -> str:
        """The value as a recipe would write it."""
        return shown_value(self.name, self.value)

    @property
    def decided(self) -> bool:
        """Whether the value was written by the user."""
        return not self.origin.startswith(("default", "catalogue", "sampling of "))


def value_lines(plan: Plan, stage: StagePlan, paint: Paint) -> Lines:
    """Yield the lines of a stage's values: for each part those that were decided, then defaults."""
    rows = value_rows(plan, stage)
    earlier = takewhile(lambda other: other is not stage, plan.stages)
    same = next((other.name for other in earlier if other.model == stage.model), None)
    if same is not None:  # the very same model need not be shown again
        rows = [row for row in rows if row.group != "model"]
        rows.insert(0, ValueRow("model", "name", stage.model.name, f"as in {same}"))
    decided = [row for row in rows if row.decided]
    table = [(row.name, row.text) for row in decided]
    head = max(len(row.group) for row in rows)
    widths = [max((len(cells[column]) for cells in table), default=0) for column in range(2)]
    widths[1] = min(widths[1], _VALUE_WIDTH)
    for label, mine in groupby(rows, key=lambda row: row.group):
        for line in _part_lines(list(mine), widths, ROOM - head - 2, paint):
            yield f"{label:{head}}  {line}"
            label = ""


def _part_lines(rows: list[ValueRow], widths: list[int], room: int, paint: Paint) -> Lines:
    """One part of a stage in ``room`` columns."""
    defaults: dict[str, list[str]] = {}
    for row in rows:
        if row.decided:
            yield from _decided(row, widths, room, paint)
        else:
            value = f"{row.name} {row.text}".replace(" ", _NO_BREAK)
            defaults.setdefault(row.origin, []).append(value)
    for origin, values in defaults.items():
        for line in wrap(f"{origin}: {', '.join(values)}", room, later="  "):
            yield paint.dim(line.replace(_NO_BREAK, " "))


def _decided(row: ValueRow, widths: list[int], room: int, paint: Paint) -> Lines:
    start = f"{row.name:{widths[0]}}  {row.text:{widths[1]}}  "
    if len(start) + len(row.origin) <= room:
        yield start + paint.dim(row.origin)
        return
    indent = " " * (widths[0] + 2)
    label = f"{row.name:{widths[0]}}  "
    yield from wrap(row.text, room, first=label, later=indent)
    yield indent + paint.dim(row.origin)


def value_rows(plan: Plan, stage: StagePlan) -> list[ValueRow]:
    """Every value of a stage with its origin, but for what a name alone says: that of a builtin,
    or of a stage that goes on from no other."""
    prefix = f"stages.{stage.name}."
    rows = []
    for path, value in leaves(stage, prefix.removesuffix(".")):
        origin = plan.provenance.get(path, UNKNOWN)
        inside = path.removeprefix(prefix)
        implied = origin.startswith("definition of ") or inside == "name"
        implied = implied or (inside == "after" and value is None)
        if implied or isinstance(value, Program):  # a program is shown as a formula
            continue
        if inside.endswith("max_turns") and f"{path[:-9]}args.max_turns" in plan.provenance:
            continue  # it repeats that
        rows.append(ValueRow(*_heading(inside, stage), value, origin))
    groups = {group: place for place, group in enumerate(dict.fromkeys(r.group for r in rows))}
    return sorted(rows, key=lambda row: groups[row.group])  # stable: the recipe's order


def _heading(path: str, stage: StagePlan) -> tuple[str, str]:
    """The part that a value belongs to, and its name there: ``guess``, ``chat.instruction``."""
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
    """``baseline.over`` for ``0.over``; a second one of a name has a number."""
    index, _, field = name.partition(".")
    if not index.isdigit():  # different names stand for themselves
        return name
    item = items[int(index)]
    number = items[: int(index) + 1].count(item)
    return f"{item}{number if number > 1 else ''}.{field}"


def _without(path: str, *parts: str) -> str:
    if "." not in path:
        return path
    return ".".join([name for name in path.split(".") if name not in parts])
