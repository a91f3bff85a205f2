"""``rlc mcp``: rlc as tools for coding agents, by the Model Context Protocol."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from rlc.cli.output import has_color, print_error

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
    parser.add_argument(
        "folder", nargs="?", help="where paths start (default: the working directory)"
    )
    parser.add_argument(
        "--approve", metavar="PLAN", help="show a saved plan, and ask whether it may be run once"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the client ends it, or ask for an approval; return the exit status."""
    if args.approve:
        if args.folder:
            return print_error("--approve serves nothing: give it alone", 2)
        return _approve(args.approve)
    if not importlib.util.find_spec("mcp") or not importlib.util.find_spec("mcp.server.fastmcp"):
        return print_error(
            "the server needs mcp 1.24 or newer 1.x", 2, "pip install 'rlc[mcp]' 'mcp<2'"
        )
    if args.folder:
        try:
            os.chdir(os.path.expanduser(args.folder))
        except OSError as error:
            return print_error(f"cannot work in {args.folder}: {error.strerror}", 2)
    from rlc.cli.mcp.server import serve

    serve()
    return 0


def _approve(path: str) -> int:
    from rlc.api import explain, load_plan
    from rlc.cli.mcp.approvals import approve
    from rlc.plan import plan_hash

    plan = load_plan(path)
    if not sys.stdin.isatty():
        return print_error(
            "an approval is given by a person at a terminal", 2, "run this command in one yourself"
        )
    sys.stdout.write(explain(plan).text(has_color(sys.stdout)))
    print(f"\nplan {plan_hash(plan)}")
    try:
        answer = input("let it be run once? [yes/no] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        return print_error("not approved")
    approve(plan)
    print("approved, for one run")
    return 0
