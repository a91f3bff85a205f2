"""Several runs on one page: what differs, what each came to, their curves in the same charts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_runs import RECIPE, write_run

from rlc.cli.main import main
from rlc.report.drawing import COLORS, DASHES, Figure, Series, draw
from rlc.report.formatting import number
from rlc.report.side_by_side import ABSENT, LETTERS, RunsPage, build, read_runs, runs_html

# Another job: one environment, no evaluation, another rate.
ALONE = RECIPE[: RECIPE.index("eval heldout")].replace("2 * guess + 1 * spell", "guess")
ALONE = ALONE.replace("env spell", "# env spell").replace("1e-4", "3e-4")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("compared")
    write_run(root / "first")
    write_run(root / "longer", planned=12)
    write_run(root / "alone", recipe=ALONE)
    return [root / name for name in ("first", "longer", "alone")]


@pytest.fixture(scope="module")
def page(folders: list[Path]) -> RunsPage:
    return build(*read_runs(folders))


def test_what_differs_has_a_value_of_each_run(page: RunsPage) -> None:
    rows = {row.path: [cell.text for cell in row.cells] for row in page.differences}
    assert rows["main.steps"] == ["8", "12", "8"]
    assert rows["main.optimizer.learning_rate"] == ["0.0001", "0.0001", "0.0003"]
    assert rows["heldout"] == ["eval stage", "eval stage", ABSENT]
    assert not any(path.startswith("heldout.") and "every" not in path for path in rows)
    (spell,) = [path for path in rows if path.startswith("main.envs.spell")]
    assert rows[spell][0].endswith("values more")  # all of the environment in one row
    assert rows[spell][2] == ABSENT
    assert "main.model.base" not in rows
    same = {row.path: [cell.same for cell in row.cells] for row in page.differences}
    assert same["main.steps"] == [True, False, True]


def test_what_one_run_has_alone_is_one_table(folders: list[Path]) -> None:
    assert "In one run only" in runs_html(folders[:1])
    assert "In one run only" not in runs_html(folders)


def test_results_are_held_against_the_first_run(page: RunsPage, folders: list[Path]) -> None:
    results = {one.title: one for one in page.results}
    assert list(results) == [
        "main: reward",
        "main: reward guess",
        "main: reward spell",
        "heldout: pass@1",
        "heldout: pass@2",
    ]
    reward, lines = results["main: reward guess"], results["main: reward guess"].lines
    last = []
    for folder, line in zip(folders, lines, strict=True):
        text = (folder / "metrics.jsonl").read_text()
        records = [json.loads(row) for row in text.splitlines()]
        values = [record["reward/guess"] for record in records if record["stage"] == "main"]
        size = min(5, len(values) // 2)
        last.append(sum(values[-size:]) / size)
        assert line.measure.last == pytest.approx(last[-1])
        assert line.measure.best == (max(values), 1 + values.index(max(values)))
    assert reward.base == "A"
    assert lines[0].against == ""
    sign = "+" if last[1] > last[0] else "−"
    assert lines[1].against == f"{sign}{number(abs(last[1] - last[0]), 3)}"
    assert lines[1].better is (last[1] > last[0])
    assert [line.leads for line in lines] == [value == max(last) for value in last]
    assert results["main: reward spell"].missing == {"not measured": ["C"]}
    assert results["heldout: pass@1"].missing == {"no stage heldout": ["C"]}
    assert [line.run.letter for line in results["heldout: pass@1"].lines] == ["A", "B"]


def test_curves_of_a_metric_are_in_one_chart(page: RunsPage) -> None:
    stages = {group.stage: group for group in page.overlays}
    charts = {chart.title: chart for chart in stages["main"].charts}
    reward = charts["Reward: guess"]
    assert [curve.name for curve in reward.curves] == ["A first", "B longer", "C alone"]
    assert [curve.mark.text for curve in reward.curves if curve.mark] == ["A", "B", "C"]
    assert "not measured in C" in charts["Reward: spell"].note
    assert [curve.name for curve in charts["Reward: spell"].curves] == ["A first", "B longer"]
    assert stages["heldout"].without == ("C",)
    ids = [chart.id for group in page.overlays for chart in group.charts]
    assert len(set(ids)) == len(ids)


def test_each_run_has_a_colour_and_a_line_of_its_own() -> None:
    looks = {(place % COLORS, place % DASHES) for place in range(len(LETTERS))}
    assert len(looks) == len(LETTERS)
    assert len({place % DASHES for place in range(len(LETTERS))}) == len(LETTERS)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(-1, 1)), min_size=2, max_size=12))
def test_letters_at_the_ends_do_not_lie_over_each_other(ends: list[tuple[int, float]]) -> None:
    curves = tuple(Series("x", (0, step), (0.0, value)) for step, value in ends)
    drawn = draw(Figure("f", "F", curves), range(len(ends)), LETTERS[: len(ends)])
    marks = [curve.mark for curve in drawn.curves if curve.mark]
    assert len(marks) == len(ends)
    for i, one in enumerate(marks):
        for other in marks[i + 1 :]:
            assert abs(one.x - other.x) >= 6.9 or abs(one.y - other.y) >= 6.9


def test_the_page_says_all_of_it(folders: list[Path]) -> None:
    html = runs_html(folders)
    for text in ("3 runs side by side", "no stage heldout", "What differs", "Warnings", "★"):
        assert text in html
    assert "http://" not in html.replace("http://www.w3.org", "")


def test_a_run_that_cannot_be_read_is_named(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "torn")
    (tmp_path / "torn" / "plan.json").write_text("{")
    page = build(*read_runs([*folders, tmp_path / "torn"]))
    assert [one.path.name for one in page.unread] == ["torn"]
    assert [run.letter for run in page.runs] == ["A", "B", "C"]


def test_folders_stand_for_the_runs_in_them(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = folders[0].parent, tmp_path / "page.html"
    assert main(["report", str(root), str(folders[1]), "-o", str(out)]) == 0
    assert "3 runs side by side" in out.read_text(encoding="utf-8")
    assert main(["report", *map(str, folders)]) == 0
    assert (root / "comparison.html").is_file()
    capsys.readouterr()


def test_more_than_a_page_can_tell_apart_is_refused(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number_ in range(13):
        (tmp_path / f"run{number_}").symlink_to(folders[0], target_is_directory=True)
        shutil.copytree(folders[2], tmp_path / f"copy{number_}")
    assert main(["report", str(tmp_path)]) == 1
    assert "too many for one page, which shows 12" in capsys.readouterr().err
