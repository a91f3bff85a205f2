"""The files of the project say what is true of it: metadata, changelog, hooks, workflows."""

from __future__ import annotations

import re
import tomllib

import yaml  # type: ignore[import-untyped]
from paths import ROOT

import rlc
from rlc.catalog.packages import NEWEST_PYTHON, name_of
from rlc.cli.main import COMMANDS
from rlc.version import PYTHON


def test_the_metadata_names_the_issue_tracker() -> None:
    """Which the message about an internal error asks for by that name."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert urls["Issues"].endswith("/issues")
    assert all(url.startswith(urls["Homepage"]) for url in urls.values())


def test_every_file_means_the_same_oldest_python() -> None:
    oldest = ".".join(map(str, PYTHON))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["requires-python"] == f">={oldest}"
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert project["tool"]["mypy"]["python_version"] == oldest
    for path in (*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "package"):
        named = re.findall(r'python-version: "(.+)"|:-python(.+)}', path.read_text("utf-8"))
        assert {"".join(each) for each in named} == {oldest}, path.name


def test_the_pythons_of_packages_are_those_of_the_metadata() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package, newest in NEWEST_PYTHON.items():
        pattern = rf'"(?:rlc\[)?{name_of(package)}\b[^"]*; (python_\w+ \S+ .+?)"'
        (marker,) = re.findall(pattern, text)
        variable, sign, version = marker.replace("'", "").split()
        named = tuple(map(int, version.split(".")))
        assert variable == ("python_version" if len(newest) == 2 else "python_full_version")
        assert named == (newest if sign == "<=" else (*newest[:-1], newest[-1] + 1)), package


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert versions[:2] == ["Unreleased", rlc.__version__]
    assert re.findall(r"^\[(.+?)\]: ", text, re.MULTILINE) == versions


def test_hooks_are_commands() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    for hook in hooks:
        program, command = hook["entry"].split()
        assert program == "rlc"
        assert command in COMMANDS
        assert re.search(hook["files"], "recipes/quickstart.rl")


def test_the_readme_shows_all_hooks_of_this_version() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- hooks -->\n```yaml\n(.*?)```", readme, re.DOTALL)
    assert shown
    (repository,) = yaml.safe_load(shown[1])["repos"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert repository["rev"] == f"v{rlc.__version__}"
    assert [hook["id"] for hook in repository["hooks"]] == [hook["id"] for hook in hooks]


def test_workflows_run_scripts_that_are_here() -> None:
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        for step in (step for job in jobs.values() for step in job["steps"] if "run" in step):
            script = ROOT / step["run"].split()[0]
            assert script.stat().st_mode & 0o100, f"{path.name}: {script} is not a program"
