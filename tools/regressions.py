"""Plant regressions in the recipes and their rewards, and count those that their tests see.

    python -m tools.regressions            100 of them, each seen or missed
    python -m tools.regressions --seed 2   others

Some are written out below: what somebody might change by mistake. The others are drawn: a number, a
word or a step of a recipe, a constant, comparison or method of the Python beside it. One that
`rlc check` refuses, or that leaves the plan as it was, is no regression and is drawn anew.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from attrs import frozen

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes"
TESTS = "\n# `rlc test` runs"
# The Python beside recipes, with a recipe that uses it.
CODE = {
    "letters.py": "python_environment.rl",
    "riddles.py": "proposer_solver.rl",
    "tug_of_war.py": "self_play.rl",
    "word_lists.py": "verifiers.rl",
    "doors.py": "agent.rl",
    "yardstick/shorter.py": "yardstick/shorter.rl",
}
SWAPS = {
    "grpo": "rloo",
    "rloo": "grpo",
    "rebn": "reinforce",
    "importance_sampling": "ppo",
    "ppo": "importance_sampling",
    "cispo": "importance_sampling",
    "stable_reinforce": "importance_sampling",
    "math": "exact",
    "exact": "math",
    "true": "false",
    "false": "true",
    "linear": "constant",
    "pairwise": "ranking",
}
PYTHON_SWAPS = (
    *(
        ("==", "!="),
        (" > ", " < "),
        (" < ", " > "),
        (" + ", " - "),
        (" and ", " or "),
        ("0.5", "0.6"),
    ),
    *(
        (".lower()", ""),
        (".strip()", ""),
        ("1.0", "0.5"),
        ("0.0", "1.0"),
        ("= 2", "= 3"),
        ("> 1", "> 0"),
    ),
    *(
        ("len(other) - len(one)", "len(one) - len(other)"),
        (".count(", ".find("),
        ("done=True", "done=False"),
    ),
)


@frozen
class Regression:
    """``new`` in place of ``old``, which stands at ``start`` of a file in recipes/; the tests of
    ``recipe`` should see it."""

    file: str
    start: int
    old: str
    new: str
    recipe: str

    def __str__(self) -> str:
        text = (RECIPES / self.file).read_text(encoding="utf-8")
        line = text.count("\n", 0, self.start) + 1
        return f"{self.file}:{line}: {self.old.strip()!r} → {self.new.strip()!r}"

    def text(self) -> str:
        """Return the file with the regression."""
        text = (RECIPES / self.file).read_text(encoding="utf-8")
        return text[: self.start] + self.new + text[self.start + len(self.old) :]


# What somebody might change by mistake: file, what is there, what comes in its place.
BY_HAND = (
    ("quickstart.rl", "group_size = 8", "group_size = 4"),
    ("quickstart.rl", "max_tokens = 16", "max_tokens = 160"),
    ("quickstart.rl", "= 3e-4", "= 3e-3"),
    ("quickstart.rl", "|> chat()", '|> chat(instruction = "Be brief.")'),
    ("quickstart.rl", "GuessTheNumber-v0-easy", "GuessTheNumber-v0-hard"),
    ("sudoku.rl", "gamma = 0.9", "gamma = 0.0"),
    ("sudoku.rl", "turns(128", "turns(1_280"),
    ("sudoku.rl", "v0-easy", "v0-hard"),
    ("sudoku.rl", "within \\\\boxed{}", "within <answer>"),
    ("sudoku.rl", "4e-5", "4e-4"),
    ("gem_reasoning.rl", "2e-5", "2e-4"),
    ("gem_reasoning.rl", "cookbook.center()", "grpo()"),
    ("cookbook_tutorial.rl", "format_coef = 0.1", "format_coef = 0.0"),
    ("cookbook_tutorial.rl", "grader = math", "grader = exact"),
    ("cookbook_tutorial.rl", " Write your answer in", " Write it in"),
    ("curriculum.rl", "grader = countdown", "grader = countdown, format_coef = 0"),
    ("judged.rl", "|> judged(taste)", "|> judged(0.5 * taste)"),
    ("compared.rl", "0.2 * brief", "2 * brief"),
    ("compared.rl", "gdpo()", "grpo()"),
    ("length_by_pass_rate.rl", "0.5 * mean", "-0.5 * mean"),
    ("mcp_tools.rl", "\\\\boxed{}", "<answer>"),
    ("mixture.rl", "GuessTheNumber-v0-easy", "GuessTheNumber-v0-hard"),
    ("spell_backward.rl", "Put your answer inside \\\\boxed{}.", "Answer."),
    ("solver_judge.rl", "scope = role", "scope = group"),
    ("yardstick/prometheus.rl", "1 + 4 * total", "4 * total"),
    ("yardstick/shorter.rl", "2 * total - 1", "2 * total"),
    ("yardstick/rl_loop.rl", "format_coef = 0", "format_coef = 0.1"),
    ("yardstick/rl_loop.rl", "drop_constant = true", "drop_constant = false"),
    ("yardstick/rl_basic.rl", "grader = math", "grader = exact"),
    ("yardstick/dpo.rl", "1e-5", "1e-4"),
    ("yardstick/text_arena.rl", "illegal = -2", "illegal = 0"),
    ("yardstick/rubric.rl", "scale = [0, 1]", "scale = [0, 2]"),
    ("letters.py", "if len(word) > 1 else 0.0", ""),
    ("letters.py", ".strip().lower()", ".strip()"),
    ("riddles.py", "{1,3}(?:", "{1,4}(?:"),
    ("riddles.py", "-1.0", "0.0"),
    ("tug_of_war.py", "(first > second) - (first < second)", "1"),
    ("word_lists.py", "completion[-1]", "completion[0]"),
    ("doors.py", "RIGHT = 2", "RIGHT = 3"),
    ("yardstick/shorter.py", "len(other) - len(one)", "len(one) - len(other)"),
)


def by_hand() -> Iterator[Regression]:
    for file, old, new in BY_HAND:
        text = (RECIPES / file).read_text(encoding="utf-8")
        start = text.find(old)
        assert start >= 0, f"{file} does not have {old!r} any more"
        yield Regression(file, start, old, new, CODE.get(file, file))


def drawn(seed: int) -> Iterator[Regression]:
    """Yield regressions without end, every fourth in Python."""
    source = random.Random(seed)
    recipes = [
        str(p.relative_to(RECIPES))
        for p in sorted(RECIPES.rglob("*.rl"))
        if TESTS in p.read_text("utf-8")
    ]
    while True:
        if source.random() < 0.25:
            file = source.choice([*CODE])
            found = [*_in_python(file)]
        else:
            file = source.choice(recipes)
            found = [*_in_recipe(file)]
        if found:
            start, old, new = source.choice(found)
            yield Regression(file, start, old, new, CODE.get(file, file))


def _in_recipe(file: str) -> Iterator[tuple[int, str, str]]:
    """Yield places of numbers, of words that have a counterpart, and of steps of a pipeline."""
    text = (RECIPES / file).read_text(encoding="utf-8").partition(TESTS)[0]
    hidden = [m.span() for m in re.finditer(r'#[^\n]*|"(?:[^"\\]|\\.)*"', text)]
    for match in re.finditer(
        r"\b[a-z_]+\b|(?<![\w.\-$])\d[\d_]*(?:\.\d+)?(?:e-?\d+)?(?![\w.])|\n  \|> [^\n]*\)", text
    ):
        if any(start <= match.start() < end for start, end in hidden):
            continue
        old = match[0]
        if old[0].isdigit():
            number = float(old.replace("_", ""))
            new = f"{number * 3:g}" if "." in old or "e" in old else str(int(number) * 2 + 1)
            yield match.start(), old, new
        elif old.startswith("\n"):
            yield match.start(), old, ""
        elif old in SWAPS:
            yield match.start(), old, SWAPS[old]


def _in_python(file: str) -> Iterator[tuple[int, str, str]]:
    text = (RECIPES / file).read_text(encoding="utf-8")
    code = re.sub(r'"""(?:.|\n)*?"""|#[^\n]*', lambda m: " " * len(m[0]), text)
    for old, new in PYTHON_SWAPS:
        for match in re.finditer(re.escape(old), code):
            yield match.start(), old, new


def outcome(one: Regression, folder: Path) -> str:
    """Plant one in a copy of the recipes, and look at it in a process of its own. Return ``seen``,
    ``missed``, or ``none`` if it is no regression."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_planted, args=(one, folder, theirs))
    process.start()
    theirs.close()
    found = ours.recv() if ours.poll(120) else "seen"  # tests that hang are seen to
    process.kill()
    process.join()
    shutil.copyfile(RECIPES / one.file, folder / one.file)
    return str(found)


