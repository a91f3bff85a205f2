"""``rlc lsp``: the language server, which editors start."""

from __future__ import annotations

import argparse
import importlib.util

from rlc.cli.output import print_error

HELP = "the language server, for editors"
DESCRIPTION = (
    "Serve an editor over standard input and output, by the Language Server Protocol: findings as "
    "one types, completion, explanations, references, formatting. docs/editors.md says how to set "
    "editors up."
)
EPILOG = "exit status: 0 ended by the editor; 2 the server cannot start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stdio", action="store_true", help="what it does anyway; some editors insist on saying it"
    )


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    """Serve until the editor ends it, and return the exit status."""
    if importlib.util.find_spec("pygls") is None:
        return print_error("the language server needs pygls", 2, "pip install 'rlc[lsp]'")
    from rlc.lsp.server import serve

    serve()
    return 0
