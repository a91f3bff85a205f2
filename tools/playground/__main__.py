"""Writes the playground: a folder of static files, in which rlc runs in the browser.

    python -m tools.playground OUT            Pyodide comes from its CDN
    python -m tools.playground OUT --vendor   Pyodide is put beside the page, by npm

The page wants a server, such as ``python -m http.server -d OUT``: a browser starts no worker of a
file. It needs nothing of the server but the files.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

from rlc.lang.source import Source
from rlc.lsp.documents import Document
from tools.playground.bridge import answer
from tools.textmate import textmate_grammar

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).parent / "page"
PYODIDE = "314.0.7"
CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
# Of the package: what a browser loads.
PYODIDE_FILES = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
    *("python_stdlib.zip", "pyodide-lock.json"),
)
# What `check` and `explain` import beside rlc, all of it pure Python.
DEPENDENCIES = ("attrs", "cattrs", "lark", "typing_extensions")
LEFT_OUT = (".pyc", ".safetensors")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.playground", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--vendor", action="store_true", help="put Pyodide beside the page, by npm")
    args = parser.parse_args(arguments)
    build(args.out, CDN)
    if args.vendor:
        fetch_pyodide(args.out / "pyodide")
        build(args.out, "pyodide/")
    for path in sorted(path for path in args.out.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size:>10,}  {path}")
    return 0


def build(out: Path, pyodide: str) -> None:
    """Write the page, which takes Pyodide from an address; one ends with a slash."""
    out.mkdir(parents=True, exist_ok=True)
    for path in PAGE.iterdir():
        text = path.read_text("utf-8").replace("{{pyodide}}", pyodide)
        (out / path.name).write_text(text, encoding="utf-8")
    write_archive(out / "packages.zip")
    for name, data in (("grammar", textmate_grammar()["patterns"]), ("recipes", menu())):
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        (out / f"{name}.json").write_text(text, encoding="utf-8")


def menu() -> list[dict[str, str]]:
    """Return the shipped recipes that need no files."""
    with tempfile.TemporaryDirectory() as elsewhere, chdir(elsewhere):
        return list(_without_files())


def _without_files() -> Iterator[dict[str, str]]:
    for path in sorted((ROOT / "recipes").glob("*.rl")):
        text = path.read_text("utf-8")
        said = json.loads(answer(json.dumps({"text": text, "want": "check"})))
        errors = any(finding["severity"] == "error" for finding in said["findings"])
        if not (errors or said["unread"] or list(Document(Source("", text)).imports)):
            comment = re.match(r"# *(.*)", text)
            title = comment[1].rstrip(":.") if comment else ""
            yield {"name": path.stem, "title": title, "text": text}


def write_archive(target: Path) -> None:
    """Write what Python imports: rlc as in its wheel, what it needs, the bridge, and the recipes
    that others import. The same tree makes the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(packed()):
            if path.suffix not in LEFT_OUT:
                entry = zipfile.ZipInfo(name)  # of 1980
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())


def packed() -> Iterator[tuple[str, Path]]:
    """Return the files of the archive, each with its name there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        for path in (ROOT / package).rglob("*"):
            if path.is_file():
                yield path.relative_to(ROOT).as_posix(), path
    for source, name in wheel["force-include"].items():
        yield name, ROOT / source
    for dependency in DEPENDENCIES:
        for file in importlib.metadata.files(dependency) or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield file.as_posix(), Path(str(file.locate()))
    yield "bridge.py", Path(__file__).parent / "bridge.py"
    for path in (ROOT / "recipes" / "lib").glob("*.rl"):
        yield path.relative_to(ROOT).as_posix(), path


def fetch_pyodide(folder: Path) -> None:
    """Put Pyodide into a folder. Raise CalledProcessError, with what npm said, if it cannot."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        command = ["npm", "pack", "--silent", f"pyodide@{PYODIDE}"]
        subprocess.run(command, cwd=work, check=True, capture_output=True, text=True)
        with tarfile.open(Path(work) / f"pyodide-{PYODIDE}.tgz") as package:
            for name in PYODIDE_FILES:
                member = package.extractfile(f"package/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())


if __name__ == "__main__":
    sys.exit(main())
