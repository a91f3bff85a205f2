"""Every diagnostic code and its title, once. Tests hold that each code is raised somewhere."""

from __future__ import annotations

CODES: dict[str, str] = {
    # RL00xx: reading and syntax (rlc/lang)
    "RL0001": "file not found",
    "RL0002": "file cannot be read",
    "RL0003": "file is not text",
    "RL0004": "file too large",
    "RL0005": "file is empty",
    "RL0006": "file cannot be written",
    "RL0010": "syntax error",
    "RL0011": "brackets do not match",
    "RL0012": "malformed string",
    "RL0013": "unknown escape in a string",
    "RL0014": "malformed number",
    "RL0015": "character without a meaning",
    "RL0016": "expression nested too deeply",
    # RL01xx: names (rlc/check)
    # RL02xx: types and ranges (rlc/check)
    # RL03xx: structure: what a recipe must have (rlc/check)
    # RL04xx: lints about training that cannot work as written (rlc/check)
}
