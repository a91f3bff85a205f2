"""Student's t, verdicts from paired numbers, and how often they are wrong."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.paired.student import effect_seen, noncentral_tail, power, t_quantile, t_tail
from rlc.algo.paired.verdicts import (
    bounds,
    holm,
    looks,
    pairs_needed,
    sample,
    tails,
    tails_so_far,
)

# Of SciPy 1.17.1: `stats.t.sf`, `stats.t.isf` and `stats.nct.sf`.
TAILS = (
    (1, 0.5, 0.35241638234956674),
    (1, 1000.0, 0.0003183097800805589),
    (2, 2.5, 0.06480586011075541),
    (4, -1.3, 0.868274201764388),
    (19, 8.0, 8.379773441409066e-08),
    (99, 1e-09, 0.49999999960206387),
    (999, 2.0, 0.0228853084868785),
    (2, 0.0, 0.5),
)
QUANTILES = (
    (1, 0.05, 6.313751514675044),
    (1, 1e-07, 3183098.8618378025),
    (2, 0.025, 4.302652729749464),
    (4, 0.0244, 2.8002321829102987),
    (9, 0.4, 0.260955336473911),
    (99, 0.001, 3.1746038497557527),
    (999, 0.05, 1.6463803454275354),
)
NONCENTRAL = (
    (1, 6.3138, 2.5, 0.3045170210319066),
    (2, 2.92, 0.0, 0.0499995777813536),
    (4, 2.1318, 3.0, 0.7911017901597261),
    (4, 9.0, 30.0, 0.9999999868442545),
    (19, 1.729, 2.5, 0.7777761106143333),
    (99, 1.66, 1.0, 0.2574272816688305),
    (399, 3.0, 2.9, 0.4611385931689701),
    (1, -1.0, 0.5, 0.8690741266082662),
)
# Where `stats.nct.sf` is 80 %, found by `optimize.brentq`.
EFFECTS = ((5, 0.05, 1.3594179588549482), (2, 0.05, 5.792801491690309), (10, 0.0244, 1.000993862))


def test_student_is_that_of_scipy() -> None:
    for freedom, t, expected in TAILS:
        assert t_tail(t, freedom) == pytest.approx(expected, rel=1e-10)
    for freedom, tail, expected in QUANTILES:
        assert t_quantile(tail, freedom) == pytest.approx(expected, rel=1e-10)
    for freedom, t, shift, expected in NONCENTRAL:
        assert noncentral_tail(t, freedom, shift) == pytest.approx(expected, abs=1e-10)
    for pairs, level, expected in EFFECTS:
        assert power(pairs, expected, level) == pytest.approx(0.8, abs=1e-9)
        assert effect_seen(pairs, level, 0.8) == pytest.approx(expected, rel=1e-3)


def test_paired_tests_are_those_of_scipy() -> None:
    """`stats.ttest_1samp` on both sides of a limit, and the interval of `stats.ttest_rel`."""
    values = [0.12, -0.03, 0.08, 0.05, 0.11]
    assert tails(values, -0.02)[0] == pytest.approx(0.01658023678598908, rel=1e-10)
    assert tails(values, 0.1)[1] == pytest.approx(0.1377827909661429, rel=1e-10)
    one, other = [0.61, 0.72, 0.58, 0.66], [0.55, 0.70, 0.59, 0.60]
    found = bounds([a - b for a, b in zip(one, other, strict=True)], 0.95)
    assert found is not None
    assert found[0] == pytest.approx(-0.007547534371160382, rel=1e-9)


def test_equal_numbers_are_decided_by_their_number() -> None:
    """There is no spread to compare with: four equal signs are 1 in 16, five 1 in 32."""
    assert tails([0.1 + 0.2, 0.3, 0.3, 0.3], 0.0) == (1 / 16, 1.0)
    assert tails([-0.5] * 5, 0.0) == (1.0, 1 / 32)
    assert tails([0.02] * 9, 0.02) == (1.0, 1.0)
    assert pairs_needed(sample([1.0, 1.0]), 0.0, 0.05, early=False) == 5
    assert pairs_needed(sample([0.02, 0.02]), 0.02, 0.05, early=False) is None


def test_fewer_than_two_numbers_say_nothing() -> None:
    for values in ([], [3.0]):
        assert tails(values, 0.0) == (1.0, 1.0)
        assert bounds(values, 0.95) is None
        assert pairs_needed(sample(values), 0.0, 0.05, early=True) is None


numbers = st.lists(st.integers(-(2**20), 2**20).map(lambda n: n / 2**20), min_size=2, max_size=9)


@given(numbers, st.randoms(use_true_random=False), st.integers(-8, 8))
def test_order_shift_and_side(values: list[float], random: Random, shift: int) -> None:
    """No order counts; a shift of both counts for nothing; with the sides exchanged the two
    verdicts are exchanged. The numbers are such that sums of them are exact."""
    limit = 0.125
    found = tails(values, limit)
    mixed = random.sample(values, len(values))
    assert tails(mixed, limit) == found
    shifted = tails([value + shift for value in values], limit + shift)
    assert shifted == pytest.approx(found, rel=1e-6, abs=1e-9)
    mirrored = tails([-value for value in values], -limit)
    assert mirrored == found[::-1]
    assert min(found) <= 0.5 or found == (1.0, 1.0)


@pytest.mark.parametrize("planned", [2, 3, 5, 8, 20, 100])
def test_looks_spend_the_error_and_no_more(planned: int) -> None:
    spent = looks(planned, early=True)
    assert math.fsum(spent.values()) == pytest.approx(1.0, abs=1e-12)
    assert (min(spent) >= 2, max(spent), len(spent) <= 4) == (True, planned, True)
    assert spent[planned] == max(spent.values()) or planned == 6
    assert looks(planned, early=False) == {planned: 1.0}


def test_what_was_seen_early_stays() -> None:
    """A later look takes nothing back, and a missing seed counts as looked at."""
    clear = [0.5, 0.51, 0.49, None, 0.5]
    seen = [tails_so_far(clear[:count], 5, 0.0, early=True) for count in range(6)]
    assert seen[1] == (1.0, 1.0)
    assert [above for above, _ in seen] == sorted((above for above, _ in seen), reverse=True)
    assert seen[3][0] < 0.01
    assert tails_so_far(clear, 5, 0.0, early=False)[0] == tails([0.5, 0.51, 0.49, 0.5], 0.0)[0]


def test_holm_is_the_procedure_of_1979() -> None:
    """By hand: 0.01 · 4, 0.02 · 3, 0.03 · 2 lifted to the one before, 0.5 alone."""
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.01], among=3) == pytest.approx([0.03])  # two others are of another sweep
    assert holm([0.4, 0.6]) == [0.8, 0.8]
    assert holm([]) == []


def wrong_verdicts(random: Random, sweeps: int, seeds: int, claims: int, error: float) -> float:
    """The share of sweeps in which some claim is said to hold, where the mean of each is exactly
    its limit: as likely wrong as it can be. What several claims compare has a part in common."""
    wrong = 0
    for _ in range(sweeps):
        common = [random.gauss(0.0, 1.0) for _ in range(seeds)]
        above = []
        for _ in range(claims):
            values = [part + random.gauss(0.0, 1.0) for part in common]
            above.append(tails_so_far(values, seeds, 0.0, early=True)[0])
        wrong += min(holm(above)) <= error
    return wrong / sweeps


def test_early_looks_are_wrong_no_more_often_than_they_may() -> None:
    """The whole of it is in benchmarks/claims.py; three standard errors of a share here."""
    sweeps, error = 1_500, 0.1
    most = error + 3 * math.sqrt(error * (1 - error) / sweeps)
    assert wrong_verdicts(Random(1), sweeps, 5, 1, error) < most
    assert 0.02 < wrong_verdicts(Random(2), sweeps, 4, 3, error) < most


def test_the_seeds_that_are_said_to_tell_do_so() -> None:
    """With as many seeds as are said to be needed about four of five sweeps decide."""
    random, error, effect = Random(3), 0.05, 1.2
    found = sample([effect - math.sqrt(0.5), effect + math.sqrt(0.5)])  # with a spread of 1
    needed = pairs_needed(found, 0.0, error, early=False)
    assert needed == 6  # a table of one-sided t tests has 6 for an effect of 1.2
    decided = sum(
        tails([random.gauss(effect, 1.0) for _ in range(needed)], 0.0)[0] <= error
        for _ in range(1_000)
    )
    assert 0.76 < decided / 1_000 < 0.87
