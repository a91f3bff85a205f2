"""What the programs of all kinds of stages have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from rlc.catalog import model_price
from rlc.emit.script.literals import CallText, given, literal, named, value, written
from rlc.plan import ExpectationPlan, ModelPlan, Plan, StagePlan, Training, is_training

IMPORTS = """
import argparse
import asyncio
import re
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tinker
import torch
import wandb
from tinker import types
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search_tool import SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from rlc.data.grading.graders import graded_exact, graded_numeric, graded_regex, right_answer
from rlc.data.problems import permutation, rows_of_gsm8k, rows_of_math
from rlc.algo import sampled_examples
from rlc.algo import learning_rate
from rlc.seeds import derive_seed
"""
T = TypeVar("T")


def when(condition: Any, *lines: T) -> Sequence[T]:
    """Return lines, or other parts, that a script has only if something holds."""
    return lines if condition else ()


def assigned(name: str, plain: Any, comment: str = "") -> str:
    """Write a value under a name."""
    return written(named(f"{name} = ", value(plain)), after=len(comment)) + comment


def origin(plan: Plan, stage: Training, path: str) -> str:
    """What decided a value, as the end of a line."""
    told = plan.provenance.get(f"stages.{stage.name}.{path}", "")
    return f"  # {told.replace(plan.recipe, os.path.basename(plan.recipe))}" if told else ""


def constants(plan: Plan, stage: Training) -> Iterator[str]:
    """The values that every program has."""
    model, adam = stage.model, stage.optimizer
    names = ("train_mlp", "train_attn", "train_unembed")
    fresh = {"base_model": model.base, "rank": model.lora_rank}
    fresh |= {name: False for name in names if not getattr(model, name)}
    yield assigned("SEED", plan.seed)
    yield assigned("STAGE", stage.name)
    yield assigned("STEPS", stage.steps, origin(plan, stage, "steps"))
    yield assigned("MODEL", model.weights or fresh, origin(plan, stage, "model.base"))
    yield assigned("RENDERER", model.renderer, origin(plan, stage, "model.renderer"))
    yield assigned("CONTEXT", model.context, "  # tokens")
    told = origin(plan, stage, "optimizer.learning_rate")
    yield assigned("LEARNING_RATE", adam.learning_rate, told)
    settings = ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
    yield assigned("ADAM", {name: getattr(adam, name) for name in settings})


def opened(stage: Training, script: str) -> Iterator[str]:
    """Lines that open the training client, and what is kept and counted."""
    metadata = f'user_metadata={{"script": {literal(script)}}}'
    yield f"    service = tinker.ServiceClient({metadata})"
    if stage.model.weights:
        load = "_with_optimizer" if stage.model.with_optimizer else ""
        yield f"    training = await service.create_training_client_from_state{load}(MODEL)"
    else:
        yield f'    seed = derive_seed(SEED, "lora", {literal(stage.model.name)}) % 2**31'
        yield "    training = await service.create_lora_training_client(**MODEL, seed=seed)"
    yield "    tokenizer = training.get_tokenizer()"
    for track in stage.track:
        wanted = {"project": track.args["project"], "name": track.args["run"]}
        call = CallText(
            "run = wandb.init", given({k: v for k, v in wanted.items() if v is not None})
        )
        yield f"    {written(call, 4)}"
    if limits := limits_of(stage):
        yield f"    {written(CallText('budget = Budget', given(limits)), 4)}"
        yield "    used = Counter[str]()  # tokens"
    yield "    saved = list[str]()"


def limits_of(stage: Training) -> dict[str, Any]:
    """Return the arguments of a budget; none if there are no limits."""
    budget, limits = stage.budget, dict[str, Any]()
    if budget.usd is not None:
        price = model_price(stage.model)
        assert price is not None
        kinds = {"prefill": "prefill", "cached": "cached", "sampled": "sample", "trained": "train"}
        prices = {kind: getattr(price, name) for kind, name in kinds.items()}
        limits |= {"usd": budget.usd, "prices": prices}
    limits |= {"tokens": budget.tokens} if budget.tokens else {}
    return limits | ({"seconds": budget.seconds} if budget.seconds else {})


def shortened(stage: Training, data: Any) -> dict[str, Any]:
    """Return the arguments that say how long a row of data may be, and what becomes of others."""
    limits = [limit for limit in (data.max_tokens, stage.model.context) if limit is not None]
    more = {"most": min(limits)} if limits else {}
    return more | ({"drops": True} if data.too_long == "drop" else {})


def rate_of(stage: Training, indent: int) -> Iterator[str]:
    """Lines that find the learning rate of a step."""
    schedule = stage.optimizer.schedule
    if schedule.kind == "constant" and not schedule.warmup:
        return
    numbers = [schedule.warmup, *([] if schedule.kind == "constant" else [schedule.floor])]
    arguments = [literal(schedule.kind), "LEARNING_RATE", "step", "STEPS", *map(literal, numbers)]
    yield f"{' ' * indent}rate = {CallText('learning_rate', arguments)}"


def rate_name(stage: Training) -> str:
    return "rate" if any(rate_of(stage, 0)) else "LEARNING_RATE"


def counted(stage: Training, kind: str, text: str, indent: int) -> Iterator[str]:
    """The line that counts tokens, where there is a budget."""
    if limits_of(stage):
        yield f'{" " * indent}used["{kind}"] += {text}'


MEASURED = ("loss/mean", "accuracy", "heldout/loss", "heldout/accuracy")


def is_judged(one: ExpectationPlan, stage: StagePlan) -> bool:
    """Return whether a script judges an expectation: of what its last step measures."""
    known = one.quantity.key in MEASURED and one.quantity.stage == stage.name
    whole = is_training(stage) and not limits_of(stage)
    return known and whole and one.quantity.over == "last" and not one.terms


def ended(plan: Plan, stage: Training) -> list[str]:
    """Return lines that report, save, and stop."""
    keep, limited = stage.save, bool(limits_of(stage))
    last = "stop" if limited else "step == steps"
    due = last if keep.every is None else f"{last} or step % {keep.every} == 0"
    saved = ["service", "training", "step", "saved", literal(keep.keep), literal(keep.ttl_seconds)]
    return [
        "        report(metrics, step, steps, measured)",
        *when(stage.track, "        run.log(measured, step=step)"),
        *when(limited, "        stop = step == steps or budget.is_spent(used)"),
        f"        if {due}:{origin(plan, stage, 'save.every')}",
        f"            {CallText('await save', saved)}",
        *when(limited, "        if stop:", "            break"),
        *(
            line
            for one in plan.expectations
            for line in when(
                one.after,
                f"    if not measured[{literal(one.quantity.key)}] {one.op} {one.constant!r}:",
                f"        raise SystemExit({literal(f'expected: {one.text}')})",
            )
        ),
    ]


def asked_model(model: ModelPlan) -> str:
    """Return the call that opens a model that is not trained."""
    of = f"model_path={literal(model.weights)}" if model.weights else ""
    return f"await service.create_sampling_client({of or f'base_model={literal(model.base)}'})"


def main() -> list[str]:
    """Return the lines of the entry point."""
    return [
        "",
        "",
        'if __name__ == "__main__":',
        "    parser = argparse.ArgumentParser(description=STAGE)",
        '    parser.add_argument("--steps", type=int, default=STEPS)',
        '    parser.add_argument("--metrics", default="metrics.jsonl")',
        "    asyncio.run(train(**vars(parser.parse_args())))",
    ]
