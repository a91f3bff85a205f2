"""A check, how a function becomes one, and what it has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from attrs import asdict, frozen

from rlc.service.conform.measures import MeasuredDifference, TokenCount
from rlc.service.conform.probe import Probe

# `lacks`: the server does not know it, or refuses it by name; `fails`: an error, or no answer.
State = Literal["holds", "differs", "lacks", "fails"]


@frozen
class Check:
    """A promise of the protocol, and how it is tried.

    ``name`` begins with its subject: ``losses.ppo``. ``calls`` are the SDK's methods that it is
    about. What is not ``required`` may be lacking in a server that conforms.
    """

    name: str
    promise: str
    calls: tuple[str, ...]
    run: Callable[[Probe], None]
    required: bool = True


@frozen
class CheckOutcome:
    """What a check has found. ``said``: what differs, or the server's own words."""

    check: Check
    state: State
    said: str
    measures: tuple[MeasuredDifference, ...]
    seconds: float

    @property
    def conforms(self) -> bool:
        return self.state == "holds" or (self.state == "lacks" and not self.check.required)

    @property
    def worst(self) -> MeasuredDifference | None:
        """The measure that is nearest to what is allowed, or furthest beyond it."""
        return max(self.measures, key=lambda m: m.found / m.allowed, default=None)


@frozen
class ConformReport:
    """All findings about a server; ``reference`` names the model that its logprobs were compared
    with, None if it is not at hand."""

    server: str
    model: str
    reference: str | None
    found: tuple[CheckOutcome, ...]
    tokens: TokenCount

    @property
    def conforms(self) -> bool:
        return all(found.conforms for found in self.found)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the report as values of JSON."""
        return {
            "server": self.server,
            "model": self.model,
            "reference": self.reference,
            "conforms": self.conforms,
            "tokens": asdict(self.tokens),
            "checks": [
                {
                    "name": found.check.name,
                    "promise": found.check.promise,
                    "calls": list(found.check.calls),
                    "required": found.check.required,
                    "state": found.state,
                    "said": found.said,
                    "measures": [asdict(measure) for measure in found.measures],
                    "seconds": round(found.seconds, 3),
                }
                for found in self.found
            ],
        }


Run = Callable[[Probe], None]


def check(into: list[Check], name: str, *calls: str, required: bool = True) -> Callable[[Run], Run]:
    """Add a function as a check; the first line of its docstring is the promise."""

    def add(run: Run) -> Run:
        promise = (run.__doc__ or name).splitlines()[0].rstrip(".")
        into.append(Check(name, promise, calls, run, required))
        return run

    return add
