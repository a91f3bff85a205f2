"""The page about a run says what its files say, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from made_up_runs import ENVS, NODES, USAGE, write_lines, write_run
from plan_recipes import first_train, planned, recipe

from rlc.catalog.facts import find_model
from rlc.plan import JOURNAL_FILE
from rlc.report.drawing import Chart
from rlc.report.findings import stage_findings
from rlc.report.formatting import number, render
from rlc.report.run_files import read_files
from rlc.report.run_page import RunPage, build, run_html, typical_episodes
from rlc.runtime.journal.runs import read_run
from rlc.runtime.records import RunError


def page_of(path: Path) -> RunPage:
    files = read_files(path)
    return build(files, read_run(path), typical_episodes(files))


def charts_of(page: RunPage) -> dict[str, Chart]:
    return {chart.id: chart for group in page.groups for chart in group.charts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "run"
    write_run(path)
    return path


def test_tables_have_the_numbers_of_the_metrics_file(folder: Path) -> None:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [record for line in lines if (record := json.loads(line))["stage"] == "main"]
    charts = charts_of(page_of(folder))
    for chart, prefix in (("main-reward", "reward"), ("main-length", "length")):
        for env in ENVS:
            column = charts[chart].head.index(env)
            shown = [row[column] for row in charts[chart].table]
            assert shown == [number(record[f"{prefix}/{env}"]) for record in records]
    kl = charts["main-kl"]
    assert [row[1] for row in kl.table] == [number(r["kl/sample_train"]) for r in records]
    assert [row[2] for row in kl.table] == [number(r["kl/reference"]) for r in records]
    groups = charts["main-groups"]
    assert groups.head == ("step", "mixed", "all solved", "all alike, unsolved")
    assert set(groups.table) == {(f"{step}", "0.75", "0.2", "0.05") for step in range(1, 9)}


def test_evaluations_are_charted_by_the_step_they_are_of(folder: Path) -> None:
    chart = charts_of(page_of(folder))["heldout-eval"]
    assert chart.head == ("step of main", "pass@1", "pass@2")
    assert [row[0] for row in chart.table] == ["0", "2", "4", "6", "8"]
    assert chart.table[0][1:] == ("0.1", "0.15")
    assert chart.table[-1][1:] == ("0.6", "0.9")


def test_a_curve_goes_where_its_numbers_say(folder: Path) -> None:
    chart = charts_of(page_of(folder))["heldout-eval"]
    assert chart.curves[0].path == "M0 900L250 775L500 650L750 525L1000 400"


def test_the_headline_compares_the_first_steps_with_the_last(folder: Path) -> None:
    page, records = page_of(folder), read_files(folder).of_stage("main")
    main = page.stages[0]
    values = [record["reward/guess"] for record in records]
    assert [one.name for one in main.measures] == ["reward", "reward guess", "reward spell"]
    reward = main.measures[1]
    assert reward.first == pytest.approx(sum(values[:4]) / 4)
    assert reward.last == pytest.approx(sum(values[-4:]) / 4)
    assert reward.label == "first four steps → last four"
    assert reward.better(reward.last, reward.first)
    assert (main.done, main.planned) == (8, 8)


def test_spend_by_kind_adds_up_to_the_journal(folder: Path) -> None:
    spend = page_of(folder).spend
    model = find_model("deepseek-ai/DeepSeek-V3.1")
    assert model is not None
    assert model.price.sample is not None
    kinds = {kind.kind: kind for kind in spend.kinds}
    assert kinds["sampled"].tokens == 8 * USAGE.sampled
    assert kinds["sampled"].usd == pytest.approx(8 * USAGE.sampled * model.price.sample / 1e6)
    assert sum(kind.usd or 0 for kind in spend.kinds) == pytest.approx(spend.usd)
    (limit,) = spend.limits
    assert (limit.what, limit.limit) == ("usd", 20)
    assert limit.share == pytest.approx((spend.usd or 0) / 20)
    assert spend.chart is not None
    assert spend.chart.table[-1] == ("8", "0.1", "20")  # of metrics.jsonl, beside the budget


def test_the_time_of_all_steps_adds_up(folder: Path) -> None:
    parts = page_of(folder).times
    nodes = dict(NODES)
    assert parts["sampling"] == pytest.approx(8 * nodes["rollouts"] * 0.75)
    assert parts["environment"] == pytest.approx(8 * nodes["rollouts"] * 0.25)
    trained = nodes["reference"] + nodes["forward_backward"] + nodes["optim_step"]
    assert parts["training"] == pytest.approx(8 * trained)
    assert parts["evaluation"] == pytest.approx(5)


def test_the_page_needs_no_network_and_quotes_what_models_say(folder: Path) -> None:
    html = run_html(folder)
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", html)
    assert "@import" not in html
    assert "url(http" not in html
    assert "What is 8 &amp; &lt;b&gt;1&lt;/b&gt;?" in html
    assert "<b>1</b>?" not in html


def test_the_plan_is_shown_with_origins_formulas_and_graph(folder: Path) -> None:
    main = page_of(folder).plan[0]
    values = {(value.group, value.name): value for value in main.values}
    assert values["optimizer", "learning_rate"].text == "0.0001"
    assert values["optimizer", "learning_rate"].origin.startswith("recipe.rl:")
    assert values["optimizer", "learning_rate"].decided
    assert not values["optimizer", "beta1"].decided
    titles = [title for title, _ in main.formulas]
    assert "advantage: grpo" in titles
    boxes = [box.text for box in main.diagram.boxes]
    assert boxes[0] == "snapshot"
    assert {"rollouts", "reference", "optim_step"} <= set(boxes)
    assert any(arrow.back and "step − 1" in arrow.text for arrow in main.diagram.arrows)


def test_the_page_says_what_audits_had_found(folder: Path) -> None:
    assert "rlc audit" not in run_html(folder)
    shutil.copytree(folder, copy := folder.with_name("audited"))
    with closing(sqlite3.connect(copy / JOURNAL_FILE)) as db, db:
        audit = json.dumps({"words": 2, "held": None})
        db.execute("INSERT OR REPLACE INTO meta VALUES ('audit', ?)", (audit,))
    assert "when the run began: words 2 findings, held not audited." in run_html(copy)


def test_boxes_of_the_graph_do_not_overlap(folder: Path) -> None:
    for part in page_of(folder).plan:
        boxes = part.diagram.boxes
        for i, a in enumerate(boxes):
            assert 0 <= a.x < a.x + a.width <= part.diagram.width
            for b in boxes[i + 1 :]:
                apart = a.x + a.width <= b.x or b.x + b.width <= a.x
                assert apart or a.y + a.height <= b.y or b.y + b.height <= a.y


def test_what_the_numbers_tell_an_expert_is_said(folder: Path) -> None:
    texts = [finding.text for finding in page_of(folder).findings]
    assert any("30% of the replies ran into max_tokens" in text for text in texts)


def test_a_run_that_goes_wrong_is_warned_of(tmp_path: Path) -> None:
    records = write_run(tmp_path / "run")
    wrong = {"groups/constant": 0.75, "groups/all_bad": 0.75, "kl/sample_train": -0.02}
    wrong |= {"optim/skipped": 1.0, "rollouts/failed": 4.0, "groups/all_good": 0.0}
    write_lines(tmp_path / "run" / "metrics.jsonl", [record | wrong for record in records])
    said = {finding.text: finding.advice for finding in page_of(tmp_path / "run").findings}
    for text in (
        "75% of the groups had members that were all alike",
        "disagree by 0.020 nats",
        "100% of the updates were skipped",
        "20% of the rollouts failed",
    ):
        assert any(text in line for line in said)
    assert any("easier tasks" in advice for advice in said.values())


def test_a_part_of_the_reward_that_all_replies_earn_is_not_called_too_hard(tmp_path: Path) -> None:
    records = write_run(tmp_path / "run")
    alike = {"groups/constant": 1.0, "groups/all_bad": 1.0, "groups/all_good": 0.0}
    write_lines(tmp_path / "run" / "metrics.jsonl", [record | alike for record in records])
    (advice,) = (f.advice for f in page_of(tmp_path / "run").findings if "all alike" in f.text)
    assert "the same part of the reward" in advice


def test_groups_that_are_not_compared_may_be_alike() -> None:
    record = {"groups/constant": 1.0, "reward/mean": 0.5, "reward/std": 0.2}
    for advantage, warned in (("grpo()", True), ("rebn()", False)):
        stage = first_train(planned(recipe("quickstart"), f"main.advantage={advantage}"))
        said = [finding.text for finding in stage_findings(stage, [record])]
        assert any("all alike" in text for text in said) == warned


def test_an_evaluation_that_falls_is_warned_of(tmp_path: Path) -> None:
    records = write_run(tmp_path / "run")
    assert not any("has fallen" in finding.text for finding in page_of(tmp_path / "run").findings)
    (name,) = {record["stage"] for record in records} - {"main"}
    played = [record for record in records if record["stage"] == name]
    metric = next(key for key in played[0] if key.startswith(f"eval/{name}/"))
    played[0][metric], played[-1][metric] = 0.9, 0.3
    write_lines(tmp_path / "run" / "metrics.jsonl", records)
    (fallen,) = (f.text for f in page_of(tmp_path / "run").findings if "has fallen" in f.text)
    assert "0.900 before the first step, 0.300 after 8" in fallen


def test_a_long_run_makes_a_small_page_that_keeps_the_extremes(tmp_path: Path) -> None:
    records = write_run(tmp_path / "run", planned=2_000)
    page = page_of(tmp_path / "run")
    assert len(render(page, "run.html.j2")) < 600_000
    chart = charts_of(page)["main-reward"]
    rewards = [record["reward/guess"] for record in records if record["stage"] == "main"]
    column = {row[1] for row in chart.table}
    assert {number(min(rewards)), number(max(rewards))} <= column
    assert chart.curves[0].mean
    assert len(chart.table) < 110


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run", done=0)
    for name in ("metrics.jsonl", "timeline.jsonl", "rollouts.jsonl"):
        (tmp_path / "run" / name).unlink()
    page = page_of(tmp_path / "run")
    assert page.groups == ()
    assert list(page.times) == ["evaluation"]
    assert "0 of 8" in render(page, "run.html.j2")


def test_torn_lines_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    whole = page_of(tmp_path / "run").metrics
    for name in ("metrics.jsonl", "timeline.jsonl", "rollouts.jsonl"):
        with (tmp_path / "run" / name).open("a") as file:
            file.write('\x00{"stage": "ma')
    assert page_of(tmp_path / "run").metrics == whole


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        run_html(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "run" / "plan.json").write_text("{}")
    with pytest.raises(RunError, match="is not a plan"):
        run_html(tmp_path / "run")


def test_old_timelines_and_odd_records_do_not_matter(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    write_lines(tmp_path / "run" / "timeline.jsonl", [{"stage": "main", "what": 1}])
    page = page_of(tmp_path / "run")
    assert page.gantt is None
