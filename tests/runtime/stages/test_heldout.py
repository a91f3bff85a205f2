"""Examples that a supervised stage holds out: scored when due, never learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from http_testing import running_server
from run_support import TINY, assert_resumes, block, compiled, metrics, run_new, tiny

import rlc
from rlc.pricing.cost import plan_cost

pytestmark = pytest.mark.plain

WORDS = ("abc", "bcd", "cde", "def", "efg", "fgh")
ROWS = [{"prompt": f"Say {word}.", "reply": word[::-1]} for word in WORDS]
FIELDS = {
    "model": "policy",
    "data": 'rows("rows.jsonl", split = first(50%))',
    "heldout": 'rows("rows.jsonl", split = last(50%))',
    "every": "2",
    "batch": "3",
    "steps": "5",
    "optimizer": "adam(3e-3)",
}
AGAIN = {"model": "main", "data": FIELDS["heldout"], "batch": "3", "steps": "1"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stage(name: str = "main", **fields: str) -> str:
    return block("sft", name, FIELDS | fields)


def held(path: Path) -> dict[int, float]:
    records = metrics(path, "main")
    return {r["step"]: r["heldout/loss"] for r in records if "heldout/loss" in r}


def tokens(path: Path, part: str = "") -> set[tuple[int, ...]]:
    lines = (path / f"examples-main{part}.jsonl").read_text().splitlines()
    return {tuple(json.loads(line)["sequences"][0]["tokens"]) for line in lines}


def test_the_loss_is_that_of_examples_that_are_never_learnt(here: Path) -> None:
    """A stage that goes on with the weights learns them, and its first loss is the last one."""
    again = stage("again", **AGAIN, heldout="none", every="none")
    run_new(here / "run", tiny(stage(), again))
    assert [*held(here / "run")] == [2, 4, 5]
    (record,) = metrics(here / "run", "again")
    assert held(here / "run")[5] == pytest.approx(record["loss/mean"], rel=1e-5)
    learnt, scored = tokens(here / "run"), tokens(here / "run", "-heldout")
    assert (len(learnt), len(scored)) == (3, 3)
    assert not learnt & scored
    first, second, *_ = metrics(here / "run", "main")
    assert first["tokens/prefill"] == 0
    assert second["tokens/prefill"] == sum(len(one) - 1 for one in scored)


def test_a_resumed_run_scores_them_as_if_nothing_had_happened(here: Path) -> None:
    assert_resumes(tiny(stage(every="1", steps="3")), ("main", 2), here / "runs")


def test_they_may_stand_in_a_file_while_the_others_are_played(here: Path) -> None:
    data = "samples(policy, env = spell, n = 3, keep = all, sampling = sample(max_tokens = 16))"
    run_new(here / "run", tiny(stage(data=data, steps="1", every="1")))
    assert [*held(here / "run")] == [1]


def test_each_time_is_priced_as_a_forward_pass() -> None:
    text = TINY.replace('base = "tiny"', 'base = "Qwen/Qwen3.5-4B"')

    def bill(**fields: str) -> dict[str, Any]:
        (cost,) = plan_cost(compiled(text + stage(**fields)))
        return {kind: money.usd for kind, money in cost.bill["expected"].items()}

    thrice, once = bill(), bill(every="4", steps="4")
    assert thrice["evaluation"] == pytest.approx(3 * once["evaluation"])
    assert once["evaluation"] > 0
    assert bill(heldout="none", every="none").get("evaluation", 0.0) == 0.0


@pytest.mark.server
def test_on_a_server_it_is_the_same_loss(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    (here / "recipe.rl").write_text(TINY + stage())
    served = rlc.load(here / "recipe.rl", service="tinker")
    with running_server(here / "served") as url:
        rlc.run(served, run_dir=here / "far", base_url=url)
    rlc.run(here / "recipe.rl", run_dir=here / "near")
    assert held(here / "far") == pytest.approx(held(here / "near"), rel=1e-3)
