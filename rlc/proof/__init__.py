"""Proof before payment: what can be known of a recipe without a model, a key or a network.

Read ``grading`` first: it plays scripted replies through everything that a run does with them.
``auditing`` plays what knows nothing, and reports what that earns;
``scripted`` has the policies and judges that stand in for models.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.proof.auditing import *
    from rlc.proof.grading import *
    from rlc.proof.recipe_tests import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        auditing: RecipeAudit audit
        grading: EpisodeGrade GroupGrade grade
        recipe_tests: RecipeTestResult RecipeTestResults run_recipe_tests
        """,
    )
