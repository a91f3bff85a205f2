"""Python code that a recipe names, imported and tried in a process of its own: `rlc check` goes on,
regardless of what it does there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import sysconfig
import traceback
from typing import Literal

from rlc.data.code.calls import Code
from rlc.data.code.functions import load_attribute, require_fits, search_beside, signature_of
from rlc.data.errors import DataError, FilePlace
from rlc.data.grading.rewards import Messages, Reward
from rlc.data.rows import DataRow
from rlc.plan import GraderPlan
from rlc.records import frozen

SECONDS = 180.0  # within which code must have been imported and tried
_SHOWN = 4  # places of the user's own code that led to an error

Step = Literal["import", "call", "reward"]


@frozen
class CodeFailure:
    """What is wrong with code, found when it was imported, compared with its ``call``, or tried as
    a ``reward``. ``places``: where in the user's own code the error was raised, then who called."""

    step: Step
    error: DataError
    places: tuple[FilePlace, ...] = ()


@frozen
class CodeTrial:
    """Code to be tried for a recipe. A reward, as ``grader``, is given the first ``rows``, each
    with its prompt; ``answer`` is the field of the right answer."""

    recipe: str
    code: Code
    grader: GraderPlan | None = None
    answer: str | None = None
    rows: tuple[tuple[DataRow, Messages], ...] = ()

    def failed(self) -> CodeFailure | None:
        """What is wrong with it; None if nothing is. Blocks until a process has tried it."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", __name__],
                input=pickle.dumps(self),
                capture_output=True,
                timeout=SECONDS,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            what = f"`{self.code.target}` was not imported and tried in {SECONDS:.0f} seconds"
            return CodeFailure("import", DataError(what))
        if done.stdout:
            answer: CodeFailure | None = pickle.loads(done.stdout)
            return answer
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        what = f"`{self.code.target}` ended Python with exit status {done.returncode}"
        return CodeFailure("import", DataError(what, f"it wrote: {last[0]}" if last else None))

    def failed_here(self) -> CodeFailure | None:
        """As :meth:`failed`, in this process."""
        search_beside(self.recipe)
        step: Step = "import"
        try:
            function = load_attribute(self.code.target)
            step = "call"
            require_fits(self.code, signature_of(function))
            step = "reward"
            if self.grader is not None:
                asked = {id(row): messages for row, messages in self.rows}
                rows = [row for row, _ in self.rows]
                reward = Reward((self.grader,), self.answer, 0.0)
                reward.try_on(rows, self.recipe, lambda row: asked[id(row)])
        except DataError as error:
            return CodeFailure(step, error, _places(error.__cause__ or error))
        return None


def _places(error: BaseException) -> tuple[FilePlace, ...]:
    """Where the user's own code was when an error was raised, the innermost place first."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return (FilePlace(error.filename, error.lineno, error.lineno, error.offset),)
    others = [sysconfig.get_path("stdlib"), *map(sysconfig.get_path, ("purelib", "platlib"))]
    others.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    return tuple(
        FilePlace(frame.filename, frame.lineno or 1, frame.lineno or 1)
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if os.path.isfile(frame.filename)
        and not any(frame.filename.startswith(os.path.join(other, "")) for other in others)
    )[:_SHOWN]


def _main() -> None:
    """Answer one trial. What the code prints goes to standard error; threads may be left behind."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    trial = pickle.load(sys.stdin.buffer)
    with answer:
        pickle.dump(trial.failed_here(), answer)
    os._exit(0)


if __name__ == "__main__":
    _main()
