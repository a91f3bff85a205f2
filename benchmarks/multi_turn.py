"""Multi-turn Sudoku: a chat that is one datum, against the turn-by-turn loop of GEM's guide.

    python benchmarks/multi_turn.py [--rounds 3] [--steps 4]     trained tokens and seconds a step
    python benchmarks/multi_turn.py --table                      tokens by length of the replies

One server (`benchmarks/sudoku_service.py`, a process of its own) computes nothing; its times depend
on tokens, and are printed. Both programs use the SDK, the same model, puzzles, batch and loss, and
as each reply is decided by board and turn, the same episodes: it is an error if they differ. The
peer (`benchmarks/peers/low_level.py`) has the guide's wrapper, `concat`; the table has GEM's others
too. Both sides train on every turn of a step's episodes. The guide's own default is to train on a
random 128 of the turns and to throw the rest away; what that sends is printed as well.

As many episodes a step as in the guide's Sudoku, by a player who slips in a quarter of the moves:
more slips or more episodes favour a chat, as episodes get longer and training a larger share.

What a prompt holds differs: a chat has the boards and replies so far, `concat` neither of them,
`concat_with_action` and `concat_chat` the replies. So the longer the replies, the less a chat saves
over `concat`, and the more over the other two.

A step is what lies between two optimiser updates, on the server's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
from attrs import frozen
from simulated import Times, tokenizer_of
from sudoku_service import Player, Speeds, SudokuService, write_model

import rlc
import rlc.service.engine  # before torch
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer
from rlc.seeds import derive_seed
from rlc.service.engine.checkpoints import CheckpointStore

HERE = Path(__file__).parent
OVERLAPS = {  # not streamed(): return batch normalisation waits for the whole batch
    "synchronous": "synchronous()",
    "asynchronous": "asynchronous(max_staleness = 1)",
}
PEERS = {  # the guide's wrapper and template of Sudoku first; concat_chat is that of its tools
    "concat": "qwen3_game",
    "concat_with_action": "qwen3_game",
    "concat_chat": "no",
}
THOUGHTS = (0, 30, 100, 300)
GUIDE_BATCH, GUIDE_ENVS = 128, 64  # turns trained and episodes sampled, of the guide's Sudoku
WANTED_TOKENS, WANTED_SPEED = 3.0, 1.5
SEED = 1
RECIPE = """\
model policy {{ base = "{model}" lora_rank = 8 renderer = qwen3_instruct }}
env sudoku = gem("game:Sudoku-v0-easy") |> chat(instruction = "{instruction}")
train main {{
  model = policy
  env = sudoku
  batch = groups({episodes}, group_size = 1)
  sampling = sample(max_tokens = 1024)
  advantage = rebn(gamma = 0.9)
  loss = importance_sampling()
  optimizer = adam(4e-5)
  steps = {steps}
  overlap = {overlap}
}}
"""
INSTRUCTION = (
    "You are playing language games. Make valid actions to win. "
    "Please reason step by step, and put your final answer within \\\\boxed{}."
)


@frozen
class Seen:
    """What the server saw of one run."""

    updates: Sequence[float]  # when each was done
    lengths: Sequence[int]  # tokens of each datum
    turns: int
    sampled: int  # tokens
    fresh: int  # tokens of prompts that were not cached

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Seen:
        samples = [row for row in rows if row["kind"] == "sample"]
        gradients = [row for row in rows if row["kind"] == "gradient"]
        return cls(
            [row["at"] for row in rows if row["kind"] == "update"],
            [length for row in gradients for length in row["lengths"]],
            len(samples),
            sum(row["sampled"] for row in samples),
            sum(row["fresh"] for row in samples),
        )

    @property
    def step_seconds(self) -> float:
        return (self.updates[-1] - self.updates[0]) / (len(self.updates) - 1)


@frozen
class Bench:
    """A server, and the puzzles that both sides get from it."""

    url: str
    model: Path
    folder: Path
    episodes: int
    steps: int

    def rlc(self, overlap: str) -> Seen:
        recipe = self.folder / f"{overlap}.rl"
        recipe.write_text(recipe_of(self.model, self.episodes, self.steps, overlap))
        command = [str(Path(sys.executable).with_name("rlc")), "run", str(recipe), "--quiet"]
        command += ["--seed", str(SEED), "--service", "tinker", "--base-url", self.url]
        run = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        return self._run([*command, "--run-dir", str(run)])

    def guide(self) -> Seen:
        puzzles = self.folder / "puzzles.json"
        puzzles.write_text(json.dumps(puzzles_of(self.steps, self.episodes)))
        command = [sys.executable, str(HERE / "peers/low_level.py"), "--url", self.url]
        command += ["--model", str(self.model), "--puzzles", str(puzzles)]
        return self._run(command)

    def _run(self, command: Sequence[str]) -> Seen:
        before = len(self._events())
        env = os.environ | {"TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150)
        if done.returncode:
            sys.exit(f"{command[1]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        return Seen.of([json.loads(line) for line in self._events()[before:]])

    def _events(self) -> list[str]:
        return (self.folder / "served/events.jsonl").read_text().splitlines()


def recipe_of(model: Path, episodes: int, steps: int, overlap: str) -> str:
    return RECIPE.format(
        model=model,
        instruction=INSTRUCTION,
        episodes=episodes,
        steps=steps,
        overlap=OVERLAPS[overlap],
    )


def puzzles_of(steps: int, episodes: int) -> list[list[int]]:
    """The seeds with which rlc resets the game in stage `main` of the recipe."""

    def seed(number: int) -> int:
        task = derive_seed(SEED, "task", "main", "sudoku", number)
        return derive_seed(derive_seed(task, "env"), "reset") % 2**32

    return [[seed(step * episodes + i) for i in range(episodes)] for step in range(steps)]


@contextmanager
def serving(options: argparse.Namespace) -> Iterator[Bench]:
    """A server, and what measures with it."""
    with tempfile.TemporaryDirectory() as name:
        served = Path(name) / "served"
        served.mkdir()
        command = [sys.executable, str(HERE / "sudoku_service.py"), "--model", str(options.model)]
        command += ["--checkpoints", str(served), "--thought", str(options.thought)]
        command += ["--slips", str(options.slips), "--scale", str(options.scale)]
        command += ["--train", str(options.train), "--decode", str(options.decode)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                told = json.loads(process.stdout.readline())
                print(f"the service's seconds and tokens a second: {told['speeds']}\n")
                yield Bench(told["url"], options.model, Path(name), options.episodes, options.steps)
            finally:
                process.terminate()


def same_episodes(one: Seen, other: Seen) -> None:
    if (one.turns, one.sampled) != (other.turns, other.sampled):
        sys.exit(f"the episodes differ: {one.turns, one.sampled} and {other.turns, other.sampled}")


def table(options: argparse.Namespace) -> None:
    """Trained tokens of an episode by how long replies are, for each of GEM's wrappers: both
    programs in this process, on a service that answers at once."""
    print(f"{'thought':>7} {'reply':>6} {'turns':>6} {'chat()':>7}", end="")
    print("".join(f"{wrapper:>26}" for wrapper in PEERS), flush=True)
    for thought in THOUGHTS:
        ours = in_process(options, thought, rlc_job)
        tokens = sum(ours.lengths) / options.episodes
        reply, turns = ours.sampled / ours.turns, ours.turns / options.episodes
        print(f"{thought:7} {reply:6.0f} {turns:6.1f} {tokens:7.0f}", end="", flush=True)
        for wrapper in PEERS:
            theirs = in_process(options, thought, partial(guide_step, wrapper=wrapper))
            same_episodes(ours, theirs)
            of_peer = sum(theirs.lengths) / options.episodes
            print(f"{of_peer:18.0f} {of_peer / tokens:6.2f}×", end="", flush=True)
        print(flush=True)


Side = Callable[[argparse.Namespace, SudokuService, Path], Coroutine[Any, Any, None]]


def in_process(options: argparse.Namespace, thought: float, side: Side) -> Seen:
    """What a service of its own sees of one step."""
    player = Player(tokenizer_of(str(options.model)), thought, options.slips)
    with tempfile.TemporaryDirectory() as name, io.StringIO() as events:
        service = SudokuService(
            store=CheckpointStore(Path(name) / "served"),
            times=Times(),
            replies=(),
            events=events,
            player=player,
            speeds=Speeds(scale=0.0),
        )
        asyncio.run(side(options, service, Path(name)))
        return Seen.of([json.loads(line) for line in events.getvalue().splitlines()])


async def rlc_job(options: argparse.Namespace, service: Any, folder: Path) -> None:
    recipe = folder / "table.rl"
    recipe.write_text(recipe_of(options.model, options.episodes, 1, "synchronous"))
    opened = RunFolder.create(folder / "run", rlc.load(str(recipe)).plan())
    try:
        await Job(opened, service, Observer()).run()
    finally:
        opened.close()


async def guide_step(options: argparse.Namespace, service: Any, folder: Path, wrapper: str) -> None:
    del folder
    low_level: Any = import_module("peers.low_level")
    settings = argparse.Namespace(
        template=PEERS[wrapper], wrappers=wrapper, max_tokens=1024, gamma=0.9
    )
    training = await service.create_lora_training_client(str(options.model))
    sampler = await training.save_weights_and_get_sampling_client()
    (seeds,) = puzzles_of(1, options.episodes)
    client = SimpleNamespace(sample_async=sampler.sample)
    with redirect_stdout(io.StringIO()):  # GEM prints its wrappers
        turns = await low_level.collect(client, training.get_tokenizer(), seeds, settings)
    data = low_level.datums(turns, 0, np.random.default_rng(0))
    await training.forward_backward(data, "importance_sampling")


def compare(options: argparse.Namespace) -> None:
    """Tokens and seconds of the guide's loop and of rlc in each overlap, in turns."""
    modes = options.overlaps.split(",")
    runs: dict[str, list[Seen]] = {"guide": [], **{mode: [] for mode in modes}}
    with serving(options) as bench:
        for number in range(options.rounds):
            for side in runs if number % 2 else reversed(runs):
                seen = bench.guide() if side == "guide" else bench.rlc(side)
                runs[side].append(seen)
                print(
                    f"round {number + 1}: {side:13} {seen.step_seconds:7.3f} s a step", flush=True
                )
    for mode in modes:
        for ours, theirs in zip(runs[mode], runs["guide"], strict=True):
            same_episodes(ours, theirs)
    report(runs, options)


