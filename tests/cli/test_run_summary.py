"""What `rlc run` says at the end, as lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from made_up_runs import write_run
from rich.console import Console

from rlc.cli.summary import print_summary
from rlc.runtime.summary import Summary


def printed(folder: Path, terminal: bool) -> list[str]:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
    print_summary(console, Summary(folder, "interrupted", [], [], 0.0))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "a-run-whose-name-takes-some-room"
    write_run(path)
    return path


def test_a_terminal_gets_whole_words_and_a_pipe_whole_lines(folder: Path) -> None:
    narrow, whole = printed(folder, terminal=True), printed(folder, terminal=False)
    assert all(len(line) <= 80 or str(folder) in line for line in narrow)
    assert any(len(line) > 80 for line in whole)
    for verb in ("show", "report"):
        command = f"rlc {verb} {folder}"  # whole, to be copied
        assert any(command in line for line in narrow)
    assert " ".join(narrow).split() == " ".join(whole).split()


def test_only_what_is_there_is_shown_next(folder: Path) -> None:
    assert any("rlc show" in line for line in printed(folder, terminal=False))
    (folder / "rollouts.jsonl").write_text("")
    said = printed(folder, terminal=False)
    assert not any("rlc show" in line for line in said)
    assert any("rlc report" in line for line in said)
    (folder / "comparisons.jsonl").write_text("{}\n")
    assert any("replies that were compared" in line for line in printed(folder, terminal=False))
