"""``rlc audit``: what the rewards of a recipe can be earned without."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rlc.cli.commands.recipes.grade import plan_of
from rlc.cli.options import add_base_url, add_plan_options, usd
from rlc.cli.output import announced, has_color, visible

if TYPE_CHECKING:
    from rlc.lang import Diagnostics
    from rlc.proof import RecipeAudit

HELP = "find what the rewards of a recipe can be earned without"
DESCRIPTION = (
    "Try replies and players that know nothing on each environment of a recipe, beside right and "
    "wrong answers: what earns without the work is a finding, with a reply that shows it. Without "
    "--budget no model is asked, there is no key and no cost; graders and environments are run, in "
    "processes of their own. The result is kept in .rlc/audits beside the recipe, and counts until "
    "the environment, its data or its code change."
)
EPILOG = """\
examples:
  rlc audit maths.rl
  rlc audit maths.rl --env heldout
  rlc audit essays.rl --budget 0.50      the judges themselves, too
  rlc audit maths.rl --format github     annotations in a pull request
  rlc explain RL0690                     what a finding means

exit status: 0 no errors (warnings allowed), 1 errors found, 2 usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="the recipe (.rl), or a saved plan (.json)")
    add_plan_options(parser)
    parser.add_argument("--env", help="an environment (default: all)")
    formats, text = ("text", "json", "sarif", "github"), "how findings are printed"
    parser.add_argument("--format", choices=formats, default="text", help=text)
    text = "seconds for all environments together (default 16); what takes longer is not kept"
    parser.add_argument("--seconds", type=_seconds, default=16.0, help=text)
    text = "ask the judges themselves about a few replies, for at most so many dollars"
    parser.add_argument("--budget", type=usd, metavar="USD", help=text)
    add_base_url(parser)
    text = "do not keep the result beside the recipe"
    parser.add_argument("--no-keep", dest="keep", action="store_false", help=text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("a number of seconds from 1 to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    from rlc.api import RecipeError
    from rlc.proof import audit

    try:
        plan = plan_of(args)
    except RecipeError as error:
        if args.format not in ("github", "sarif"):
            raise
        _print_findings(error.diagnostics, args.format)
        return 1
    with announced(f"auditing {args.recipe}", args.format != "text"):
        asked = args.budget, args.base_url, partial(print, file=sys.stderr)
        found = audit(plan, args.env, args.keep, args.seconds, *asked)
    diagnostics = found.diagnostics()
    if args.format == "text":
        from rlc.lang.render import render_human

        if diagnostics:
            sys.stdout.write(render_human(diagnostics, color=has_color(sys.stdout)))
        sys.stdout.write("".join(f"{visible(line)}\n" for line in _summary(found)))
    elif args.format == "json":
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_findings(diagnostics, args.format)
    return int(diagnostics.has_errors)


def _print_findings(found: Diagnostics, format: str) -> None:
    from rlc.lang import render_github, render_sarif
    from rlc.version import __version__

    if format == "github":
        sys.stdout.write(render_github(found))
    else:
        print(render_sarif(found, __version__))


def _summary(found: RecipeAudit) -> Iterator[str]:
    for one in found.environments:
        count = len(one.findings)
        said = f"{count} finding{'s' * (count != 1)}"
        if not one.key:
            said = f"{said} so far, not kept" if one.replies else "not audited"
        yield f"{one.env}: {said}, {one.replies} replies in {one.seconds:.1f} s"
        yield from (f"  note: {note}" for note in one.notes)
