"""A plan for a notebook or a page: tables of its stages and its cost, and the text below."""

from __future__ import annotations

from html import escape

from attrs import frozen

from rlc.explanation.costs import FREE
from rlc.explanation.diagrams import render_graph
from rlc.explanation.layout import count, dollars
from rlc.explanation.sizes import when_evaluated
from rlc.explanation.text import explain_text
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.codec import plan_hash
from rlc.plan.records import EvalPlan, Plan
from rlc.pricing.cost import KINDS, bill_of, plan_cost, total_cost
from rlc.pricing.shapes import LEVELS


@frozen
class Table:
    """A first row of titles, then the others."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def explain_html(plan: Plan, found: Diagnostics) -> str:
    """HTML without scripts or styles of its own."""
    title = f"<b>{escape(plan.recipe)}</b> &nbsp; plan <code>{plan_hash(plan)[:12]}</code>"
    tables = "".join(map(_html_table, (stage_table(plan), cost_table(plan))))
    text = escape(explain_text(plan, found))
    return (
        f"<div>{title}{tables}<details><summary>all values, formulas and assumptions</summary>"
        f"<pre>{text}</pre></details></div>"
    )


def explain_markdown(plan: Plan, found: Diagnostics) -> str:
    """Markdown, with the job graph as a Mermaid diagram."""
    return "\n".join(
        [
            f"**{plan.recipe}**   plan `{plan_hash(plan)[:12]}`",
            "",
            *_markdown_table(stage_table(plan)),
            "",
            *_markdown_table(cost_table(plan)),
            "",
            "```mermaid",
            render_graph(plan, "mermaid").rstrip(),
            "```",
            "",
            "<details><summary>all values, formulas and assumptions</summary>",
            "",
            "```",
            explain_text(plan, found).rstrip(),
            "```",
            "",
            "</details>",
            "",
        ]
    )


def stage_table(plan: Plan) -> Table:
    """One row a stage."""
    costs = zip(plan.stages, plan_cost(plan), strict=True)
    rows = []
    for stage, cost in costs:
        if isinstance(stage, EvalPlan):
            when = when_evaluated(stage)
        else:
            when = count(stage.steps, "step") + (f", from {stage.after}" if stage.after else "")
        rows.append((stage.name, cost.kind, when, stage.model.base, stage.model.service))
    return Table(("stage", "kind", "when", "model", "service"), tuple(rows))


def cost_table(plan: Plan) -> Table:
    """The bill of the job by kind and level; one row where it costs nothing."""
    costs = plan_cost(plan)
    if all(cost.free for cost in costs):
        return Table(("cost",), ((FREE,),))
    bills = [bill_of(costs, level) for level in LEVELS]
    rows = [
        (kind, *(dollars(bill[kind]) for bill in bills))
        for kind in KINDS
        if any(bill[kind].usd or not bill[kind].complete for bill in bills)
    ]
    total = ("total", *(dollars(total_cost(costs, level)) for level in LEVELS))
    return Table(("cost", *LEVELS), (*rows, total))


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _markdown_table(table: Table) -> list[str]:
    rows = [table.head, ("---",) * len(table.head), *table.rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
