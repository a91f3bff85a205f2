"""Writes the grammars of editors that are made from the language's own.

python -m tools.editor_grammars
"""

from __future__ import annotations

import json
from pathlib import Path

from rlc.lsp.highlighting.textmate import textmate_grammar

EDITORS = Path(__file__).parents[1] / "editors"


def grammars() -> dict[Path, str]:
    """Return the text of each grammar by its file."""
    textmate = json.dumps(textmate_grammar(), indent=2, ensure_ascii=False)
    return {EDITORS / "vscode" / "syntaxes" / "rl.tmLanguage.json": f"{textmate}\n"}


if __name__ == "__main__":
    for path, text in grammars().items():
        path.write_text(text, encoding="utf-8")
        print(path)
