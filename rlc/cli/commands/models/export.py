"""``rlc export``: take a trained model away as files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlc.cli.commands.models.options import add_model_options
from rlc.cli.output import UsageError, announced

HELP = "export a trained model as files"
DESCRIPTION = (
    "Write a trained model into a folder: an adapter of Hugging Face PEFT, which PEFT, vLLM and "
    "SGLang load over its base model, or merged weights, a model of transformers. A card beside it "
    "says how it was made."
)
EPILOG = """\
examples:
  rlc export runs/x -o models/x                      its best or last state, as an adapter
  rlc export runs/x@main:20 -o merged --as merged    added to its base model
  rlc export runs/x --publish                        let everybody use it on Tinker

A recipe starts from what was exported: `weights = "models/x"`.

exit status: 0, 1 the model cannot be exported, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="the folder, which is made")
    forms, text = ("adapter", "merged"), "(default adapter)"
    parser.add_argument("--as", dest="form", choices=forms, default="adapter", help=text)
    text = "precision of merged weights (default: the base model's, which rounds if it is short)"
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help=text)
    text = "let everybody use the state that Tinker keeps, in place of or beside files"
    parser.add_argument("--publish", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:
    if args.out is None and not args.publish:
        raise UsageError("give the folder with -o DIR, or --publish")
    if args.dtype is not None and args.form != "merged":
        raise UsageError("--dtype is the precision of merged weights: --as merged")
    with announced(f"opening {args.model}"):
        import rlc.service.engine  # noqa: F401 (before anything imports torch)
        from rlc.catalog import find_model
        from rlc.models import export_model, named_model, publish
        from rlc.runtime import command

        model = named_model(args.model, args.base, args.renderer, args.base_url)
    if args.publish:
        print(f"published: {publish(model, args.base_url)}")
    if args.out is not None:
        say = lambda text: print(text, file=sys.stderr)  # noqa: E731
        export_model(model, args.out, args.form, args.dtype, args.base_url, say)
        print(f"{args.form} of {model.weights} written to {args.out}")
        folder = args.out if args.out.is_absolute() else f"./{args.out}"
        field, known = f'weights = "{folder}"', find_model(model.base)
        if args.form == "merged":
            field, known = f'base = "{folder}"  renderer = "{model.renderer}"', None
        usual = known is not None and model.renderer in known.renderers[:1]
        option = "" if usual else f" --renderer {model.renderer}"
        print(f"  in a recipe beside it   {field}")
        print(f"  to talk to it           {command('chat', args.out)}{option}")
    return 0
