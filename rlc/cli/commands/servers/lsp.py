"""``rlc lsp``: the language server, which editors start."""

from __future__ import annotations

import argparse
import importlib.util

from rlc.cli.output import UsageError

HELP = "the language server, for editors"
DESCRIPTION = (
    "Serve an editor over standard input and output, by the Language Server Protocol: findings as "
    "one types, completion, explanations, references, formatting. docs/editors.md says how to set "
    "editors up."
)
EPILOG = "exit status: 0 ended by the editor; 2 the server cannot start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "what it does anyway; some editors insist on saying it"
    parser.add_argument("--stdio", action="store_true", help=text)


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    if importlib.util.find_spec("pygls") is None:
        raise UsageError("the language server needs pygls", "pip install 'rlc[lsp]'")
    from rlc.lsp.server import serve

    serve()
    return 0
