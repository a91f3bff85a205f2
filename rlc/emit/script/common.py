"""What the programs of all kinds of stages have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlc.catalog import model_price
from rlc.emit.script.literals import Call, given, literal, named, value, written
from rlc.plan import ModelPlan, Plan, Training

IMPORTS = """
import argparse
import asyncio
import re
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import tinker
import torch
import wandb
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search_tool import SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers.observation_wrapper import ObservationWrapper
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from rlc.data import competition_math, exact, gsm8k, numeric, permutation, regex, right_answer
from rlc.data import sampled_examples
from rlc.algo import learning_rate
from rlc.seeds import derive_seed
"""
_FIELDS = ("base_model", "rank", "train_mlp", "train_attn", "train_unembed")


def assigned(name: str, plain: Any, comment: str = "") -> str:
    """Write a value under a name."""
    return written(named(f"{name} = ", value(plain))) + comment


def origin(plan: Plan, stage: Training, path: str) -> str:
    """What decided a value, as the end of a line."""
    told = plan.provenance.get(f"stages.{stage.name}.{path}", "")
    return f"  # {told}" if told else ""


def constants(plan: Plan, stage: Training) -> Iterator[str]:
    """The values that every program has."""
    model, adam, save = stage.model, stage.optimizer, stage.save
    values = (model.base, model.lora_rank, model.train_mlp, model.train_attn, model.train_unembed)
    yield "HERE = Path(__file__).parent"
    yield assigned("SEED", plan.seed)
    yield assigned("STAGE", stage.name)
    yield assigned("STEPS", stage.steps, origin(plan, stage, "steps"))
    yield f"# The model{origin(plan, stage, 'model.base').replace('  #', ':')}"
    yield assigned("MODEL", dict(zip(_FIELDS, values, strict=True)))
    if model.weights:
        yield assigned("START", model.weights, origin(plan, stage, "model.weights"))
    yield assigned("RENDERER", model.renderer)
    yield assigned("CONTEXT", model.context, "  # tokens")
    yield f"# The optimiser{origin(plan, stage, 'optimizer.learning_rate').replace('  #', ':')}"
    yield assigned("LEARNING_RATE", adam.learning_rate)
    names = ("beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
    yield assigned("ADAM", {name: getattr(adam, name) for name in names})
    yield f"# Checkpoints{origin(plan, stage, 'save.every').replace('  #', ':')}"
    if save.every is not None:
        yield assigned("SAVE_EVERY", save.every, "  # steps")
    yield assigned("KEEP", save.keep)
    yield assigned("TTL_SECONDS", save.ttl_seconds)


def opened(stage: Training, script: str) -> Iterator[str]:
    """Lines that open the training client, and what is kept and counted."""
    metadata = f'user_metadata={{"script": {literal(script)}}}'
    yield f"    service = tinker.ServiceClient({metadata})"
    if stage.model.weights:
        load = "_with_optimizer" if stage.model.with_optimizer else ""
        yield f"    training = await service.create_training_client_from_state{load}(START)"
    else:
        yield f'    seed = derive_seed(SEED, "lora", {literal(stage.model.name)}) % 2**31'
        yield "    training = await service.create_lora_training_client(**MODEL, seed=seed)"
    yield "    tokenizer = training.get_tokenizer()"
    yield "    checkpoints = Checkpoints(service, training, KEEP, TTL_SECONDS)"
    for track in stage.track:
        wanted = {"project": track.args["project"], "name": track.args["run"]}
        call = Call("run = wandb.init", given({k: v for k, v in wanted.items() if v is not None}))
        yield f"    {written(call, 4)}"
    if limits := limits_of(stage):
        yield f"    {written(Call('budget = Budget', given(limits)), 4)}"
    yield "    used = Counter[str]()  # tokens"


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


def rate_of(stage: Training, indent: int) -> Iterator[str]:
    """Lines that find the learning rate of a step."""
    schedule = stage.optimizer.schedule
    if schedule.kind == "constant" and not schedule.warmup:
        return
    numbers = [schedule.warmup, *([] if schedule.kind == "constant" else [schedule.floor])]
    arguments = [literal(schedule.kind), "LEARNING_RATE", "step", "STEPS", *map(literal, numbers)]
    yield f"{' ' * indent}rate = {Call('learning_rate', arguments)}"


def rate_name(stage: Training) -> str:
    return "rate" if any(rate_of(stage, 0)) else "LEARNING_RATE"


def ended(stage: Training) -> Iterator[str]:
    """Lines that report, save, and stop."""
    spent = " or budget.is_spent(used)" if limits_of(stage) else ""
    due = "stop" if stage.save.every is None else "stop or step % SAVE_EVERY == 0"
    yield "        report(metrics, step, steps, measured)"
    if stage.track:
        yield "        run.log(measured, step=step)"
    yield f"        stop = step == steps{spent}"
    yield f"        if {due}:"
    yield "            await checkpoints.save(step)"
    yield "        if stop:"
    yield "            break"


def asked_model(model: ModelPlan) -> str:
    """Return the call that opens a model that is not trained."""
    of = f"model_path={literal(model.weights)}" if model.weights else ""
    return f"service.create_sampling_client({of or f'base_model={literal(model.base)}'})"


def main() -> Iterator[str]:
    """The lines of the entry point."""
    yield ""
    yield ""
    yield "def main() -> None:"
    yield "    parser = argparse.ArgumentParser(description=STAGE)"
    yield '    parser.add_argument("--steps", type=int, default=STEPS)'
    yield '    parser.add_argument("--metrics", default="metrics.jsonl")'
    yield "    asyncio.run(train(**vars(parser.parse_args())))"
    yield ""
    yield ""
    yield 'if __name__ == "__main__":'
    yield "    main()"
