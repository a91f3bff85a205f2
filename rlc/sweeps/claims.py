"""Verdicts on what a recipe claims of a sweep, from the trials that have ended.

The runs of one seed are compared with one another, and the seeds are looked at in their order, so a
verdict does not depend on which trial ended first. What is known of a seed is a difference, or that
one of its trials failed: that seed is left out of the claim, and counts as looked at.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import fsum, isfinite
from typing import Any, Literal

from attrs import evolve, frozen

from rlc.algo import bounds, holm, pairs_needed, sample, tails_so_far
from rlc.plan import ClaimPlan, Configuration, SweepPlan, shown
from rlc.sweeps.trials import TrialRecord

CLAIMS_FILE = "claims.json"
Outcome = Literal["holds", "does not hold", "cannot tell"]


@frozen
class SeedDifference:
    """What the terms of a claim add up to with one seed; None, and ``why``, if a trial of it is
    missing for good."""

    seed: int
    value: float | None
    why: str = ""


@frozen
class ClaimResult:
    """The verdict on a claim.

    Attributes:
        plan: the claim, with its ``name``, ``text``, ``limit`` and ``level``.
        verdict: ``"holds"``, ``"does not hold"`` or ``"cannot tell"``.
        differences: what its terms add up to, seed by seed, as far as it is known.
        planned: the seeds of the sweep.
        mean: the mean of the differences, None without any.
        low: the lower bound of that mean, at the claim's level and for this claim alone; None with
            fewer than two differences.
        high: its upper bound, likewise.
        p_holds: how likely differences like these, or clearer ones, are where it does not hold,
            corrected for the number of looks and of claims; small if it holds.
        p_fails: how likely they are where it holds, likewise.
    """

    plan: ClaimPlan
    verdict: Outcome
    differences: tuple[SeedDifference, ...]
    planned: int
    mean: float | None
    low: float | None
    high: float | None
    p_holds: float
    p_fails: float

    @property
    def values(self) -> list[float]:
        """The differences that are known."""
        return [each.value for each in self.differences if each.value is not None]

    @property
    def seeds_needed(self) -> int | None:
        """About how many seeds would tell, with a probability of 80 %, if mean and spread are as
        they were; None if more than 10,000, or if that cannot be estimated."""
        plan = self.plan
        error = (1 - plan.level) / plan.among
        return pairs_needed(sample(self.values), plan.limit, error, plan.early)

    @property
    def lines(self) -> list[str]:
        """The verdict, for people: one line, and those with its numbers."""
        plan, unit = self.plan, self.plan.unit
        lines = [f"claim {plan.name}: {self.verdict} ({100 * plan.level:g} %): {plan.text}"]
        count = f"{len(self.values)} of {self.planned} seeds"
        if self.mean is not None:
            side = "above" if plan.above else "below"
            mean, limit = shown(self.mean, unit), shown(plan.limit, unit)
            between = ""
            if self.low is not None and self.high is not None:
                low, high = shown(self.low, unit), shown(self.high, unit)
                between = f", from {low} to {high}" if self.low < self.high else ", each the same"
            lines.append(f"{count}: {mean}{between}; it is to be {side} {limit}")
        else:
            lines.append(f"{count} have all of its runs")
        if self.verdict == "cannot tell" and len(self.values) >= 2:
            needed = self.seeds_needed
            would = (
                "no number of seeds that could be run"
                if needed is None
                else f"about {needed:,} seeds"
            )
            lines.append(f"{would} would tell, if mean and spread stay as they are")
        lines += [f"without seed {one.seed}: {one.why}" for one in self.differences if one.why]
        return lines


def verdicts(
    plan: SweepPlan, records: Iterable[TrialRecord], again: Container[str] = ()
) -> list[ClaimResult]:
    """Return the verdicts on all claims of a sweep by its trials so far; those whose ids are in
    ``again`` have not ended."""
    if not plan.claims:
        return []
    known = {
        (_key(r.trial.configuration), r.trial.seed): evolve(r, state="waiting")
        if r.trial.id in again
        else r
        for r in records
    }
    seeds = sorted({seed for _, seed in known})
    found = [[_difference(claim, seed, known) for seed in seeds] for claim in plan.claims]
    tails = [_tails(claim, own, plan.seeds) for claim, own in zip(plan.claims, found, strict=True)]
    among = plan.claims[0].among
    holds = holm([claim[0] for claim in tails], among)
    fails = holm([claim[1] for claim in tails], among)
    results = []
    for claim, own, yes, no in zip(plan.claims, found, holds, fails, strict=True):
        error = 1 - claim.level
        outcome: Outcome = "cannot tell"
        if yes <= error:
            outcome = "holds"
        elif no <= error:
            outcome = "does not hold"
        differences = tuple(each for each in own if each is not None)
        values = [each.value for each in differences if each.value is not None]
        low, high = bounds(values, claim.level) or (None, None)
        mean = sample(values).mean
        results.append(
            ClaimResult(claim, outcome, differences, plan.seeds, mean, low, high, yes, no)
        )
    return results


def concerning(claims: Sequence[ClaimPlan], configuration: Configuration) -> list[ClaimPlan]:
    """Return the claims that compare a configuration."""
    own = _key(configuration)
    return [c for c in claims if any(_key(term.configuration) == own for term in c.terms)]


def claim_dicts(results: Iterable[ClaimResult]) -> list[dict[str, Any]]:
    """Return verdicts as data."""
    return [
        {
            "name": one.plan.name,
            "claim": one.plan.text,
            "verdict": one.verdict,
            "level": one.plan.level,
            "limit": one.plan.limit,
            "above": one.plan.above,
            "mean": one.mean,
            "low": one.low,
            "high": one.high,
            "p_holds": one.p_holds,
            "p_fails": one.p_fails,
            "seeds": len(one.values),
            "planned": one.planned,
            "seeds_needed": one.seeds_needed if one.verdict == "cannot tell" else None,
            "differences": {str(each.seed): each.value for each in one.differences},
        }
        for one in results
    ]


def _key(configuration: Configuration) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(configuration.items()))


def _difference(claim: ClaimPlan, seed: int, known: Any) -> SeedDifference | None:
    """Return what is known of a seed; None while a trial of it has not ended."""
    records = [known.get((_key(term.configuration), seed)) for term in claim.terms]
    if any(one is None or not one.ended or one.state == "decided" for one in records):
        return None
    for one in records:
        if one.value is None:
            how = f"trial {one.trial.number} {one.state}"
            return SeedDifference(seed, None, f"{how}: {one.cause}" if one.cause else how)
    pairs = zip(claim.terms, records, strict=True)
    value = fsum(term.factor * one.value for term, one in pairs)
    if not isfinite(value):
        return SeedDifference(seed, None, "its metric is not finite")
    return SeedDifference(seed, value)


def _tails(
    claim: ClaimPlan, found: Sequence[SeedDifference | None], planned: int
) -> tuple[float, float]:
    """Return the p-values of "it does not hold" and of "it holds"."""
    if claim.early:  # seeds after one that is still open have not been looked at
        end = found.index(None) if None in found else len(found)
        values = [one.value for one in found[:end] if one is not None]
    else:
        values = [one.value for one in found if one is not None]
    above, below = tails_so_far(values, planned, claim.limit, claim.early)
    return (above, below) if claim.above else (below, above)
