"""Writes what editors colour with and is made from something else: the TextMate grammar from the
language's own, the parser of tree-sitter from its grammar, and the queries of editors that have
other names for the same from those of tree-sitter.

python -m tools.editor_grammars
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.textmate import textmate_grammar

EDITORS = Path(__file__).parents[1] / "editors"
TREE_SITTER = EDITORS / "tree-sitter-rl"
DIGEST = TREE_SITTER / "src" / "grammar.js.sha256"

# What Helix calls the captures of which it has no theme by the common name.
HELIX = {
    "number": "constant.numeric",
    "boolean": "constant.builtin.boolean",
    "string.escape": "constant.character.escape",
    "property": "variable.other.member",
    "keyword.import": "keyword.control.import",
    "local.definition.parameter": "local.definition.variable.parameter",
}


def grammars() -> dict[Path, str]:
    """Return the text of each generated file but the parser's, by its path."""
    textmate = json.dumps(textmate_grammar(), indent=2, ensure_ascii=False)
    found = {EDITORS / "vscode" / "syntaxes" / "rl.tmLanguage.json": f"{textmate}\n"}
    for name in ("highlights", "injections", "locals"):
        text = (TREE_SITTER / "queries" / f"{name}.scm").read_text("utf-8")
        helix = re.sub(r"@([\w.]+)", lambda found: f"@{HELIX.get(found[1], found[1])}", text)
        found[EDITORS / "helix" / "queries" / f"{name}.scm"] = helix
        if name != "locals":  # Zed has none
            found[EDITORS / "zed" / "languages" / "rl" / f"{name}.scm"] = text
    return found


def digest() -> str:
    """Return the digest of the grammar from which the parser in ``src/`` is to be."""
    return hashlib.sha256((TREE_SITTER / "grammar.js").read_bytes()).hexdigest() + "\n"


def generate(folder: Path) -> None:
    """Write ``src/`` of the copy of tree-sitter-rl in ``folder`` from its grammar.

    Raise FileNotFoundError if the command ``tree-sitter`` is not there.
    """
    command = tree_sitter()
    if command is None:
        raise FileNotFoundError("tree-sitter is missing: npm install -g tree-sitter-cli@0.22.6")
    subprocess.run([command, "generate", "--no-bindings"], cwd=folder, check=True)


def tree_sitter() -> str | None:
    """Return the command of tree-sitter: ``$TREE_SITTER``, or that on the path."""
    return os.environ.get("TREE_SITTER") or shutil.which("tree-sitter")


def main() -> int:
    """Write all that is not up to date."""
    for path, text in grammars().items():
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)
    if not DIGEST.is_file() or DIGEST.read_text("utf-8") != digest():
        try:
            generate(TREE_SITTER)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
        DIGEST.write_text(digest(), encoding="utf-8")
        print(DIGEST.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
