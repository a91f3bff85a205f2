"""A plan as text and as JSON: what people read, and paste into a pull request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from attrs import asdict, frozen

from rlc.catalog.environments import needs
from rlc.catalog.index import find_builtin
from rlc.catalog.models import prices_as_of
from rlc.catalog.records import Builtin
from rlc.check.scalars import show
from rlc.check.settle import leaves
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.render import render_human, render_json
from rlc.plan.codec import plan_hash, plan_to_dict
from rlc.plan.cost import LEVELS, Estimate, StageCost, plan_cost, total_cost
from rlc.plan.formulas import scheme_formulas
from rlc.plan.tree import SCHEMA_VERSION, Plan, TrainPlan

_UNKNOWN = "unknown"
_WIDTH = 100  # columns of the text
_INDENT = 4
_VALUE_WIDTH = 32
_NEEDS = {
    "hub": "a data set from the Hugging Face hub, downloaded when the run starts",
    "nltk": "the word list of nltk, downloaded when the run starts",
    "pylatexenc": "the package pylatexenc",
}
_KINDS = ("prefill", "cached", "sample", "train")


@frozen
class _Paint:
    """Bold titles and dim origins on a terminal, nothing elsewhere."""

    on: bool

    def title(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.on else text

    def dim(self, text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if self.on else text


def explain_text(plan: Plan, found: Diagnostics, color: bool = False) -> str:
    """Everything about a plan, for a person."""
    paint = _Paint(color)
    seed = f"seed {plan.seed} ({plan.provenance.get('seed', 'default')})"
    lines = [f"{paint.title(plan.recipe)}   plan {plan_hash(plan)[:12]}   {seed}"]
    costs = plan_cost(plan)
    for stage, cost in zip(plan.stages, costs, strict=True):
        lines += ["", *_stage(plan, stage, cost, paint)]
    if len(costs) > 1:
        lines += ["", f"all stages: {_money_range(total_cost(costs, level) for level in LEVELS)}"]
    if found:
        lines += ["", render_human(found, color=color).rstrip()]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def explain_dict(plan: Plan | None, recipe: str, found: Diagnostics) -> dict[str, Any]:
    """The same for a program; without a plan only the diagnostics have something to say."""
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
            "stages": [_stage_dict(plan, stage, record) for stage, record in stages],
            "graph": plain["graph"],
            "cost": _cost_dict(plan),
        }
    return data | {"diagnostics": json.loads(render_json(found))}


def _stage(plan: Plan, stage: TrainPlan, cost: StageCost, paint: _Paint) -> Iterator[str]:
    yield paint.title(f"stage {stage.name}: {stage.steps:,} steps on {stage.model.service}")
    sections = {
        "values": _values(plan, stage, paint),
        f"advantage: {stage.advantage.name}": _advantage(stage, paint),
        f"loss: {stage.loss.name}": _loss(stage, paint),
        "each step": _graph(plan, stage),
        "sizes": _sizes(stage, cost),
        "cost in USD": _cost(cost),
        "assumed": _assumed(cost),
        "writes": _writes(stage),
        "needs": _needs(stage),
    }
    for title, lines in sections.items():
        yield ""
        yield f"  {paint.title(title)}"
        yield from (f"{'':{_INDENT}}{line}" for line in lines)


def _values(plan: Plan, stage: TrainPlan, paint: _Paint) -> Iterator[str]:
    """Every value with its origin, but for what a builtin's name alone says."""
    prefix = f"stages.{stage.name}."
    rows = []
    for path, value in leaves(stage, prefix.removesuffix(".")):
        origin = plan.provenance.get(path, _UNKNOWN)
        repeated = f"{path.removesuffix('max_turns')}args.max_turns" in plan.provenance
        if path != f"{prefix}name" and not repeated and not origin.startswith("definition of "):
            rows.append((*_heading(path.removeprefix(prefix)), value, origin))
    groups = list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: groups.index(row[0]))  # what belongs together, in the recipe's order
    shown = [(group, name, _shown(name, value), origin) for group, name, value, origin in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(3)]
    widths[2] = min(widths[2], _VALUE_WIDTH)
    before = ""
    for group, name, text, origin in shown:
        head = "" if group == before else group
        label = f"{head:{widths[0]}}  {name:{widths[1]}}  "
        start = f"{label}{text:{widths[2]}}  "
        if len(start) + len(origin) <= _WIDTH - _INDENT:
            yield start + paint.dim(origin)
        else:
            yield label + text
            yield " " * len(label) + paint.dim(origin)
        before = group


