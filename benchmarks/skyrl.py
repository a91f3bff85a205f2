"""rlc on a server of SkyRL, beside the embedded engine and ``rlc serve``.

    python benchmarks/skyrl.py http://127.0.0.1:8000 [--steps 10] [--rounds 20] [--minutes 30]

The server has the included tiny model (docs/howto/on-your-own-cluster.md starts one). It compiles
for seconds at each new length: a second run on the same server is the one to read. In one run:

- the curves of a training with rewards, a supervised stage and SimPO on each, from one seed, with
  the time of their steps;
- what the bridge adds to a reply, in seconds and in its own processor time: the same requests, made
  through it and directly, in turns;
- with ``--minutes``, the memory of the bridge and, by ``--pid``, of the server while sessions train
  and end.

``--out`` names the file of a page's fragment with the tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from attrs import define, field, frozen
from serving import BASE, KEY, PROMPT, compare, datums, prompt, sampling, serving
from serving_memory import resident

ROOT = Path(__file__).parent.parent
API = "/api/v1"
_CONCURRENCY = (1, 8)
_TOKENS = 16  # of a reply


@frozen
class Stage:
    """A stage of a shipped recipe: the metric that is compared, and what makes it short."""

    recipe: str
    name: str
    metric: str
    shortened: Sequence[str]

    def command(self, steps: int) -> list[str]:
        rows = 32 * steps  # of a supervised stage, whose batch is 32
        values = [one.format(steps=steps, rows=rows) for one in self.shortened]
        words = [word for value in values for word in ("--set", value)]
        return [str(ROOT / "recipes" / f"{self.recipe}.rl"), "--only", self.name, *words]


STAGES = (
    Stage("quickstart", "main", "reward/mean", ["main.steps={steps}"]),
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
    command = [sys.executable, "-m", "rlc", "run", *stage.command(steps), *where]
    env = os.environ | {"TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0"}
    done = subprocess.run(
        [*command, "--quiet", "--run-dir", str(folder)], env=env, capture_output=True, text=True
    )
    if done.returncode not in (0, 3):  # 3: not as the recipe expects, after so few steps
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    made = [line for line in lines if stage.metric in line]
    return Curve([line[stage.metric] for line in made], [line["time/total"] for line in made])


def curves(url: str, steps: int, folder: Path) -> dict[str, dict[str, Curve]]:
    """Return the curves of each stage by side, which take turns."""
    found: dict[str, dict[str, Curve]] = {}
    with serving(folder / "served", "cpu") as (served, _):
        sides = {
            "embedded engine": ["--service", "local"],
            "`rlc serve`": ["--service", "tinker", "--base-url", served],
            "SkyRL": ["--service", "skyrl", "--base-url", url],
        }
        for stage in STAGES:
            found[stage.recipe] = {}
            for number, (side, where) in enumerate(sides.items()):
                place = folder / f"{stage.recipe}-{number}"
                found[stage.recipe][side] = curve = run_stage(stage, steps, where, place)
                told = " ".join(f"{value:.3f}" for value in curve.values)
                print(
                    f"{stage.recipe:12} {side:16} {curve.step:6.2f} s a step   {told}", flush=True
                )
    return found


@contextmanager
def bridge(url: str) -> Iterator[tuple[str, int]]:
    """The address of a bridge in a process of its own, and the process's number."""
    command = [sys.executable, "-m", "rlc", "bridge", url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"TINKER_BASE_URL=(http://\S+)", line):
                    yield found[1], process.pid
                    break
        finally:
            process.terminate()


