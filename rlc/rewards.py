"""What rewards make of replies, from Python, before anything is paid for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlc.api import Recipe, plan_of
from rlc.lang import recipe_files

if TYPE_CHECKING:
    from rlc.plan import Plan
    from rlc.proof import GroupGrade, RecipeAudit, RecipeTestResults


def grade(
    job: Plan | Recipe | str | os.PathLike[str],
    replies: str | Sequence[str | Sequence[str]],
    env: str | None = None,
    task: int | Mapping[str, Any] = 0,
    judge: float | Mapping[str, float] | Sequence[float] | None = None,
) -> GroupGrade:
    """Return what a run would make of replies, as `rlc grade` shows it; no model is asked.

    The replies go through the prompt, the parser, the grader, judges, the shaping of rewards and
    the limits of the run. What fails in code of one's own is in the result, with its traceback.

    Args:
        job: a recipe, a plan, or the path of either.
        replies: a reply; or a list with an item for each member of a group, which is a text, or a
            conversation: the list of its replies.
        env: the name of an environment, if the job has several.
        task: the number of a task in the run, from 0; or a row of data.
        judge: what judges say, from 0 to 1: of every reply, of each in order, or by their names.

    Raises:
        rlc.RecipeError: the recipe has errors.
        rlc.Error: there is no such environment, or it cannot be made; there is no reply.

    Example::

        graded = rlc.grade("maths.rl", "\\boxed{4}", task={"question": "2 + 2?", "answer": "4"})
        assert graded.reward == 1
        first, second = rlc.grade("maths.rl", ["4", "5"]).episodes
    """
    from rlc.proof import grade as grade_replies

    return grade_replies(plan_of(job), replies, env, task, judge)


def audit(
    job: Plan | Recipe | str | os.PathLike[str],
    env: str | None = None,
    keep: bool = True,
    seconds: float = 16.0,
    budget: float | None = None,
    base_url: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> RecipeAudit:
    """Return what the rewards of a job can be earned without, as `rlc audit` finds it.

    Args:
        job: a recipe, a plan, or the path of either.
        env: an environment; None for all.
        keep: whether the result is kept beside the recipe, where `rlc explain`, `rlc run` and
            `expect main.audit.findings == 0` read it.
        seconds: for all environments together; an audit that takes longer is not kept.
        budget: USD within which judges are asked; None asks none.
        base_url: the address of a Tinker server to ask instead of the hosted service.
        note: a function that is told what may be spent before it is.

    Raises:
        rlc.RecipeError: the recipe has errors.
        rlc.Error: there is no such environment, or no judge to ask. One that cannot be made has a
            note in its :class:`EnvironmentAudit`.

    Example::

        for finding in rlc.audit("maths.rl").findings:
            print(finding.code, finding.message, finding.reply)
    """
    from rlc.proof import audit as audit_plan

    return audit_plan(plan_of(job), env, keep, seconds, budget, base_url, note)


def test(
    *paths: str | os.PathLike[str],
    keyword: str = "",  # noqa: PT028 (no test of rlc)
) -> RecipeTestResults:
    """Run the tests of recipes, as `rlc test` does; no model is asked but the tiny one.

    Args:
        paths: recipes, or folders of them.
        keyword: what has to stand in ``PATH::NAME`` of a test; by default all run.

    Returns:
        The results, true if none failed: each of the ``results`` has ``recipe``, ``name``,
        ``state``, ``findings``, ``why`` it was skipped, and ``seconds``. A recipe with errors is
        one that failed, without a name. A folder without tests has none.

    Raises:
        rlc.Error: a folder has no recipe.

    Example::

        assert rlc.test("recipes", keyword="strict")
    """
    from rlc.proof import run_recipe_tests

    return run_recipe_tests(recipe_files([os.fspath(path) for path in paths]), keyword)
