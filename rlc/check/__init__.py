"""Names, types, ranges and rules: everything that can be wrong with a recipe that parses.

Read ``analyse`` first. ``scope`` collects declarations, ``uses`` copies and amends them,
``evaluate`` turns expressions into ``values`` (``scalars``, ``pipelines``, ``models``), ``bind``
binds arguments to parameters, ``stages`` puts stages together, and ``rules/`` check them.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.check.amendments import *
    from rlc.check.expectations import *
    from rlc.check.notes import *
    from rlc.check.rules import *
    from rlc.check.rules.recipe_tests import *
    from rlc.check.rules.run import *
    from rlc.check.scalars import *
    from rlc.check.scope import *
    from rlc.check.stages import *
    from rlc.check.trials.sweeps import *
    from rlc.check.values import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        amendments: Amendment filled nodes_in
        expectations: CheckedExpectation report_expectations
        notes: AXIS Annotations Annotator Arguments COMPARISON EXPECTATION EXPRESSION
            KEYS_ARE_NAMES MEASURE Note Role STAGE_OF_SWEEP SWEEP_OF_CLAIM WrittenDefault field_of
            fields_of
        rules: check_plan
        rules.recipe_tests: CheckedTest ValueComparison OfEpisode OfPlan CheckedCase same_tasks
        rules.run: report_budgets report_evaluations report_services report_states
        scalars: WORD bounds
        scope: NAMEABLE NamedDecl is_made known_values
        stages: CheckedStage TAKEN needed
        trials.sweeps: Axis CheckedSweep
        values: UnknownValue Value settle
        """,
    )
