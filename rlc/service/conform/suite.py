"""All checks, in order, and how they are run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from fnmatch import fnmatchcase

import tinker
from tinker.types import RequestErrorCategory

from rlc.plan import elapsed
from rlc.service.conform import account, sampling, training  # noqa: F401 (register checks)
from rlc.service.conform.probe import (
    REGISTERED,
    Bench,
    Check,
    CheckOutcome,
    ConformReport,
    DiffersError,
    Probe,
    State,
    TokenCount,
)
from rlc.service.hosted.refusals import reported_to, translate
from rlc.service.hosted.sdk import start_thread
from rlc.service.hosted.service import require_reachable
from rlc.service.interface import ServiceError, ServiceLostError

# In the order in which they are checked.
_SUBJECTS = "server, sampling, training, losses, custom, optimizer, checkpoints, account"
CHECKS: tuple[Check, ...] = tuple(
    sorted(REGISTERED, key=lambda check: _SUBJECTS.index(check.subject))
)
# Tokens of all checks, at most; a test compares it with what they process.
MOST_TOKENS = TokenCount(prefill=4_000, sample=600, train=6_000)


def chosen(patterns: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names, patterns or subjects; all without any. Raise ServiceError
    for one that is none of them."""
    found: list[Check] = []
    for pattern in patterns:
        named = [c for c in CHECKS if fnmatchcase(c.name, pattern) or c.subject == pattern]
        if not named:
            raise ServiceError(f"there is no check `{pattern}`", f"subjects: {_SUBJECTS}")
        found += named
    return tuple(c for c in CHECKS if c in found) if patterns else CHECKS


def run_checks(
    bench: Bench,
    checks: Sequence[Check] = CHECKS,
    patience: float = 120.0,
    tell: Callable[[CheckOutcome], None] | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> ConformReport:
    """Run checks, each for at most ``patience`` seconds, and clean up; blocks. ``tell`` is called
    with each outcome at once, ``notice`` with messages of the SDK. An error of a check is its
    outcome; where the server has died, that of all others."""
    found, lost = list[CheckOutcome](), ""
    with reported_to(lambda text, _: notice(text)), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what the SDK calls deprecated is tried too
        try:
            for check in checks:
                gone = CheckOutcome(check, "fails", lost, (), 0.0)
                found.append(gone if lost else _run(check, bench, patience))
                if tell is not None:
                    tell(found[-1])
                if found[-1].state == "fails" and not lost:
                    lost = _lost(bench)
        finally:
            if not lost:
                bench.clean_up()
    return ConformReport(
        bench.endpoint.name, bench.base, bench.reference, tuple(found), bench.tokens
    )


def _lost(bench: Bench) -> str:
    """Return why a server cannot be reached any more; nothing if it can."""
    try:
        require_reachable(bench.endpoint)
    except ServiceLostError as error:
        return error.message
    return ""


def _run(check: Check, bench: Bench, patience: float) -> CheckOutcome:
    began = time.monotonic()
    probe = Probe(bench, began + patience)
    try:
        # The SDK retries for minutes, and some of its calls block until then.
        start_thread(lambda: check.run(probe)).result(patience)
        state: State = "holds"
        said = "; ".join(probe.notes)
    except OutOfTime:
        state, said = "fails", f"no answer within {elapsed(patience)}"
    except DiffersError as error:
        state, said = "differs", str(error)
    except Exception as error:
        state = "lacks" if _is_refusal(error) else "fails"
        said = str(translate(error, "the server"))
    differences = (str(measure) for measure in probe.measures if not measure.holds)
    wrong = [*dict.fromkeys(differences), *probe.wrong]
    if state == "holds" and wrong:
        state, said = "differs", "; ".join(wrong)
    return CheckOutcome(check, state, said, tuple(probe.measures), time.monotonic() - began)


def _is_refusal(error: BaseException) -> bool:
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in (400, 403, 404, 405, 422, 501)
    return (
        isinstance(error, tinker.RequestFailedError) and error.category is RequestErrorCategory.User
    )
