"""How `rlc check` grows with a recipe that is full of mistakes: n of each kind, and ten times n.

    python benchmarks/check_scaling.py [--n 100] [--runs 3]

The two sizes are checked in turn, in one process, so that a busy machine slows both. A ratio near
10 is linear, one near 100 quadratic. Exits with 1 if a ratio is above 25.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

from rlc.catalog.facts import gem_ids
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

BASE = """\
model policy { base = "tiny" }
env x0 = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model = policy  env = x0  batch = groups(16)  sampling = sample(max_tokens = 16)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(1e-3)  steps = 5
}
"""
MOST = 25.0  # what ten times as much text may cost


def misspelt_params(n: int) -> str:
    declared = "".join(f"param param_{i} = 1\n" for i in range(n))
    return declared + "".join(f"param q_{i} = prm_{i}\n" for i in range(n))


def misspelt_ids(n: int) -> str:
    ids = gem_ids()
    return "".join(f'env e{i} = gem("{ids[i % len(ids)][:-2]}zqz")\n' for i in range(n))


def unknown_arguments(n: int) -> str:
    return "".join(f"advantage a{i} = grpo(scael = std, epz_{i} = 1)\n" for i in range(n))


def missing_brackets(n: int) -> str:
    return "".join(f'env e{i} = gem("rg:gcd" |> chat(\n' for i in range(n))


def unquoted_texts(n: int) -> str:
    return "".join(f"env e{i} = gem(rg:gcd-{i}) |> chat(instruction = Don't)\n" for i in range(n))


def sums_of_sums(n: int) -> str:
    return "".join(f"env x{i + 1} = x{i} + 0.5 * x{i}\n" for i in range(n))


KINDS: tuple[Callable[[int], str], ...] = (
    misspelt_params,
    misspelt_ids,
    unknown_arguments,
    missing_brackets,
    unquoted_texts,
    sums_of_sums,
)


def seconds(text: str) -> float:
    source = Source("scaling.rl", text + BASE)
    started = time.perf_counter()
    compile_source(source)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100, help="mistakes in the smaller recipe")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    seconds("")  # imports, the grammar
    print(f"{'':20}{f'{args.n} (ms)':>12}{f'{10 * args.n} (ms)':>12}{'ratio':>8}")
    worst = 0.0
    for kind in KINDS:
        small, large = kind(args.n), kind(10 * args.n)
        times = [(seconds(small), seconds(large)) for _ in range(args.runs)]
        few, many = (1e3 * median(column) for column in zip(*times, strict=True))
        worst = max(worst, many / few)
        print(f"{kind.__name__.replace('_', ' '):20}{few:12.1f}{many:12.1f}{many / few:8.1f}")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
