"""Every diagnostic code and its title, once. Tests hold that each code is raised somewhere."""

from __future__ import annotations

CODES: dict[str, str] = {
    # RL00xx: reading and syntax (rlc/lang)
    # RL01xx: names (rlc/check)
    # RL02xx: types and ranges (rlc/check)
    # RL03xx: structure: what a recipe must have (rlc/check)
    # RL04xx: lints about training that cannot work as written (rlc/check)
}
