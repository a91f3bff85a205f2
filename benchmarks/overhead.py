"""What rlc itself costs: a whole job on a service in this process that answers at once.

    python benchmarks/overhead.py [--steps 2000] [--wide 1024]

Prints milliseconds a rollout (the processor's time, of a single-turn question, with everything
that a step writes), the memory over the steps, and, for many multi-turn games at once, the most
memory and the longest time for which the event loop stood still: by the clock, which counts what
other programs take from a busy machine too, and by the processor's time of single callbacks.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import tempfile
import threading
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import define, field
from loop_lag import lags
from simulated import SimulatedService, Times, tiny_replies

import rlc.service.engine  # noqa: F401 (before torch)
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer
from rlc.service.engine.checkpoints import CheckpointStore
from rlc.service.server.faults import LogNormal

MIB = 2**20
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
env one = gem("rg:spell_backward") |> chat()
env many = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {{
  model = policy
  env = {env}
  batch = groups({groups}, group_size = 8)
  sampling = sample(max_tokens = 16)
  advantage = grpo()
  loss = importance_sampling()
  optimizer = adam(1e-4)
  steps = {steps}
}}
"""


def plan_of(env: str, groups: int, steps: int) -> Plan:
    text = RECIPE.format(env=env, groups=groups, steps=steps)
    plan = compile_source(Source("overhead.rl", text), {}, 1).plan
    assert plan is not None
    return plan


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@define
class Watch(Observer):
    """Processor time and memory as each step is done."""

    cpu: list[float] = field(factory=list)
    memory: list[int] = field(factory=list)

    def step(self, step: int, metrics: Any) -> None:  # noqa: ARG002
        self.cpu.append(time.process_time())
        self.memory.append(resident())


@define
class Callbacks:
    """Processor seconds of every callback of this thread's event loop, with the coroutine it goes
    on with; what another thread does meanwhile is not in them."""

    all: list[tuple[float, str]] = field(factory=list)

    @contextmanager
    def watched(self) -> Iterator[None]:
        kind: Any = Handle
        run, own = kind._run, threading.get_ident()

        def timed(handle: Any) -> None:
            if threading.get_ident() != own:
                run(handle)
                return
            name, since = _name(handle._callback), time.thread_time()
            run(handle)
            self.all.append((time.thread_time() - since, name))

        kind._run = timed
        try:
            yield
        finally:
            kind._run = run

    def lines(self, count: int = 5) -> Iterator[str]:
        seconds = sorted(spent for spent, _ in self.all)
        p99 = seconds[int(len(seconds) * 0.99)] * 1000
        yield f"{len(seconds):,} callbacks, p99 {p99:.2f} ms; those that took longest:"
        for spent, name in heapq.nlargest(count, self.all):
            yield f"{spent * 1000:9.1f} ms  {name}"


def _name(callback: Any) -> str:
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return getattr(task.get_coro(), "__qualname__", "")
    return getattr(callback, "__qualname__", "")


def play(plan: Plan, times: Times, replies: list[list[int]]) -> tuple[Watch, float]:
    watch = Watch()

    async def main(folder: RunFolder) -> float:
        service: Any = SimulatedService(CheckpointStore(folder.path / "served"), times, replies)
        job = asyncio.create_task(Job(folder, service, watch).run())
        worst = max(await lags(job))
        await job
        return worst

    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder.create(Path(name) / "run", plan)
        try:
            return watch, asyncio.run(main(folder))
        finally:
            folder.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--wide", type=int, default=1024, help="games at once")
    options = parser.parse_args()
    groups = 8
    plan = plan_of("one", groups, options.steps)
    watch, _ = play(plan, Times(), tiny_replies(["abc", "cba"]))
    first = len(watch.cpu) // 10  # what is loaded once is loaded by then
    rollouts = (len(watch.cpu) - 1 - first) * groups * 8
    cost = (watch.cpu[-1] - watch.cpu[first]) / rollouts * 1000
    print(f"{cost:.3f} ms of processor time a rollout over {rollouts:,} (wanted ≤ 1)", flush=True)
    marks = [watch.memory[first + i * (len(watch.memory) - 1 - first) // 4] for i in range(5)]
    print("memory over the steps, MiB: " + ", ".join(f"{m / MIB:.0f}" for m in marks), flush=True)

    plan = plan_of("many", options.wide // 8, 3)
    times = Times(LogNormal(0.2, 0.5))
    callbacks, replies = Callbacks(), tiny_replies(["\\boxed{5}", "\\boxed{7}", "\\boxed{2}"])
    with callbacks.watched():
        watch, worst = play(plan, times, replies)
    print(
        f"{options.wide} games at once: {max(watch.memory) / MIB:.0f} MiB (wanted < 1024), "
        f"the event loop stood still for {worst * 1000:.0f} ms at most (wanted ≤ 50)"
    )
    print(*callbacks.lines(), sep="\n")


if __name__ == "__main__":
    main()
