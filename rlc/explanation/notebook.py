"""A plan for a notebook or a page: tables of its stages and its cost, and the text below."""

from __future__ import annotations

from html import escape

from rlc.explanation.job.graph import render_graph
from rlc.explanation.layout import count, dollars
from rlc.explanation.sizes import FREE, when_evaluated
from rlc.plan import Plan, is_evaluation, plan_hash
from rlc.pricing import LEVELS, bill_rows, plan_cost

Table = list[tuple[str, ...]]  # a row of titles, then the others
_PIPE = r"\|"  # in a cell of Markdown
_SUMMARY = "<summary>all values, formulas and assumptions</summary>"


def explain_html(plan: Plan, text: str) -> str:
    """HTML without scripts or styles of its own; ``text`` is all that is to be said."""
    title = f"<b>{escape(plan.recipe)}</b> &nbsp; plan <code>{plan_hash(plan)[:12]}</code>"
    tables = "".join(map(_html_table, (stage_table(plan), cost_table(plan))))
    return f"<div>{title}{tables}<details>{_SUMMARY}{text_html(text)}</details></div>"


def text_html(text: str) -> str:
    """A text as it is."""
    return f"<pre>{escape(text)}</pre>"


def explain_markdown(plan: Plan, text: str) -> str:
    """Markdown, with the job graph as a Mermaid diagram."""
    return (
        f"**{plan.recipe}**   plan `{plan_hash(plan)[:12]}`\n\n"
        f"{_markdown_table(stage_table(plan))}\n\n{_markdown_table(cost_table(plan))}\n\n"
        f"```mermaid\n{render_graph(plan, 'mermaid')}```\n\n"
        f"<details>{_SUMMARY}\n\n```\n{text}```\n\n</details>\n"
    )


def stage_table(plan: Plan) -> Table:
    """One row a stage."""
    rows: Table = [("stage", "kind", "when", "model", "service")]
    for stage, cost in zip(plan.stages, plan_cost(plan), strict=True):
        if is_evaluation(stage):
            when = when_evaluated(stage)
        else:
            when = count(stage.steps or 0, "step") + (
                f", from {stage.after}" if stage.after else ""
            )
        rows.append((stage.name, cost.kind, when, stage.model.base, stage.model.service))
    return rows


def cost_table(plan: Plan) -> Table:
    """The bill of the job by kind and level; one row where it costs nothing."""
    costs = plan_cost(plan)
    if all(cost.free for cost in costs):
        return [("cost",), (FREE,)]
    rows = [(kind, *map(dollars, amounts)) for kind, amounts in bill_rows(costs).items()]
    return [("cost", *LEVELS), *rows]


def _html_table(table: Table) -> str:
    def row(tag: str, cells: tuple[str, ...]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    head, *rows = table
    body = "".join(row("td", cells) for cells in rows)
    return f"<table><thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"


def _markdown_table(table: Table) -> str:
    rows = (f"| {' | '.join(cell.replace('|', _PIPE) for cell in row)} |" for row in table)
    return "\n".join([next(rows), "|" + " --- |" * len(table[0]), *rows])
