"""rlc on a server of SkyRL, beside the embedded engine and ``rlc serve``.

    python benchmarks/skyrl.py http://127.0.0.1:8000 [--steps 4] [--rounds 20] [--minutes 30]

The server has the included tiny model (`python -m tools.skyrl` starts one in float32). It compiles
for seconds at each new length: a second run on the same server is the one to read. In one run:

- the curves of a training with rewards, a supervised stage and SimPO on each, from one seed, with
  the time of their steps;
- with ``--checkpoints``, the server's folder of them: each step of SkyRL's computed again by the
  embedded engine on the adapter that it had (`skyrl_replay`);
- what the bridge adds to a reply, in processor time: the SDK's requests through a bridge in this
  process, less the same through a bridge in another one, in turns;
- with ``--minutes``, the memory of a run, whose process has the bridge, and by ``--pid`` of the
  processes of the server, at each minute.

``--out`` names the file of a page's fragment with the tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen
from serving import BASE, KEY, prompt, sampling, serving
from serving_memory import resident
from skyrl_replay import Difference, differences, recorded

ROOT = Path(__file__).parent.parent
HERE, SERVED, SKYRL = "the embedded engine", "`rlc serve`", "SkyRL"
_CONCURRENCY = (1, 8)
_TOKENS = 16  # of a reply


@frozen
class Stage:
    """A stage of a shipped recipe: the metric that is compared, and what makes it short."""

    recipe: str
    name: str
    metric: str
    shortened: Sequence[str]

    def words(self, steps: int) -> list[str]:
        """Return the arguments of its runs."""
        rows = 32 * steps  # of a supervised stage, whose batch is 32
        values = [one.format(steps=steps, rows=rows) for one in self.shortened]
        given = [word for value in values for word in ("--set", value)]
        return [str(ROOT / "recipes" / f"{self.recipe}.rl"), "--only", self.name, *given, "--quiet"]


STAGES = (
    Stage(
        "quickstart",
        "main",
        "reward/mean",
        ["main.steps={steps}", "main.batch=groups(8, group_size = 4)"],
    ),
    Stage("warm_start", "warmup", "loss/mean", ["warmup.epochs=1", "warmup.data.n={rows}"]),
    # DPO asks for a reference, which a service that samples from the newest weights alone has not.
    Stage("preferences", "align", "loss/mean", ["align.steps={steps}", "align.loss=simpo()"]),
)


@frozen
class Curve:
    """What a side made of a stage, by steps."""

    values: list[float]
    seconds: list[float]

    @property
    def step(self) -> float:
        """Return the median time of a step; the first ones warm up, or are compiled."""
        return median(self.seconds[len(self.seconds) // 2 :])


def run_stage(stage: Stage, steps: int, where: Sequence[str], folder: Path) -> Curve:
    command = [sys.executable, "-m", "rlc", "run", *stage.words(steps), *where]
    done = subprocess.run(
        [*command, "--run-dir", str(folder)], env=_environment(), capture_output=True, text=True
    )
    if done.returncode not in _ENDS:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    made = [line for line in lines if stage.metric in line]
    return Curve([line[stage.metric] for line in made], [line["time/total"] for line in made])


_ENDS = (0, 3)  # 3: not as the recipe expects, after so few steps


def _environment() -> dict[str, str]:
    return os.environ | {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0"}


def replays(url: str, steps: int, checkpoints: Path, folder: Path) -> dict[str, list[Difference]]:
    """Return by how much each step of each stage differs on the embedded engine."""
    from rlc.cli.main import main as rlc

    found = dict[str, list[Difference]]()
    for stage in STAGES:
        words = ["run", *stage.words(steps), "--service", "skyrl", "--base-url", url]
        with recorded() as made:
            if rlc([*words, "--run-dir", str(folder / f"{stage.recipe}-recorded")]) not in _ENDS:
                sys.exit(f"{stage.recipe} failed on SkyRL")
        place = folder / f"{stage.recipe}-replayed"
        found[stage.recipe] = asyncio.run(differences(made, checkpoints, place))
        for number, one in enumerate(found[stage.recipe], 1):
            told = f"logprobs {one.logprob:.1e}   loss {one.loss:.1e}   norm {one.norm:.1e}"
            greedy = f"{one.same} of {one.replies} greedy replies"
            print(f"{stage.recipe:12} step {number}   {told}   {greedy}", flush=True)
    return found


def curves(url: str, steps: int, folder: Path) -> dict[str, dict[str, Curve]]:
    """Return the curves of each stage by side, which take turns."""
    found: dict[str, dict[str, Curve]] = {}
    with serving(folder / "served", "cpu") as (served, _):
        sides = {
            HERE: ["--service", "local"],
            SERVED: ["--service", "tinker", "--base-url", served],
            SKYRL: ["--service", "skyrl", "--base-url", url],
        }
        for stage in STAGES:
            found[stage.recipe] = {}
            for number, (side, where) in enumerate(sides.items()):
                place = folder / f"{stage.recipe}-{number}"
                found[stage.recipe][side] = curve = run_stage(stage, steps, where, place)
                told = " ".join(f"{value:.6f}" for value in curve.values)
                print(
                    f"{stage.recipe:12} {side:16} {curve.step:6.2f} s a step   {told}", flush=True
                )
    return found


@contextmanager
def bridge(url: str) -> Iterator[str]:
    """The address of a bridge in a process of its own."""
    command = [sys.executable, "-m", "rlc", "bridge", url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"TINKER_BASE_URL=(http://\S+)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()


@frozen
class Cost:
    """Seconds of processor time of this process for a reply, of so many at once: with the bridge in
    another process, and in this one."""

    concurrent: int
    elsewhere: float
    within: float

    @property
    def row(self) -> list[str]:
        figures = (self.elsewhere, self.within, self.within - self.elsewhere)
        return [str(self.concurrent), *(f"{1e3 * value:.2f} ms" for value in figures)]


async def bridge_costs(url: str, rounds: int) -> list[Cost]:
    from rlc.service.bridge.app import bridged

    found = list[Cost]()
    with bridge(url) as address:
        samplers = [await sampler_at(one) for one in (address, bridged(url))]
        for count in _CONCURRENCY:
            spent: list[list[float]] = [[], []]
            for round_ in range(rounds + 1):
                for side, sampler in enumerate(samplers):
                    before = time.process_time()
                    asked = [
                        sampler.sample(prompt(g), 1, sampling(_TOKENS, g)) for g in range(count)
                    ]
                    await asyncio.gather(*asked)
                    spent[side] += [(time.process_time() - before) / count] if round_ else []
            found.append(Cost(count, *map(median, spent)))
            print("  ".join(found[-1].row), flush=True)
    return found


async def sampler_at(url: str) -> Any:
    """Return the SDK's client of the base model."""
    import tinker

    return await tinker.ServiceClient(base_url=url, api_key=KEY).create_sampling_client(
        base_model=BASE
    )


