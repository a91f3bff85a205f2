"""``rlc bill``: predicted, metered and billed, and what was sampled for nothing.

``data/billing_usage.json`` has the form of an answer of Tinker's API (tinker 0.38,
``GET /api/v1/billing/usage/events``): the hours of a run as :mod:`made_up_runs` meters it, and of
another session.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import START, USAGE, write_run

import rlc
from rlc.cli.main import main
from rlc.report.bill import RunBill
from rlc.report.pages import page_html
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import Usage

ANSWER = Path(__file__).parent / "data" / "billing_usage.json"
ONE_STAGE = """
model policy {{ base = "deepseek-ai/DeepSeek-V3.1" lora_rank = 8 }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\\\boxed{{}}.")
train main {{ model = policy  env = 2 * guess + 1 * spell  batch = groups(4, group_size = 4)
  sampling = sample(max_tokens = 16)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(1e-4)  steps = {steps} }}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "x"
    write_run(path, 8, recipe=ONE_STAGE)
    session = {"event": "session", "session_id": "sess-7f3a", "server": "https://tinker.example"}
    (path / "service.jsonl").write_text(json.dumps(session) + "\n", encoding="utf-8")
    return path


def billed(run: Path, answer: Any = None) -> RunBill:
    file = ANSWER
    if answer is not None:
        file = run.parent / "answer.json"
        file.write_text(json.dumps(answer), encoding="utf-8")
    (bill,) = rlc.bill(run, usage=file)
    return bill


@pytest.mark.engine
def test_what_is_metered_reconciles_with_what_is_billed(run: Path) -> None:
    bill = billed(run)
    assert [(line.stage, line.kind) for line in bill.lines] == [
        ("main", "prefill"),
        ("main", "cached"),
        ("main", "sampled"),
        ("main", "trained"),
    ]
    for line in bill.lines:
        assert line.metered == 8 * getattr(USAGE, line.kind)
        assert line.billed == pytest.approx(line.metered, rel=0.01)
        assert line.predicted["low"] <= line.predicted["expected"]
    assert bill.reconciles is True
    assert bill.billed_usd == pytest.approx(
        (7215 * 1.695 + 19990 * 0.339 + 11990 * 4.215 + 40010 * 3.718) / 1e6 + 0.1 * 3.6 / 720
    )
    assert bill.metered_usd == pytest.approx(bill.billed_usd, rel=0.01)
    assert {one.kind: one.amount for one in bill.others} == {"checkpoints": 2, "storage": 3.6}
    assert bill.invoiced_until == "2026-09-21T00:00:00+00:00"
    assert bill.links == ("https://tinker.thinkingmachines.ai/sessions/sess-7f3a",)


@pytest.mark.engine
def test_a_bill_that_differs_is_marked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(ANSWER.read_text())
    answer["data"][0]["event_info"]["token_count"] += 1_000  # 2.5 % of what was trained
    assert billed(run, answer).reconciles is False
    assert main(["bill", str(run), "--usage", str(run.parent / "answer.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "differs by" in line] == [["main", "trained"]]


@pytest.mark.engine
def test_usage_without_this_run_says_so(run: Path) -> None:
    bill = billed(run, {"data": [], "sessions": {}})
    assert bill.reconciles is None
    assert bill.billed_usd is None
    assert "lags by hours" in bill.unbilled
    assert all(line.billed is None for line in bill.lines)


@pytest.mark.engine
def test_a_file_that_is_no_answer_is_an_error(run: Path) -> None:
    with pytest.raises(rlc.Error, match="no answer about usage"):
        billed(run, {"rows": 3})
    (run.parent / "answer.json").write_text("{")
    with pytest.raises(rlc.Error, match="cannot be read as JSON"):
        rlc.bill(run, usage=run.parent / "answer.json")
    with pytest.raises(rlc.Error, match="no runs in"):
        rlc.bill(run.parent / "none")


def test_several_stages_have_a_line_for_all(tmp_path: Path) -> None:
    write_run(tmp_path / "two", 4)
    (bill,) = rlc.bill(tmp_path / "two", ask=False)
    assert bill.unbilled == "the service was not asked"
    whole = {line.kind: line for line in bill.lines if line.stage is None}
    assert whole["sampled"].metered == 4 * USAGE.sampled
    heldout = {line.kind: line for line in bill.lines if line.stage == "heldout"}
    assert heldout["sampled"].metered == 0  # made up without spend
    assert heldout["sampled"].predicted["expected"] > 0
    assert json.loads(json.dumps(bill.to_dict()))["reconciles"] is None


def rollout(task: int, member: int, **more: Any) -> dict[str, Any]:
    made = {
        "stage": "main",
        "step": 1,
        "env": "guess",
        "task": task,
        "member": member,
        "role": "",
        "error": None,
        "replaced": False,
        "advantages": [1.0],
        "reward": 0.0,
        "turns": [{"prompt_tokens": 30, "tokens": 10}],
    }
    return made | more


def test_what_taught_nothing_is_counted_and_priced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_run(path, 1, recipe=ONE_STAGE)
    records = [
        *(rollout(0, member, advantages=[0.0]) for member in range(4)),
        *(rollout(1, member) for member in range(3)),
        rollout(1, 3, error="it failed", advantages=[]),
        *(rollout(2, member, replaced=True, advantages=[]) for member in range(4)),
    ]
    lines = "".join(json.dumps(one) + "\n" for one in records)
    (path / "rollouts.jsonl").write_text(lines, encoding="utf-8")
    journal = Journal(path / "journal.sqlite")
    journal._db.execute("DELETE FROM spend")
    journal.add_spend("main", 1, Usage(prefill=200, cached=200, sampled=160, trained=120), 1.0)
    journal.close()
    (bill,) = rlc.bill(path, ask=False)
    found = {one.why.split()[0]: one for one in bill.discarded}
    assert (found["groups"].rollouts, found["groups"].tokens) == (4, 160)
    assert (found["rollouts"].rollouts, found["rollouts"].tokens) == (1, 40)
    replaced = [one for one in bill.discarded if "replaced" in one.why]
    assert [(one.rollouts, one.tokens) for one in replaced] == [(4, 160)]
    # 40 of the 160 tokens that were sampled are in no episode: a quarter of all that was played.
    assert found["attempts"].tokens == pytest.approx(560 / 4)
    assert all(one.usd is not None and one.usd > 0 for one in bill.discarded)
    assert "discarded: groups whose members had equal rewards" in page_html([path])


@pytest.mark.engine
def test_windows_are_whole_hours_of_at_most_two_weeks() -> None:
    from rlc.service.hosted.billing import windows

    found = list(windows(START, START + 20 * 24 * 3600))
    assert found[0][0] <= datetime.fromtimestamp(START, UTC)
    assert found[-1][1] > datetime.fromtimestamp(START + 20 * 24 * 3600, UTC)
    assert [(end - start).days for start, end in found] == [14, 6]
    for (_, end), (start, _) in pairwise(found):
        assert end == start
    assert all(moment.minute == moment.second == 0 for pair in found for moment in pair)


def test_the_embedded_engine_bills_nothing(tmp_path: Path) -> None:
    recipe = ONE_STAGE.replace("deepseek-ai/DeepSeek-V3.1", "tiny")
    write_run(tmp_path / "x", 2, recipe=recipe)
    (bill,) = rlc.bill(tmp_path / "x")
    assert "bills nothing" in bill.unbilled
    assert bill.predicted_usd == {"low": 0, "expected": 0, "high": 0}
