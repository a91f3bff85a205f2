"""``rlc import`` as a user runs it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rlc.cli.main import main

COMMAND = ["python", "tinker_train.py", "env_id=rg:chain_sum", "env_wrappers=", "num_env=64"]
CONFIG = """\
wandb_project_name: p
wandb_run_name: r
openreward_run_name: r
model_name: Qwen/Qwen3-8B
batch_size: 32
loss_fn: importance_sampling
environments:
  Org/Name: {splits: {train: {}}, num_rollouts: 8}
"""


def test_a_command_is_printed_as_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--", *COMMAND]) == 0
    captured = capsys.readouterr()
    assert 'env chain_sum = gem("rg:chain_sum") |> template(qwen3_general)' in captured.out
    assert "batch     = turns(128, parallel = 64)" in captured.out
    assert captured.err == ""


def test_a_script_becomes_a_file_that_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = tmp_path / "train.sh", tmp_path / "train.rl"
    script.write_text(" \\\n  ".join(COMMAND) + "\n")
    assert main(["import", str(script), "-o", str(out)]) == 0
    assert main(["check", str(out)]) == 0
    assert main(["fmt", "--check", str(out)]) == 0
    assert "no findings" in capsys.readouterr().out


def test_a_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.rl"
    out.write_text("mine")
    assert main(["import", "-o", str(out), "--", *COMMAND]) == 1
    assert "is there already" in capsys.readouterr().err
    assert out.read_text() == "mine"


def test_overrides_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tinker-config.yaml"
    path.write_text(CONFIG)
    assert main(["import", str(path), "--overrides", "batch_size=64", "learning_rate=2e-5"]) == 0
    first = capsys.readouterr().out
    assert "groups(64)" in first
    assert "adam(2e-5" in first
    command = ["python", "main.py", "--config_path", str(path)]
    overrides = ["--overrides", "batch_size=64", "learning_rate=2e-5"]
    assert main(["import", "--", *command, *overrides]) == 0
    assert capsys.readouterr().out == first


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(COMMAND).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["import", "-"]) == 0
    assert "gem(" in capsys.readouterr().out


def test_what_a_check_finds_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "--", *COMMAND, "lora_rank=20"]) == 1
    captured = capsys.readouterr()
    assert "lora_rank = 20" in captured.out
    assert "error[RL0401]" in captured.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.sh"], "error: absent.sh cannot be read: No such file or directory"),
        (["."], "error: . cannot be read: Is a directory"),
        (["--", "python", "tinker_train.py", "gama=1"], "did you mean `gamma`?"),
        (["--", "python", "tinker_train.py", "num_env=many"], "`num_env` takes a whole number"),
        (["--from", "openreward", "--", "a=1"], "is described by its configuration"),
    ],
)
def test_a_mistake_is_one_sentence_with_advice(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", *words]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) <= 2


def test_binary_input_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(b"\xff\xfe\x00")
    assert main(["import", str(path)]) == 1
    assert "it is not UTF-8 text" in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["import", "--help"])
    assert end.value.code == 0
    assert "rlc import tinker-config.yaml --overrides" in capsys.readouterr().out
