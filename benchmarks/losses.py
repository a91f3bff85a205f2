"""What a loss of one's own costs beside the built-in loss that it equals: as a function of torch
("custom"), and as an expression of a recipe ("own").

    python benchmarks/losses.py [--rounds 10] [--device cpu]

One forward_backward of a batch like quickstart's: 16 groups of 8 games of several turns, a quarter
of the groups without a difference in reward. On the engine in this process, and through `rlc serve`
with the official SDK. All sides take turns in every round, in an order drawn anew; the figures are
seconds of the processor, the server's included, which other programs do not lengthen: the median,
and the median of what a round takes over the built-in loss in the same round. "alone" is the loss
without the model, in one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import rlc.service.engine  # noqa: F401 (before torch)

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import numpy as np
from loss_functions import WRITTEN, as_custom
from serving import BASE, KEY, serving
from tinker import types

from rlc.algo import LOSSES, Program, torch_function
from rlc.plan.parts import LossPlan
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.optimizer import compiled

NAMES = ("importance_sampling", "ppo", "cispo", "gspo")
GROUPS, MEMBERS = 16, 8
PROMPT, FEWEST, MOST = 40, 20, 60  # tokens before the first reply, and after it


def batch(name: str) -> list[types.Datum]:
    """Made-up games: those of a group share their first message."""
    rng = np.random.default_rng(0)
    data = []
    for group in range(GROUPS):
        first = rng.integers(40, 300, PROMPT)
        for _ in range(MEMBERS):
            tokens = np.concatenate([first, rng.integers(40, 300, rng.integers(FEWEST, MOST))])
            length = len(tokens) - 1
            sampled = (np.arange(length) >= PROMPT - 1) & (rng.random(length) < 0.5)
            advantage = rng.normal() * (group % 4 != 0)
            arrays: dict[str, Any] = {
                "target_tokens": tokens[1:],
                "logprobs": (rng.normal(-9, 1, length) * sampled).astype(np.float32),
                "advantages": (advantage * sampled).astype(np.float32),
            }
            if name == "gspo":
                arrays["sequence_ratio_mask"] = sampled.astype(np.float32)
            data.append(types.Datum(types.ModelInput.from_ints(tokens[:-1].tolist()), arrays))
    return data


def expression(name: str) -> Program:
    """A loss as a recipe would write it."""
    loss, config = LOSSES[name], WRITTEN[name].config or {}
    return loss.text.program("loss", {param: config[key] for param, key in loss.settings.items()})


def as_own(data: Sequence[types.Datum], own: Program) -> list[types.Datum]:
    """The same datums as the runtime sends them for a recipe's own loss."""
    made = []
    for datum in data:
        arrays = {key: value.to_numpy() for key, value in datum.loss_fn_inputs.items()}
        training = TrainingDatum(
            inputs=datum.model_input.to_ints(),
            targets_T=arrays["target_tokens"],
            logprobs_T=arrays["logprobs"],
            advantages_T=arrays["advantages"],
            mask_T=arrays["logprobs"] != 0,
        )
        made.append(training.to_tinker(LossPlan("own", {}, own)))
    return made


def busy() -> float:
    """The seconds that this process and those that it started have kept a processor busy."""
    nanoseconds = 0
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            tasks = Path(f"/proc/{child}/task").glob("*/schedstat")
            nanoseconds += sum(int(task.read_text().split()[0]) for task in tasks)
    return time.process_time() + nanoseconds * 1e-9


async def seconds(rounds: int, sides: Sequence[Callable[[], Awaitable[Any]]]) -> list[list[float]]:
    """The seconds of each side in each round; a round before them warms up."""
    found: list[list[float]] = [[] for _ in sides]
    order, rng = list(range(len(sides))), random.Random(0)
    for number in range(rounds + 1):
        rng.shuffle(order)
        for at in order:
            before = busy()
            await sides[at]()
            if number:
                found[at].append(busy() - before)
    return found


async def measure(service: Any, rounds: int, where: str) -> None:
    """Time every loss with the clients of a service."""
    training = await service.create_lora_training_client(BASE, rank=8, seed=0)
    for name in NAMES:
        written, data = WRITTEN[name], batch(name)
        loss = await service.create_custom_loss(written.fn, written.ranks)
        own = as_custom(data)

        async def builtin(name: str = name, data: Any = data, config: Any = written.config) -> None:
            await training.forward_backward(data, name, config)

        async def custom(own: Any = own, loss: Any = loss) -> None:
            await training.forward_backward_custom(own, loss)

        program, (fn, ranks) = expression(name), compiled(torch_function(expression(name), "own"))
        expressed = await service.create_custom_loss(fn, ranks)

        sent = as_own(data, program)

        async def own_loss(data: Any = sent, loss: Any = expressed) -> None:
            await training.forward_backward_custom(data, loss)

        report(where, name, *await seconds(rounds, (builtin, custom, own_loss)))


async def alone(rounds: int) -> None:
    """Time every loss on logprobs that are there already, its inputs read and its gradient
    computed."""
    import torch

    from rlc.service.engine.custom_loss import CustomLoss
    from rlc.service.engine.losses import BuiltinLoss
    from rlc.service.engine.trainer import BatchLoss

    torch.set_num_threads(1)
    for name in NAMES:
        written, data = WRITTEN[name], batch(name)
        lp_M = torch.randn(sum(datum.model_input.length for datum in data)) - 9

        async def compute(loss: BatchLoss, data: Any, lp_M: Any = lp_M) -> None:
            arrays = [loss.read_inputs(datum, "") for datum in data]
            total, _ = loss.total(lp_M.clone().requires_grad_(), arrays, range(len(data)))
            total.backward()  # type: ignore[no-untyped-call]

        builtin = partial(compute, BuiltinLoss.of(name, written.config), data)
        custom = partial(compute, CustomLoss.trace(written.fn, written.ranks), as_custom(data))
        program, (fn, ranks) = expression(name), compiled(torch_function(expression(name), "own"))
        traced = CustomLoss.trace(fn, ranks)
        own = partial(compute, traced, as_own(data, program))
        report("alone", name, *await seconds(rounds, (builtin, custom, own)))


def report(where: str, name: str, *sides: Sequence[float]) -> None:
    said = [f"  {where:8} {name:20}"]
    for side, times in zip(("built-in", "custom", "own"), sides, strict=True):
        share = median(one / other for one, other in zip(times, sides[0], strict=True))
        said.append(f"{side} {median(times) * 1e3:8.1f} ms ({share:.3f})")
    print("   ".join(said), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device")
    args = parser.parse_args()
    os.environ["TINKER_TELEMETRY"] = "0"
    import tinker

    from rlc.service.engine import open_engine

    tokens = sum(datum.model_input.length for datum in batch("ppo"))
    print(f"a forward_backward of {GROUPS * MEMBERS} datums, {tokens} tokens")
    with tempfile.TemporaryDirectory() as folder:
        engine = open_engine(Path(folder) / "engine", args.device)
        asyncio.run(measure(engine, args.rounds, "engine"))
        engine.close()
        asyncio.run(alone(args.rounds))
        with (
            serving(Path(folder) / "served", args.device) as (url, _),
            tinker.ServiceClient(base_url=url, api_key=KEY) as sdk,
        ):
            asyncio.run(measure(sdk, args.rounds, "server"))


if __name__ == "__main__":
    main()
