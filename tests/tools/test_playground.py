"""The playground without a browser: what its worker answers, and what is built."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES

from rlc.catalog.plan_files import plan_to_file
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from tools.playground import __main__ as playground
from tools.playground.bridge import NAME, answer

WRONG = 'model policy {\n  # é😀\n  bse = "tiny"\n}\ntrain main { steps: 3 }\n'
# Of these a folder of tasks is looked at, which no empty file stands in for.
NEED_FOLDERS = {name: ["RL0703"] for name in ("harbor", "harbor_rl", "harbor_distillation")}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like that of the page: of the recipes' files it has the library only."""
    shutil.copytree(RECIPES / "lib", tmp_path / "recipes" / "lib")
    monkeypatch.chdir(tmp_path / "recipes")
    return tmp_path / "recipes"


def said(text: str, want: str = "check") -> Any:
    return json.loads(answer(json.dumps({"text": text, "want": want})))


RUNNABLE = sorted(path for path in RECIPES.rglob("*.rl") if path.parent.name != "lib")


@pytest.mark.parametrize("path", RUNNABLE, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_what_it_is_beside_its_files(path: Path) -> None:
    text = path.read_text("utf-8")
    with chdir(path.parent):
        plan = compile_source(Source(NAME, text)).plan
    assert plan is not None
    found = said(text)["findings"]
    errors = [item["code"] for item in found if item["severity"] == "error"]
    assert errors == NEED_FOLDERS.get(path.stem, [])
    assert said(text, "formatted")["result"] == text
    assert said(text, "fixed")["result"] == text
    summary, full = (said(text, want)["result"] for want in ("summary", "full"))
    if errors:
        assert summary is full is None
    else:
        assert json.loads(said(text, "plan")["result"]) == plan_to_file(plan, "")
        assert summary.startswith(f"\x1b[1m{NAME} on ")
        assert len(full) > len(summary)


def test_files_and_functions_that_are_not_there_are_named() -> None:
    unread = said((RECIPES / "agent.rl").read_text("utf-8"))["unread"]
    assert unread == ["data/doors.jsonl", "data/openreward_games.jsonl", "doors:solve"]
    assert said((RECIPES / "quickstart.rl").read_text("utf-8"))["unread"] == []


@pytest.mark.parametrize(
    "path", ["/etc/nothing.jsonl", "../nothing.jsonl", "lib/losses.rl/x.jsonl"]
)
def test_nothing_is_made_elsewhere(path: str, elsewhere: Path) -> None:
    """What has no stand-in is said to be missing, as everywhere."""
    before = sorted(elsewhere.parent.rglob("*"))
    text = (RECIPES / "reward_model.rl").read_text("utf-8").replace("data/spell_pairs.jsonl", path)
    assert path in text
    assert [item["code"] for item in said(text)["findings"]] == ["RL0001"]
    assert sorted(elsewhere.parent.rglob("*")) == before


def test_a_finding_has_its_place_as_javascript_counts_and_its_fix() -> None:
    answered = said(WRONG)
    field, _, steps = answered["findings"]
    assert answered["counts"] == "3 errors"
    assert answered["result"] is None
    assert (field["code"], field["line"]) == ("RL0104", 3)
    units = WRONG.encode("utf-16-le")
    assert units[2 * field["start"] : 2 * field["end"]].decode("utf-16-le") == "bse"
    assert "^^^" in field["excerpt"]
    assert field["help"] == "did you mean `base`?"
    edit = {"start": field["start"], "end": field["end"], "text": "base"}
    assert field["fix"] == {"title": "write `base`", "safe": True, "edits": [edit]}
    assert steps["fix"]["title"] == "write `=`"
    fixed = WRONG.replace("bse", "base").replace("steps:", "steps =")
    assert said(WRONG, "fixed")["result"] == fixed
    assert said(WRONG, "formatted")["result"] is None


def test_a_key_is_not_shown_and_told_from_the_rest() -> None:
    key = f"hf_{'aB3' * 12}"
    answered = said(f"{WRONG}# {key}\n")
    assert answered["secret"]
    assert key not in json.dumps(answered)
    assert not said(WRONG)["secret"]


@pytest.mark.parametrize("text", ["", "\ud800 \udc00", "\0", "}" * 500, "(" * 1000, "é" * 9])
def test_any_text_has_an_answer(text: str) -> None:
    for want in ("check", "summary", "full", "plan", "formatted", "fixed"):
        assert said(text, want)["counts"]


def test_the_page_of_a_code() -> None:
    page = json.loads(answer('{"code": "RL0104"}'))["result"]
    assert page.startswith("\x1b[1mRL0104")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("playground")
    playground.build(out / "offline", "pyodide/")
    playground.build(out / "published", playground.CDN)
    return out


def test_the_archive_has_all_that_the_worker_imports(built: Path, tmp_path: Path) -> None:
    """It runs where nothing else is installed, in a Python without the site's packages."""
    with zipfile.ZipFile(built / "offline" / "packages.zip") as archive:
        archive.extractall(tmp_path / "rlc")
    program = (
        "import sys; sys.path.insert(0, '..'); import bridge, rlc\n"
        "assert rlc.__file__.startswith(sys.argv[1]), rlc.__file__\n"
        "print(bridge.answer(sys.stdin.read()))"
    )
    asked = {"text": (RECIPES / "two_stages.rl").read_text("utf-8"), "want": "full"}
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", program, str(tmp_path)],
        cwd=tmp_path / "rlc" / "recipes",
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "guess" in json.loads(done.stdout)["result"]


def test_the_same_tree_makes_the_same_page(built: Path) -> None:
    for path in (built / "offline").iterdir():
        if path.name != "index.html":
            assert path.read_bytes() == (built / "published" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(("folder", "hosts"), [("offline", []), ("published", [playground.CDN])])
def test_the_page_names_no_host_but_that_of_pyodide(
    built: Path, folder: str, hosts: list[str]
) -> None:
    texts = [
        path.read_text("utf-8")
        for path in (built / folder).iterdir()
        if path.suffix in (".html", ".js", ".css")
    ]
    assert re.findall(r"https?://[^\"'\s]+", "\n".join(texts)) == hosts


def test_the_menu_offers_recipes_that_work_without_files(built: Path) -> None:
    menu = json.loads((built / "offline" / "recipes.json").read_text("utf-8"))
    names = [recipe["name"] for recipe in menu]
    assert {"quickstart", "sudoku", "mixture", "distillation", "curriculum"} <= {*names}
    assert not {"preferences", "agent", "self_play", "harbor", "two_stages"} & {*names}
    assert all(recipe["title"] for recipe in menu)
