"""Proof before payment: what can be known of a job before it is run.

Read ``grading`` first: it plays scripted replies through everything that a run does with them.
``auditing`` plays what knows nothing, and reports what that earns, as ``audit_findings``;
``scripted`` has the policies and judges that stand in for models. ``probe`` plays a few episodes
with the real model; ``evidence`` says what these, and earlier runs, have shown of episodes, from
which a plan is priced.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.proof.audit_findings import *
    from rlc.proof.auditing import *
    from rlc.proof.evidence import *
    from rlc.proof.grading import *
    from rlc.proof.probe import *
    from rlc.proof.recipe_tests import *
else:
    from rlc.doors import door

    __getattr__ = door(
        __name__,
        """
        audit_findings: RecipeAudit
        auditing: audit
        evidence: episodes_seen
        grading: EpisodeGrade GroupGrade grade
        probe: GROUPS ProbeResult probe_lines run_probe
        recipe_tests: RecipeTestResult RecipeTestResults run_recipe_tests
        """,
    )
