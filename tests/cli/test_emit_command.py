"""What `rlc emit` decides by its arguments; `tests/emit` has what is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import RECIPES

from rlc.cli.main import main

QUICKSTART = str(RECIPES / "quickstart.rl")


def test_the_old_name_of_the_script_still_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", QUICKSTART, "--target", "tinker"]) == 0
    told = capsys.readouterr()
    assert told.err == "warning: --target tinker is called --target script\n"
    assert main(["emit", QUICKSTART, "-o", str(tmp_path / "train.py")]) == 0
    assert (tmp_path / "train.py").read_text(encoding="utf-8") == told.out


def test_a_name_without_an_ending_is_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    assert main(["emit", QUICKSTART, "-o", str(folder)]) == 0
    assert f"run it with: cd {folder} && python3 run.py" in capsys.readouterr().out
    assert main(["emit", QUICKSTART, "-o", str(folder)]) == 1
    assert "error[RL0825]: this already has content" in capsys.readouterr().err


def test_a_minus_is_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["emit", QUICKSTART, "-o", "-"]) == 0
    assert "async def train(steps: int, metrics: str) -> None:" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--target", "cookbook"], "--target cookbook is gone"),
        (["--target", "job"], "a job is a folder: say where with -o DIR"),
        (["--target", "job", "-o", "-"], "a job is a folder: say where with -o DIR"),
        (["--sweep"], "--sweep is for --target job"),
        (["--include", "notes.txt"], "--include is for --target job"),
        (["--sweep", "-o", "job"], "declares no sweep"),
        (["--server", "megatron"], "--server is for --target job"),
        (["--server", "megatron", "-o", "job"], "this trains on the embedded engine"),
        (["--server", "vllm", "-o", "job"], "SkyRL has no engine `vllm`"),
    ],
)
def test_what_does_not_go_together_is_said(
    options: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["emit", QUICKSTART, *options]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
