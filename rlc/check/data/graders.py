"""Graders against the rows that they grade: their own answers must be right.

Only `rlc check` of a recipe that names files, or a grader that needs them, comes here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rlc.check.data.rows import StageRows
from rlc.check.view import StageView
from rlc.data import (
    TRIED,
    DataError,
    DataRow,
    Grader,
    PackageMissingError,
    is_right,
    tried,
    wrongly_graded,
)
from rlc.plan import EnvPlan, GraderPlan

SECONDS = 3.0  # that a grader may take for them; those that are pure take none


def try_grader(view: StageView, env: EnvPlan, part: GraderPlan, files: Sequence[StageRows]) -> None:
    """Grade the answers of the first rows, and those of solved problems as they are shown."""
    path = f"envs.{env.name}.graders.{part.name}"
    try:
        grader = Grader(part.grader, env.args["answer"], part.args.get("pattern"))
    except PackageMissingError:
        return  # it may be where the recipe is run
    except DataError as error:
        view.report("RL0508", f"{path}.args.pattern", error.what, error.hint)
        return
    for rows in files:
        if os.path.isfile(view.located(rows.file)):
            _try_on(rows, grader, path)


def _try_on(rows: StageRows, grader: Grader, path: str) -> None:
    until, wrong, tried_on = time.monotonic() + SECONDS, list[DataRow](), 0
    for row in rows.sound(TRIED):
        if time.monotonic() > until:
            break
        answer = rows.complete(row.fields)[grader.answer]
        tried_on += 1
        if rows.solved:
            if is_right(grader, str(answer), row.fields) is False:
                message = f"`{grader.name}` calls this solved problem wrong as it is shown"
                advice = "write its answer as a reply is to give it, for example in `\\boxed{…}`"
                rows.error("RL0509", rows.path, message, advice, row.place)
                return
        elif tried(grader) and wrongly_graded(grader, row.fields):
            wrong.append(row)
    if 2 * len(wrong) > tried_on:
        shown = str(wrong[0].fields[grader.answer])[:60]
        count = f"{len(wrong)} of the first {tried_on}"
        message = f"`{grader.name}` calls the right answers wrong ({count}, such as {shown!r})"
        advice = "take another grader, or name the field that holds the `answer`"
        rows.error("RL0509", path, message, advice, wrong[0].place)
