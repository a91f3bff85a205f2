"""2,000 rollouts at once, as `rlc run` plays them, against a server with a service's latencies.

    python benchmarks/scale.py [--rollouts 2000] [--workers threads,processes,ray] [--count 16]
        [--players "processes(2)"] [--quick]

The server (`benchmarks/simulated.py`, a process of its own) computes nothing and answers each
request after ``--sample`` seconds, so that thousands of answers come at the same moment: the worst
case for one event loop. With ``--quick`` its answers cost next to no processor. The game
(`benchmarks/waiting_game.py`) has several turns; a move waits for a time of its own, heavy-tailed,
and computes a little. Workers play it as the recipe says, Ray's on a cluster that is started on
this machine. ``--players`` are the recipe's, `here` by default. With ``--inside`` the service is in
this process: what is left then is rlc's own, without the SDK and without HTTP. For each kind of
workers is printed:

- the wall time of a step, and its ratio to what it must take: the slowest episode if nothing ever
  queued, or the moves of all episodes shared out among the workers, whichever is longer;
- the most rollouts in flight at the server, and the most memory of this process, and of a player;
- the processor's milliseconds for each reply: of the main threads of this process and of players,
  of the busiest other thread of each, which is the SDK's, of its transport, of all else there
  (environments in threads), and of the server;
- by how much the event loop was late (the 99th percentile, and the longest), and the processor's
  time of its longest callback, in which other programs on the machine have no part. To look costs
  a part of what the main thread takes: with ``--unwatched`` nothing does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import waiting_game
from attrs import define, field, frozen
from loop_lag import lags
from overhead import Callbacks
from side_by_side import serving
from simulated import SimulatedService, Times, tiny_replies

import rlc.service.engine  # noqa: F401 (before torch)
from rlc.compile.recipe import compile_source
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer
from rlc.service.engine.checkpoints import CheckpointStore
from rlc.service.hosted.connect import open_service
from rlc.service.interface import ServiceClient
from rlc.service.server.faults import ConstantDelay

GROUP, TURNS = 8, 4
WAIT, ROUNDS = 0.005, 100  # median seconds that a move waits, and hashes that it computes
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
env game = python("waiting_game:make", args = {{
  turns = {turns}, median = {wait}, rounds = {rounds}
}}) |> chat() |> workers({workers})
train main {{
  model = policy
  env = game
  batch = groups({groups}, group_size = {size})
  sampling = sample(max_tokens = 16, concurrency = {rollouts})
  advantage = grpo()
  loss = importance_sampling()
  optimizer = adam(1e-4)
  steps = {steps}
  players = {players}
}}
"""
TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Row:
    """What one kind of workers did; times in seconds, memory in bytes."""

    workers: str
    wall: float
    bound: float
    in_flight: int
    memory: int
    processor: dict[str, float]  # seconds for each reply, by who it was that took them
    late: list[float]
    players_late: list[float]
    players_memory: int
    callbacks: Callbacks


@define
class Steps(Observer):
    """When each step was done, and the seconds of the processor that threads had taken by then."""

    at: list[float] = field(factory=list)
    processor: list[dict[str, float]] = field(factory=list)
    late: list[float] = field(factory=list)  # of the players' event loops, p99 of each step
    memory: int = 0  # the most of a player, bytes

    def stage_started(self, stage: Any, done: int, values: Any) -> None:  # noqa: ARG002
        self.look()

    def step(self, step: int, metrics: Any) -> None:  # noqa: ARG002
        self.look()
        self.late.append(metrics.get("time/players_late", 0.0))

    def look(self) -> None:
        self.at.append(time.perf_counter())
        spent = Counter(spent_by(os.getpid(), "run"))
        for pid in players_of(os.getpid()):
            spent.update(spent_by(pid, "players"))
            self.memory = max(self.memory, peak_of(pid))
        self.processor.append(dict(spent))


def spent_by(pid: int, main: str) -> dict[str, float]:
    """The processor's seconds of the threads of a process."""
    threads = dict[int, tuple[str, float]]()
    for folder in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (folder / "stat").read_text().partition(") ")
        ticks = rest.split()[11:13]
        threads[int(folder.name)] = name.partition("(")[2], sum(map(int, ticks)) / TICKS
    found: dict[str, float] = {main: threads.pop(pid)[1]}
    transport = {tid for tid, (name, _) in threads.items() if not name.startswith("python")}
    found["transport"] = sum(threads.pop(tid)[1] for tid in transport)
    others = sorted((spent for _, spent in threads.values()), reverse=True)
    found["SDK"], found["else"] = sum(others[:1]), sum(others[1:])
    return found


def players_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    command = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [int(child) for child in children if b"rlc.runtime.players" in command[child]]


