"""What environments start outside of their process is ended with it, even by SIGKILL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

from rlc.envs.agents import AgentRun, CommandAgent
from rlc.envs.guarded import guard

pytestmark = pytest.mark.kill

# Starts another, says so, and does not end by itself; nor does the other.
PROGRAM = """\
import subprocess, threading
subprocess.Popen(["sleep", "100000"])
open("{here}/begun", "w").close()
threading.Event().wait()
"""
SANDBOX = """\
from rlc.envs.gem.tools import Sandbox
Sandbox().run(open("{here}/program.py").read(), 10_000)
"""
BOX = """\
import asyncio
from pathlib import Path
from rlc.data.harbor import read_task
from rlc.envs.harbor import SubprocessBox

async def work():
    box = SubprocessBox(read_task(Path("{task}")))
    await box.open()
    await box.run("{python} {here}/program.py", 10_000)

asyncio.run(work())
"""
# Killed before it knows what it has started.
STARTING = """\
import asyncio, threading
from rlc.envs.harbor import _execute

start = asyncio.create_subprocess_exec

async def started(*words, **how):
    await start(*words, **how)
    open("{here}/begun", "w").close()
    threading.Event().wait()

asyncio.create_subprocess_exec = started
asyncio.run(_execute(["sleep", "100000"], 100_000))
"""
AGENT = """\
import asyncio
from rlc.envs.agents import AgentRun, CommandAgent

agent = CommandAgent(["{python}", "{here}/program.py"], "{here}", by_status=False)
asyncio.run(agent.run(AgentRun("http://127.0.0.1/v1", "key", "policy", {{}}, [])))
"""
CONTAINER = """\
import asyncio, threading
from pathlib import Path
from rlc.data.harbor import read_task
from rlc.envs import harbor
from rlc.envs.harbor import ContainerBox

harbor._REMOVE = harbor._REMOVE.replace("0 1 4", "0 0")
box = ContainerBox("{here}/docker", read_task(Path("{task}")))
asyncio.run(box.open())
open("{here}/begun", "w").close()
threading.Event().wait()
"""
DOCKER = """\
#!/bin/sh
case "$1" in run) echo "$5" > {here}/named ;; rm) echo "$@" > {here}/removed ;; esac
"""
TASK = ROOT / "recipes" / "data" / "harbor" / "greeting"


# Becomes the parent of what its own child leaves behind, and ends when nothing of it is left.
KILLER = """\
import ctypes, os, subprocess, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
victim = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
open("begun").close()
assert victim.poll() is None
victim.kill()
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


def killed_in_its_midst(script: str, here: Path) -> list[Path]:
    """Run a script until it has opened the pipe ``begun``, kill it, and wait until nothing that it
    has started is left. Return its temporary files."""
    os.mkfifo(here / "begun")
    names = {"here": here, "task": TASK, "python": sys.executable}
    temporary = here / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", KILLER, script.format(**names)]
    variables = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run(command, cwd=here, env=variables, check=True, timeout=60)
    return [*temporary.iterdir()]


@pytest.mark.parametrize(
    "script", [SANDBOX, BOX, STARTING, AGENT], ids=["sandbox", "box", "box starting", "agent"]
)
def test_nothing_is_left_of_what_worked_when_a_run_is_killed(script: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(here=tmp_path))
    assert killed_in_its_midst(script, tmp_path) == []


def test_a_container_is_removed_when_its_run_is_killed(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(here=tmp_path))
    docker.chmod(0o755)
    assert killed_in_its_midst(CONTAINER, tmp_path) == []
    name = (tmp_path / "named").read_text()
    assert (tmp_path / "removed").read_text() == f"rm --force {name}"


def test_what_is_held_goes_on_if_its_block_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    with guard() as guarded:
        words = guarded.command("sh", "-c", "echo begun; cat go; echo alive")
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            stdin=guarded.pipe,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
    (tmp_path / "go").write_text("")
    assert process.communicate()[0] == b"alive\n"
    assert process.returncode == 0


def test_an_agent_has_no_secrets_but_those_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, plain = {"SEARCH_API_KEY"}, {"TOKENIZERS_PARALLELISM", "KEYBOARD", "HTTPS_PROXY"}
    others = {"HF_TOKEN", "RLC_SERVE_KEY", "TINKER_CREDENTIAL_CMD", "db_password", "AWS_KEY_ID"}
    for name in named | plain | others:
        monkeypatch.setenv(name, "x")
    program = "import json, os; json.dump([*os.environ], open(os.environ['RLC_RESULT'], 'w'))"
    command, task = [sys.executable, "-c", program], AgentRun("http://x/v1", "key", "m", {}, [])
    agent = CommandAgent(command, str(tmp_path), by_status=False, secrets=["SEARCH_API_KEY"])
    assert {*asyncio.run(agent.run(task))} & (named | plain | others) == named | plain
