"""What audits of rewards have found, for programs, and for people as what `rlc check` finds."""

from __future__ import annotations

import re
from typing import Any, Literal

from attrs import asdict, frozen

from rlc.lang import Diagnostic, Diagnostics, Severity, Source, Span, read_source

_SHOWN = 300  # characters of a reply in a finding
Grave = Literal["error", "warning"]
UNEARNED, NO_CONTRAST, UNPAID, CONSTANT = "RL0690", "RL0691", "RL0692", "RL0693"
FAILS, VARIES, HIGH_FLOOR = "RL0694", "RL0695", "RL0696"
_ADVICE = {
    UNEARNED: "a policy finds that first: pay for an answer alone, and where it has to stand",
    NO_CONTRAST: "compare the reply with the right answer of its row",
    UNPAID: "compare what the grader reads with how the answers are written, or take another one",
    CONSTANT: "equal rewards teach nothing",
    FAILS: "return what a bad reply is worth: a rollout that fails is left out or repeated",
    VARIES: "draw nothing and keep nothing between calls, or seed it by the row",
    HIGH_FLOOR: "pay for what is right beyond that: `|> reward(where(total >= 1, 1, 0))`",
}


@frozen
class AuditFinding:
    """What is wrong with a reward, with the reply that shows it.

    Attributes:
        code: RL0690 to RL0696; `rlc explain CODE` has its page.
        severity: ``error`` or ``warning``.
        message: one sentence.
        reply: a reply that shows it, shortened; None if no single one is known.
        task: the number of its task in the run, for `rlc grade --task`.
    """

    code: str
    severity: Grave
    message: str
    reply: str | None = None
    task: int = 0

    @property
    def help(self) -> str:
        """What to do about it."""
        return _ADVICE[self.code]


@frozen
class EnvironmentAudit:
    """The audit of one environment.

    Attributes:
        env: its name.
        key: a hash of all that decides what is found; "" if not all of it was audited.
        findings: an :class:`AuditFinding` each.
        notes: what could not be audited, and why.
        replies: how many were graded.
        seconds: that it took.
    """

    env: str
    key: str
    findings: tuple[AuditFinding, ...] = ()
    notes: tuple[str, ...] = ()
    replies: int = 0
    seconds: float = 0.0


@frozen
class RecipeAudit:
    """The audits of all environments of a recipe, in the order of the recipe."""

    recipe: str
    environments: tuple[EnvironmentAudit, ...]

    @property
    def findings(self) -> list[AuditFinding]:
        """Return the findings of all environments."""
        return [finding for one in self.environments for finding in one.findings]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"recipe": self.recipe, "environments": [asdict(one) for one in self.environments]}

    def diagnostics(self) -> Diagnostics:
        """Return the findings as those of `rlc check`, at the declarations of the environments."""
        found = Diagnostics()
        source, _ = read_source(self.recipe)
        for audited in self.environments:
            span = None if source is None else _declaration(source, audited.env)
            for one in audited.findings:
                known = one.reply is not None
                shown = f"; `rlc grade` shows what is made of {one.reply!r}" if known else ""
                severity = Severity(one.severity)
                text = f"{one.help}{shown}"
                found.append(
                    Diagnostic(one.code, severity, one.message, span, text, (), self.recipe)
                )
        return found


def _declaration(source: Source, env: str) -> Span | None:
    """Return where an environment is declared in a recipe; None if that is in another file."""
    found = re.search(rf"^\s*env\s+({re.escape(env)})\b", source.text, re.MULTILINE)
    return Span(source, found.start(1), found.end(1)) if found else None


def shorten(reply: str) -> str:
    """Return a reply that is not too long to be shown."""
    return reply if len(reply) <= _SHOWN else f"{reply[: _SHOWN - 1]}…"
