"""Grading of GEM's math environments, in a process of its own.

GEM limits the time of its grader with a signal, which works in the main thread only and has no
effect inside a long calculation of a C library. `python -m rlc.envs.gem.math` reads [reply, answer]
and writes true or false, as lines of JSON.
"""

from __future__ import annotations

from typing import Any

from rlc.data import SubprocessPool, serve

SECONDS = 1  # GEM's own limit
_PATIENCE = 10.0  # seconds until a grader that does not answer is replaced


def math_grader() -> SubprocessPool:
    """Return a pool that says whether a reply is right; None, as wrong for GEM, if too late."""
    return SubprocessPool("rlc.envs.gem.math", _PATIENCE, most=1)


def main() -> None:
    from gem.envs.math_env import MathEnv
    from gem.utils.math_grader import run_with_timeout_signal

    def is_correct(reply: str, answer: Any) -> bool:
        graded = run_with_timeout_signal(
            MathEnv.check_correct, args=(reply, answer), timeout_seconds=SECONDS
        )
        return bool(graded)

    serve(is_correct)


if __name__ == "__main__":
    main()
