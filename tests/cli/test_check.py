"""``rlc check`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from paths import RECIPES
from plan_recipes import without_tests

from rlc.cli.main import main
from rlc.data.reading import Reader

CLEAN = without_tests((RECIPES / "quickstart.rl").read_text(encoding="utf-8"))
WRONG = CLEAN.replace("steps     = 50", "stepz     = 50")
WARNED = CLEAN.replace("3e-4", "3e-10")


def write(folder: Path, **recipes: str) -> list[str]:
    paths = []
    for name, text in recipes.items():
        path = folder / f"{name}.rl"
        path.write_text(text, encoding="utf-8")
        paths.append(str(path))
    return paths


@pytest.mark.parametrize(("text", "status"), [(CLEAN, 0), (WARNED, 0), (WRONG, 1), ("", 1)])
def test_the_exit_status_says_whether_there_are_errors(
    text: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *write(tmp_path, recipe=text)]) == status
    output = capsys.readouterr().out
    assert ("error[" in output) == bool(status)
    assert ("warning[" in output) == (text == WARNED)


def test_a_clean_recipe_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *write(tmp_path, recipe=CLEAN)]) == 0
    assert capsys.readouterr().out == "1 recipe checked, no findings\n"


def test_values_can_be_set_for_a_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, recipe=CLEAN)
    assert main(["check", "--set", "main.steps=10", *paths]) == 0
    assert main(["check", "--set", "policy.base=math:GSM8K", *paths]) == 1
    assert "`--set 'policy.base=\"math:GSM8K\"'`" in capsys.readouterr().out
    assert main(["check", "--fix", "--set", "main.steps=10", *paths]) == 2


def test_a_saved_plan_is_no_recipe_and_the_advice_names_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"stages": []}')
    assert main(["check", str(plan)]) == 1
    printed = capsys.readouterr().out
    assert "error[RL0002]: this is a JSON file, not a recipe" in printed
    assert f"`rlc run {plan}` runs it" in printed
    assert printed.count("error[") == 1


def test_what_was_not_read_of_the_data_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(json.dumps({"question": f"{n}?", "answer": n}) + "\n" for n in range(9))
    (tmp_path / "sums.jsonl").write_text(rows)
    source = 'env guess = problems("sums.jsonl")'
    recipe = re.sub("env guess = .*", lambda _: source, CLEAN)
    monkeypatch.setattr("rlc.cli.commands.recipes.check._reader", lambda _: Reader(seconds=0.0))
    assert main(["check", *write(tmp_path, recipe=recipe)]) == 0
    assert f"{tmp_path}/sums.jsonl was not read beyond row 1" in capsys.readouterr().err


def test_a_folder_is_all_its_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path, a=CLEAN)
    write(tmp_path / "deep", b=WRONG)
    (tmp_path / "notes.txt").write_text("not a recipe")
    assert main(["check", str(tmp_path)]) == 1
    assert "b.rl:" in capsys.readouterr().out


def test_the_working_directory_is_not_part_of_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, a=WRONG)
    monkeypatch.chdir(tmp_path)
    assert main(["check", ".", "a.rl", "--format", "github"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("::error file=a.rl,")


def test_a_folder_without_recipes_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path)]) == 2
    assert "no recipe" in capsys.readouterr().err


def test_json_lists_every_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--format", "json", *write(tmp_path, a=WRONG, b=WARNED)]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [item["code"] for item in findings] == ["RL0104", "RL0403"]
    assert findings[0]["help"] == "did you mean `steps`?"
    assert main(["check", "--format", "json", *write(tmp_path, c=CLEAN)]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("data", [b"\x00\x01\xff", b"\xff\xfe", b"x" * 1_000_001])
def test_what_is_no_recipe_is_one_error(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.rl"
    path.write_bytes(data)
    assert main(["check", str(path)]) == 1
    assert capsys.readouterr().out.count("error[") == 1
    assert main(["check", str(tmp_path / "absent.rl")]) == 1
    assert "no such file" in capsys.readouterr().out


@pytest.mark.parametrize("args", [[], ["check"], ["check", "--format", "xml", "a.rl"]])
def test_wrong_usage_is_status_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 2
    assert "usage: rlc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("chek a.rl", "there is no command `chek`", "did you mean `check`?"),
        ("zzz", "there is no command `zzz`", "`rlc --help` lists what there is"),
        ("check --impot", "`rlc check` has no option `--impot`", "did you mean `--import`?"),
        ("run --sed=4 a.rl", "`rlc run` has no option `--sed`", "did you mean `--seed`?"),
        ("run -x a.rl", "`rlc run` takes no further `-x`", "`rlc run --help` lists what there is"),
    ],
)
def test_words_that_nothing_has_are_named(
    words: str, message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err == f"error: {message}\n  help: {hint}\n"


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for args, words in ((["--version"], "rlc 0."), (["--help"], "explain")):
        with pytest.raises(SystemExit) as end:
            main(args)
        assert end.value.code == 0
        assert words in capsys.readouterr().out


def test_the_package_can_be_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rlc", "--version"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("rlc", run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("rlc 0.")


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rlc.compile.recipe.check", interrupted)
    assert main(["check", "a.rl"]) == 130


def test_a_mistake_of_rlc_is_one_line_and_status_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the roof\nfell in")

    monkeypatch.setattr("rlc.compile.recipe.check", broken)
    monkeypatch.delenv("RLC_DEBUG", raising=False)
    assert main(["check", "a.rl"]) == 70
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "RuntimeError: the roof" in error
    monkeypatch.setenv("RLC_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["check", "a.rl"])


def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path: Path) -> None:
    paths = write(tmp_path, **{f"r{i}": WRONG for i in range(200)})
    read, write_end = os.pipe()
    os.close(read)
    code = "import sys; from rlc.cli.main import entry; entry()"
    process = subprocess.run(
        [sys.executable, "-c", code, "check", *paths],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert process.stderr == ""
    assert process.returncode == 1


def test_data_is_read_unless_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.jsonl", "rows_few_shot.jsonl"):
        (tmp_path / name).write_text('{"question": "x"}\n')
    recipe = RECIPES / "cookbook_tutorial.rl"
    text = recipe.read_text(encoding="utf-8").replace("data/word_problems", "rows")
    (tmp_path / "recipe.rl").write_text(text, encoding="utf-8")
    assert main(["check", "recipe.rl"]) == 1
    assert "RL0502" in capsys.readouterr().out
    assert main(["check", "--no-data", "recipe.rl"]) == 0
    with pytest.raises(SystemExit):  # what is tried needs rows
        main(["check", "--no-data", "--import", "recipe.rl"])
