"""What a stage that learns from preferences compared, in `rlc show` and on the page of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_support import block, run_new, tiny

from rlc.cli.main import main
from rlc.report.run_files import read_files
from rlc.report.run_page import build, typical_episodes
from rlc.runtime.journal.runs import read_run

pytestmark = pytest.mark.engine

FIELDS = {"model": "policy", "batch": "4", "steps": "2", "optimizer": "adam(1e-3)"}
ROWS = [{"prompt": f"Say {n}.", "chosen": f"{n}", "rejected": f"not {n}"} for n in range(6)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compared")
    (path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    data = f'pairs("{path}/pairs.jsonl")'
    job = tiny(
        block("preference", "align", FIELDS | {"data": data, "heldout": data, "loss": "dpo()"}),
        block("preference", "rate", FIELDS | {"model": "align", "data": data, "loss": "kto()"}),
    )
    run_new(path / "run", job)
    return path / "run"


def test_the_widest_the_median_and_the_worst_margin_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder), "--stage", "align"]) == 0
    out = capsys.readouterr().out
    headings = [line.split()[0] for line in out.splitlines() if "align step 2" in line]
    assert headings == ["best", "median", "worst"]
    assert out.count("chosen, reward") == out.count("rejected, reward") == 3
    assert "Say " in out


def test_every_reply_of_a_step_can_be_listed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["show", str(folder), "--stage", "align", "--step", "1", "--limit", "9", "--json"]
    assert main(words) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == 4
    for one in found:
        row = ROWS[one["example"]]
        assert one["place"].endswith(f"pairs.jsonl:{one['example'] + 1}")
        assert one["prompt"] == row["prompt"]
        assert [r["text"] for r in one["replies"]] == [row["chosen"], row["rejected"]]
        assert [r["reward"] for r in one["replies"]] == [0, 0]  # the weights are the reference


def test_a_labelled_reply_is_shown_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(folder), "--json", "--limit", "9"]) == 0  # the stage that came last
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["replies"]) for one in found] == [1] * 4
    for one in found:
        (reply,) = one["replies"]
        assert reply["text"] == ROWS[one["example"]][reply["side"]]


@pytest.mark.parametrize("words", [["--step", "9"], ["--step", "0"], ["--row", "none"]])
def test_what_is_not_there_is_said(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder), "--stage", "align", *words]) == 1
    assert "align has done the steps 1 to 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--env", "spell"], ["--task", "0"], ["--member", "0"], ["--failed"], ["--tokens", "ratio"]],
)
def test_what_only_episodes_have_is_refused(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(folder), "--stage", "align", *words]) == 2
    assert f"{words[0]} does not go with `align`" in capsys.readouterr().err


def test_the_page_has_the_curves(folder: Path) -> None:
    files = read_files(folder)
    page = build(files, read_run(folder), typical_episodes(files))
    titles = {group.stage: [c.title for c in group.charts] for group in page.groups}
    assert titles["align"][:5] == [
        "Accuracy",
        "Loss",
        "Reward",
        "Logprob of a reply",
        "Distance",
    ]
    (line, _) = page.stages
    assert [one.title for one in line.measures] == [
        "align: accuracy",
        "align: margin",
        "align: loss",
        "align: held-out accuracy",
    ]