def report(runs: Mapping[str, Sequence[Seen]], options: argparse.Namespace) -> None:
    played = options.steps * options.episodes
    guide = runs["guide"]
    print(
        f"\n{options.episodes} episodes a step of {guide[0].turns / played:.1f} turns and "
        f"{guide[0].sampled / guide[0].turns:.0f} tokens a reply; {options.rounds} rounds\n"
        f"\n{'':13} {'tokens':>7} {'guide/rlc':>10} {'datums':>7} {'uncached':>9}"
        f" {'s a step':>9} {'(spread)':>17} {'guide/rlc':>10}"
    )
    trained = {side: median(sum(seen.lengths) for seen in of) for side, of in runs.items()}
    seconds = {side: [seen.step_seconds for seen in of] for side, of in runs.items()}
    for side, of in runs.items():
        spread = f"({min(seconds[side]):.3f} … {max(seconds[side]):.3f})"
        print(
            f"{side:13} {trained[side] / played:7.0f} {trained['guide'] / trained[side]:9.2f}× "
            f"{len(of[0].lengths) / played:7.1f} {of[0].fresh / played:9.0f} "
            f"{median(seconds[side]):9.3f} {spread:>17} "
            f"{median(seconds['guide']) / median(seconds[side]):9.2f}×"
        )
    share = min(1.0, GUIDE_BATCH * played / (GUIDE_ENVS * guide[0].turns))
    print(
        f"\nthe guide's {GUIDE_BATCH} turns of {GUIDE_ENVS} episodes are {share:.0%} of those that "
        f"it samples: {share * trained['guide'] / played:.0f} tokens an episode"
    )
    print(
        "tokens: trained, an episode; uncached: tokens of an episode's prompts to be read anew\n"
        f"wanted: {WANTED_TOKENS}× fewer tokens, {WANTED_SPEED}× faster"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", action="store_true", help="tokens alone, nothing is timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=GUIDE_ENVS, help="of a step")
    parser.add_argument("--overlaps", default=",".join(OVERLAPS))
    parser.add_argument("--thought", type=float, default=30.0, help="median tokens before a move")
    parser.add_argument("--slips", type=float, default=0.25, help="share of wrong moves")
    parser.add_argument("--train", type=float, default=8_000.0, help="tokens a second")
    parser.add_argument("--decode", type=float, default=60.0, help="tokens a second of a sample")
    parser.add_argument("--scale", type=float, default=0.25, help="factor of all times")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        options.model = Path(name) / "model"
        write_model(options.model)
        logging.disable(logging.INFO)  # GEM turns it on
        table(options) if options.table else compare(options)


if __name__ == "__main__":
    main()
