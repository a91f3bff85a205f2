"""What a change does to a recipe, as Markdown for a comment on a pull request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from rlc.catalog import audited_text
from rlc.compile import CompileResult, Sweep
from rlc.explanation.diff import PlanDiff, diff_dict, diff_plans, diff_text
from rlc.explanation.layout import dollars
from rlc.explanation.sizes import price
from rlc.lang import Diagnostics, finding_dicts, in_order
from rlc.plan import ComparedValue, Plan, in_dollars, shown_value
from rlc.pricing import LEVELS, Money, Seen, plan_cost
from rlc.records import frozen

MARK = "<!-- rlc explain -->"  # by which a comment is found again
_SHOWN = 8  # values before the others are folded away
_FINDINGS = 10
_PIPE = r"\|"  # in a cell

Audits = Mapping[str, int | None]


@frozen
class RecipeChange:
    """What a change does to a recipe, by :func:`rlc.spending.change_since`.

    Attributes:
        recipe: the path of the recipe.
        base: what it is compared with.
        diff: the differences, false if both do the same; None if there is nothing to compare.
        plan: the plan as it is now, None if the recipe has errors.
        diagnostics: errors and warnings of the recipe as it is now.
        note: why there is nothing to compare; empty if there is.
        audits: how many findings the audits of its environments have, before and after; None for
            one that is not audited.
    """

    recipe: str
    base: str
    diff: PlanDiff | None
    plan: Plan | None
    diagnostics: Diagnostics
    note: str = ""
    audits: tuple[Audits, Audits] = ({}, {})

    def text(self, color: bool = False) -> str:
        """Return it as `rlc diff` prints it."""
        if self.diff is None:
            return f"{self.note}\n"
        return diff_text(self.diff, self.base, self.recipe, color)

    def markdown(self) -> str:
        """Return it as a comment for a pull request."""
        return _markdown(self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        found = {} if self.diff is None else diff_dict(self.diff, self.base, self.recipe)
        before, after = self.audits
        found |= {"audit": {"before": {**before}, "after": {**after}}}
        return found | {"note": self.note, "diagnostics": finding_dicts(self.diagnostics)}


def recipe_change(
    recipe: str,
    base: str,
    earlier: CompileResult | None,
    now: CompileResult,
    sweeps: tuple[Sequence[Sweep], Sequence[Sweep]] | None,
    seen: Callable[[Plan], Mapping[str, Seen]],
    audits: tuple[Audits, Audits] = ({}, {}),
) -> RecipeChange:
    """Return what differs between a recipe as it was in ``base``, None if it is new, and as it is;
    ``sweeps`` are compared if both are recipes. ``seen`` returns what is known of the episodes of a
    plan, ``audits`` are of its environments."""
    given, note, diff = recipe.replace(os.sep, "/"), "", None
    before = None if earlier is None else earlier.plan or earlier.unmet
    after = now.plan or now.unmet
    if earlier is None:
        note = f"The recipe is new: `{base}` does not have it."
    elif after is None:
        note = "The recipe has errors."
    elif before is None:
        note = f"In `{base}` the recipe has errors, so there is nothing to compare with."
    else:
        diff = diff_plans(before, after, sweeps or ((), ()), (seen(before), seen(after)))
    return RecipeChange(given, base, diff, after, now.diagnostics, note, audits)


def _markdown(change: RecipeChange) -> str:
    diff, after = change.diff, change.plan
    parts = [MARK, f"### `{change.recipe}`", *([change.note] if change.note else [])]
    if diff is not None and not diff:
        parts.append("The plan is the same: values, formulas, graph and cost.")
    elif diff is not None:
        parts += [_headline(diff), "\n".join(_cost(diff)), *_values(diff)]
        listed = ", ".join(f"`{path}`" for path in diff.files)
        parts += [f"Files with other contents: {listed}"] if listed else []
        parts += _formulas(diff)
    elif after is not None:
        parts.append(f"Cost: {price(plan_cost(after))}")
    parts += [*_budgets(diff, after), *_audits(change), *_findings(change.diagnostics)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(diff: PlanDiff) -> str:
    old, new = diff.cost["expected"]
    if not (old or new):
        return "It costs nothing, before and after."
    return f"**Expected cost: {dollars(old)} → {dollars(new)}** ({_change(old, new)})"


def _change(old: Money, new: Money) -> str:
    if old.total is None or new.total is None:
        return "the change is unknown"
    more = new.total - old.total
    if not more:
        return "no change"
    share = f", {more / old.total:+.0%}" if old.total else ""
    return f"{'-' if more < 0 else '+'}{dollars(Money(abs(more)))}{share}"


def _cost(diff: PlanDiff) -> Iterator[str]:
    rows = [(kind, *pair) for kind, pair in diff.bill.items()]
    totals = [(level, *diff.cost[level]) for level in LEVELS]
    if not any(old or new for _, old, new in totals):
        return
    yield "| USD | before | after | change |"
    yield "| --- | ---: | ---: | ---: |"
    for name, old, new in rows:
        yield f"| {name} | {dollars(old)} | {dollars(new)} | {_change(old, new)} |"
    for level, old, new in totals:
        yield f"| **{level}** | {dollars(old)} | {dollars(new)} | {_change(old, new)} |"


def _values(diff: PlanDiff) -> Iterator[str]:
    rows = [
        f"| `{one.path}` | {_cell(one.path, one.before)} | {_cell(one.path, one.after)} |"
        for one in (*diff.values, *diff.sweeps)
    ]
    head = ["| value | before | after |", "| --- | --- | --- |"]
    if rows:
        yield "\n".join([*head, *rows[:_SHOWN]])
    if rest := rows[_SHOWN:]:
        yield _folded(f"{len(rest)} more values", "\n".join([*head, *rest]))


def _cell(path: str, side: ComparedValue) -> str:
    if not side.exists:
        return "–"
    text = shown_value(path.rpartition(".")[2], side.value)
    return f"`{text}`".replace("|", _PIPE).replace("\n", " ")


def _formulas(diff: PlanDiff) -> Iterator[str]:
    lines = list[str]()
    for change in diff.formulas:
        lines += [f"# {change.part} of {change.stage}"]
        lines += [*(f"- {line}" for line in change.before), *(f"+ {line}" for line in change.after)]
    if lines:
        yield _fenced("diff", lines)
    graph = [*(f"- {line}" for line in diff.graph["removed"])]
    graph += [f"+ {line}" for line in diff.graph["added"]]
    if graph:
        yield _folded("the graph of the job", _fenced("diff", graph))


def _fenced(language: str, lines: Sequence[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _budgets(diff: PlanDiff | None, after: Plan | None) -> Iterator[str]:
    """Yield the budgets that do not cover what the whole job is expected to cost."""
    if after is None:
        return
    expected = None if diff is None else diff.cost["expected"][1].usd
    limits = [one.budget.usd for one in after.trainings if one.budget.usd is not None]
    if expected is None or not isfinite(expected) or len(limits) < len(after.trainings):
        return
    if sum(limits) < expected:
        yield (
            f"The budgets, {in_dollars(sum(limits))}, are less than that: a run would stop before "
            "its end."
        )


def _audits(change: RecipeChange) -> Iterator[str]:
    before, after = change.audits
    if text := audited_text(after, before):
        yield f"Audit: {text}."


def _findings(found: Diagnostics) -> Iterator[str]:
    listed = in_order(found)
    lines = []
    for item in listed[:_FINDINGS]:
        place = f"{item.file_name}:{item.span.line}" if item.span else item.file_name
        lines.append(f"- {item.severity.value} {item.code}, {place}: {item.message}")
    if len(listed) > _FINDINGS:
        lines.append(f"- and {len(listed) - _FINDINGS} more, which `rlc check` lists")
    if lines:
        yield "\n".join(["`rlc check` finds:", *lines])
