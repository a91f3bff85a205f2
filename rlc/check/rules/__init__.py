"""Rules on a stage: what goes together, and what cannot train as written.

A rule sees plan records, so it is about what will happen, not about how it was written. It runs
as soon as the parts that it needs could be read, whatever is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.check.rules import advantage, environments, model, sampling
from rlc.check.rules.base import Rule, View
from rlc.check.settle import Origins
from rlc.lang.diagnostics import Diagnostics

RULES: tuple[Rule, ...] = (
    *model.RULES,
    *environments.RULES,
    *advantage.RULES,
    *sampling.RULES,
)


def run_rules(parts: Mapping[str, Any], origins: Origins, found: Diagnostics) -> None:
    """Apply every rule whose parts are there."""
    view = View(dict(parts), origins, found)
    for rule in RULES:
        if all(part in parts for part in rule.needs):
            rule.check(view)
