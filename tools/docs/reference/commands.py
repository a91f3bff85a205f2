"""What the commands say with ``--help``."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from unittest.mock import patch

from rlc.cli.main import COMMANDS, main
from tools.docs.markdown import fenced, page, slug, table

_COLUMNS = "88"


def command_page() -> str:
    """Return the page of all commands, with a part for each."""
    modules = {
        name: import_module(f"rlc.cli.commands.{module}") for name, module in COMMANDS.items()
    }
    rows = [
        (f"[`rlc {name}`](#{slug(f'rlc {name}')})", module.HELP) for name, module in modules.items()
    ]
    return page(
        "# Commands",
        table(("command", "what it does"), rows),
        *(f"## `rlc {name}`\n\n{fenced(help_of(name))}" for name in COMMANDS),
    )


def help_of(*command: str) -> str:
    """Return what a command says with ``--help``."""
    said = io.StringIO()
    environment: Mapping[str, str] = {"COLUMNS": _COLUMNS, "NO_COLOR": "1"}
    with patch.dict(os.environ, environment), redirect_stdout(said), suppress(SystemExit):
        main([*command, "--help"])
    return said.getvalue()
