"""A run goes on after its folder was moved, alone or with the whole project."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_support import run, train

import rlc
from rlc.report.findings import findings
from rlc.report.run_files import read_files
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.runs import read_run
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

RECIPE = """\
model policy { base = "tiny" lora_rank = 4 }
env sums = problems("data/sums.jsonl", grader = grade_with("data/grade.py:length"))
sft warmup { model = policy  data = rows("data/rows.jsonl")  batch = 1  optimizer = adam(1e-4)
  steps = 1 }
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a run that was stopped after its first stage."""
    root = tmp_path / "project"
    (root / "recipes/data").mkdir(parents=True)
    (root / "recipes/data/sums.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (root / "recipes/data/rows.jsonl").write_text('{"prompt": "1 + 1?", "reply": "2"}\n')
    (root / "recipes/data/grade.py").write_text(
        "def length(reply, row): return sum(map(ord, reply)) % 9\n"
    )
    text = RECIPE + train(model="warmup", env="sums", batch="groups(1, group_size = 4)", steps="1")
    (root / "recipes/main.rl").write_text(text)
    monkeypatch.chdir(root)
    folder = RunFolder.create(Path("runs/one"), rlc.load("recipes/main.rl").plan())
    assert run(folder, ("warmup", 1)).state == "interrupted"
    return root


def test_with_its_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    moved = Path(shutil.move(project, "moved"))
    assert read_run(moved / "runs/one").recipe == "moved/recipes/main.rl"
    (moved / "recipes/data/rows.jsonl").unlink()  # its examples are in the run folder
    assert rlc.resume(moved / "runs/one").state == "finished"


def test_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = Path(shutil.move(project / "runs/one", project.parent / "elsewhere"))
    monkeypatch.chdir("/")
    assert read_run(moved).recipe == str(project / "recipes/main.rl")
    assert rlc.resume(moved).state == "finished"


def test_without_its_data(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file and both places, before the run goes on."""
    moved = Path(shutil.move(project / "runs/one", project.parent / "a/b/c/elsewhere"))
    (project / "recipes/data/sums.jsonl").unlink()
    (project / "recipes/main.rl").unlink()
    with pytest.raises(RunError) as refused:
        rlc.resume(moved)
    for root in (project.parent / "a/b", project):
        assert f"{root / 'recipes/data/sums.jsonl'}" in str(refused.value)
    assert read_run(moved).state == "interrupted"


def test_with_other_data_and_code(project: Path) -> None:
    """The run goes on, says each time which files changed, and keeps all of them."""
    folder, data = Path("runs/one"), project / "recipes/data"
    notes = list[str]()

    class Notes(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    (data / "sums.jsonl").write_text('{"question": "1 + 2?", "answer": "3"}\n')
    (data / "rows.jsonl").write_text('{"prompt": "1 + 2?", "reply": "3"}\n')
    with open(data / "grade.py", "a") as code:
        code.write("# that is all\n")
    run(RunFolder.resume(folder), ("main", 1), Notes())
    (data / "rows.jsonl").unlink()  # its examples are in the run folder
    assert run(RunFolder.resume(folder), observer=Notes()).state == "finished"

    begun = "the run goes on with other files than it began with: "
    said = [note.removeprefix(begun) for note in notes if note.startswith(begun)]
    changed = [text.partition(":")[0] for text in said]
    grade, rows, sums = (
        f"recipes/data/{name}" for name in ("grade.py", "rows.jsonl", "sums.jsonl")
    )
    assert changed == [
        *(f"{grade} has changed", f"{rows} has changed", f"{sums} has changed"),
        *(f"{grade} has changed", f"{rows} is gone", f"{sums} has changed"),
    ]
    assert set(read_files(folder).audit.values()) == {None}
    assert read_files(folder).data_changed == tuple(dict.fromkeys(said))
    assert [said[-2] in found.text for found in findings(read_files(folder))].count(True) == 1