@define
class Asker:
    """A client of the two requests that make a reply, at a server or at a bridge to it."""

    http: httpx.AsyncClient
    sampler: str = field(init=False)
    _asked: int = 0

    async def open(self) -> None:
        session = {"tags": [], "user_metadata": {}, "sdk_version": "0.38.0"}
        made = await self.post("create_session", session)
        served = (await self.http.get(f"{API}/get_server_capabilities")).json()["supported_models"]
        wanted = {"session_id": made["session_id"], "sampling_session_seq_id": 0}
        wanted["base_model"] = served[-1]["model_name"]  # the server's own name of it
        opened = await self.post("create_sampling_session", wanted)
        self.sampler = opened["sampling_session_id"]

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(f"{API}/{path}", json=body)
        answer.raise_for_status()
        said: dict[str, Any] = answer.json()
        return said

    async def reply(self) -> None:
        self._asked += 1
        body = {
            "sampling_session_id": self.sampler,
            "seq_id": self._asked,
            "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]},
            "sampling_params": {"max_tokens": _TOKENS, "temperature": 1.0, "seed": self._asked},
        }
        promise = {"request_id": (await self.post("asample", body))["request_id"]}
        while True:
            answer = await self.http.post(f"{API}/retrieve_future", json=promise)
            if answer.status_code != 408:
                answer.raise_for_status()
                return

    async def replies(self, count: int) -> None:
        await asyncio.gather(*(self.reply() for _ in range(count)))


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process."""
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


@frozen
class Cost:
    """Seconds of so many replies at once, directly and through the bridge, and what it computed."""

    concurrent: int
    direct: float
    through: float
    computed: float

    @property
    def row(self) -> list[str]:
        added = (self.through - self.direct) / self.concurrent
        figures = (self.direct, self.through, added, self.computed)
        return [str(self.concurrent), *(f"{1e3 * value:.1f} ms" for value in figures)]


async def bridge_costs(url: str, rounds: int) -> list[Cost]:
    found = list[Cost]()
    with bridge(url) as (address, pid):
        async with (
            httpx.AsyncClient(base_url=url, timeout=330) as near,
            httpx.AsyncClient(base_url=address, timeout=330) as far,
        ):
            direct, through = Asker(near), Asker(far)
            await direct.open()
            await through.open()
            for count in _CONCURRENCY:
                before = processor_seconds(pid)
                sides: dict[str, Callable[[], Awaitable[None]]] = {
                    "direct": partial(direct.replies, count),
                    "through": partial(through.replies, count),
                }
                seconds = await compare(rounds, sides)
                computed = (processor_seconds(pid) - before) / (count * (rounds + 1))
                found.append(Cost(count, seconds["direct"], seconds["through"], computed))
                print("  ".join(found[-1].row), flush=True)
    return found


async def train(url: str) -> None:
    """One session: four steps, with samples; a state; and its end, which frees the model."""
    import tinker
    from tinker import types

    with tinker.ServiceClient(base_url=url, api_key=KEY) as sdk:
        client = await sdk.create_lora_training_client(BASE, rank=8, seed=0)
        for _ in range(4):
            sampler = await client.save_weights_and_get_sampling_client()
            await asyncio.gather(
                *(sampler.sample(prompt(g), 4, sampling(_TOKENS, g)) for g in range(4))
            )
            passed = client.forward_backward(datums(16, 64), "importance_sampling")
            stepped = client.optim_step(types.AdamParams(learning_rate=1e-5))
            await asyncio.gather(passed, stepped)
        await client.save_state("kept")


def tree(pid: int) -> list[int]:
    """Return a process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


async def memory(url: str, server: int | None, minutes: int) -> list[tuple[float, ...]]:
    """Return MB of the bridge, and of the server if its process is known, at each minute."""
    found, sessions, started = list[tuple[float, ...]](), 0, time.monotonic()
    with bridge(url) as (address, pid):
        while len(found) < minutes:
            await train(address)
            sessions += 1
            if time.monotonic() - started < 60 * (len(found) + 1):
                continue
            pids = [[pid], *([tree(server)] if server is not None else [])]
            found.append(tuple(sum(map(resident, one)) for one in pids))
            told = "  ".join(f"{value:7.0f} MB" for value in found[-1])
            print(f"minute {len(found):2}   {sessions:4} sessions   {told}", flush=True)
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) + "\n"


def fragment(
    curves_of: dict[str, dict[str, Curve]],
    costs: Sequence[Cost],
    measured: Sequence[tuple[float, ...]],
) -> str:
    """Return the tables of a page."""
    rows = [
        [f"`{stage.recipe}`, {stage.metric}", side, *_curve_cells(curve)]
        for stage in STAGES
        for side, curve in curves_of[stage.recipe].items()
    ]
    parts = [table(["stage", "on", "first step", "middle", "last", "a step"], rows)]
    head = [
        "replies at once",
        "directly",
        "through the bridge",
        "added to each",
        "its processor time",
    ]
    parts.append(table(head, [cost.row for cost in costs]))
    if measured:
        names = ("the bridge", "the server")[: len(measured[0])]
        ends = zip(names, _ends(measured), strict=True)
        rows = [[name, *map(_megabytes, side)] for name, side in ends]
        parts.append(table(["memory of", "after a minute", "half way", "at the end"], rows))
    return "\n".join(parts)


def _curve_cells(curve: Curve) -> list[str]:
    shown = (curve.values[0], curve.values[len(curve.values) // 2], curve.values[-1])
    return [*(f"{value:.3f}" for value in shown), f"{curve.step:.2f} s"]


def _ends(measured: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the first, the middle and the last value of each side."""
    kept = (measured[0], measured[len(measured) // 2], measured[-1])
    return list(zip(*kept, strict=True))


def _megabytes(value: float) -> str:
    return f"{value:,.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("url", metavar="URL", help="address of the server of SkyRL")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20, help="of replies, directly and through")
    parser.add_argument("--minutes", type=int, default=0, help="of sessions whose memory is seen")
    parser.add_argument("--pid", type=int, help="the process of the server, for its memory")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the fragment of a page")
    args = parser.parse_args()
    os.environ["TINKER_TELEMETRY"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        curves_of = curves(args.url, args.steps, Path(folder))
    costs = asyncio.run(bridge_costs(args.url, args.rounds))
    measured = asyncio.run(memory(args.url, args.pid, args.minutes)) if args.minutes else []
    text = fragment(curves_of, costs, measured)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
