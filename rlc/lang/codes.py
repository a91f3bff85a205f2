"""The codes of diagnostics, each with the title of its page in ``pages/``."""

from __future__ import annotations

import os
from functools import cache

# What the codes of a hundred are about.
TOPICS: dict[str, str] = {
    "RL00": "reading and syntax",
    "RL01": "names",
    "RL02": "types and ranges",
    "RL03": "structure: what a recipe must have",
    "RL04": "training that cannot work as written",
    "RL05": "data, rewards, messages",
    "RL06": "sweeps, reuse, own losses, expectations",
    "RL07": "preferences, distillation, judges, games, frameworks",
    "RL08": "agents, and jobs that run elsewhere",
}


@cache
def code_titles() -> dict[str, str]:
    """Return every code with its title, which the first line of its page has: ``# CODE: title``."""
    folder, found = os.path.join(os.path.dirname(__file__), "pages"), dict[str, str]()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".md"):
            with open(os.path.join(folder, name), encoding="utf-8") as page:
                code, _, title = page.readline().removeprefix("# ").rstrip().partition(": ")
            found[code] = title
    return found
