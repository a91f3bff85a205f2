"""What a reply earns"""

from __future__ import annotations

import re

from math_verify import parse, verify  # type: ignore[import-untyped]
from tinker_cookbook.recipes.math_rl.math_grading import extract_boxed, grade_answer

from rlc.data import final_answer

DataError = ValueError  # of rlc's own functions, here


def graded_math(reply: str, gold: str) -> float | None:
    """Equality by math-verify of an answer that is marked; None without one."""
    answer = final_answer(reply)
    if answer is None or len(answer) > 2_000:
        return None
    if all(re.fullmatch(r"-?[0-9]{1,18}", text) for text in (answer, gold)):
        return float(int(answer) == int(gold))
    meant, expected = (parse(f"\\boxed{{{text}}}") for text in (answer, gold))
    return float(verify(expected, meant)) if meant else None


def graded_cookbook_math(reply: str, gold: str) -> float | None:
    """The grade of the cookbook's `math_rl`; None without an answer in a box."""
    try:
        answer = extract_boxed(reply)
    except ValueError:
        return None
    return float(grade_answer(answer, gold))
