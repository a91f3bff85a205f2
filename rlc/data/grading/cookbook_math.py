"""The grader of tinker-cookbook's `math_rl`, by its own functions, in processes that can be ended:
SymPy may take hours for a comparison."""

from __future__ import annotations

import importlib

from rlc.data.grading.math_equivalence import serve, shared_pool

_PATIENCE = 5.0


def grade(reply: str, gold: str) -> float | None:
    """Return 1 or 0 for the answer in a box, 0 too if that takes too long; None without a box.
    Blocks. Raise DataError if the cookbook's grader does not start."""
    found = shared_pool(__name__, _PATIENCE).ask(reply, gold)
    if found is None:
        return 0.0
    boxed, right = found
    return float(right) if boxed else None


def main() -> None:
    grading = importlib.import_module("tinker_cookbook.recipes.math_rl.math_grading")

    def graded(reply: str, gold: str) -> tuple[bool, bool]:
        try:
            answer = grading.extract_boxed(reply)
        except ValueError:
            return False, False
        try:
            return True, bool(grading.grade_answer(answer, gold))
        except Exception:  # as the cookbook, which grades it as wrong
            return True, False

    serve(graded)


if __name__ == "__main__":
    main()
