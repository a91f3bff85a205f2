"""Spend is written down as it happens, each token once, and only at known prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.plan.parts import ModelPlan
from rlc.runtime.journal.database import Journal, Meter, cost
from rlc.runtime.records import Usage


def model(base: str = "Qwen/Qwen3-8B", service: str = "tinker") -> ModelPlan:
    return ModelPlan("policy", base, 8, True, True, True, None, "qwen3", 32768, service)


def test_a_growing_account_is_written_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    meter = Meter(journal, "main", model())
    usage = meter.running[1]
    usage.prefill, usage.sampled = 1_000_000, 500_000
    meter.write()
    first = journal.spent_usd()
    assert first == pytest.approx(0.195 + 0.30)
    meter.write()
    assert journal.spent_usd() == first
    usage.cached, usage.trained = 1_000_000, 1_000_000
    assert meter.finish(1) == usage
    assert journal.spent_usd() == pytest.approx(first + 0.039 + 0.44)
    meter.write()
    assert journal.spent_usd() == pytest.approx(first + 0.039 + 0.44)
    journal.close()


def test_steps_that_overlap_have_accounts_of_their_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    meter = Meter(journal, "main", model())
    meter.running[1].sampled = 1_000_000
    meter.write()
    meter.running[2].sampled = 1_000_000
    meter.write()
    meter.running[1].sampled += 1_000_000
    meter.write()
    assert journal.spent_usd() == pytest.approx(3 * 0.60)
    journal.close()


def test_what_is_used_beside_the_running_account_is_added(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    meter = Meter(journal, "main", model())
    for _ in range(2):
        meter.add(0, Usage(sampled=1_000_000))
    meter.running[0].sampled = 1_000_000
    meter.write()
    assert journal.spent_usd() == pytest.approx(3 * 0.60)
    assert journal.prices_are_known()
    Meter(journal, "main", model("vendor/New")).add(1, Usage(sampled=1))
    assert not journal.prices_are_known()
    assert journal.spent_usd() == 0  # and not what is known of it
    journal.close()


def test_what_has_no_known_price_costs_an_unknown_amount_not_nothing() -> None:
    assert cost(model("nobody/knows"), Usage(sampled=1)) is None
    assert cost(model("nobody/knows", "local"), Usage(sampled=1)) == 0.0
    assert cost(model("Qwen/Qwen3-8B", "local"), Usage(sampled=1)) == 0.0
