"""Seconds of asynchronous runs of several turns: `rlc run`, and tinker-cookbook's `rl/train.py`.

    python benchmarks/multi_turn_loops.py [--rounds 3] [--steps 12] [--staleness 1]
        [--cookbook FOLDER]    where another version of tinker-cookbook is installed

As `benchmarks/loops.py`, on one server of declared latencies: sample k of a prompt takes the same
heavy-tailed time whoever asks, and a gradient as long as its tokens need: about as long for a step
as one of its episodes is sampled, as with a model of 8 B parameters on one GPU. Both sides play the
same game (`benchmarks/rounds_game.py`), of up to eight turns, with as many groups a step and the
same bound of staleness. rlc plays it three times: with `groups()`, taken whole and in parts, and
with `turns()`, which chooses the turns that it trains on.

The cookbook's bound counts groups that have begun, so that a slow one may be older; rlc's is never
exceeded. The staleness of what each side trained on is printed, mean and greatest, after as many
steps as the bound; tokens of gradients too, as a side that trained on less would be faster.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from side_by_side import Command, compare, peer_command, rlc_command, serving, take_turns

GROUPS, MEMBERS = 8, 8
LATENCIES: dict[str, Any] = {
    "sample": "lognormal:0.5,0.7",
    "gradient": 0.1,
    "token": 0.0004,
    "update": 0.1,
    "snapshot": 0.1,
}
BOUND = 0.85
IN_GROUPS = f"groups({GROUPS}, group_size = {MEMBERS})"
# Its batch, and what its overlap says besides the staleness.
SIDES = {
    "groups": (IN_GROUPS, ""),
    "parts": (IN_GROUPS, f", minibatches = {GROUPS}"),
    # Every episode has a turn, so that this is one round.
    "turns": (f"turns({GROUPS * MEMBERS}, parallel = {GROUPS})", ""),
}
RECIPE = """\
model policy {{ base = "tiny" lora_rank = 8 }}
env rounds = python("{here}/rounds_game.py:make") |> chat() |> rollouts(group_size = {members})
train main {{
  model = policy
  env = rounds
  batch = {batch}
  sampling = sample(max_tokens = 16)
  advantage = center()
  loss = ppo()
  optimizer = adam(1e-4)
  steps = {steps}
  overlap = asynchronous(max_staleness = {staleness}{more})
}}
"""
# What rlc and the versions of the cookbook call them.
MEAN = ("rollouts/staleness", "async/staleness_mean", "async/sampling_client_step_mean")
GREATEST = ("rollouts/staleness", "async/staleness_max")


def recipe_of(folder: Path, side: str, steps: int, staleness: int) -> Path:
    path, (batch, more) = folder / f"{side}.rl", SIDES[side]
    given = {"batch": batch, "more": more, "steps": steps, "staleness": staleness}
    path.write_text(RECIPE.format(here=Path(__file__).parent, members=MEMBERS, **given))
    return path


def told(run: Path, keys: Sequence[str], after: int) -> Iterator[float]:
    """What a run says of each step after some."""
    for line in (run / "metrics.jsonl").read_text().splitlines()[after:]:
        record = json.loads(line)
        yield from (record[key] for key in keys if key in record)


def peer(options: argparse.Namespace, staleness: int) -> Command:
    run = peer_command("cookbook_rounds.py", GROUPS, MEMBERS, options.steps, staleness)
    own = [] if options.cookbook is None else ["env", f"PYTHONPATH={options.cookbook}"]
    return lambda url, out: [*own, *run(url, out)]


def measure(options: argparse.Namespace, staleness: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, what = Path(name), f"staleness {staleness}"
        sides: dict[str, Command] = {
            side: rlc_command(recipe_of(folder, side, options.steps, staleness))
            for side in options.sides.split(",")
        }
        with serving(folder / "served", **LATENCIES) as url:
            peered = sides | {"cookbook": peer(options, staleness)}
            runs = take_turns(peered, options.rounds, folder, url)
        for side in sides:
            for wall in ("step", "whole"):
                pair = {
                    one: [getattr(run, wall) for run in runs[one]] for one in (side, "cookbook")
                }
                compare(f"{what}, {wall}", pair, BOUND)
        for side, made in runs.items():
            places = [folder / f"{side}-{number}" for number in range(options.rounds)]
            means, greatest = (
                [value for place in places for value in told(place, keys, staleness)]
                for keys in (MEAN, GREATEST)
            )
            stale = f"mean {fmean(means):.2f}, greatest {max(greatest):.0f}" if greatest else "?"
            tokens = fmean(sum(e.get("tokens", 0) for e in run.events) for run in made)
            updates = fmean(len(run.times("update")) for run in made)
            print(f"{what}  {side:9} {stale}; {tokens / updates:,.0f} tokens trained a step")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--staleness", default="1")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--cookbook", type=Path, help="a folder with another version of it")
    options = parser.parse_args()
    for staleness in map(int, options.staleness.split(",")):
        measure(options, staleness)


if __name__ == "__main__":
    main()