def _planted(one: Regression, folder: Path, answer: Any) -> None:
    from rlc.compile import load
    from rlc.plan import plan_hash
    from rlc.proof import run_recipe_tests

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (of a process that ends)
    place = folder / one.file
    if place.suffix == ".rl":
        before = load(place).plan
        place.write_text(one.text().partition(TESTS)[0], encoding="utf-8")
        after = load(place).plan
        if after is None or (before is not None and plan_hash(after) == plan_hash(before)):
            answer.send("none")
            return
    place.write_text(one.text(), encoding="utf-8")
    answer.send("missed" if run_recipe_tests([str(folder / one.recipe)]) else "seen")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    import rlc.proof.recipe_tests  # noqa: F401 (once, for all processes)

    counts, known = {"seen": 0, "missed": 0, "none": 0}, set[str]()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(RECIPES, folder, dirs_exist_ok=True)
        for one in chain(by_hand(), drawn(args.seed)):
            if counts["seen"] + counts["missed"] == args.count:
                break
            if str(one) in known:
                continue
            known.add(str(one))
            found = outcome(one, Path(folder))
            counts[found] += 1
            if found != "none":
                print(f"{found:6}  {one}", flush=True)
    print(f"{counts['seen']} of {args.count} regressions are seen")


if __name__ == "__main__":
    main()
