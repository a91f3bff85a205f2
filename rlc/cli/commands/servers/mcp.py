"""``rlc mcp``: rlc as tools for coding agents, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from rlc.cli.output import UsageError, has_color
from rlc.errors import Error

HELP = "tools for coding agents"
DESCRIPTION = (
    "Serve a coding agent over standard input and output, by the Model Context Protocol: check, "
    "explain, catalog, plan, run, status, report. It runs only plans that a person has approved "
    "with --approve, and rehearsals that cost nothing. docs/mcp.md says how to register it."
)
EPILOG = """\
examples:
  rlc mcp                        what a coding agent starts
  rlc mcp ~/projects/shop        with paths that start there
  rlc mcp --approve plan.json    let an agent run this plan, once; asks at the terminal

exit status: 0 ended by the client, or approved; 1 not approved; 2 usage, or it cannot start
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "where paths start (default: the working directory)"
    parser.add_argument("folder", nargs="?", help=text)
    text = "show a saved plan, and ask whether it may be run once"
    parser.add_argument("--approve", metavar="PLAN", help=text)


def run(args: argparse.Namespace) -> int:
    if args.approve:
        if args.folder:
            raise UsageError("--approve serves nothing: give it alone")
        return _approve(args.approve)
    if not importlib.util.find_spec("mcp") or not importlib.util.find_spec("mcp.server.fastmcp"):
        advice = "pip install 'rlc[mcp]' 'mcp<2'"
        raise UsageError("the server needs mcp 1.24 or newer 1.x", advice)
    if args.folder:
        try:
            os.chdir(os.path.expanduser(args.folder))
        except OSError as error:
            raise UsageError(f"cannot work in {args.folder}: {error.strerror}") from error
    from rlc.cli.mcp_server import serve

    serve()
    return 0


def _approve(path: str) -> int:
    from rlc.api import explain, load_plan
    from rlc.cli.approved_runs import approve
    from rlc.plan import plan_hash

    plan = load_plan(path)
    if not sys.stdin.isatty():
        advice = "run this command in one yourself"
        raise UsageError("an approval is given by a person at a terminal", advice)
    sys.stdout.write(explain(plan).text(has_color(sys.stdout)))
    print(f"\nplan {plan_hash(plan)}")
    try:
        answer = input("let it be run once? [yes/no] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise Error("not approved")
    approve(plan)
    print("approved, for one run")
    return 0
