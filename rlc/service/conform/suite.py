"""All checks, in order, and how they are run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from fnmatch import fnmatchcase

import tinker
from tinker.types import RequestErrorCategory

from rlc.plan import elapsed
from rlc.service.conform import account, checkpoints, losses, sampling, training
from rlc.service.conform.measures import DiffersError, TokenCount
from rlc.service.conform.probe import Bench, Probe
from rlc.service.conform.records import Check, CheckOutcome, ConformReport, State
from rlc.service.hosted.clients import start_thread
from rlc.service.hosted.refusals import reported_to, translate
from rlc.service.interface import ServiceError

CHECKS: tuple[Check, ...] = (
    *account.FIRST,
    *sampling.CHECKS,
    *training.CHECKS,
    *losses.CHECKS,
    *checkpoints.CHECKS,
    *account.CHECKS,
)
# What all of them ask for, at most; a test compares it with what they do.
MOST_TOKENS = TokenCount(prefill=4_000, sample=600, train=4_500)


def chosen(patterns: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names, patterns or subjects; all without any. Raise ServiceError
    for one that is none of them."""
    found: list[Check] = []
    for pattern in patterns:
        named = [c for c in CHECKS if fnmatchcase(c.name, pattern) or _subject(c) == pattern]
        if not named:
            subjects = ", ".join(dict.fromkeys(map(_subject, CHECKS)))
            raise ServiceError(f"there is no check `{pattern}`", f"subjects: {subjects}")
        found += named
    return tuple(c for c in CHECKS if c in found) if patterns else CHECKS


def run_checks(
    bench: Bench,
    checks: Sequence[Check] = CHECKS,
    patience: float = 120.0,
    tell: Callable[[CheckOutcome], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> ConformReport:
    """Run checks, each for at most ``patience`` seconds, and clean up; blocks.

    ``tell`` hears of each finding at once, ``notice`` what the SDK says while it waits. What a
    check raises is its finding.
    """
    found = []

    def report(text: str, _: bool) -> None:
        if notice is not None:
            notice(text)

    with reported_to(report), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what the SDK calls deprecated is tried too
        try:
            for check in checks:
                found.append(_run(check, bench, patience))
                if tell is not None:
                    tell(found[-1])
        finally:
            bench.clean_up()
    return ConformReport(
        bench.endpoint.name, bench.base, bench.reference, tuple(found), bench.tokens
    )


def _subject(check: Check) -> str:
    return check.name.partition(".")[0]


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
    wrong = [*dict.fromkeys(_differences(probe)), *probe.wrong]
    if state == "holds" and wrong:
        state, said = "differs", "; ".join(wrong)
    return CheckOutcome(check, state, said, tuple(probe.measures), time.monotonic() - began)


def _differences(probe: Probe) -> Iterator[str]:
    for measure in probe.measures:
        if not measure.holds:
            yield f"{measure.what} differ by {measure.found:.3g}, at most {measure.allowed:g}"


def _is_refusal(error: BaseException) -> bool:
    """Whether the server does not know what it was asked for, or refuses it in its own words."""
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in (400, 403, 404, 405, 422, 501)
    return (
        isinstance(error, tinker.RequestFailedError) and error.category is RequestErrorCategory.User
    )
