"""How soon `rlc lsp` answers: each question on a recipe of 500 lines, and on one with ten imports.

    python benchmarks/lsp.py [--runs 20]

The real process is spoken to by pygls' client. Before every question the text changes, as it does
while one types, so that nothing is answered from what was worked out before; the check of the text
before may still be running. Times are in milliseconds: on the client's clock, the median and the
slowest of all runs, and the processor time of the thread that answers, which other programs do not
lengthen. Exits with 1 if a median of that is above the limit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from lsprotocol import types

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from lsp_client import Editor

LINES, IMPORTS = 500, 10
LIMITS = {f"{LINES} lines": 50, f"{IMPORTS} imports": 100}  # milliseconds

PART = """
model policy{i} {{
  base      = "tiny"
  lora_rank = 8
}}

env spell{i} = gem("rg:spell_backward") |> chat(instruction = "Put it inside \\\\boxed{{}}.")

train main{i} {{
  model     = policy{i}
  env       = spell{i}
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}}

eval heldout{i} {{
  model   = main{i}
  env     = spell{i}
  tasks   = 32
  samples = 4
  metrics = [mean_reward(), pass_at(1)]
}}
"""


def recipe(lines: int) -> str:
    """A recipe of so many lines, or a few more."""
    text, part = "", 0
    while text.count("\n") < lines:
        text += PART.format(i=part)
        part += 1
    return text


def library(number: int) -> str:
    """A file to import: models, environments and a stage with parameters, on 60 lines."""
    models = "".join(
        f'model m{number}_{i} {{ base = "tiny" }}\nenv e{number}_{i} = gem("rg:gcd") |> chat()\n'
        for i in range(28)
    )
    return f"{models}\ntrain stage{number}(start: model, rate: float = 1e-3) {{ steps = 20 }}\n"


def questions() -> Iterator[tuple[str, Callable[[Editor, Path, int], Any]]]:
    """What an editor asks, each about a place in the last declaration, by its line."""
    whole = types.Range(types.Position(0, 0), types.Position(10_000, 0))
    options = types.FormattingOptions(tab_size=2, insert_spaces=True)
    context = types.ReferenceContext(include_declaration=True)
    yield "completion", lambda e, p, line: e.ask("completion", p, at=(line, 15))
    yield "hover", lambda e, p, line: e.ask("hover", p, at=(line, 15))
    yield "signature", lambda e, p, line: e.ask("signatureHelp", p, at=(line, 21))
    yield "definition", lambda e, p, line: e.ask("definition", p, at=(line - 6, 15))
    yield (
        "references",
        lambda e, p, line: e.ask("references", p, at=(line - 6, 15), context=context),
    )
    yield "symbols", lambda e, p, _: e.ask("documentSymbol", p)
    yield "colours", lambda e, p, _: e.ask("semanticTokens/full", p)
    yield "hints", lambda e, p, _: e.ask("inlayHint", p, range=whole)
    yield "format", lambda e, p, _: e.ask("formatting", p, options=options)


def measure(folder: Path, text: str, runs: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of each question, in a server of its own: clock and processor."""
    editor = Editor(folder)
    path = editor.open("main.rl", text)
    editor.findings(path)  # started and warm
    lines = text.splitlines()
    line = max(number for number, here in enumerate(lines) if "adam(1e-3)" in here)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in questions()}
    for run in range(runs):
        for number, (name, ask) in enumerate(questions()):
            editor.change(path, f"{text}# {run} {number}\n")
            started, before = time.perf_counter(), processor(editor)
            answer = ask(editor, path, line)
            clock = 1000 * (time.perf_counter() - started)
            found[name].append((clock, processor(editor) - before))
            assert answer is not None, f"no answer to {name}"
    editor.close()
    return found


def processor(editor: Editor) -> float:
    """Milliseconds for which the main thread of the server has been running, on Linux."""
    pid = editor.client._server.pid
    return int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[0]) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    slow = False
    imports = "".join(f'import "lib/{i}.rl"\n' for i in range(IMPORTS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "lib").mkdir()
        for number in range(IMPORTS):
            (folder / "lib" / f"{number}.rl").write_text(library(number))
        texts = {f"{LINES} lines": recipe(LINES), f"{IMPORTS} imports": imports + recipe(60)}
        for title, text in texts.items():
            print(f"{title:<12} {'processor':>10} {'clock':>8} {'slowest':>8}")
            for question, times in measure(folder, text, args.runs).items():
                clocks, own = zip(*times, strict=True)
                slow |= median(own) > LIMITS[title]
                columns = median(own), median(clocks), max(clocks)
                print(f"  {question:<10} {columns[0]:>10.1f} {columns[1]:>8.1f} {columns[2]:>8.1f}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
