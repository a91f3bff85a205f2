"""Proposals: the same from what is known, and none twice."""

from __future__ import annotations

import pytest
from attrs import evolve
from sweep_support import METRIC, PLAN

from rlc.plan.sweeps import AxisPlan, RangePlan, SearchPlan, SweepPlan
from rlc.sweeps.journal import MetricReport
from rlc.sweeps.search import Halving, Proposal, propose

RATE = AxisPlan("rate", (), RangePlan("log", 1e-5, 1e-2, None, False))
SIZE = AxisPlan("size", (), RangePlan("linear", 2, 8, 2, True))
SCHEME = AxisPlan("scheme", ("grpo()", "rloo()"), None)


def sweep(kind: str, *axes: AxisPlan, n: int = 30) -> SweepPlan:
    return evolve(PLAN, axes=axes, search=SearchPlan(kind, n, learns=kind == "tpe"))


def run(plan: SweepPlan, seed: int = 1) -> list[Proposal]:
    """As many proposals as are drawn, each with the value of a curve whose best rate is 1e-3."""
    found = list[Proposal]()
    for number in range(1, (plan.search.n or 0) + 1):
        configuration = propose(plan, seed, number, found)
        assert configuration is not None
        rate = float(configuration.get("rate", "1e-3"))
        found.append(Proposal(configuration, -abs(rate - 1e-3)))
    return found


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_proposals_are_a_function_of_what_is_known(kind: str) -> None:
    plan = sweep(kind, RATE, SIZE, SCHEME, n=14)
    found = run(plan)
    assert found == run(plan)
    assert found[:3] != run(plan, seed=2)[:3]
    for number in (5, 12):  # as after a crash: from the journal alone
        again = propose(plan, 1, number, found[: number - 1])
        assert again == found[number - 1].configuration


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_none_is_proposed_twice_until_there_are_no_others(kind: str) -> None:
    plan = sweep(kind, SIZE, SCHEME, n=8)
    found = run(plan)
    assert len({tuple(tried.configuration.items()) for tried in found}) == 8
    assert propose(plan, 1, 9, found) is None


def test_what_is_drawn_keeps_to_its_range() -> None:
    for tried in run(sweep("random", RATE, SIZE, SCHEME)):
        assert 1e-5 <= float(tried.configuration["rate"]) <= 1e-2
        assert tried.configuration["size"] in {"2", "4", "6", "8"}
        assert tried.configuration["scheme"] in SCHEME.values


@pytest.mark.filterwarnings("error")
def test_steps_need_not_reach_the_end_of_a_range() -> None:
    whole = AxisPlan("size", (), RangePlan("linear", 2, 9, 3, True))
    share = AxisPlan("share", (), RangePlan("linear", 0.0, 0.5, 0.2, False))
    found = [tried.configuration for tried in run(sweep("tpe", whole, share, n=9))]
    assert {(each["size"], each["share"]) for each in found} == {
        (size, share) for size in ("2", "5", "8") for share in ("0.0", "0.2", "0.4")
    }


def test_tpe_learns() -> None:
    """After its random start it draws nearer to the best."""
    distances = [
        abs(float(tried.configuration["rate"]) - 1e-3) for tried in run(sweep("tpe", RATE))
    ]
    assert sum(distances[15:]) / 15 < sum(distances[:10]) / 10


def test_trials_that_still_run_are_known_too() -> None:
    plan = sweep("tpe", RATE, n=14)
    found = [Proposal(tried.configuration, None) for tried in run(plan)[:12]]
    again = propose(plan, 1, 13, found)
    assert again is not None
    assert all(again != tried.configuration for tried in found)


def halving() -> SweepPlan:
    return evolve(PLAN, metric=METRIC, search=SearchPlan("halving", None, eta=2, first=4))


def test_the_worse_half_ends() -> None:
    found = Halving(halving(), ())
    values = (0.5, 0.2, 0.9, 0.1)
    assert [found.goes_on(MetricReport(i, 4, value)) for i, value in enumerate(values)] == [
        True,
        False,
        True,
        False,
    ]
    assert found.ended == {1, 3}


def test_a_halving_that_goes_on_decides_as_before() -> None:
    reports = [MetricReport(i, 4, (7 * i % 10) / 10) for i in range(10)]
    reports += [MetricReport(i, 8, 1 - i / 10) for i in range(10)]
    whole = Halving(halving(), ())
    decided = [whole.goes_on(report) for report in reports]
    for cut in (3, 11):
        again = Halving(halving(), reports[:cut])
        assert [again.goes_on(report) for report in reports[cut:]] == decided[cut:]
