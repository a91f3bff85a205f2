"""``rlc init``: projects whose every part works as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

import rlc
from rlc.cli.main import COMMANDS, main
from rlc.projects import TEMPLATES, make_project

pytestmark = pytest.mark.slow


@pytest.fixture(params=TEMPLATES)
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a template, whose project has been made in the working directory."""
    name = str(request.param)
    make_project(tmp_path / "words", name)
    monkeypatch.chdir(tmp_path / "words")
    return name


def test_there_is_nothing_to_say_about_a_project(
    project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--import", "."]) == 0
    assert capsys.readouterr().out == "1 recipe checked, no findings\n"
    assert main(["fmt", "--check", "."]) == 0
    assert Path("recipe.rl").read_text().startswith("# words: ")


def test_nothing_is_left_to_fill_in(project: str) -> None:
    for path in Path().rglob("*"):
        if path.is_file():
            assert not re.search("PROJECT_NAME|PYTHON_VERSION", path.read_text()), path
    version = f'python-version: "{sys.version_info[0]}.{sys.version_info[1]}"'
    assert version in Path(".github/workflows/check.yml").read_text()
    assert re.match(rf"rlc\[.+\]=={rlc.__version__}\n", Path("requirements.txt").read_text())


@pytest.mark.parametrize("index", [False, True])
def test_a_project_installs_the_rlc_that_wrote_it(
    index: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its version if an index has it; else from a wheel that the project keeps."""
    monkeypatch.setattr("rlc.emit.job.needs.is_from_index", lambda: index)
    assert main(["init", str(tmp_path / "mine"), "--template", "agent"]) == 0
    required = (tmp_path / "mine" / "requirements.txt").read_text().splitlines()[0]
    if index:
        assert required == f"rlc[local,serve]=={rlc.__version__}"
        assert not (tmp_path / "mine" / "vendor").exists()
        return
    wheel, extras = required.split("[")
    assert extras == "local,serve]"
    with zipfile.ZipFile(tmp_path / "mine" / wheel) as files:
        assert {"rlc/cli/main.py", "rlc/lang/syntax/rl.lark"} <= {*files.namelist()}


def test_what_its_pages_name_is_there(project: str) -> None:
    readme = Path("README.md").read_text()
    for name in re.findall(r"^\| `([^`]+)` \|", readme, re.MULTILINE):
        assert Path(name).exists(), name
    for text in (readme, Path("AGENTS.md").read_text()):
        assert set(re.findall(r"(?:^|`)rlc ([a-z]+)", text, re.MULTILINE)) <= {*COMMANDS}


def test_its_own_tests_pass(project: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.engine
@pytest.mark.server
def test_it_runs(project: str) -> None:
    """In full where that is short, for what the recipe expects of its end."""
    short = {"sft": {"main.epochs": 2}, "preference": {}}
    summary = rlc.run(rlc.load("recipe.rl", set=short.get(project, {"main.steps": 1})))
    assert summary.state in ("finished", "nothing learnt")
    assert all(expected.holds for expected in summary.expectations)
    tested = rlc.test(".")
    assert tested, [item.message for item in tested.findings]
    assert len(tested.of("passed")) >= 2


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.rl").write_text("# mine\n")
    assert main(["init", str(tmp_path)]) == 1
    assert f"{tmp_path} has recipe.rl already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.rl"]


def test_it_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert main(["init", str(folder), "--template", "sft"]) == 0
    assert f"cd {folder} && rlc check --import . && rlc run recipe.rl" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "my words")]) == 0
    assert f"cd '{tmp_path / 'my words'}' && rlc check" in capsys.readouterr().out
