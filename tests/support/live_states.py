"""States of runs that never ran, for what shows them: made up, but each as a run would make it."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

from made_up_runs import plan as hosted_plan
from paths import RECIPES

import rlc
from rlc.cli.live.state import RunState
from rlc.plan.records import Plan
from rlc.plan.stages import Evaluation
from rlc.runtime.records import Rollout, TrainedSample, Turn

FOLDER = Path("runs/recipe-20261121-093000")


def shipped(recipe: str) -> Plan:
    """The plan of a recipe of the project."""
    plan = rlc.load(RECIPES / recipe).compile().plan
    assert plan is not None
    return plan


def turn(observation: str, action: str, reward: float | None = None) -> Turn:
    return Turn([1], [1], [0.0], observation, action, reward, "stop")


def episode(*turns: Turn, **values: Any) -> Rollout:
    known: dict[str, Any] = {"env": "guess", "task": 11, "member": 0, "digest": "", "ended": "done"}
    return Rollout(turns=turns, **known | {"credit": (1.0,) * len(turns)} | values)


GUESSES = episode(
    turn("You are playing Guess The Number.\nGuess a number between 1 and 10.", "\\boxed{5}"),
    turn("The target number is higher than 5.", "Between 6 and 10: I take the middle.\n\\boxed{8}"),
    turn("The target number is lower than 8.", "It is 6 or 7. \\boxed{7}", 1.0),
    credit=(0.0, 0.0, 1.0),
)


def step_metrics(stage: str, step: int, of: int, **values: Any) -> dict[str, Any]:
    """What a step of a hosted, asynchronous mixture might measure."""
    random = Random(step)
    rise = 1 - math.exp(-3 * step / of)
    return {
        "stage": stage,
        "step": step,
        "reward/mean": 0.2 + 0.7 * rise + random.gauss(0, 0.02),
        "reward/guess": 0.3 + 0.6 * rise + random.gauss(0, 0.03),
        "reward/spell": 0.1 + 0.7 * rise + random.gauss(0, 0.03),
        "length/guess": 30 * math.exp(-step / of) + random.random(),
        "length/spell": 12 + random.random(),
        "turns/guess": 3 - rise,
        "turns/spell": 1.0,
        "turns/cut_off": 0.12,
        "entropy/mean": 0.9 - 0.4 * rise,
        "kl/sample_train": 0.0012 + random.random() / 1000,
        "kl/reference": 0.01 * step / of,
        "optim/grad_norm": 52.4 + random.gauss(0, 9),
        "optim/lr": 1e-4,
        "optim/skipped": 0.0,
        "policy/clip_fraction": 0.031,
        "policy/ess": 0.98,
        "groups/constant": 0.2 + 0.2 * rise,
        "rollouts/played": 31.0,
        "rollouts/failed": float(step % 7 == 0),
        **({} if step % 7 else {"failures/ToolError": 1.0}),
        "rollouts/retried": float(step % 5 == 0),
        "rollouts/staleness": 1.2,
        "service/concurrency": 96.0,
        "service/backoffs": 2.0,
        "tokens/sampled": 6_000,
        "tokens/trained": 9_000,
        "spend/usd": 0.11 * step,
        "time/total": 12.0 + random.random(),
        "time/rollouts": 8.0,
        "time/optim_step": 3.1,
        **values,
    }


def begun(plan: Plan, stage: str, done: int = 0) -> RunState:
    """A run whose ``stage`` has begun."""
    state = RunState(plan, FOLDER, began=0.0)
    found = next(one for one in plan.stages if one.name == stage)
    assert not isinstance(found, Evaluation)
    state.stage_started(found, done, [])
    return state


def trained(done: int = 80, steps: int = 120, usd: float = 0.11) -> RunState:
    """A hosted run of two environments, after so many steps at so much, and some evaluations."""
    job = hosted_plan(steps)
    state = begun(job, "main")
    evaluation = job.stages[1]
    assert isinstance(evaluation, Evaluation)
    for step in range(done + 1):
        if step:
            state.step(step_metrics("main", step, steps, **{"spend/usd": usd * step}))
        if step % (steps // 4) == 0:
            found = {f"eval/heldout/pass@{k}": 0.2 * k + step / 200 for k in (1, 2)}
            state.evaluated(evaluation, {"stage": "heldout", "step": step, **found})
    state.playing = (3, 4)
    state.episode = GUESSES
    return state


def learnt_from_data(recipe: str, name: str) -> RunState:
    """A stage that learns from examples or preferences, half of it done."""
    plan = shipped(recipe)
    state = begun(plan, name)
    stage = state.stages[name].plan
    assert not isinstance(stage, Evaluation)
    for step in range(1, stage.steps // 2 + 1):
        fall = math.exp(-step / 4)
        values = {"loss/mean": 0.1 + fall, "optim/grad_norm": 3 * fall}
        if stage.preference is not None:
            values |= {"accuracy": 1 - fall / 2, "margin": 1 - fall, "kl/reference": 0.01 * step}
        shared = {"stage": name, "step": step, "time/total": 2.0, "time/forward_backward": 1.5}
        shared |= {"tokens/sampled": 0, "tokens/trained": 4_000, "optim/lr": 1e-4 * fall}
        state.step(shared | values)
    asked = "Spell backwards: sun\nAnswer in \\boxed{}."
    replies: tuple[tuple[str, str], ...] = (("reply", "\\boxed{nus}"),)
    if stage.preference is not None:
        replies = (("chosen", "\\boxed{nus}"), ("rejected", "Sun backwards is\n\\boxed{sun}"))
    margin = "margin +0.250" if len(replies) > 1 else "loss 0.412"
    place = "/data/of/mine/rows.jsonl:3" if len(replies) > 1 else "an example of the last step"
    state.lesson = TrainedSample(place, margin, asked, replies)
    return state


def game() -> RunState:
    """Matches of a policy against itself, with the results of an evaluation."""
    plan = shipped("self_play.rl")
    state, evaluation = begun(plan, "main"), plan.stages[1]
    assert isinstance(evaluation, Evaluation)
    for step in range(1, 7):
        ends = {"win": 0.4 + step / 40, "draw": 0.1, "loss": 0.5 - step / 40}
        values = {f"env/tug/{s}/{end}": v for s in ("first", "second") for end, v in ends.items()}
        known = dict.fromkeys(("reward/mean", "entropy/mean", "optim/grad_norm"), 0.5)
        spent = {"tokens/sampled": 800, "tokens/trained": 900, "time/total": 1.5}
        state.step({"stage": "main", "step": step, **known, **values, **spent})
    found = {"eval/wins/win_rate": 0.8}
    state.evaluated(evaluation, {"stage": "wins", "step": 5, **found})
    state.wait("evaluating wins after step 5", 3.0)
    state.playing = (4, 16)
    return state


def evaluating() -> RunState:
    """Evaluations of models as they are: one is done, one goes on."""
    plan = shipped("evaluate_only.rl")
    state = RunState(plan, FOLDER, began=0.0)
    first = plan.stages[0]
    assert isinstance(first, Evaluation)
    prefix = f"eval/{first.name}/"
    found = {f"{prefix}pass@1": 0.5, f"{prefix}failed": 1.0, f"{prefix}cut_off": 0.25}
    state.evaluated(first, {"stage": first.name, "step": 0, **found})
    state.wait(f"evaluating {plan.stages[-1].name} after step 0", 700.0)
    state.playing, state.episode = (3, 16), GUESSES
    return state