def peak_of(pid: int) -> int:
    """Bytes that a process had in memory at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def plan_of(workers: str, count: int, rollouts: int, steps: int, players: str) -> Plan:
    cluster = ", cpus = 0" if workers == "ray" else ""
    text = RECIPE.format(
        turns=TURNS,
        wait=WAIT,
        rounds=ROUNDS,
        workers=f"{workers}, count = {count}{cluster}",
        groups=rollouts // GROUP,
        size=GROUP,
        rollouts=rollouts,
        steps=steps,
        players=players,
    )
    compiled = compile_source(Source("scale.rl", text), {}, 1)
    assert compiled.plan is not None, render_human(compiled.diagnostics, color=False)
    return compiled.plan


def bound_of(step: int, count: int, rollouts: int, sample: float) -> float:
    """Seconds that a step takes at least: those of its slowest episode if it never waited for
    others, or those until ``count`` workers have made all moves."""
    groups = rollouts // GROUP
    moves = np.array(
        [
            waiting_game.waits(number, member, TURNS, WAIT)
            for number in range(step * groups, (step + 1) * groups)
            for member in range(GROUP)
        ]
    )
    return float(max(TURNS * sample + moves.sum(1).max(), sample + moves.sum() / count))


async def watched(job: Job, looks: bool) -> list[float]:
    running = asyncio.create_task(job.run())
    late = await lags(running) if looks else [0.0]
    await running
    return late


@contextmanager
def serviced(
    folder: Path, sample: float, inside: bool, quick: bool, flags: str
) -> Iterator[ServiceClient]:
    """A service whose events are in ``folder/events.jsonl``, in this process or behind the SDK."""
    if not inside:
        with serving(folder, quick, sample=sample, flags=flags) as url:
            yield open_service("tinker", folder, url)
        return
    folder.mkdir()
    with (folder / "events.jsonl").open("w") as events:
        store, times = CheckpointStore(folder), Times(sample=ConstantDelay(sample))
        service: Any = SimulatedService(store, times, tiny_replies(["0", "1", "2"]), events=events)
        yield service


def measure(workers: str, options: argparse.Namespace) -> Row:
    count, rollouts, steps, sample = options.count, options.rollouts, options.steps, options.sample
    inside, players = options.inside, options.players
    plan = plan_of(workers, count, rollouts, steps, players)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        folder = RunFolder.create(scratch / "run", plan)
        seen, callbacks = Steps(), Callbacks()
        of_server = scratch / "served", sample, inside, options.quick, options.flags
        watching = nullcontext() if options.unwatched else callbacks.watched()
        with serviced(*of_server) as service, watching:
            late = asyncio.run(watched(Job(folder, service, seen), not options.unwatched))
        folder.close()
        lines = (scratch / "served" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    asked = [event["at"] for event in events if event["kind"] == "sample"]
    served = [event["processor"] for event in events if event["kind"] == "update"]
    start = min(1, steps - 1)  # what starts things up is left out, unless it is all
    first, last = seen.processor[start], seen.processor[-1]
    took = {who: spent - first.get(who, 0.0) for who, spent in last.items()}
    took["server"] = 0.0 if inside else served[-1] - (served[0] if start else 0.0)
    counted = range(start, steps)
    replies = rollouts * TURNS * len(counted)
    bound = np.mean([bound_of(step, count, rollouts, sample) for step in counted])
    return Row(
        f"{workers}({count}), {players}",
        (seen.at[-1] - seen.at[start]) / len(counted),
        float(bound),
        most_at_once(asked, sample),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        {who: seconds / replies for who, seconds in took.items()},
        late,
        seen.late,
        seen.memory,
        callbacks,
    )


def most_at_once(asked: list[float], seconds: float) -> int:
    """Of requests that are answered after so many seconds."""
    at = np.sort(asked)
    return int((np.arange(len(at)) - np.searchsorted(at, at - seconds, side="right")).max() + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=3, help="the first of which starts things up")
    parser.add_argument("--sample", type=float, default=2.0, help="seconds until an answer")
    parser.add_argument("--workers", default="threads,processes,ray")
    parser.add_argument("--count", type=int, default=16, help="of workers")
    parser.add_argument("--players", default="here", help="as in a recipe: processes(2)")
    parser.add_argument("--quick", action="store_true", help="a server that costs next to nothing")
    parser.add_argument("--flags", default="{}", help="JSON: what --quick tells the SDK to do")
    parser.add_argument("--unwatched", action="store_true", help="do not look at the event loop")
    parser.add_argument("--inside", action="store_true", help="the service in this process")
    parser.add_argument("--callbacks", action="store_true", help="list the longest callbacks")
    options = parser.parse_args()
    kinds = options.workers.split(",")
    if len(kinds) > 1:  # the memory of each is that of a process of its own
        for kind in kinds:
            words = [arg for arg in sys.argv[1:] if arg not in ("--workers", options.workers)]
            command = [sys.executable, __file__, *words, "--workers", kind]
            if subprocess.run(command, check=False).returncode:
                sys.exit(1)
        return
    os.environ |= {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
    here = str(Path(__file__).parent)
    sys.path.append(here)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), here)))
    row = measure(kinds[0], options)
    longest = max((spent for spent, _ in row.callbacks.all), default=0.0)
    print(
        f"{row.workers:14} {row.wall:6.2f} s a step, {row.wall / row.bound:.2f} of what it must "
        f"take; {row.in_flight:,} in flight; {row.memory / 2**20:,.0f} MiB; event loop late by "
        f"{np.percentile(row.late, 99) * 1000:.0f} ms (p99), {max(row.late) * 1000:.0f} ms at "
        f"most, players' by {max(row.players_late) * 1000:.0f} ms (p99), "
        f"{row.players_memory / 2**20:,.0f} MiB a player; longest callback "
        f"{longest * 1000:.0f} ms of the processor; the processor, a reply: "
        + ", ".join(f"{who} {spent * 1000:.2f} ms" for who, spent in row.processor.items()),
        flush=True,
    )
    if options.callbacks:
        print(*row.callbacks.lines(12), sep="\n", flush=True)


if __name__ == "__main__":
    main()
