"""``rlc run`` as a user meets it: output, exit status, refusals."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import processes
import pytest
from attrs import frozen
from paths import RECIPES, ROOT

from rlc.cli.main import main

SMALL = ["--set", "main.steps=3", "--set", "main.batch=groups(2, group_size = 2)"]


@frozen
class Done:
    """What a command has come to."""

    status: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def rlc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in this process, in the project's folder and without a key."""
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.chdir(ROOT)

    def run(*arguments: str) -> Done:
        try:
            status = main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        return Done(status, *capsys.readouterr())

    return run


@pytest.mark.engine
def test_a_run_says_how_it_goes_and_where_it_is(tmp_path: Path, rlc: Command) -> None:
    done = rlc("run", "recipes/quickstart.rl", *SMALL, "--run-dir", str(tmp_path / "run"))
    assert done.status == 0, done.err
    assert "opening the run …" in done.err.splitlines()  # before what takes long
    lines = done.out.splitlines()
    assert [line.split()[2] for line in lines if "tokens/s" in line] == ["1/3", "2/3", "3/3"]
    assert "(first step → last)" in done.out
    assert f"rlc show {tmp_path / 'run'} " in done.out
    assert f"rlc report {tmp_path / 'run'} " in done.out
    assert f"rlc chat {tmp_path / 'run'} " in done.out
    assert f"rlc export {tmp_path / 'run'} -o DIR " in done.out
    assert f"run folder {tmp_path / 'run'}" in done.out
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"plan.json", "journal.sqlite", "metrics.jsonl", "rollouts.jsonl"} <= names


@pytest.mark.engine
def test_a_hosted_model_without_a_key_is_one_clear_sentence(tmp_path: Path, rlc: Command) -> None:
    done = rlc("run", "recipes/sudoku.rl", "--run-dir", str(tmp_path / "run"))
    assert done.status == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "TINKER_API_KEY" in errors[0]
    assert "--rehearse" in errors[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.engine
def test_the_same_recipe_rehearses_without_a_key(tmp_path: Path, rlc: Command) -> None:
    folder = tmp_path / "run"
    done = rlc("run", "recipes/sudoku.rl", "--rehearse", "--run-dir", str(folder))
    assert done.status == 0, done.err
    assert len((folder / "metrics.jsonl").read_text().splitlines()) >= 2
    first = json.loads((folder / "rollouts.jsonl").read_text().splitlines()[0])
    assert "Sudoku" in first["turns"][0]["observation"]


@pytest.mark.engine
def test_a_rehearsal_says_that_it_does_not_start_from_the_weights(
    tmp_path: Path, rlc: Command
) -> None:
    weights = "tinker://some-run/weights/000010"
    command = ("run", "recipes/sudoku.rl", "--weights", weights, "--run-dir", str(tmp_path))
    said = "a rehearsal starts from the tiny model as it is, not from saved weights"
    assert f"note: {said}" in rlc(*command, "--rehearse", "--quiet").err.splitlines()
    assert "note:" not in rlc(*command).err
    explained = ("explain", "recipes/sudoku.rl", "--rehearse")
    assert said in rlc(*explained, "--weights", weights).out
    assert said not in rlc(*explained).out


@pytest.mark.engine
def test_an_existing_run_folder_is_left_alone(tmp_path: Path, rlc: Command) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    done = rlc("run", "recipes/quickstart.rl", "--run-dir", str(tmp_path / "run"))
    assert done.status == 1
    assert "already exists" in done.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_recipe_with_mistakes_is_not_run(tmp_path: Path, rlc: Command) -> None:
    recipe = tmp_path / "bad.rl"
    recipe.write_text((RECIPES / "quickstart.rl").read_text().replace("steps", "stesp"))
    done = rlc("run", str(recipe), "--run-dir", str(tmp_path / "run"))
    assert done.status == 1
    assert "stesp" in done.err
    assert "did you mean" in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "recipes/quickstart.rl", "--resume", "somewhere", "--run-dir", "elsewhere"],
        ["run", "--resume", "somewhere", "--set", "main.steps=3"],
        ["run", "recipes/quickstart.rl", "--sed", "3"],
        ["run", "recipes/quickstart.rl", "--players", "0"],
        ["run", "recipes/quickstart.rl", "--players", "ray"],
    ],
)
def test_misuse_is_exit_status_2(arguments: list[str], rlc: Command) -> None:
    assert rlc(*arguments).status == 2


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("missing.rl", None, "missing.rl"),
        ("empty.rl", b"", "empty"),
        ("binary.rl", bytes(range(256)) * 20, "binary.rl"),
        ("huge.rl", b"# padding\n" * 1_000_000, "huge.rl"),
        ("no_stage.rl", b'model policy { base = "tiny" }\n', "stage"),
    ],
)
def test_bad_input_is_one_clear_error_and_no_traceback(
    tmp_path: Path,
    name: str,
    content: bytes | None,
    expected: str,
    rlc: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    done = rlc("run", str(tmp_path / name))
    assert done.status == 1
    assert "Traceback" not in done.err
    assert expected in done.err
    assert done.err.count("error") <= 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.engine
def test_a_reader_that_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    """Of the installed command, in a process of its own."""
    folder, pipe = tmp_path / "run", tmp_path / "pipe"
    os.mkfifo(pipe)
    script = str(Path(sys.executable).with_name("rlc"))
    command = [script, "run", "recipes/quickstart.rl", *SMALL, "--run-dir", str(folder)]
    log = tmp_path / "log.txt"
    process = processes.fork(log, processes.script, command, str(ROOT), {}, str(pipe))
    with pipe.open(encoding="utf-8") as reader:
        assert reader.readline()
    process.join()
    assert process.exitcode == 0, log.read_text(encoding="utf-8")
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.engine
def test_quiet_says_only_the_result_and_a_damaged_journal_is_a_clear_error(
    tmp_path: Path, rlc: Command
) -> None:
    folder = tmp_path / "run"
    done = rlc("run", "recipes/quickstart.rl", *SMALL, "--quiet", "--run-dir", str(folder))
    assert done.status == 0
    assert "tokens/s" not in done.out
    assert "run folder" in done.out
    journal = folder / "journal.sqlite"
    journal.write_bytes(journal.read_bytes()[:4096] + b"\xff" * 8192)
    done = rlc("run", "--resume", str(folder))
    assert done.status == 1
    assert str(folder) in done.err
    assert "itself" not in done.err