def tree(pid: int) -> list[int]:
    """Return a process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def memory(url: str, server: int | None, minutes: int, folder: Path) -> list[tuple[float, ...]]:
    """Return MB at each minute: of a run of `quickstart`, and of the processes of the server, if
    the first is known; and the number of steps that the run has made."""
    words = STAGES[0].words(1000 * minutes)
    command = [sys.executable, "-m", "rlc", "run", *words, "--service", "skyrl", "--base-url", url]
    found, metrics = list[tuple[float, ...]](), folder / "metrics.jsonl"
    with subprocess.Popen([*command, "--run-dir", str(folder)], env=_environment()) as run:
        ends = time.monotonic()
        while len(found) < minutes:
            ends += 60
            try:
                run.wait(ends - time.monotonic())
                sys.exit("the run has ended")
            except subprocess.TimeoutExpired:
                pids = [run.pid, *(tree(server) if server is not None else [])]
            steps = len(metrics.read_text().splitlines()) if metrics.exists() else 0
            found.append((*map(resident, pids), float(steps)))
            told = "  ".join(f"{value:7.0f} MB" for value in found[-1][:-1])
            print(f"minute {len(found):2}   {steps:4} steps   {told}", flush=True)
        run.send_signal(signal.SIGINT)
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def fragment(
    curves_of: dict[str, dict[str, Curve]],
    replayed: dict[str, list[Difference]],
    costs: Sequence[Cost],
    measured: Sequence[tuple[float, ...]],
) -> str:
    """Return the tables of a page."""
    rows = [
        [f"`{stage.recipe}`, {stage.metric}", side, *_curve_cells(curve)]
        for stage in STAGES
        for side, curve in curves_of[stage.recipe].items()
    ]
    parts = [table(["stage", "on", "by steps", "a step"], rows)]
    if replayed:
        rows = [_replay_cells(name, steps) for name, steps in replayed.items()]
        head = ["stage", "steps", "logprobs", "loss", "norm of the gradient", "same greedy replies"]
        parts.append(table(head, rows))
    head = ["replies at once", "bridge elsewhere", "bridge within", "it adds"]
    parts.append(table(head, [cost.row for cost in costs]))
    if measured:
        shown = [(1, measured[0]), *list(enumerate(measured, 1))[4::5]]
        sides = ["the run", "the server", "its engine"][: len(measured[0]) - 1]
        rows = [
            [str(minute), f"{one[-1]:.0f}", *map(_megabytes, one[:-1])] for minute, one in shown
        ]
        parts.append(table(["minute", "steps", *sides], rows))
    return "\n".join(parts)


def _curve_cells(curve: Curve) -> list[str]:
    return [", ".join(f"{value:.5f}" for value in curve.values), f"{curve.step:.2f} s"]


def _replay_cells(name: str, steps: Sequence[Difference]) -> list[str]:
    """Return the largest differences of a stage."""
    of = [max(values) for values in zip(*((s.logprob, s.loss, s.norm) for s in steps), strict=True)]
    replies = sum(step.replies for step in steps)
    greedy = f"{sum(step.same for step in steps)} of {replies}" if replies else "none drawn"
    return [f"`{name}`", str(len(steps)), *(f"{value:.1e}" for value in of), greedy]


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url", metavar="URL", help="address of the server of SkyRL")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20, help="of replies, on either side")
    parser.add_argument("--minutes", type=int, default=0, help="of a run whose memory is seen")
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="of the server")
    parser.add_argument("--pid", type=int, help="the process of the server, for its memory")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the fragment of a page")
    args = parser.parse_args()
    os.environ |= _environment()
    with tempfile.TemporaryDirectory() as name:
        folder, replayed = Path(name), dict[str, list[Difference]]()
        curves_of = curves(args.url, args.steps, folder)
        if args.checkpoints is not None:
            replayed = replays(args.url, args.steps, args.checkpoints, folder)
        costs = asyncio.run(bridge_costs(args.url, args.rounds))
        measured = memory(args.url, args.pid, args.minutes, folder / "long") if args.minutes else []
    text = fragment(curves_of, replayed, costs, measured)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