def _heading(path: str) -> tuple[str, str]:
    """The part that a value belongs to, and its name there: ``guess``, ``chat.instruction``."""
    group, _, name = path.partition(".")
    if group == "envs":
        env, _, name = name.partition(".")
        name = name.replace("wrappers.", "").replace("args.", "")
        return f"env {env}", name
    return (group, name.removeprefix("config.")) if name else ("stage", group)


def _shown(name: str, value: object) -> str:
    if name == "usd":
        return "no limit" if value is None else show(value, "money")
    if name == "every" and value is None:
        return "at the end"
    if name == "ttl_seconds":
        return "never deleted" if value is None else show(value, "duration")
    if value is None:
        return "unknown" if name in ("context", "max_turns") else "none"
    if isinstance(value, str) and not value.isidentifier():
        return show(value, "string")
    return show(value, "any")


def _advantage(stage: TrainPlan, paint: _Paint) -> Iterator[str]:
    formulas = scheme_formulas(stage.advantage)
    width = max(len(formula.text) for formula in formulas)
    for formula in formulas:
        yield f"{formula.text:{width}}   {paint.dim(formula.remark)}".rstrip()


def _loss(stage: TrainPlan, paint: _Paint) -> Iterator[str]:
    builtin = _loss_builtin(stage)
    yield from builtin.formula
    yield paint.dim(builtin.doc)
    for name, value in stage.loss.config.items():
        yield f"{name} = {show(value, 'float')}"


def _loss_builtin(stage: TrainPlan) -> Builtin:
    builtin = find_builtin("loss", stage.loss.name)
    if builtin is None:
        raise ValueError(f"the catalogue has no loss {stage.loss.name!r}")
    return builtin


def _graph(plan: Plan, stage: TrainPlan) -> Iterator[str]:
    """The nodes in their order, each with what it waits for."""
    labels = {node.id: node.label for node in plan.graph.nodes}
    own = [node.id for node in plan.graph.nodes if node.stage == stage.name]
    width = max(len(node) for node in own)
    after = {node: list[str]() for node in own}
    for edge in plan.graph.edges:
        if edge.target in after:
            late = f" (step − {edge.delay})" if edge.delay else ""
            source = edge.source.removeprefix(f"{stage.name}.")
            after[edge.target].append(f"{edge.carries} from {source}{late}")
    for node in own:
        short = node.removeprefix(f"{stage.name}.")
        yield f"{short:{width - len(stage.name) - 1}}  {labels[node]}"
        yield f"{'':{width - len(stage.name) - 1}}    ← {', '.join(after[node])}"


def _sizes(stage: TrainPlan, cost: StageCost) -> Iterator[str]:
    batch, reply = stage.batch, stage.sampling.max_tokens
    if batch.kind == "groups":
        rollouts = batch.count * batch.size
        yield f"{batch.count:,} groups of {batch.size:,}: {rollouts:,} rollouts"
    else:
        yield f"{batch.count:,} turns, from waves of {batch.parallel or 1:,} episodes side by side"
    total = sum(env.weight for env in stage.envs)
    for env in stage.envs:
        share = f"{env.weight / total:.0%} of the tasks, " if len(stage.envs) > 1 else ""
        yield f"{env.name}: {share}{_longest(env.max_turns, reply)}"
    yield (
        f"one training sequence an {cost.datum}"
        if cost.datum[0] == "e"
        else (f"one training sequence a {cost.datum}: every turn is billed with its whole prompt")
    )


