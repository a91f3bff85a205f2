"""Whole runs on the embedded engine or its double, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from functools import cache
from itertools import count, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve
from plan_recipes import recipe
from stage_parts import flat

import rlc.service.engine
from rlc.compile.recipe import compile_source
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash
from rlc.plan.environments import EnvPlan
from rlc.plan.leaves import evolved
from rlc.plan.records import Plan
from rlc.plan.stages import StagePlan
from rlc.runtime.job import Job
from rlc.runtime.journal.episodes import TOKENS_FILE
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer, Summary
from rlc.service.hosted.connect import connect_service
from rlc.service.interface import RemoteService

TINY = """\
model policy { base = "tiny" lora_rank = 4 }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\\\boxed{}.")
"""
TRAIN = {
    "model": "policy",
    "env": "guess",
    "batch": "groups(3, group_size = 4)",
    "sampling": "sample(max_tokens = 8)",
    "advantage": "grpo()",
    "loss": "importance_sampling()",
    "optimizer": "adam(1e-3)",
    "steps": "4",
    "save": "every(2, keep = 2)",
}


MOST_GROUPS = {"groups": 2, "turns": 16}
MOST_TURNS = 4


def block(kind: str, name: str, fields: Mapping[str, str]) -> str:
    lines = "".join(f"  {key} = {value}\n" for key, value in fields.items())
    return f"{kind} {name} {{\n{lines}}}\n"


def train(name: str = "main", **fields: str) -> str:
    """A small training stage with some of its fields changed."""
    return block("train", name, TRAIN | fields)


def compiled(text: str, overrides: Mapping[str, str] | None = None, seed: int = 1) -> Plan:
    """The plan of a recipe's text."""
    result = compile_source(Source("recipe.rl", text), overrides or {}, seed)
    assert result.plan is not None, render_human(result.diagnostics, color=False)
    return result.plan


def tiny(*stages: str, seed: int = 1) -> Plan:
    """A plan of some stages on the tiny model; ``guess`` and ``spell`` are there to play."""
    return compiled(TINY + "".join(stages), seed=seed)


def plan(name: str, overrides: Mapping[str, str] | None = None, seed: int = 1) -> Plan:
    """The plan of a recipe of the project."""
    return compiled(recipe(name), overrides, seed)


class StopAfter(Observer):
    """Presses Ctrl-C as soon as a step is done."""

    def __init__(self, stage: str, step: int) -> None:
        self.last = (stage, step)
        self.job: Job | None = None

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        if (metrics["stage"], step) == self.last and self.job is not None:
            self.job.stop()


def run(
    folder: RunFolder,
    stop_after: tuple[str, int] | None = None,
    observer: Observer | None = None,
) -> Summary:
    observer = observer or (Observer() if stop_after is None else StopAfter(*stop_after))
    service = connect_service(folder.plan, folder.path / "checkpoints")
    job = Job(folder, service, observer)
    if isinstance(observer, StopAfter):
        observer.job = job
    try:
        return asyncio.run(job.run())
    finally:
        folder.close()
        if not isinstance(service, RemoteService):  # whose session the job has closed
            service.close()  # type: ignore[attr-defined]


def shortened(plan: Plan) -> Plan:
    """One step a stage of few groups, replies of few tokens, and episodes of few turns."""
    stages = list[StagePlan]()
    for stage in plan.stages:
        parts: dict[str, Any] = {"envs": tuple(map(_of_few_turns, stage.played))}
        if stage.steps is None:
            parts["tasks"] = min(flat(stage).tasks, MOST_GROUPS["groups"])
        else:
            parts["steps"] = 1
        if (rollouts := stage.rollouts) is not None:
            batch = rollouts.batch
            parts["batch"] = evolve(batch, count=min(batch.count, MOST_GROUPS[batch.kind]))
            parts["sampling"] = evolve(rollouts.sampling, max_tokens=8)
        stages.append(evolved(stage, parts if stage.played else {"steps": 1}))
    return evolve(plan, stages=tuple(stages))


def _of_few_turns(env: EnvPlan) -> EnvPlan:
    own = env.rollouts
    return evolve(env, rollouts=evolve(own, max_turns=min(own.max_turns, MOST_TURNS)))


def run_new(
    path: Path,
    job: Plan,
    stop_after: tuple[str, int] | None = None,
    observer: Observer | None = None,
) -> Summary:
    """Run a plan in a new folder."""
    return run(RunFolder.create(path, job), stop_after, observer)


_DONE: dict[tuple[Any, ...], Path] = {}
_NUMBERS = count()


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="runs-")


def undisturbed(job: Plan, stop_after: tuple[str, int] | None = None) -> Path:
    """Return the folder of a run of this plan, which is made once a process and service.

    It is shared: read it, and change only a copy (`copy_of`).
    """
    key = plan_hash(job), stop_after, rlc.service.engine.open_engine
    if key not in _DONE:
        path = Path(_folder().name) / str(next(_NUMBERS))
        run_new(path, job, stop_after)
        _DONE[key] = path
    return _DONE[key]


def copy_of(path: Path, where: Path) -> Path:
    """Copy a run folder, and return where the copy is."""
    return Path(shutil.copytree(path, where))


def assert_resumes(job: Plan, stop_after: tuple[str, int], where: Path) -> None:
    """A run that is stopped and gone on with comes to the same end as an undisturbed one."""
    run_new(where, job, stop_after)
    run(RunFolder.resume(where))
    assert_same(where, undisturbed(job))


def assert_same(one: Path, other: Path) -> None:
    """Two runs have the same metrics and rollouts, but for times, and the same tokens."""
    nothing: dict[str, Any] = {}
    differences = [
        f"{kind} {number}, {record.get('stage')} {record.get('step')}: {name}: "
        f"{record.get(name)!r} is not {another.get(name)!r}"
        for kind, ones, others in (
            ("metrics", comparable(one), comparable(other)),
            ("rollout", rollouts(one), rollouts(other)),
        )
        for number, (record, another) in enumerate(zip_longest(ones, others, fillvalue=nothing))
        for name in sorted({*record, *another})
        if record.get(name) != another.get(name)
    ]
    assert not differences, "\n".join([f"{len(differences)} differ:", *differences[:40]])
    files = [path / TOKENS_FILE for path in (one, other)]
    assert len({file.read_bytes() if file.exists() else b"" for file in files}) == 1


def metrics(path: Path, stage: str | None = None) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if stage in (None, record["stage"])]


def comparable(path: Path) -> list[dict[str, Any]]:
    """Everything a step says but how long it took."""
    return [
        {key: value for key, value in record.items() if not key.startswith("time/")}
        for record in metrics(path)
    ]


def rollouts(path: Path, stage: str | None = None) -> list[dict[str, Any]]:
    """Everything a rollout says but how long it took."""
    records = [json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
    return [record for record in records if stage in (None, record["stage"])]
