"""Rules on a stage: what goes together, and what cannot train as written.

A rule sees plan records, so it is about what will happen, not about how it was written. It runs
as soon as the parts that it needs could be read, whatever is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlc.check.rules import advantage, environments, evaluation, loss, model, run, sampling
from rlc.check.rules.base import Rule, View
from rlc.check.stages import CheckedStage
from rlc.lang.diagnostics import Diagnostics

RULES: tuple[Rule, ...] = (
    *model.RULES,
    *environments.RULES,
    *advantage.RULES,
    *loss.RULES,
    *sampling.RULES,
    *evaluation.RULES,
    *run.RULES,
)
_CHECKS = [(frozenset(rule.needs), rule.check) for rule in RULES]


def run_rules(stage: CheckedStage, stages: Mapping[str, CheckedStage], found: Diagnostics) -> None:
    """Apply every rule whose parts are there."""
    after = stages.get(stage.parts.get("after") or "")
    view = View(stage.parts, stage.origins, found, after.parts if after else {})
    known = stage.parts.keys()
    for needs, check in _CHECKS:
        if needs <= known:
            check(view)