def _longest(turns: int | None, reply: int) -> str:
    if turns is None:
        return f"an unknown number of turns of at most {reply:,} tokens"
    count = f"{turns:,} turn{'s' * (turns != 1)}"
    return f"at most {count} of {reply:,} tokens: {turns * reply:,} sampled tokens a rollout"


def _cost(cost: StageCost) -> Iterator[str]:
    yield f"{'tokens a step':14}" + "".join(f"{kind:>13}" for kind in _KINDS) + f"{'USD':>12}"
    for level in LEVELS:
        estimate = cost.step[level]
        tokens = asdict(estimate.tokens)
        counts = "".join(f"{round(tokens[kind]):>13,}" for kind in _KINDS)
        yield f"{level:14}{counts}{_step_money(estimate, cost):>12}"
    if cost.free:
        yield "free: it runs on this machine"
        return
    steps = f"{cost.steps:,} step{'s' * (cost.steps != 1)}"
    yield f"{steps}: {_money_range(cost.total(level) for level in LEVELS)} (low / expected / high)"
    yield f"prices of {prices_as_of()}"


def _assumed(cost: StageCost) -> Iterator[str]:
    for assumption in cost.assumptions:
        yield from wrap(assumption, _WIDTH - _INDENT, initial_indent="- ", subsequent_indent="  ")


def _step_money(estimate: Estimate, cost: StageCost) -> str:
    if cost.free:
        return "free"
    return _UNKNOWN if estimate.total is None else f"{estimate.total:.4f}"


def _money_range(totals: Iterator[float | None]) -> str:
    return " / ".join(_UNKNOWN if total is None else f"${total:,.2f}" for total in totals)


def _writes(stage: TrainPlan) -> Iterator[str]:
    yield "a run folder (--run-dir, by default runs/NAME-TIME) with plan.json, journal.sqlite,"
    yield "metrics.jsonl (an object a step), rollouts.jsonl (an object a rollout)"
    save = stage.save
    when = f"every {save.every:,} steps and at the end" if save.every else "at the end"
    kept = f"the newest {save.keep:,} kept" if save.every else ""
    ttl = save.ttl_seconds
    gone = f"deleted after {show(ttl, 'duration')}" if ttl is not None else ""
    where = "in the run folder" if stage.model.service == "local" else "on the service"
    yield ", ".join(part for part in (f"checkpoints {where} {when}", kept, gone) if part)


def _needs(stage: TrainPlan) -> Iterator[str]:
    if stage.model.service == "tinker":
        yield "TINKER_API_KEY in the environment: it trains on hosted Tinker"
    else:
        yield "no key and no network for the model: it trains on this machine"
    for env in stage.envs:
        for need in needs(env):
            yield f"{env.name}: {_NEEDS[need]}"


def _stage_dict(plan: Plan, stage: TrainPlan, record: dict[str, Any]) -> dict[str, Any]:
    prefix = f"stages.{stage.name}."
    provenance = {
        path.removeprefix(prefix): origin
        for path, origin in plan.provenance.items()
        if path.startswith(prefix)
    }
    formulas = {
        "advantage": [formula.text for formula in scheme_formulas(stage.advantage)],
        "loss": list(_loss_builtin(stage).formula),
    }
    return {**record, "seed": plan.seed, "formulas": formulas, "provenance": provenance}


def _cost_dict(plan: Plan) -> dict[str, Any]:
    stages = plan_cost(plan)
    return {
        "currency": "USD",
        "prices": prices_as_of(),
        "total": {level: total_cost(stages, level) for level in LEVELS},
        "stages": [
            {
                "stage": stage.stage,
                "steps": stage.steps,
                "datum": stage.datum,
                "step": {level: _estimate_dict(stage.step[level]) for level in LEVELS},
                "total": {level: stage.total(level) for level in LEVELS},
                "assumptions": list(stage.assumptions),
            }
            for stage in stages
        ],
    }


def _estimate_dict(estimate: Estimate) -> dict[str, Any]:
    return {
        "tokens": {kind: round(count) for kind, count in asdict(estimate.tokens).items()},
        "dollars": estimate.dollars,
        "total": estimate.total,
    }
