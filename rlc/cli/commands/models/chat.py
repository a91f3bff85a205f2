"""``rlc chat``: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import sys

from rlc.cli.commands.models.options import (
    add_model_options,
    add_sampling_options,
    opened,
    sampling_of,
    text_of,
)

HELP = "talk to a model, or to two side by side"
DESCRIPTION = (
    "Talk to what was trained, or to any base model. With --against another model answers the same "
    "beside it, for example the one that the training began with."
)
EPILOG = """\
examples:
  rlc chat runs/quickstart-20261121-101500               its best or last state
  rlc chat runs/x@main:20 --against tiny                 beside the base model
  rlc chat Qwen/Qwen3-8B --system @prompt.txt            a base model on Tinker
  echo "2 + 3 = ?" | rlc chat runs/x --temperature 0     from a script; see also `rlc sample`

`/help` in the chat lists what it understands. Exit status: 0, 1 the model cannot be used, 2 usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--against", metavar="MODEL", help="another model, which answers as well")
    parser.add_argument("--system", default="", metavar="TEXT|@FILE", help="the system message")
    add_sampling_options(parser, max_tokens=512)


def run(args: argparse.Namespace) -> int:
    """Chat to the end of the input."""
    from contextlib import ExitStack

    from rlc.cli.commands.models.talk import Talk

    system, sampling = text_of(args.system), sampling_of(args)
    with ExitStack() as stack:
        names = [args.model, *([args.against] if args.against else [])]
        models = [stack.enter_context(opened(name, args)) for name in names]
        if sys.stdin.isatty():
            print(f"{' and '.join(model.name for model in models)}   (/help, Ctrl-D ends)")
        Talk([model.conversation(system, sampling) for model in models]).run(sys.stdin)
    return 0
