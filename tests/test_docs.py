"""What the pages of the project name exists: files, commands, names in the code."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from pydoc import locate

import pytest
from paths import ROOT

from rlc.catalog.settings import PROJECT
from rlc.cli.main import COMMANDS

WHERE = ("*.md", "docs/**/*.md", ".github/*.md", "rlc/service/**/*.md")
PAGES = sorted(path for pattern in WHERE for path in ROOT.glob(pattern))
CODE = ("rlc", "grammar", "recipes", "benchmarks", "examples", "tests", "tools")
KINDS = {".py", ".lark", ".rl", ".j2", ".json"}
TEMPLATE = ROOT / "rlc" / "projects" / "templates" / "rl"  # the project of the tutorial
DECISIONS = ROOT / "docs" / "decisions"


def text_of(name: str) -> str:
    """A page without its fenced blocks, and without the names of other libraries."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL | re.M)
    if Path(name).name.startswith("from-"):  # a table's first column is what is called so there
        text = re.sub(r"^\|.*?(?<!\\)\|", "", text, flags=re.M)
    return text


@cache
def words() -> frozenset[str]:
    """Every word of the code, the names of metrics (``reward/mean``), and the names of files."""
    paths = [path for name in CODE for path in (ROOT / name).rglob("*") if path.suffix in KINDS]
    texts = (path.read_text("utf-8") for path in paths if path != Path(__file__))
    found = {word for text in texts for word in re.findall(r"\w+(?:/\w+)?", text)}
    parts = {part for word in found for part in word.split("/")}
    return frozenset(found | parts | {path.stem for path in paths})


def is_known(shown: str) -> bool:
    """Whether what a page shows in backticks exists; True for anything but names and paths."""
    if command := re.match(r"rlc ([a-z]+)\b", shown):
        return command[1] in COMMANDS
    if shown == PROJECT:  # which looks like a module
        return True
    if dotted := re.fullmatch(r"(rlc(?:\.\w+)+)(\(.*\))?", shown):
        return locate(dotted[1]) is not None
    if shown.startswith(("runs/", ".rlc/")):  # what a reader's own commands leave
        return True
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?|[\w.]+\.(py|lark|rl)|[\w-]+/", shown):
        inside = (path for room in ("rlc", "tools") for path in (ROOT / room).rglob(shown))
        in_a_room = shown.count("/") == shown.endswith("/") and any(inside)
        return (
            shown in words()
            or in_a_room
            or any((base / shown).exists() for base in (ROOT, ROOT / "rlc", TEMPLATE))
        )
    if name := re.fullmatch(r"([A-Za-z_]\w*)(\(\))?", shown):
        return name[1] in words()
    return True


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_what_a_page_names_exists(page: str) -> None:
    text = text_of(page)
    unknown = {shown for shown in re.findall(r"`([^`\n]+)`", text) if not is_known(shown)}
    assert not unknown
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"a link to {target}"


def test_every_room_has_a_docstring_that_names_what_is_there() -> None:
    for path in (ROOT / "rlc").rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert text, f"{path} has no docstring"
        unknown = {shown for shown in re.findall(r"`([^`\n]+)`", text) if not is_known(shown)}
        assert not unknown, path


def test_names_that_do_not_exist_are_found() -> None:
    gone = (
        "rlc quuxify",
        "rlc.quuxify",
        "plan/quux.py",
        "quux.py",
        "quuxify()",
        "quux/",
        "rules/x",
    )
    assert not any(map(is_known, gone))


@cache
def extras_there() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return frozenset(project["optional-dependencies"])


def installs(text: str) -> list[str]:
    """What follows each ``pip install`` of rlc, up to the end of the command."""
    found = re.findall(r"pip install ([^`#&\n]+)", text)
    return [line for line in found if re.search(r"'(?:rlc|\.)\[|rlc\b", line)]


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_what_a_page_installs_exists(page: str) -> None:
    for line in installs((ROOT / page).read_text("utf-8")):
        for extras in re.findall(r"\[([\w,]+)\]", line):
            assert set(extras.split(",")) <= extras_there(), line
        # From a clone, what rlc was tested with, as in the README; a package has no such file.
        assert ("constraints.txt" in line) == ("-e " in line), line


def test_what_messages_say_to_install_exists() -> None:
    for path in (ROOT / "rlc").rglob("*.py"):
        for extras in re.findall(r"'rlc\[([\w,]+)\]", path.read_text("utf-8")):
            assert set(extras.split(",")) <= extras_there(), path


def test_the_pytorch_of_the_gpu_page_is_the_one_that_was_tested() -> None:
    page = (ROOT / "docs" / "howto" / "use-a-gpu.md").read_text("utf-8")
    (pinned,) = re.findall(r"^torch==.+", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    assert f"pip install {pinned} --index-url" in page


def test_the_list_of_guides_has_every_page() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs/README.md").read_text("utf-8")))
    apart = {name for name in pages if name.startswith("decisions/")} | {"README.md", "index.md"}
    assert pages - apart <= listed


def test_the_readme_names_recipes() -> None:
    rows = re.findall(r"^\|.*\|.*`.*\| (`\w+`(?:, `\w+`)*) \|$", text_of("README.md"), re.M)
    recipes = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(recipes) > 10
    assert all((ROOT / "recipes" / f"{name}.rl").exists() for name in recipes)


def test_every_decision_has_its_page_and_its_line_in_the_index() -> None:
    pages = {path.name for path in DECISIONS.glob("*.md")} - {"README.md"}
    assert pages == set(
        re.findall(r"\]\((\S+\.md)\)", (DECISIONS / "README.md").read_text("utf-8"))
    )
    for page in pages:
        text = (DECISIONS / page).read_text("utf-8")
        assert re.findall(r"^## (.+)", text, re.M) == ["Context", "Decision", "Consequences"], page
        assert 20 <= len(text.splitlines()) <= 40, page
