"""Does the interval hold that a probe gives of what a run will take?

    python benchmarks/probe_intervals.py [--recipes A,B] [--seeds 3] [--steps 20] [--out FILE]

Each recipe is probed on the embedded engine, then run to its end, in a folder of its own. What the
run has metered is compared with what was predicted from the probe, in tokens at the prices of a
hosted model (`PRICED`), since the engine bills nothing. Results are appended as they come, and what
is there already is not run again; the table at the end is over all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import rlc
from rlc.catalog import part_cost
from rlc.catalog.providers import price_of
from rlc.pricing import LEVELS, StageCost
from rlc.proof import run_probe

PRICED = "Qwen/Qwen3-8B"
KINDS = {"prefill": "prefill", "cached": "cached", "sampled": "sample", "trained": "train"}
GUESS, RANDOM = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-random"
SPELL, CODES, SUDOKU = "rg:spell_backward", "game:Mastermind-v0-easy", "game:Sudoku-v0-easy"
BOXED = 'chat(instruction = "Put your answer inside \\\\boxed{}.")'
LIMITED = "rollouts(max_turns = 8)"
EIGHT = f"chat() |> {LIMITED}"
ROOT = Path(__file__).parents[1]


def gem(name: str, wrapper: str = "chat()") -> str:
    return f'gem("{name}") |> {wrapper}'


# By name: the environment, and the fields of the stage that are not as in `FIELDS`.
FIELDS = {
    "batch": "groups(6, group_size = 6)",
    "sampling": "sample(max_tokens = 16)",
    "advantage": "grpo()",
    "loss": "importance_sampling()",
    "optimizer": "adam(3e-4)",
}
TURNS = {"batch": "turns(64, parallel = 16)", "advantage": "rebn(gamma = 0.9)"}
LETTERS = f'python("{ROOT}/recipes/letters.py:make", args = {{ letters = "e" }}) |> chat()'
RECIPES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "guess": (gem(GUESS), {}),
    "guess_fast": (gem(GUESS), {"optimizer": "adam(1e-3)", "advantage": "rloo()"}),
    "spell": (gem(SPELL, BOXED), {"sampling": "sample(max_tokens = 24)"}),
    "codes": (gem(CODES, EIGHT), {}),
    "guess_turns": (gem(GUESS, "concat() |> template(qwen3_game)"), TURNS),
    "letters": (LETTERS, {"sampling": "sample(max_tokens = 24)", "optimizer": "adam(1e-3)"}),
    "guess_slow": (gem(GUESS), {"optimizer": "adam(5e-5)"}),
    "guess_few": (gem(GUESS), {"batch": "groups(10, group_size = 4)"}),
    "guess_latest": (gem(GUESS, "template(qwen3_game)"), {}),
    "random": (gem(RANDOM), {}),
    "random_fast": (gem(RANDOM), {"optimizer": "adam(1e-3)"}),
    "random_turns": (gem(RANDOM, "concat() |> template(qwen3_game)"), TURNS),
    "spell_short": (gem(SPELL, BOXED), {"sampling": "sample(max_tokens = 12)"}),
    "spell_fast": (gem(SPELL, BOXED), {"optimizer": "adam(1e-3)", "loss": "cispo()"}),
    "spell_general": (
        gem(SPELL, "template(qwen3_general)"),
        {"sampling": "sample(max_tokens = 24)"},
    ),
    "spell_kl": (gem(SPELL, BOXED), {"kl": "reference(policy.base, coef = 0.05)"}),
    "codes_fast": (gem(CODES, EIGHT), {"optimizer": "adam(1e-3)"}),
    "codes_turns": (gem(CODES, f"concat() |> template(qwen3_game) |> {LIMITED}"), TURNS),
    "sudoku": (gem(SUDOKU, EIGHT), {}),
    "letters_slow": (LETTERS, {"sampling": "sample(max_tokens = 24)"}),
    "letters_long": (LETTERS, {"sampling": "sample(max_tokens = 64)", "advantage": "rloo()"}),
}


def recipe(name: str, steps: int) -> str:
    env, own = RECIPES[name]
    fields = "".join(f"  {key} = {value}\n" for key, value in (FIELDS | dict(own)).items())
    return (
        'model policy { base = "tiny"  lora_rank = 8 }\n'
        f"env played = {env}\n"
        f"train main {{\n  model = policy\n  env = played\n{fields}  steps = {steps}\n}}\n"
    )


def dollars(tokens: Mapping[str, float]) -> float:
    """Return the price of tokens of each kind of a meter, as if `PRICED` had used them."""
    price = price_of(PRICED, "tinker")
    costs = (part_cost(n, getattr(price, KINDS[kind])) for kind, n in tokens.items())
    return sum(one or 0.0 for one in costs)


def predicted(costs: tuple[StageCost, ...], level: Any) -> dict[str, float]:
    tokens = [cost.step_tokens[level] * cost.times for cost in costs]
    tokens += [one.total(cost.times) for cost in costs for one in cost.asked[level]]
    return {
        "prefill": sum(one.prefill + one.reference for one in tokens),
        "cached": sum(one.cached for one in tokens),
        "sampled": sum(one.sample for one in tokens),
        "trained": sum(one.train for one in tokens),
    }


def measured(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Probe and run a recipe; return what was predicted, and what was metered."""
    with TemporaryDirectory() as folder, chdir(folder):
        Path("recipe.rl").write_text(recipe(name, steps), encoding="utf-8")
        plan = rlc.load("recipe.rl", seed=seed).plan()
        started = time.perf_counter()
        probe = run_probe(plan)
        probed = time.perf_counter()
        (bill,) = rlc.bill(rlc.run(plan).folder, ask=False)
        metered = {line.kind: line.metered for line in bill.lines}
        after = rlc.explain(plan).seen["main"]["played"]  # what the run itself shows
        known = {level: predicted(probe.costs, level) for level in LEVELS}
        before = {line.kind: line.predicted for line in bill.lines}
        return {
            "recipe": name,
            "seed": seed,
            "steps": steps,
            "low": dollars(known["low"]),
            "expected": dollars(known["expected"]),
            "high": dollars(known["high"]),
            "metered": dollars(metered),
            "tokens": metered,
            "expected_tokens": known["expected"],
            "assumed_low": dollars({kind: one["low"] for kind, one in before.items()}),
            "assumed_high": dollars({kind: one["high"] for kind, one in before.items()}),
            "seen": probe.seen["main"]["played"].to_dict(),
            "after": after.to_dict(),
            "probe_seconds": probed - started,
            "run_seconds": time.perf_counter() - probed,
        }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    inside = [row["low"] <= row["metered"] <= row["high"] for row in rows]
    ratios = [row["high"] / row["low"] for row in rows]
    before = [row["assumed_high"] / row["assumed_low"] for row in rows]
    errors = [abs(row["expected"] / row["metered"] - 1) for row in rows]
    yield (
        f"{len(rows)} runs of {len({row['recipe'] for row in rows})} recipes: {fmean(inside):.0%} "
        f"inside, high/low {median(ratios):.2f} (median), {max(ratios):.2f} (most); without a "
        f"probe {median(before):.0f} (median); expected is {median(errors):.0%} off (median)"
    )
    for row in rows:
        inside_it = row["low"] <= row["metered"] <= row["high"]
        yield (
            f"  {'' if inside_it else 'OUTSIDE '}{row['recipe']} seed {row['seed']}: "
            f"{row['metered'] / row['expected']:.2f} of what was expected, between "
            f"{row['low'] / row['expected']:.2f} and {row['high'] / row['expected']:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("probe_intervals.jsonl"))
    args = parser.parse_args()
    out = args.out.resolve()
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    rows = [json.loads(line) for line in lines]
    for seed in range(1, args.seeds + 1):
        for name in filter(None, args.recipes.split(",")):
            if any(row["recipe"] == name and row["seed"] == seed for row in rows):
                continue
            rows.append(measured(name, seed, args.steps))
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + os.linesep)
            print("\n".join(table(rows[-1:])), flush=True)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
