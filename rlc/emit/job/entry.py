"""Run this job. Run it again to go on with it, wherever it was stopped.

    python run.py                        in an environment that it makes, in .venv
    python run.py --here                 with the packages of this Python
    python run.py --prepare              make the environment, and stop
    python run.py --folder /volume/run   keep the run in another folder than run/

Whatever else is given is passed on to rlc: --base-url URL, --quiet, and for a sweep --jobs N.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import runpy
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SUMS = "SHA256SUMS"
PACKAGES = ("requirements.txt", "constraints.txt")
# What a run has written by the time that its journal knows the plan.
AT_FIRST = (".lock", "plan.json", "recipe.json", "trials", "journal.sqlite", "sweep.sqlite")


class _JobError(Exception):
    """The job cannot be run."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        usage="python run.py [--here] [--prepare] [--folder FOLDER] [options of rlc]",
        description="Run this job, or go on with it.",
        allow_abbrev=False,
    )
    parser.add_argument("--here", action="store_true", help="use the packages of this Python")
    parser.add_argument("--prepare", action="store_true", help="make the environment, and stop")
    parser.add_argument("--folder", default="run", help="where the run is kept (default run)")
    options, passed = parser.parse_known_args(arguments)
    folder = HERE / options.folder
    try:
        if changed := changed_files():
            advice = "put them back, or write the job anew from its recipe"
            raise _JobError("\n".join([*changed, advice]))
        if options.here:
            return 0 if options.prepare else run(folder, passed)
        python = prepared()
        if not options.prepare:
            again = [str(python), __file__, "--here", "--folder", str(folder), *passed]
            os.execv(python, again)  # the same process: whoever stops this one stops the run
    except _JobError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def changed_files() -> list[str]:
    """Return a sentence for each file that is not as it was when the job was written."""
    found = []
    for line in (HERE / SUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        if not (HERE / name).is_file():
            found.append(f"{name} is gone")
        elif (now := sha256(HERE / name)) != digest:
            was = f"its SHA-256 was {digest[:12]}…, and is {now[:12]}…"
            found.append(f"{name} has changed since the job was written: {was}")
    return found


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def prepared() -> Path:
    """Return the Python of .venv, made if need be. Raise _JobError if it cannot be made."""
    wheels = sorted((HERE / "wheels").iterdir())
    wanted = "\n".join(sha256(path) for path in (*(HERE / name for name in PACKAGES), *wheels))
    python, ready = HERE / ".venv" / "bin" / "python", HERE / ".venv" / "ready"
    if python.exists() and ready.is_file() and ready.read_text() == wanted:
        return python
    print("making the environment of the job in .venv", flush=True)
    shutil.rmtree(HERE / ".venv", ignore_errors=True)
    try:
        subprocess.run([*maker(), ".venv"], cwd=HERE, check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", PACKAGES[0]], cwd=HERE, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise _JobError(f"the environment cannot be made: {error}") from error
    ready.write_text(wanted)
    return python


def maker() -> list[str]:
    """Return a command that makes an environment of this Python, if that is one for the job, or
    else of the oldest. Raise _JobError without one."""
    oldest, newest = job()["python"].values()
    name = "python" + ".".join(map(str, oldest))
    this = [*sys.version_info[:3]]
    if oldest <= this and (not newest or this[: len(newest)] <= newest):
        return [sys.executable, "-m", "venv"]
    if found := shutil.which(name):
        return [found, "-m", "venv"]
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path.home() / ".local" / "bin")])
    if uv := shutil.which("uv", path=places):
        return [uv, "venv", "-q", "--seed", "--python", name.removeprefix("python")]
    advice = "install it, or uv, which fetches one (https://docs.astral.sh/uv)"
    raise _JobError(f"the job needs {name}, and this is {sys.version.split()[0]}: {advice}")


def run(folder: Path, passed: list[str]) -> int:
    """Run the job with the rlc of this Python, and return the exit status."""
    try:
        from rlc.version import __version__
    except ImportError as error:
        advice = "`python run.py` makes an environment, and `--here` uses this one"
        raise _JobError(f"{error}: {advice}") from error
    this = job()
    if __version__ != this["rlc"]:
        raise _JobError(f"the job is one of rlc {this['rlc']}, and this is {__version__}")
    os.chdir(HERE / this["folder"])
    where = os.path.relpath(folder) if HERE in folder.parents else str(folder)
    words = this["command"]
    command = [words[0], "--resume"] if begun(folder) else [*words, "--run-dir"]
    sys.argv = ["rlc", *command, where, *passed]
    try:
        runpy.run_module("rlc", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code not in (None, 0, 3) and folder.exists():  # 3: it ended, not as expected
            print("`python run.py` goes on with it", file=sys.stderr)
        raise
    return 0


def job() -> dict[str, Any]:
    """Return what the job says of itself."""
    found: dict[str, Any] = json.loads((HERE / "job.json").read_text(encoding="utf-8"))
    return found


def begun(folder: Path) -> bool:
    """Return whether a run is in a folder; clear one killed before its journal had the plan."""
    for name in ("journal.sqlite", "sweep.sqlite"):
        if (folder / name).is_file():
            with closing(sqlite3.connect(folder / name)) as journal:
                try:
                    keys = {key for (key,) in journal.execute("SELECT key FROM meta")}
                except sqlite3.OperationalError:  # without tables
                    keys = set()
            if "plan_hash" in keys:
                return True
    if folder.is_dir() and all(path.name.startswith(AT_FIRST) for path in folder.iterdir()):
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.iterdir():  # the folder stays: it may be one that is mounted
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except BlockingIOError:  # another process begins it just now
            return True
        finally:
            os.close(lock)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
