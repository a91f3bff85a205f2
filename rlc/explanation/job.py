"""What surrounds the stages: the graph of the job, what is written and needed, expectations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

from rlc.catalog import CATALOGUE, find_provider, tracker_traits
from rlc.catalog.packages import name_of
from rlc.catalog.requirements import (
    Requirement,
    requirements,
    service_packages,
)
from rlc.explanation.layout import ROOM, Lines, count, wrapped
from rlc.explanation.sizes import when_evaluated
from rlc.lang.render import Paint
from rlc.plan import (
    ExpectationPlan,
    ExpectationResult,
    FromData,
    GraphEdge,
    Likelihood,
    Plan,
    PolicyGradient,
    PreferenceLoss,
    StagePlan,
    Table,
    Training,
    is_evaluation,
    is_training,
    show,
)
from rlc.pricing import StageCost, judged_before
from rlc.records import asdict

Format = Literal["mermaid", "dot"]
_quoted = partial(json.dumps, ensure_ascii=False)  # a string of Graphviz


def job_lines(plan: Plan, costs: tuple[StageCost, ...]) -> Lines:
    """Yield the stages in their order, each with what its weights are from."""
    width = max(len(stage.name) for stage in plan.stages)
    for stage, cost in zip(plan.stages, costs, strict=True):
        if is_evaluation(stage):
            what = when_evaluated(stage)
        elif is_training(stage):
            start = f"goes on from {stage.after}" if stage.after else f"starts {stage.model.name}"
            what = f"{count(stage.steps, 'step')}, {start}"
        yield f"{stage.name:{width}}  {cost.kind:5}  {what}"


def step_lines(plan: Plan, stage: StagePlan) -> Lines:
    """Yield the nodes of one step in their order, each with what it waits for."""
    labels = {node.id: node.label for node in plan.graph.nodes_of[stage.name]}
    width = max(len(node) for node in labels) - len(stage.name) - 1
    for node, label in labels.items():
        short = node.removeprefix(f"{stage.name}.")
        yield f"{short:{width}}  {label}"
        waits = [
            f"{edge.carries} from {edge.source.removeprefix(f'{stage.name}.')}"
            f"{edge_notes(edge, plan)}"
            for edge in plan.graph.edges_at.get(node, ())
            if edge.target == node
        ]
        if waits:
            yield from wrapped(", ".join(waits), bullet=f"{'':{width}}    ← ")


def edge_notes(edge: GraphEdge, plan: Plan) -> str:
    """Return `` (step − 1, up to 2 older)``, `` (in 4 parts)``, `` (all 4 parts)`` where it waits
    for them; empty if there is nothing to note."""
    notes = [f"step − {edge.delay}"] if edge.delay else []
    notes += [f"up to {edge.slack} older"] if edge.slack else []
    if edge.parts > 1:
        notes.append(f"in {edge.parts} parts")
    else:
        made = max(other.parts for other in plan.graph.edges_at[edge.source])
        notes += [f"all {made} parts"] if made > 1 else []
    return f" ({', '.join(notes)})" if notes else ""


def render_graph(plan: Plan, format: Format) -> str:
    """Return the graph as the text of a diagram. In a diagram a dashed edge carries the result of
    an earlier step, a bold one leads from stage to stage."""
    lines = _mermaid(plan) if format == "mermaid" else _dot(plan)
    return "\n".join(lines) + "\n"


def _mermaid(plan: Plan) -> Iterator[str]:
    yield "flowchart TD"
    for node in plan.graph.nodes_of.get("", ()):
        yield f'  {_id(node.id)}(["{_mermaid_text(node.label)}"])'
    for stage in plan.stages:
        yield f'  subgraph {_id(stage.name)}["{_mermaid_text(_title(stage))}"]'
        for node in plan.graph.nodes_of[stage.name]:
            yield f'    {_id(node.id)}["{node.kind}"]'
        yield "  end"
    for edge in plan.graph.edges:
        arrow = "-.->" if edge.delay else "==>" if _between_stages(plan, edge) else "-->"
        label = f'|"{_mermaid_text(edge.carries + edge_notes(edge, plan))}"|'
        yield f"  {_id(edge.source)} {arrow}{label} {_id(edge.target)}"


def _dot(plan: Plan) -> Iterator[str]:
    yield "digraph job {"
    yield '  node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for node in plan.graph.nodes_of.get("", ()):
        yield f"  {_quoted(node.id)} [label={_quoted(node.label)}, shape=ellipse];"
    for stage in plan.stages:
        yield f"  subgraph {_quoted(f'cluster_{stage.name}')} {{"
        yield f"    label={_quoted(_title(stage))};"
        for node in plan.graph.nodes_of[stage.name]:
            tip = f"tooltip={_quoted(node.label)}"
            yield f"    {_quoted(node.id)} [label={_quoted(node.kind)}, {tip}];"
        yield "  }"
    for edge in plan.graph.edges:
        style = "dashed" if edge.delay else "bold" if _between_stages(plan, edge) else "solid"
        yield (
            f"  {_quoted(edge.source)} -> {_quoted(edge.target)} "
            f"[label={_quoted(edge.carries + edge_notes(edge, plan))}, style={style}];"
        )
    yield "}"


def _between_stages(plan: Plan, edge: GraphEdge) -> bool:
    stages = {node.id: node.stage for node in plan.graph.nodes}
    return stages[edge.source] != stages[edge.target]


def _title(stage: StagePlan) -> str:
    size = count(stage.tasks, "task") if is_evaluation(stage) else count(stage.steps or 0, "step")
    return f"{stage.kind} {stage.name}: {size}"


def _id(name: str) -> str:
    """Return an identifier of Mermaid, different for different names; `end` is reserved there."""
    return "n_" + re.sub(r"\W", "_", name.replace("_", "__"))


def _mermaid_text(text: str) -> str:
    return text.replace('"', "#quot;")


def written(plan: Plan) -> Iterator[str]:
    """Yield what the job writes, and where."""
    files = ["plan.json", "journal.sqlite", "metrics.jsonl (an object a step)"]
    if any(stage.played for stage in plan.stages):
        files += ["rollouts.jsonl (a rollout)", "failures.jsonl (a cause, if rollouts fail)"]
    if any(stage.rollouts for stage in plan.stages):
        files.append("tokens.bin (a sequence that was trained on)")
    if plan.trainings:
        files.append("timeline.jsonl (a node of a step)")
    if any(stage.model.hosted for stage in plan.stages):
        files.append("service.jsonl (a session)")
    folder = "a run folder (--run-dir, by default runs/NAME-TIME)"
    yield f"{folder} with {', '.join(files)}"
    for stage in plan.trainings:
        yield from (f"{stage.name}: {line}" for line in _WRITTEN[stage](stage))
        yield f"{stage.name}: {_checkpoints(stage)}"
        for tracker in stage.track:
            sends = tracker_traits(tracker.name).sends.format(stage=stage.name)
            given = (f", {name} {value}" for name, value in tracker.args.items() if value)
            yield f"{stage.name}: {sends}{''.join(given)}"


def _of_likelihood(stage: Training) -> Iterator[str]:
    yield f"examples-{stage.name}.jsonl, what it is trained on"
    data = stage.of(FromData).data
    if data.environments and not data.by_oracle:
        yield f"episodes-{stage.name}.jsonl, what was played for it"
    yield from _of_heldout(stage)


def _of_heldout(stage: Training) -> Iterator[str]:
    if stage.heldout is not None:
        yield f"examples-{stage.name}-heldout.jsonl, what is only scored"


def _of_preferences(stage: Training) -> Iterator[str]:
    yield f"examples-{stage.name}.jsonl, what it compares"
    for data, part in zip(stage.data, ("", "-heldout"), strict=False):
        if data.environments:
            yield f"episodes-{stage.name}{part}.jsonl, what was played for it"
    if stage.heldout is not None:
        yield f"examples-{stage.name}-heldout.jsonl, what is only compared"
    if stage.of(PreferenceLoss).reference is not None:
        yield f"reference-{stage.name}.jsonl, the reference's logprobs of each reply"
    yield "comparisons.jsonl, the rewards of the replies in each step"


_WRITTEN: Table[Callable[[Training], Iterator[str]]] = Table(
    {PolicyGradient: _of_heldout, Likelihood: _of_likelihood, PreferenceLoss: _of_preferences}
)


def _checkpoints(stage: Training) -> str:
    save = stage.save
    where = "on the service" if stage.model.hosted else "in the run folder"
    when = f"every {save.every:,} steps and at the end" if save.every else "at the end"
    parts = [f"checkpoints {where} {when}"]
    if save.every:
        parts.append(f"the newest {save.keep:,} kept" + (", and the best" if save.best else ""))
    if save.rolling is not None:
        newest = "that of the newest step" if save.rolling == 1 else f"{save.rolling:,} newest"
        parts.append(f"and the state after each step, {newest} kept")
    if save.ttl_seconds is not None:
        parts.append(f"deleted after {show(save.ttl_seconds, 'duration')}")
    return ", ".join(parts)


def needed(plan: Plan) -> list[str]:
    """Return what the job needs before it can run, as sentences without repetitions."""
    every = requirements(plan)
    services = dict.fromkeys(one.name for one in every if one.kind == "service")
    covered = {name_of(one) for service in services for one in service_packages(service)}
    covered |= {there.key for there in map(find_provider, services) if there and there.key}
    found = [sentence for service in services for sentence in _of_service(service)]
    others = (one for one in every if one.kind != "service" and name_of(one.name) not in covered)
    found += [_SENTENCES[one.kind](one) for one in others]
    return list(dict.fromkeys(found))


def _of_service(service: str) -> Iterator[str]:
    there = find_provider(service)
    if there is None:
        yield f"the provider `{service}`, which is not known here"
    elif not there.hosted:
        yield "no key and no network for the model: it trains on this machine"
        yield "the packages torch and transformers (rlc[local])"
    else:
        where = "hosted Tinker" if there.models == CATALOGUE else there.title
        key = f"{there.key} in the environment: " if there.key else ""
        yield f"{key}it trains on {where}, or on a server of your own (--base-url)"
        yield "the packages tinker and tinker-cookbook (rlc[tinker])"
        if there.package is not None:
            yield f"the package {there.package}, its client"


def _package(one: Requirement) -> str:
    extra = f" (rlc[{one.extra}])" if one.extra else ""
    return f"the package {one.name}{extra}" + (f": {one.purpose}" if one.purpose else "")


def _key(one: Requirement) -> str:
    purpose = f": {one.purpose}" if one.purpose else ""
    instead = f", or {one.instead}" if one.instead else ""
    return f"{one.name} in the environment{instead}{purpose}"


def _data_set(one: Requirement) -> str:
    name = f": {one.name}" if one.name else ""
    return f"{one.by}: a data set from the Hugging Face hub, downloaded when the run starts{name}"


_SENTENCES: Mapping[str, Callable[[Requirement], str]] = {
    "package": _package,
    "key": _key,
    "file": lambda one: f"{one.by}: the file {one.name}",
    "data set": _data_set,
    "code": lambda one: f"{one.by}: {one.name}",
    "program": lambda one: f"{one.by}: the agent {one.name}",
    "command": lambda one: f"the command {one.name}",
    "server": lambda one: f"{one.by}: {one.purpose}",
    "weights": lambda one: f"{one.by}: the weights {one.name}",
    "beginning": lambda one: f"{one.by}: {one.name}",
}


_VERDICTS = {True: "passes", False: "fails", None: "not checked"}
_OVER = {"last": "at the end", "first": "at first", "mean": "on average", "sum": "in total"}
_OVER |= {"min": "at its lowest", "max": "at its highest"}


def expectation_lines(plan: Plan, paint: Paint) -> Lines:
    """Yield a line for each expectation: when it is checked, and whether it passes."""
    judged = list(_judged(plan))
    width = max((len(one.text) for one, _ in judged), default=0)
    for one, found in judged:
        if found is not None:
            verdict = f"{_VERDICTS[found.holds]}: {found.said}"
        elif plan.rehearses:
            verdict = "not checked: a rehearsal need not learn"
        else:
            measured, over = one.quantity, _OVER[one.quantity.over or "last"]
            verdict = f"after the run: {measured.key} of {measured.stage}, {over}"
        origin = plan.provenance.get(f"expect {one.compared}", "")
        line = f"{one.text:{width}}   {verdict}"
        if len(line) + 3 + len(origin) <= ROOM:
            yield f"{line}   {paint.dim(origin)}"
        else:
            yield from (line, f"{'':{width}}   {paint.dim(origin)}")


def expectation_dicts(plan: Plan) -> list[dict[str, Any]]:
    """Return expectations as data; one that is checked after the run has no ``holds`` yet."""
    return [
        {"text": one.text, "held": "after" if found is None else "before"}
        | ({} if found is None else asdict(found))
        for one, found in _judged(plan)
    ]


def _judged(plan: Plan) -> Iterator[tuple[ExpectationPlan, ExpectationResult | None]]:
    known = {one.text: judged for one, judged in judged_before(plan)}
    for one in plan.expectations:
        judged = known.get(one.text)
        if judged is not None and plan.rehearses:
            judged = one.unknown("a rehearsal is smaller")
        yield one, judged
