"""The extension of VS Code: built and packaged by npm, its grammar run by VS Code's own library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES, ROOT
from processes import no_network

from rlc.lang.source import Source
from rlc.lang.words import read_words
from rlc.lsp.documents import Documents
from rlc.version import __version__

HERE = ROOT / "editors" / "vscode"
PACKED = ("package.json", "syntaxes", "language-configuration.json", "README.md", "LICENSE.txt")
SCOPES = {
    "COMMENT": "comment.line",
    "STRING": "string.quoted.double",
    "NUMBER": "constant.numeric.number",
    "MONEY": "constant.numeric.money",
    "DURATION": "constant.numeric.duration",
    "PERCENT": "constant.numeric.percent",
    "TRUE": "constant.language",
    "FALSE": "constant.language",
    "kind": "keyword.other.kind",
    "declares": "entity.name.type",
    "field": "variable.other.property",
    "argument": "variable.other.property",
    "type": "storage.type",
}


def manifest() -> Any:
    return json.loads((HERE / "package.json").read_text("utf-8"))


def test_the_extension_names_files_that_are_there_and_this_version() -> None:
    said = manifest()
    assert said["version"] == __version__
    (language,), (grammar,) = said["contributes"]["languages"], said["contributes"]["grammars"]
    assert language["extensions"] == [".rl"]
    for path in (language["configuration"], grammar["path"]):
        assert json.loads((HERE / path).read_text("utf-8"))
    kept = (HERE / ".vscodeignore").read_text("utf-8")
    assert all(f"!{name}" in kept for name in PACKED)
    assert (HERE / "LICENSE.txt").read_text("utf-8") == (ROOT / "LICENSE").read_text("utf-8")


def test_the_lock_file_names_no_registry() -> None:
    """Whoever builds it takes the packages from the registry of their own."""
    packages = json.loads((HERE / "package-lock.json").read_text("utf-8"))["packages"]
    assert not [name for name, entry in packages.items() if "resolved" in entry]
    wanted = manifest()["devDependencies"]
    assert packages[""]["devDependencies"] == wanted


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the extension with its packages, built and packaged."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not there")
    folder = tmp_path_factory.mktemp("vscode") / "extension"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    for command in (["ci", "--prefer-offline", "--no-audit", "--no-fund"], ["run", "package"]):
        result = subprocess.run([npm, *command], cwd=folder, capture_output=True, text=True)
        if no_network(result.stderr):
            pytest.skip("npm reaches no registry")
        assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.mark.slow
def test_the_package_holds_what_is_needed_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / "dist" / "rlc-recipes.vsix") as package:
        names = {name for name in package.namelist() if name.startswith("extension/")}
        assert {name.split("/")[1].lower() for name in names} == {
            *("package.json", "readme.md", "license.txt", "language-configuration.json"),
            *("dist", "syntaxes"),
        }
        assert sum(item.file_size for item in package.infolist()) < 1_000_000


@pytest.mark.slow
def test_the_extension_loads_and_knows_which_rlc_to_start(built: Path, tmp_path: Path) -> None:
    program = tmp_path / ".venv" / "bin" / "rlc"
    program.parent.mkdir(parents=True)
    program.touch()

    def commands(settings: dict[str, Any], *folders: str) -> Any:
        arguments = ["node", "test/start.js", json.dumps(settings), *folders]
        result = subprocess.run(arguments, cwd=built, capture_output=True, text=True, check=True)
        said = json.loads(result.stdout)
        assert said["hooks"] == ["function", "function"]
        return said["commands"]

    found = commands({}, str(tmp_path), str(tmp_path / "elsewhere"), "")
    assert found == [[str(program), "lsp"], ["rlc", "lsp"], ["rlc", "lsp"]]
    own = {"command": ["tools/rlc", "lsp"]}
    assert commands(own, str(tmp_path)) == [[str(tmp_path / "tools/rlc"), "lsp"]]


@pytest.mark.slow
def test_the_grammar_agrees_with_the_compiler_on_all_recipes(built: Path) -> None:
    paths = sorted(RECIPES.rglob("*.rl"))
    arguments = ["node", "test/tokens.js", *map(str, paths)]
    environment = {**os.environ, "NODE_OPTIONS": ""}
    result = subprocess.run(
        arguments, cwd=built, capture_output=True, text=True, check=True, env=environment
    )
    said = json.loads(result.stdout)
    documents = Documents()
    for path in paths:
        text = path.read_text("utf-8")
        assert text.isascii() or all(ord(char) < 0x1_0000 for char in text)  # units are characters
        scopes = [""] * len(text)
        for start, end, scope in said[str(path)]:
            scopes[start:end] = [scope] * (end - start)
        document = documents.get(str(path))
        assert document is not None
        roles = {note.start: note.role for note in documents.notes(document)[0]}
        for word in read_words(Source("", text)):
            wanted = SCOPES.get(roles.get(word.start, "")) or SCOPES.get(word.kind)
            if wanted is not None:
                here = set(scopes[word.start : word.end])
                place = f"{path.name}:{document.source.position(word.start)[0]}"
                assert all(scope.startswith(wanted) for scope in here), (place, wanted, here)
