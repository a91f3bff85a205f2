"""What a failed comparison with a golden file shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import check_file, check_golden

BEFORE = "one\ntwo\nthree\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RLC_UPDATE_GOLDEN", raising=False)
    (tmp_path / "told.txt").write_text(BEFORE)
    return tmp_path / "told.txt"


def failure(path: Path, text: str) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        check_golden(path, text)
    return str(failed.value)


def test_it_shows_the_difference_and_the_command_that_writes_the_file_anew(file: Path) -> None:
    check_golden(file, BEFORE)
    told = failure(file, BEFORE.replace("two", "2"))
    assert "\n one\n-two\n+2\n three" in told
    assert "RLC_UPDATE_GOLDEN=1 .venv/bin/pytest tests/test_golden.py" in told


@pytest.mark.parametrize(
    ("text", "shown"), [("one\ntwo \nthree\n", r"+'two \n'"), ("one\ntwo\nthree", "+'three'")]
)
def test_differences_that_cannot_be_seen_are_written_out(file: Path, text: str, shown: str) -> None:
    assert shown in failure(file, text)


def test_a_long_difference_is_cut(file: Path) -> None:
    assert "… and 806 more lines" in failure(file, "x\n" * 1000)


def test_a_file_that_is_missing_says_how_it_is_made(file: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="is missing; this writes it: make it"):
        check_file(file.with_name("gone.txt"), "", "make it")


def test_a_golden_file_is_written_when_that_is_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLC_UPDATE_GOLDEN", "1")
    check_golden(file.parent / "new" / "told.txt", "new\n")
    assert (file.parent / "new" / "told.txt").read_text() == "new\n"
