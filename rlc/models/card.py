"""The card of an exported model: what it is, how it was made, and what is known of its licence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlc.catalog import TINY, SavedWeights, find_model
from rlc.plan import ModelPlan, Plan, StagePlan, file_part, plan_hash
from rlc.report import read_plan
from rlc.runtime import evaluation_results, is_number, read_metrics
from rlc.version import __version__

_LICENCE = re.compile(r"^licen[sc]e:\s*(\S+)", re.M)


def model_card(model: ModelPlan, found: SavedWeights | None, form: str) -> str:
    """Return the card of an exported model as Markdown, with the front matter of the Hugging Face
    hub. What is not known is said to be so."""
    base = model.base if find_model(model.base) else os.path.basename(os.path.abspath(model.base))
    licence = _licence(model.base)
    front = ["---", f"base_model: {base}", f"license: {licence or 'unknown'}"]
    front += ["library_name: peft" if form == "adapter" else "library_name: transformers"]
    front += ["tags:", "- rlc", *(["- lora"] if form == "adapter" else []), "---"]
    said = f"is `{licence}`" if licence else "is not known here: look at its own page"
    body = [
        f"# {base}, trained with rlc",
        "",
        f"Weights: `{model.weights}`. Base model: `{base}`, whose licence {said}; it holds for "
        "this model too.",
        "",
        f"Chats are written by the renderer `{model.renderer}` of tinker-cookbook.",
    ]
    if found is not None and found.exactly:
        body += ["", *_how(Path(file_part(model.weights or "")), found)]
    return "\n".join([*front, "", *body, "", f"Written by rlc {__version__}.", ""])


def _how(run: Path, found: SavedWeights) -> Iterator[str]:
    plan, (stage, _, step) = read_plan(run), found.exactly[1:].partition(":")
    yield "## How it was made"
    yield ""
    recipe = f"`{os.path.basename(plan.recipe)}` (plan `{plan_hash(plan)[:12]}`, seed {plan.seed})"
    yield f"The recipe {recipe}, up to step {step} of `{stage}`:"
    yield ""
    for one in _until(plan, stage):
        yield f"- `{one.name}` ({one.kind}): {_summary(one)}"
    if plan.data:
        yield ""
        yield "Data, by the BLAKE2b digest of its files:"
        yield ""
        for file in plan.data:
            yield f"- `{os.path.basename(file.path)}`: {file.size:,} bytes, `{file.digest[:16]}`"
    results = list(_results(run, plan))
    if results:
        yield ""
        yield "## Evaluations of the run"
        yield ""
        yield "| evaluation | step | metric | value |"
        yield "|---|---|---|---|"
        yield from results


def _until(plan: Plan, name: str) -> list[StagePlan]:
    """The training stages that lead to one, and that one."""
    by_name, found = {stage.name: stage for stage in plan.stages}, list[StagePlan]()
    at: str | None = name
    while at is not None:
        found.append(by_name[at])
        at = by_name[at].after
    return found[::-1]


def _summary(stage: Any) -> str:
    """One line about a stage: how long, on what, how it is rewarded and learns."""
    parts = [f"{stage.steps} steps"]
    for env in stage.environments:
        graders = ", ".join(f"{part.weight:g} × {part.name}" for part in env.graders)
        rewarded = f", rewarded by {graders}" if graders else ""
        parts.append(f"environment `{env.name}` ({env.source} `{env.id}`{rewarded})")
    files = [data.file for data in stage.data[:1] if data.file is not None]
    parts += [f"data `{os.path.basename(file)}`" for file in files]
    if (objective := stage.policy_gradient or stage.preference) is not None:
        parts.append(f"loss `{objective.loss.name}`")
    optimizer = stage.optimizer
    parts.append(f"learning rate {optimizer.learning_rate:g}")
    return "; ".join(parts)


def _results(run: Path, plan: Plan) -> Iterator[str]:
    """The last results of each evaluation of a run."""
    last = {record["stage"]: record for record in read_metrics(run)}
    for stage in plan.stages:
        if not stage.trains and stage.name in last:
            record = last[stage.name]
            for name, value in evaluation_results(record, stage.name).items():
                if is_number(value):
                    yield f"| {stage.name} | {record['step']} | {name} | {value:.4g} |"


def _licence(base: str) -> str | None:
    """The licence that a folder of a base model names; None if it names none, or is not here."""
    if base == TINY:
        return "apache-2.0"  # that of rlc, which it is a part of
    try:
        text = (Path(base) / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = _LICENCE.search(text)
    return match[1] if match else None
