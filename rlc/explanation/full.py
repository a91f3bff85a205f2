"""A whole plan in full: as text, as data for JSON, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

from rlc.catalog import STAGES, located_files, price_source, prices_as_of
from rlc.explanation import job, sizes
from rlc.explanation.layout import Lines, count, dollars, section, wrapped
from rlc.explanation.stages import formula_sections, loss_scale, stage_formulas
from rlc.explanation.values import value_lines
from rlc.lang import Diagnostics, finding_dicts
from rlc.lang.render import Paint, render_human
from rlc.plan import (
    SCHEMA_VERSION,
    Plan,
    StagePlan,
    is_evaluation,
    is_training,
    plan_hash,
    plan_to_dict,
)
from rlc.pricing import (
    KINDS,
    LEVELS,
    Money,
    Seen,
    StageCost,
    Tokens,
    bill_of,
    bill_rows,
    plan_cost,
    stage_costs,
    total_cost,
)
from rlc.pricing.assumptions import assumptions
from rlc.pricing.critical_path import Latencies
from rlc.records import asdict

if TYPE_CHECKING:
    from rlc.compile import Sweep


def explain_text(
    plan: Plan,
    found: Diagnostics,
    color: bool = False,
    latencies: Latencies | None = None,
    sweeps: Sequence[Sweep] = (),
    reused: Sequence[str] = (),
    seen: Mapping[str, Seen] = {},
) -> str:
    """Return a plan as text, with the findings of its recipe, its ``sweeps`` and what is ``reused``
    of other runs, in sentences; with ``latencies`` also how long it takes. ``seen`` is what is
    known of the episodes of its stages."""
    paint = Paint(color)
    located = located_files(plan).stages
    costs = stage_costs(located, seen)
    times = sizes.times_of(plan, latencies, seen, costs)
    seed = f"seed {plan.seed} ({plan.provenance.get('seed', 'default')})"
    lines = [f"{paint.title(plan.recipe)}   plan {plan_hash(plan)[:12]}   {seed}"]
    if len(costs) > 1:
        lines += section("stages", job.job_lines(plan, costs), paint)
    for stage, opened, cost in zip(plan.stages, located, costs, strict=True):
        lines += ["", *_stage(plan, stage, cost, paint)]
        lines += section("assumed", _sentences(assumptions(opened, seen.get(stage.name))), paint)
        lines += section("timing", sizes.timing_lines(plan, stage, times), paint)
    lines += ["", paint.title("the whole job")]
    if len(costs) > 1:
        lines += section("cost in USD", sizes.job_cost_lines(costs), paint)
    lines += section("other histories", _sentences(sizes.other_price(plan, costs)), paint)
    lines += section("reused", _sentences(reused), paint)
    lines += section("expected", job.expectation_lines(plan, paint), paint)
    lines += section("writes", _sentences(job.written(plan)), paint)
    lines += section("needs", _sentences(job.needed(plan)), paint)
    if sweeps:
        from rlc.explanation.sweeps import sweep_lines  # most recipes have none

        for sweep in sweeps:
            lines += ["", *sweep_lines(sweep, paint)]
    if found:
        lines += ["", render_human(found, color=color).rstrip()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _stage(plan: Plan, stage: StagePlan, cost: StageCost, paint: Paint) -> Lines:
    trains_by = STAGES[cost.kind].trains_by
    training = f" of {trains_by}" if trains_by else ""
    title = f"{count(cost.times, cost.unit)}{training} on {stage.model.service}"
    yield paint.title(f"stage {stage.name}: {title}")
    yield from section("values", value_lines(plan, stage, paint), paint)
    for name, lines in formula_sections(stage, paint):
        yield from section(name, lines, paint)
    yield from section(f"each {cost.unit}", job.step_lines(plan, stage), paint)
    yield from section("sizes", sizes.size_lines(stage, cost), paint)
    yield from section("cost", sizes.cost_lines(cost, stage.model), paint)


def _sentences(sentences: Iterable[str]) -> Lines:
    return (line for sentence in sentences for line in wrapped(sentence, bullet="- "))


def explain_dict(
    plan: Plan | None,
    recipe: str,
    found: Diagnostics,
    latencies: Latencies | None = None,
    sweeps: Sequence[Sweep] = (),
    seen: Mapping[str, Seen] = {},
) -> dict[str, Any]:
    """Return a plan as data for JSON; without a plan it has only diagnostics. It has ``timing`` if
    ``latencies`` are given, ``expectations`` and ``sweeps`` if there are any."""
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "plan_hash": None,
        "recipe": recipe,
        "stages": [],
        "graph": {"nodes": [], "edges": []},
        "cost": None,
    }
    if plan is not None:
        plain = plan_to_dict(plan)
        stages = zip(plan.stages, plain["stages"], strict=True)
        data |= {
            "plan_hash": plan_hash(plan),
            "stages": [{**record, **_added(plan, stage)} for stage, record in stages],
            "graph": plain["graph"],
            "cost": _cost_dict(plan, seen),
        }
        if plan.expectations:
            data["expectations"] = job.expectation_dicts(plan)
        if latencies is not None or seen:
            times = sizes.times_of(plan, latencies, seen, plan_cost(plan, seen))
            timings = (sizes.stage_timing(plan, stage, times) for stage in plan.stages)
            data["timing"] = [timing for timing in timings if timing is not None]
    if sweeps:
        from rlc.explanation.sweeps import sweep_dicts  # most recipes have none

        data["sweeps"] = sweep_dicts(sweeps)
    return data | {"diagnostics": finding_dicts(found)}


def _added(plan: Plan, stage: StagePlan) -> dict[str, Any]:
    """Return what the record of a stage has beside the fields of the plan."""
    prefix = f"stages.{stage.name}."
    origins = {path: origin for path, origin in plan.provenance.items() if path.startswith(prefix)}
    alone = Plan(plan.recipe, plan.seed, (stage,), plan.graph)
    return {
        "seed": plan.seed,
        "formulas": stage_formulas(stage),
        "datums": {env.name: sizes.datum_sentence(env, stage.model) for env in stage.environments},
        "loss_scale": asdict(loss_scale(stage)) if is_training(stage) and stage.rollouts else None,
        "writes": list(job.written(alone)),
        "needs": job.needed(alone),
        "provenance": {path.removeprefix(prefix): origin for path, origin in origins.items()},
    }


def _cost_dict(plan: Plan, seen: Mapping[str, Seen]) -> dict[str, Any]:
    """Return the estimates by level. A null total is unknown, and ``at_least`` its lower bound; if
    that is null, too, it has no bound. ``measured`` is what they were made of, if it was seen."""
    located = located_files(plan).stages
    costs = stage_costs(located, seen)
    paid = (stage.model for stage, cost in zip(plan.stages, costs, strict=True) if not cost.free)
    sources = dict.fromkeys(filter(None, (price_source(model)[0] for model in paid)))
    return {
        "currency": "USD",
        "prices": "; ".join(sources) or prices_as_of(),
        "kinds": list(KINDS),
        **_amounts({level: total_cost(costs, level) for level in LEVELS}),
        "bill": {level: _totals(bill_of(costs, level)) for level in LEVELS},
        "stages": [
            {
                "stage": cost.stage,
                "kind": cost.kind,
                "times": cost.times,
                "free": cost.free,
                "step": {
                    level: {
                        "tokens": _tokens(cost.step_tokens[level]),
                        "total": cost.step[level].total,
                        "at_least": cost.step[level].at_least,
                    }
                    for level in LEVELS
                },
                "tokens_before": {level: _tokens(cost.tokens_before[level]) for level in LEVELS},
                "bill": {level: _totals(cost.bill[level]) for level in LEVELS},
                **_amounts({level: cost.total(level) for level in LEVELS}),
                "assumptions": assumptions(stage, seen.get(stage.name)),
                **({"measured": _measured(seen[cost.stage])} if cost.measured else {}),
            }
            for stage, cost in zip(located, costs, strict=True)
        ],
    }


def _measured(seen: Seen) -> dict[str, Any]:
    return {env: one.to_dict() for env, one in seen.items()}


def _amounts(amounts: dict[Any, Money]) -> dict[str, Any]:
    at_least = {level: money.at_least for level, money in amounts.items()}
    return {"total": _totals(amounts), "at_least": at_least}


def _totals(amounts: dict[Any, Money]) -> dict[Any, float | None]:
    return {name: money.total for name, money in amounts.items()}


def _tokens(tokens: Tokens) -> dict[str, int | None]:
    """Return the tokens by kind; null has no bound."""
    return {kind: round(n) if isfinite(n) else None for kind, n in asdict(tokens).items()}


_Table = list[tuple[str, ...]]  # a row of titles, then the others
_PIPE = r"\|"  # in a cell of Markdown
_SUMMARY = "<summary>all values, formulas and assumptions</summary>"


def explain_html(plan: Plan, text: str) -> str:
    """Return a plan as HTML without scripts or styles of its own; ``text`` is its full text."""
    title = f"<b>{escape(plan.recipe)}</b> &nbsp; plan <code>{plan_hash(plan)[:12]}</code>"
    tables = "".join(map(_html_table, _tables(plan)))
    return f"<div>{title}{tables}<details>{_SUMMARY}{text_html(text)}</details></div>"


def text_html(text: str) -> str:
    """Return a text as HTML, set as it is."""
    return f"<pre>{escape(text)}</pre>"


def explain_markdown(plan: Plan, text: str) -> str:
    """Return a plan as Markdown, with the job graph as a Mermaid diagram and its full ``text``."""
    stages, costs = map(_markdown_table, _tables(plan))
    return (
        f"**{plan.recipe}**   plan `{plan_hash(plan)[:12]}`\n\n{stages}\n\n{costs}\n\n"
        f"```mermaid\n{job.render_graph(plan, 'mermaid')}```\n\n"
        f"<details>{_SUMMARY}\n\n```\n{text}```\n\n</details>\n"
    )


def _tables(plan: Plan) -> tuple[_Table, _Table]:
    """Return the stages of a plan, a row each, and its bill by kind and level."""
    costs = plan_cost(plan)
    stages: _Table = [("stage", "kind", "when", "model", "service")]
    for stage, cost in zip(plan.stages, costs, strict=True):
        if is_evaluation(stage):
            when = sizes.when_evaluated(stage)
        else:
            start = f", from {stage.after}" if stage.after else ""
            when = f"{count(stage.steps or 0, 'step')}{start}"
        stages.append((stage.name, cost.kind, when, stage.model.base, stage.model.service))
    if all(cost.free for cost in costs):
        return stages, [("cost",), (sizes.FREE,)]
    rows = [(kind, *map(dollars, amounts)) for kind, amounts in bill_rows(costs).items()]
    return stages, [("cost", *LEVELS), *rows]


def _html_table(table: _Table) -> str:
    def row(tag: str, cells: tuple[str, ...]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    head, *rows = table
    body = "".join(row("td", cells) for cells in rows)
    return f"<table><thead>{row('th', head)}</thead><tbody>{body}</tbody></table>"


def _markdown_table(table: _Table) -> str:
    rows = (f"| {' | '.join(cell.replace('|', _PIPE) for cell in row)} |" for row in table)
    return "\n".join([next(rows), "|" + " --- |" * len(table[0]), *rows])
