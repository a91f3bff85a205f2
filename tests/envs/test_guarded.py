"""What environments start outside of their process is ended with it, even by SIGKILL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from rlc.envs.guarded import guard

pytestmark = pytest.mark.kill

# Takes a lock that its child shares, says so, and does not end by itself; nor does the child.
PROGRAM = """\
import fcntl, subprocess, threading
working = open("{here}/working", "w")
fcntl.flock(working, fcntl.LOCK_SH)
subprocess.Popen(["sleep", "100000"], pass_fds=[working.fileno()])
open("{here}/begun", "w").close()
threading.Event().wait()
"""
SANDBOX = """\
from rlc.envs.gem.sandbox import Sandbox
Sandbox().run(open("{here}/program.py").read(), 10_000)
"""
BOX = """\
import asyncio
from pathlib import Path
from rlc.data.harbor import read_task
from rlc.envs.harbor.boxes import SubprocessBox

async def work():
    box = SubprocessBox(read_task(Path("{task}")))
    await box.open()
    await box.run("{python} {here}/program.py", 10_000)

asyncio.run(work())
"""
CONTAINER = """\
import asyncio, threading
from pathlib import Path
from rlc.data.harbor import read_task
from rlc.envs.harbor.boxes import ContainerBox

box = ContainerBox("{here}/docker", read_task(Path("{task}")))
asyncio.run(box.open())
open("{here}/begun", "w").close()
threading.Event().wait()
"""
DOCKER = '#!/bin/sh\ncase "$1" in run) echo c0ffee ;; rm) echo "$@" > {here}/removed ;; esac\n'
TASK = ROOT / "recipes" / "data" / "harbor" / "greeting"


def killed_in_its_midst(script: str, here: Path) -> None:
    """Run a script until it has opened the pipe ``begun``, and kill it."""
    os.mkfifo(here / "begun")
    names = {"here": here, "task": TASK, "python": sys.executable}
    process = subprocess.Popen([sys.executable, "-c", script.format(**names)])
    try:
        subprocess.run(["cat", "begun"], cwd=here, check=True, timeout=60)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("script", [SANDBOX, BOX], ids=["sandbox", "box"])
def test_nothing_works_on_when_its_run_is_killed(script: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(here=tmp_path))
    killed_in_its_midst(script, tmp_path)
    alone = "import fcntl; fcntl.flock(open('working', 'w'), fcntl.LOCK_EX)"
    subprocess.run([sys.executable, "-c", alone], cwd=tmp_path, check=True, timeout=60)


def test_a_container_is_removed_when_its_run_is_killed(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(here=tmp_path))
    docker.chmod(0o755)
    os.mkfifo(tmp_path / "removed")
    killed_in_its_midst(CONTAINER, tmp_path)
    read = subprocess.run(["cat", "removed"], cwd=tmp_path, capture_output=True, timeout=60)
    assert read.stdout == b"rm --force c0ffee\n"


def test_what_is_held_goes_on_if_its_block_ends() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        with guard() as guarded:
            guarded.hold_group(process.pid)
        assert process.poll() is None
    assert process.returncode == 0  # its input has ended
