"""Run tests on other versions of the packages that rlc takes ranges of.

    python -m tools.versions FOLDER                    all of them
    python -m tools.versions FOLDER tinker verifiers   those whose names begin so

A version is installed without what it needs into a folder of its own, which lies before the
packages of this Python: nothing else is fetched, and no version is resolved. Openenv has a Python
of its own. Prints the rows of the table in docs/install.md; ends with 1 if a test fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from attrs import frozen

ROOT = Path(__file__).resolve().parent.parent
_ENGINE = "tests/service/engine/test_engine_"
_SDK = (
    "tests/chat",
    "tests/service/test_connect.py",
    *(f"{_ENGINE}{part}.py" for part in ("losses", "sampling", "training", "checkpoints")),
    "tests/runtime/updates/test_minibatch.py",
    "tests/service/hosted/test_hosted_clients.py",
)
_COOKBOOK = (
    "tests/chat",
    "tests/catalog",
    "tests/envs/cookbook",
    "tests/yardstick",
    "tests/runtime/stages",
    "tests/runtime/rollouts",
    "tests/service/inference",
    "tests/algo",
)
_PORT = 8799


@frozen
class Layer:
    """Versions to lay over, by the name of the first, and the tests to run on them. ``served``: a
    job is run on `rlc serve` too, which has the versions of this Python."""

    packages: tuple[str, ...]
    tests: tuple[str, ...]
    served: bool = False


LAYERS = (
    Layer(("tinker==0.34.0",), _SDK, served=True),
    Layer(
        ("tinker==0.36.0",), ("tests/chat", "tests/service/engine", "tests/service/hosted"), True
    ),
    Layer(("tinker-cookbook==0.6.1",), _COOKBOOK),
    Layer(
        ("transformers==5.24.0", "tokenizers==0.23.3", "tinker-cookbook==0.6.1"),
        ("tests/chat", "tests/service/engine"),
    ),
    Layer(("verifiers==0.1.14",), ("tests/envs/verifiers",)),
    Layer(
        ("verifiers==0.4.0", "mcp==2.0.0", "mcp-types==2.0.0"),
        ("tests/envs/verifiers", "tests/envs/mcp"),
    ),
)
OPENENV = "openenv==0.10.0"


def main(folder: Path, wanted: Sequence[str]) -> int:
    def is_wanted(package: str) -> bool:
        return not wanted or package.startswith(tuple(wanted))

    good = True
    for layer in LAYERS:
        if is_wanted(layer.packages[0]):
            good &= _tried(folder, layer)
    if is_wanted(OPENENV):
        python = _python_of(folder / OPENENV)
        good &= _row(OPENENV, ("tests/envs/openenv",), {"RLC_OPENENV_PYTHON": str(python)})
    return not good


def _tried(folder: Path, layer: Layer) -> bool:
    over = folder / layer.packages[0]
    if not over.is_dir():
        _pip(sys.executable, "--no-deps", "--target", str(over), *layer.packages)
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(over)])}
    good = _row(", ".join(layer.packages), layer.tests, path)
    if layer.served:
        with _server(folder) as url:
            good &= _job(layer.packages[0], url, path)
    return good


def _python_of(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        _pip(str(python), OPENENV)
    return python


def _pip(python: str, *given: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", *given], check=True)


def _row(name: str, tests: Sequence[str], more: Mapping[str, str]) -> bool:
    """Run tests, and print their row of the table."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    marks = re.findall(r"^([.FEsxX]+) *\[", done.stdout, re.MULTILINE)
    counted = "".join(marks)
    result = f"{counted.count('.')} passed, {len(failed)} failed"
    result += f", {counted.count('s')} skipped" if "s" in counted else ""
    print(f"| {name} | {', '.join(tests)} | {result} |", flush=True)
    for one in failed:
        print(f"  {one}", flush=True)
    return done.returncode == 0


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Serve the engine with the packages of this Python."""
    url, rlc = f"http://127.0.0.1:{_PORT}", str(Path(sys.executable).with_name("rlc"))
    saved = ["--checkpoints", str(folder / "checkpoints")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    silent = subprocess.DEVNULL
    command = [rlc, "serve", "--port", str(_PORT), *saved]
    server = subprocess.Popen(command, env=env, stdout=silent, stderr=silent)
    try:
        for _ in range(120):
            try:
                urlopen(f"{url}/api/v1/healthz", timeout=2)
                break
            except (URLError, TimeoutError):
                time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait()


def _job(name: str, url: str, more: Mapping[str, str]) -> bool:
    recipe = ["recipes/quickstart.rl", "--set", "main.steps=2", "--quiet"]
    where = ["--service", "tinker", "--base-url", url]
    rlc = str(Path(sys.executable).with_name("rlc"))
    env = {**os.environ, "TINKER_API_KEY": "tml-local", **more}
    with tempfile.TemporaryDirectory() as folder:
        command = [rlc, "run", *recipe, *where, "--run-dir", f"{folder}/run"]
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    result = "trained" if done.returncode == 0 else "failed"
    print(f"| {name} | two steps of the first recipe on `rlc serve` | {result} |", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
