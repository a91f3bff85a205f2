"""Folders of runs that never ran: what a run would leave behind, made up but consistent."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

from rlc.compile.recipe import compile_source
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash, plan_to_dict
from rlc.plan.records import Plan
from rlc.runtime.journal.database import Journal, cost
from rlc.runtime.records import Usage

RECIPE = """
model policy {{ base = "deepseek-ai/DeepSeek-V3.1" lora_rank = 8 }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\\\boxed{{}}.")
train main {{ model = policy  env = 2 * guess + 1 * spell  batch = groups(4, group_size = 4)
  sampling = sample(max_tokens = 16)  advantage = grpo()  loss = importance_sampling()
  kl = reference(policy.base, coef = 0.01)  optimizer = adam(1e-4)  steps = {steps}
  budget = limit(usd = $20) }}
eval heldout {{ model = main  env = guess  tasks = 8  samples = 2  every = {every}  first = true
  metrics = [pass_at(1), pass_at(2)] }}
"""
ENVS = ("guess", "spell")
USAGE = Usage(prefill=900, cached=2_500, sampled=1_500, trained=5_000)
START = 1_790_000_000.0  # seconds since the epoch
NODES = (
    ("snapshot", 0.1),
    ("rollouts", 1.0),
    ("returns", 0.01),
    ("reference", 0.2),
    ("advantages", 0.01),
    ("datums", 0.02),
    ("forward_backward", 0.05),
    ("optim_step", 0.5),
    ("checkpoint", 0.01),
)


def plan(steps: int, recipe: str = RECIPE) -> Plan:
    text = recipe.format(steps=steps, every=max(1, steps // 4))
    result = compile_source(Source("recipe.rl", text))
    assert result.plan is not None, render_human(result.diagnostics, color=False)
    return result.plan


def write_run(
    path: Path, planned: int = 8, done: int | None = None, recipe: str = RECIPE
) -> list[dict[str, Any]]:
    """Make a run of ``done`` steps in a folder and return its metrics."""
    job, random = plan(planned, recipe), Random(planned)
    done = planned if done is None else done
    path.mkdir(parents=True)
    written = {"plan_hash": plan_hash(job), **plan_to_dict(job)}
    (path / "plan.json").write_text(json.dumps(written), encoding="utf-8")
    journal = Journal(path / "journal.sqlite")
    journal.set_meta(plan_hash=plan_hash(job), state="finished", started=str(START))
    every, clock, records, timeline = max(1, planned // 4), START, [], list[dict[str, Any]]()
    rollouts: list[dict[str, Any]] = []
    journal._db.execute("BEGIN")
    for step in range(done + 1):
        if step:
            began = clock
            spans, clock = _spans(step, clock)
            timeline += spans
            records.append(_metrics(step, done, random))
            _store(journal, records[-1], began, clock)
            journal.add_spend("main", step, USAGE, cost(job.stages[0].model, USAGE))
            if step >= done - 1:
                rollouts += [_rollout(step, env, member) for env in ENVS for member in range(4)]
        if step % every == 0 and len(job.stages) > 1:
            records.append(_evaluation(step, done))
            _store(journal, records[-1], clock, clock + 1)
            clock += 1
    journal._db.execute("COMMIT")
    journal.close()
    write_lines(path / "metrics.jsonl", records)
    write_lines(path / "timeline.jsonl", timeline)
    write_lines(path / "rollouts.jsonl", rollouts)
    return records


def add_step(path: Path, step: int, planned: int = 8) -> None:
    """Let a run that was made up go on by a step, as the process of a run would."""
    record = _metrics(step, planned, Random(step))
    journal = Journal(path / "journal.sqlite")
    _store(journal, record, START + step, START + step + 1)
    journal.close()
    with (path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def write_folder(path: Path, recipe: str, **files: list[dict[str, Any]]) -> None:
    """Make the folder of a run of any recipe, with the records of its files: ``metrics``,
    ``rollouts`` and others."""
    result = compile_source(Source("recipe.rl", recipe))
    assert result.plan is not None, render_human(result.diagnostics, color=False)
    path.mkdir(parents=True)
    written = {"plan_hash": plan_hash(result.plan), **plan_to_dict(result.plan)}
    (path / "plan.json").write_text(json.dumps(written), encoding="utf-8")
    journal = Journal(path / "journal.sqlite")
    journal.set_meta(plan_hash=plan_hash(result.plan), state="finished", started=str(START))
    for metrics in files.get("metrics", ()):
        _store(journal, metrics, START, START + 1)
    journal.close()
    for name, records in files.items():
        write_lines(path / f"{name.replace('_', '-')}.jsonl", records)


def _store(journal: Journal, metrics: dict[str, Any], started: float, finished: float) -> None:
    journal._db.execute(
        "INSERT INTO steps (stage, step, started, finished, cursor, metrics)"
        " VALUES (?, ?, ?, ?, '{}', ?)",
        (metrics["stage"], metrics["step"], started, finished, json.dumps(metrics)),
    )


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def _spans(step: int, clock: float) -> tuple[list[dict[str, Any]], float]:
    spans = []
    for kind, seconds in NODES:
        span = {"stage": "main", "step": step, "part": 0, "kind": kind}
        spans.append(span | {"start": clock, "end": clock + seconds})
        clock += seconds
    return spans, clock


def _metrics(step: int, steps: int, random: Random) -> dict[str, Any]:
    rise = 0.2 + 0.6 * step / steps
    rewards = {env: rise + random.gauss(0, 0.05) for env in ENVS}
    numbers: dict[str, float] = {"reward/mean": sum(rewards.values()) / len(rewards)}
    for env in ENVS:
        numbers |= {
            f"reward/{env}": rewards[env],
            f"reward_std/{env}": 0.2 + random.random() / 10,
            f"turns/{env}": 2 + random.random(),
            f"length/{env}": 30 * math.exp(-step / steps) + random.random(),
        }
    numbers |= {
        "rollouts/played": 16.0,
        "rollouts/failed": float(step % 5 == 0),
        "rollouts/staleness": random.random(),
        "turns/cut_off": 0.3,
        "groups/constant": 0.25,
        "groups/all_good": 0.2,
        "groups/all_bad": 0.05,
        "kl/sample_train": random.gauss(0, 1e-3),
        "kl/reference": step / steps / 10,
        "optim/skipped": 0.0,
        "optim/lr": 1e-4,
        "optim/grad_norm": 10 + random.random(),
        "spend/usd": 0.0125 * step,
        "time/total": 2.0,
        "time/episode/sampling": 0.75,
        "time/episode/environment": 0.25,
    }
    numbers |= {"failures/EnvError": 1.0} if step % 5 == 0 else {}
    return {"stage": "main", "step": step, **numbers}


def _evaluation(step: int, steps: int) -> dict[str, Any]:
    solved = 0.1 + 0.5 * step / max(1, steps)
    results = {"eval/heldout/pass@1": solved, "eval/heldout/pass@2": min(1.0, solved * 1.5)}
    return {"stage": "heldout", "step": step, **results, "eval/heldout/failed": 0.0}


def _rollout(step: int, env: str, member: int) -> dict[str, Any]:
    failed = env == "spell" and member == 3
    return {
        "stage": "main",
        "step": step,
        "env": env,
        "task": step,
        "member": member,
        "role": "",
        "digest": "00",
        "reward": 0.0 if failed else member / 2,
        "ended": "failed" if failed else "done",
        "error": "EnvError: the game went away" if failed else None,
        "staleness": 0,
        "seconds": {},
        "advantages": [] if failed else [member - 1.0, member - 1.0],
        "turns": [] if failed else [_turn(f"What is {step} & <b>{n}</b>?", member) for n in (1, 2)],
    }


def _turn(observation: str, member: int) -> dict[str, Any]:
    return {
        "observation": observation,
        "action": f"I say {member}.",
        "reward": member / 4,
        "metrics": {"correct": 1.0},
        "prompt_tokens": 20,
        "tokens": 5,
        "stop_reason": "stop",
    }
