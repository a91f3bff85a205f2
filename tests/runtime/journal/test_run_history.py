"""The metrics of a run as columns, tables and pictures."""

from __future__ import annotations

import json
import sys
from math import isnan
from pathlib import Path

import pytest

import rlc
from rlc.plan.paths import PLAN_FILE
from rlc.runtime.journal.metrics import METRICS_FILE

LINES = [
    {"stage": "main", "step": 1, "loss": 2.0},
    {"stage": "a<b>", "step": 1, "eval/a<b>/reward": 0.5},
    {"stage": "main", "step": 3, "loss": float("nan"), "reward/mean": 0.25},
    {"stage": "main", "step": 2, "loss": 1.0},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that goes on: it is just writing a line."""
    (tmp_path / PLAN_FILE).write_text("{}", encoding="utf-8")
    lines = [*map(json.dumps, LINES), '{"stage": "main", "st']
    (tmp_path / METRICS_FILE).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_columns_are_aligned_by_step(folder: Path) -> None:
    history = rlc.history(str(folder))
    assert list(history) == ["main", "a<b>"]
    assert [record["step"] for record in history.records] == [1, 1, 3, 2]
    main = history["main"]
    assert list(main) == ["step", "loss", "reward/mean"]
    assert main["step"] == [1, 2, 3]
    assert main["loss"][:2] == [2.0, 1.0]
    assert isnan(main["loss"][2])
    assert main["reward/mean"] == [None, None, 0.25]
    assert repr(history) == f"<steps in {folder}: 3 of main, 1 of a<b>>"


def test_what_is_not_there_is_said(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    history = rlc.history(folder)
    assert "mian" not in history
    for ask in (history.__getitem__, history.frame):
        with pytest.raises(rlc.Error, match="no metrics of `mian`") as raised:
            ask("mian")
        assert raised.value.hint == "it has those of main, a<b>"
    with pytest.raises(rlc.Error, match="no step has the metric `reward/men`") as raised:
        history["main"]["reward/men"]
    assert raised.value.hint == "did you mean reward/mean?"
    assert history["main"].get("reward/men") is None
    (folder / METRICS_FILE).unlink()  # as before the first step
    assert dict(rlc.history(folder)) == {}
    assert "none yet" in rlc.history(folder)._repr_html_()
    with pytest.raises(rlc.Error, match="not a run folder"):
        rlc.history(tmp_path_factory.mktemp("empty"))


def test_a_frame_has_the_steps_as_its_index(folder: Path) -> None:
    frame = rlc.history(folder).frame("main")
    assert frame.index.to_list() == [1, 2, 3]
    assert frame["loss"].to_list()[:2] == [2.0, 1.0]
    assert frame["reward/mean"].isna().to_list() == [True, True, False]
    assert frame.dtypes.unique().tolist() == ["float64"]


def test_a_frame_needs_pandas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rlc.Error, match="needs pandas") as raised:
        rlc.history(folder).frame("main")
    assert raised.value.hint == "pip install pandas"


def test_a_notebook_shows_curves_of_what_is_a_number(folder: Path) -> None:
    html = rlc.history(folder)._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 2
    assert html.count("<svg") == 1  # of the loss; of the others there is one number
    assert "a&lt;b&gt;" in html
    assert "nan" not in html
    assert "<b>" not in html
