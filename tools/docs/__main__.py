"""Builds the documentation site.

python -m tools.docs [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.errors import SphinxError

from tools.docs.build import build


def main(arguments: list[str]) -> int:
    site = Path(arguments[0] if arguments else "build/site")
    try:
        warnings = build(site, site.with_name(f"{site.name}.work"))
    except SphinxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(warnings, end="", file=sys.stderr)
    print(site / "index.html")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
