"""``rlc replay``: what the episodes of a step would have taught under another objective."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlc.api import replay
from rlc.cli.options import add_set
from rlc.cli.output import UsageError
from rlc.errors import Error

HELP = "what the episodes of a step teach, and would under another scheme"
DESCRIPTION = (
    "Compute a finished step of a run again from what is stored of its episodes: advantages, "
    "weights, losses, and which environments and components the gradient is made of; with --set "
    "also as another advantage, loss, aggregation, KL penalty or filter would have made them, side "
    "by side, with the episodes that change sides. Nothing is sampled, and nothing is paid for."
)
EPILOG = """\
examples:
  rlc replay runs/sudoku-1                                        the last finished step
  rlc replay runs/sudoku-1 --step 12 --set 'main.advantage=rloo()'
  rlc replay runs/sudoku-1 --step 12 --set 'main.loss=ppo()' --set 'main.aggregate=token_mean()'
  rlc replay runs/sudoku-1 --bisect 'kl > 0.1'                    the first such step
  rlc replay runs/quickstart-1 --step 26 --set 'main.advantage=rloo()' --gradient
  rlc replay runs/sudoku-1 --step 12 -o step-12.html              as a page

Losses and shares need the tokens of all episodes of the step: `rlc run --tokens all` keeps them,
by default those of the first 64 are kept.

exit status: 0 replayed, 1 it cannot be, or it differs from what the run journalled, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, metavar="N", help="a finished step (default: the last)")
    text = "replay the first step at which this holds of its metrics: 'kl > 0.1'"
    which.add_argument("--bisect", metavar="EXPRESSION", help=text)
    parser.add_argument("--stage", metavar="NAME", help="of several stages that learn by RL")
    add_set(parser)
    text = "also take the gradients, and a step, with the weights of then, on the embedded engine"
    parser.add_argument("--gradient", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--out", metavar="FILE", type=Path, help="write a page")


def run(args: argparse.Namespace) -> int:
    if args.step is not None and args.step < 1:
        raise UsageError("the steps of a stage begin with 1")
    where = args.run_folder, args.step, args.overrides, args.stage
    found = replay(*where, args.gradient, args.bisect)
    if args.out is not None:
        page = found.html()
        try:
            args.out.write_text(page, encoding="utf-8")
        except OSError as error:
            raise Error(
                f"cannot write {args.out}: {error.strerror}", "choose another -o"
            ) from error
        print(f"wrote {args.out} ({len(page.encode()) / 1024:,.0f} KB)")
    elif args.json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(found, end="")
    return 0 if found.agrees else 1
