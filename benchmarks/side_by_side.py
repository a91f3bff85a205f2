"""Two programs that take turns at a server of declared latencies, and what a step took them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from attrs import frozen

HERE = Path(__file__).parent
RLC = str(Path(sys.executable).with_name("rlc"))
Command = Callable[[str, Path], list[str]]


@frozen
class Run:
    """What the server saw of one run, in order; each event says when, and what ``kind`` it is."""

    events: list[dict[str, Any]]

    @property
    def step(self) -> float:
        """The mean seconds from one optimiser update to the next."""
        updates = self.times("update")
        return (updates[-1] - updates[0]) / (len(updates) - 1)

    @property
    def whole(self) -> float:
        """The seconds from the first request to the last update, by the number of updates."""
        updates = self.times("update")
        started: float = self.events[0]["at"]
        return (updates[-1] - started) / len(updates)

    def times(self, kind: str) -> list[float]:
        return [event["at"] for event in self.events if event["kind"] == kind]

    def values(self, kind: str) -> list[Any]:
        return [event["seconds"] for event in self.events if event["kind"] == kind]


@contextmanager
def serving(folder: Path, quick: bool = False, **latencies: object) -> Iterator[str]:
    """The address of a simulated server, whose events are in ``folder/events.jsonl``."""
    folder.mkdir()
    (folder / "events.jsonl").touch()
    command = [sys.executable, str(HERE / "simulated.py"), "--checkpoints", str(folder)]
    command += [part for name, value in latencies.items() for part in (f"--{name}", str(value))]
    command += ["--quick"] * quick
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("TINKER_BASE_URL=")
        finally:
            process.terminate()


def rlc_command(recipe: Path, *settings: str) -> Command:
    """`rlc run` of a recipe against the server."""

    def command(url: str, out: Path) -> list[str]:
        where = ["--service", "tinker", "--base-url", url, "--run-dir", str(out)]
        return [RLC, "run", str(recipe), *where, *settings]

    return command


def peer_command(script: str, *given: object) -> Command:
    """A script of ``peers/``, which is told where the server is, and where its logs go."""
    return lambda url, out: [
        sys.executable,
        str(HERE / "peers" / script),
        url,
        str(out),
        *map(str, given),
    ]


def take_turns(
    sides: dict[str, Command], rounds: int, folder: Path, url: str
) -> dict[str, list[Run]]:
    """Run each side once a round, the first of a round by turns."""
    events = folder / "served" / "events.jsonl"
    runs: dict[str, list[Run]] = {side: [] for side in sides}
    env = os.environ | {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
    for number in range(rounds):
        for side in sides if number % 2 else reversed(sides):
            before = len(events.read_text().splitlines())
            command = sides[side](url, folder / f"{side}-{number}")
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
            if done.returncode:
                sys.exit(f"{side} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
            lines = events.read_text().splitlines()[before:]
            runs[side].append(Run([json.loads(line) for line in lines]))
    return runs


def compare(what: str, seconds: Mapping[str, list[float]], wanted: float) -> dict[str, float]:
    """Print the medians of two sides, the first of which is ours, with their ratio; return them."""
    middle = {side: median(values) for side, values in seconds.items()}
    for side, values in seconds.items():
        spread = f"{min(values):.3f} … {max(values):.3f}"
        print(f"{what:13} {side:9} {middle[side]:7.3f} s a step   ({spread})", flush=True)
    ours, theirs = middle.values()
    print(f"{what:13} ratio     {ours / theirs:7.3f}   (wanted ≤ {wanted})", flush=True)
    return middle
