"""The house: which room may know which, and what the light commands may import."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A room may import the rooms named here, and nothing else of rlc.
MAY_IMPORT = {
    "lang": set[str](),
    "algo": set[str](),
    "catalog": {"lang", "algo", "plan.tree"},
    "check": {"lang", "algo", "catalog", "plan.tree"},
    "plan": {"lang", "algo", "catalog", "check"},
    "envs": {"plan.tree"},
    "service": {"algo", "catalog", "plan.tree"},
    "run": {"algo", "catalog", "envs", "plan", "service"},
    "report": {"lang", "catalog", "plan", "run"},
    "imports": {"lang", "catalog"},
    "emit": {"algo", "catalog", "envs.templates", "plan"},
    "cli": {
        "api",
        "emit",
        "imports",
        "lang",
        "algo",
        "catalog",
        "check",
        "plan",
        "envs",
        "report",
        "run",
        "service",
    },
}
FOUNDATION = {"record"}  # records, which every room makes
HEAVY = {"torch", "transformers", "tinker", "gem", "numpy", "reasoning_gym", "tinker_cookbook"}


def imported_modules(path: Path) -> set[str]:
    """Modules of rlc that a file names in an import, without the leading ``rlc.``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlc."):
            found.add(str(node.module).removeprefix("rlc."))
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            found |= {name.removeprefix("rlc.") for name in names if name.startswith("rlc.")}
    return found


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_rooms_import_only_what_they_may_know(room: str) -> None:
    allowed = MAY_IMPORT[room] | FOUNDATION | {room}
    for path in sorted((ROOT / "rlc" / room).rglob("*.py")):
        for module in imported_modules(path):
            known = module in allowed or module.split(".")[0] in allowed
            assert known, f"{path.relative_to(ROOT)} imports rlc.{module}"


def modules_after(arguments: list[str]) -> set[str]:
    """Top-level modules that a command has imported when it ends."""
    code = (
        "import sys, json\n"
        "from rlc.cli.main import main\n"
        f"assert main({arguments!r}) == 0\n"
        "print('\\n' + json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize("recipe", ["quickstart", "sudoku"])
def test_check_is_light(recipe: str) -> None:
    loaded = modules_after(["check", f"recipes/{recipe}.rl"])
    assert not loaded & (HEAVY | {"rich", "cattrs", "jinja2"})


def test_explain_needs_neither_engine_nor_environments() -> None:
    assert not modules_after(["explain", "recipes/quickstart.rl"]) & HEAVY
