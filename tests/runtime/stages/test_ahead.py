"""No stage pays for another's mistake: what later stages need is tried before the first step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_support import block, run, run_new, tiny, train

from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.stages import opening
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

FIRST = train(steps="1", batch="groups(2, group_size = 2)")


def held_out(env: str) -> str:
    return block("eval", "heldout", {"model": "main", "env": env, "tasks": "1"})


def later(data: str) -> str:
    fields = {"model": "main", "data": data, "optimizer": "adam(1e-3)", "steps": "1", "batch": "1"}
    return block("sft", "later", fields)


def rows(folder: Path, *lines: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"prompt": "a"},
            r"cannot be run: .*:2: .*no field `reply`",
        ),
        ([1], r"cannot be run: .*:2: the row has no named fields"),
    ],
)
def test_a_row_of_a_later_file(tmp_path: Path, line: object, message: str) -> None:
    path = rows(tmp_path, {"prompt": "a", "reply": "b"}, line)
    with pytest.raises(RunError, match=f"`later`, a later stage, {message}"):
        run_new(tmp_path / "run", tiny(FIRST, later(f'rows("{path}")')))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_the_split_of_a_later_evaluation(tmp_path: Path) -> None:
    path = rows(tmp_path, {"question": "1 + 1 = ?", "answer": 2})
    env = f'problems("{path}", split = "test", grader = numeric)'
    with pytest.raises(RunError, match=r"`heldout`, a later stage, .* has no split `test`"):
        run_new(tmp_path / "run", tiny(FIRST, held_out(env)))


OWN = """
class Broken:
    def group(self, seed, size):
        raise ValueError("no such level")

def make(): return Broken()
"""


def test_an_environment_that_cannot_be_reset(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    env = f'python("{tmp_path / "own.py"}:make")'
    with pytest.raises(RunError, match=r"`heldout`, a later stage, cannot be run: .*no such level"):
        run_new(tmp_path / "run", tiny(FIRST, held_out(env)))


def test_sound_stages_run_and_their_examples_are_made_once(tmp_path: Path) -> None:
    path = rows(tmp_path, {"prompt": "a", "reply": "b"}, {"prompt": "c", "reply": "d"})
    job = tiny(FIRST, later(f'rows("{path}")'), held_out("guess"))
    run_new(tmp_path / "run", job, stop_after=("main", 1))
    assert len((tmp_path / "run" / "examples-later.jsonl").read_text().splitlines()) == 2


def test_time_that_it_takes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[str]()

    class Notes(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    monkeypatch.setattr(opening, "NOTICED", -1.0)
    path = rows(tmp_path, {"prompt": "a", "reply": "b"})
    run(RunFolder.create(tmp_path / "run", tiny(FIRST, later(f'rows("{path}")'))), observer=Notes())
    tried = [note for note in notes if note.startswith("tried the data and environments of later")]
    assert tried[0].endswith(" s: later")
