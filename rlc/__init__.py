"""A compiler for reinforcement-learning post-training recipes.

The functions here do what the commands of the same names do::

    import rlc

    recipe = rlc.load("recipes/quickstart.rl", set={"main.steps": 10})
    recipe.check()              # the findings, empty if there are none
    print(recipe.explain())     # values with their origins, formulas, graph, cost
    rlc.audit(recipe).findings  # what earns its rewards without the work
    rlc.grade(recipe, "\\boxed{5}")  # what a run would make of a reply
    summary = rlc.run(recipe)   # train; the summary has the checkpoint and the rewards
    summary.history["main"]["reward/mean"]  # by step, as rlc.history("runs/x") reads it
    summary.model().chat("2 + 3 = ?")  # talk to what was trained, as rlc.model("runs/x") does
    rlc.resume(summary.folder)  # continue a run that was interrupted
    rlc.sweep("recipes/learning_rates.rl").best  # of the runs that a `sweep` declares
    rlc.replay("runs/x", set={"main.loss": "ppo()"})  # what another scheme would have taught

Every error that rlc raises for its user derives from `rlc.Error`, which has a ``message`` and a
``hint``.
"""

from __future__ import annotations

from rlc.version import __version__ as __version__

TYPE_CHECKING = False  # importing typing would take longer than all of this
if TYPE_CHECKING:
    from rlc.api import (
        Explanation,
        Recipe,
        RecipeError,
        explain,
        load,
        load_plan,
        replay,
        run,
        sweep,
    )
    from rlc.errors import Error
    from rlc.models.model import Model, model, resume
    from rlc.plan.records import Plan
    from rlc.replays.texts import Replay
    from rlc.rewards import audit, grade, test
    from rlc.runtime.reuse.storage import Storage, stored
    from rlc.runtime.start import ExpectationError
    from rlc.runtime.summary import History, Observer, Summary, history
    from rlc.spending import bill, change_since, probe
    from rlc.sweeps.claims import ClaimResult
    from rlc.sweeps.journal import SweepSummary
    from rlc.sweeps.start import resume_sweep
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        api: Explanation Recipe RecipeError explain load load_plan replay run sweep
        errors: Error
        models.model: Model model resume
        plan.records: Plan
        replays.texts: Replay
        rewards: audit grade test
        runtime.summary: History history
        runtime.reuse.storage: Storage stored
        runtime.start: ExpectationError
        runtime.summary: Observer Summary
        sweeps.claims: ClaimResult
        spending: bill change_since probe
        sweeps.journal: SweepSummary
        sweeps.start: resume_sweep
        """,
    )

__all__ = [
    "ClaimResult",
    "Error",
    "ExpectationError",
    "Explanation",
    "History",
    "Model",
    "Observer",
    "Plan",
    "Recipe",
    "RecipeError",
    "Replay",
    "Storage",
    "Summary",
    "SweepSummary",
    "audit",
    "bill",
    "change_since",
    "explain",
    "grade",
    "history",
    "load",
    "load_plan",
    "model",
    "probe",
    "replay",
    "resume",
    "resume_sweep",
    "run",
    "stored",
    "sweep",
    "test",
]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
