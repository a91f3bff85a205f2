"""A process that answers questions: with their doubles, too late, or not at all."""

import os
import time
from typing import Any

from rlc.data.grading.math_equivalence import serve


def answer(question: Any) -> list[Any]:
    if question == "hang":
        time.sleep(600)
    if question == "die":
        os._exit(1)
    return [question, question]


serve(answer)
