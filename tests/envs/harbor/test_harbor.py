"""Harbor's tasks: what is read of a folder, what the policy does in it, and what rewards it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES

from rlc.chat.turns import Action, EnvError, Observation
from rlc.data.errors import DataError
from rlc.data.harbor import harbor_tasks, read_task
from rlc.envs.base import TaskKey
from rlc.envs.harbor import (
    HarborSource,
    SubprocessBox,
    container_problem,
    container_program,
    solved_by,
)

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TASKS = RECIPES / "data" / "harbor"
ARGS: dict[str, Any] = {
    "shuffle": False,
    "samples": None,
    "turns": 5,
    "timeout": 20,
    "runtime": "subprocess",
    "boxes": 2,
}


def bash(*commands: str) -> Action:
    from tinker_cookbook.renderers.base import ToolCall

    tool_calls = [
        ToolCall(function=ToolCall.FunctionBody(name="bash", arguments=arguments))
        for arguments in (json.dumps({"command": command}) for command in commands)
    ]
    return Action("…", {"role": "assistant", "content": "", "tool_calls": tool_calls})


DONE = Action("Done.", {"role": "assistant", "content": "Done."})


def played(
    *actions: Action, number: int = 0, pattern: str = f"{TASKS}/*", **args: Any
) -> list[Observation]:
    async def run() -> list[Observation]:
        source = HarborSource(pattern, {**ARGS, **args})
        (episode,) = await source.open(TaskKey(0, number, 0, 1), [0])
        try:
            return [episode.first, *[await episode.play(action) for action in actions]]
        finally:
            await episode.close()
            await episode.close()

    return asyncio.run(run())


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task to change."""
    return Path(shutil.copytree(TASKS / "greeting", tmp_path / "greeting"))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_commands_run_in_the_box_and_the_tests_decide() -> None:
    first, where, wrote, last = played(bash("pwd; ls"), bash("echo hello > greeting.txt"), DONE)
    assert first.messages[0]["tools"][0]["name"] == "bash"
    assert first.text.startswith("Write the word hello")
    assert first.about is not None
    assert first.about.id == "greeting"
    assert where.text == "/app\n"
    assert (wrote.reward, wrote.done) == (None, False)
    assert (last.reward, last.done, last.truncated) == (1.0, True, False)
    assert last.metrics == {"commands": 2.0, "reward": 1.0}


def test_files_of_the_image_and_rewards_by_name() -> None:
    sort = bash("cat words.txt", "sort -u words.txt > /app/sorted.txt")
    _, seen, last = played(sort, DONE, number=1)
    assert seen.messages[0]["content"] == "pear\napple\nfig\napple\n"
    assert (last.reward, last.metrics["lines"]) == (1.0, 3.0)


def test_nothing_done_is_worth_nothing() -> None:
    assert played(DONE)[-1].reward == 0.0


def test_the_last_turn_runs_the_tests_too() -> None:
    *_, last = played(bash("echo hello > greeting.txt"), turns=1)
    assert (last.reward, last.done, last.truncated) == (1.0, True, True)


def test_what_the_policy_sees_of_commands_that_fail_or_take_too_long() -> None:
    _, failed, late, long = played(
        bash("echo no >&2; exit 3"), bash("sleep 60 & sleep 60"), bash("seq 20000"), timeout=1
    )
    assert failed.text == "no\n\n[exit status 3]"
    assert late.text == "\n[ended after 1 s]"
    assert "characters …" in long.text
    assert len(long.text) < 10_200


def test_the_agents_time_is_of_its_commands_together(task: Path) -> None:
    written(task / "task.toml", "[agent]\ntimeout_sec = 0.5\n")
    *_, last = played(bash("echo hello > greeting.txt; sleep 9"), pattern=str(task))
    assert (last.done, last.truncated, last.reward) == (True, True, 1.0)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo tests are broken", "wrote no reward; they printed last: tests are broken"),
        ("echo high > /logs/verifier/reward.txt", "holds no reward: 'high"),
        ('echo \'{"a": 1, "b": 2}\' > /logs/verifier/reward.json', r"several rewards \(a, b\)"),
        ('echo \'{"a": "1"}\' > /logs/verifier/reward.json', "gives '1' as 'a', not a number"),
        ("sleep 9", "took longer than 1 s"),
    ],
)
def test_tests_without_a_reward_are_a_failure_and_no_reward(
    task: Path, script: str, why: str
) -> None:
    written(task / "task.toml", "[verifier]\ntimeout_sec = 1\n")
    written(task / "tests" / "test.sh", f"#!/bin/bash\n{script}\n")
    with pytest.raises(EnvError, match=why):
        played(bash("echo 1 > /logs/verifier/reward.txt"), DONE, pattern=str(task))


def test_nothing_is_left_of_a_box() -> None:
    async def run() -> tuple[Path, str]:
        box = SubprocessBox(read_task(TASKS / "greeting"))
        await box.open()
        assert box._root is not None
        root = box._root
        outcome = await box.run("sleep 300 & echo $!", 10)
        await box.close()
        return root, outcome.output.strip()

    root, pid = asyncio.run(run())
    assert not root.exists()
    with suppress(ProcessLookupError):
        process = os.pidfd_open(int(pid))  # it is killed, and may not have ended yet
        assert select.select([process], [], [], 10)[0]
        os.close(process)


@pytest.mark.parametrize("folder", sorted(TASKS.iterdir()), ids=lambda path: path.name)
def test_the_tasks_of_the_recipe_are_solved_by_their_solutions_alone(folder: Path) -> None:
    task = read_task(folder)
    assert asyncio.run(solved_by(task, "subprocess", "solution/solve.sh")) == 1.0
    assert asyncio.run(solved_by(task, "subprocess", None)) == 0.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda f: (f / "tests" / "test.sh").unlink(), "it has no tests/test.sh"),
        (lambda f: written(f / "task.toml", "[agent"), "cannot be read"),
        (lambda f: written(f / "task.toml", 'agent = "fast"'), "is a table, and this is 'fast'"),
        (lambda f: written(f / "task.toml", "[environment]\ngpus = 2"), "asks for GPUs"),
        (lambda f: written(f / "task.toml", '[[steps]]\nname = "a"'), "asks for several steps"),
        (lambda f: (f / "environment" / "Dockerfile").unlink(), "neither environment/Dockerfile"),
    ],
)
def test_folders_that_cannot_be_played(task: Path, change: Any, why: str) -> None:
    change(task)
    with pytest.raises(DataError, match=why):
        harbor_tasks(str(task))


DOCKER = """\
#!/bin/bash
# A container runtime of this test: it writes down what it is asked to do, and answers what is asked
# for the files of the task.
echo "$@" >> BOX/log
case "$1" in
  build) echo built ;;
  run) echo c0ffee ;;
  exec) case "$*" in
      *greeting.txt*) echo hello ;;
      *"cat /logs/verifier/reward.json") exit 1 ;;
      *"cat /logs/verifier/reward.txt") echo 1 ;;
      *endless*) exit 124 ;;
    esac ;;
esac
"""


def test_what_a_container_runtime_is_asked_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = written(tmp_path / "docker", DOCKER.replace("BOX", str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert container_problem("container") is None
    commands = (bash("cat greeting.txt"), bash("endless"), DONE)
    _, seen, late, last = played(*commands, runtime="container")
    assert (seen.text, last.reward) == ("hello\n", 1.0)
    assert late.text == "\n[ended after 20 s]"
    log = (tmp_path / "log").read_text("utf-8").splitlines()
    assert log[0] == "info"
    assert log[1].startswith("build --quiet --tag rlc-harbor:")
    started = re.fullmatch(r"run --detach --init --name (rlc-\w+) --network none .*", log[2])
    assert started is not None
    name = started[1]
    assert f"exec {name} timeout --kill-after=1 20 bash -c cat greeting.txt" in log
    assert any(line.endswith(f"{name}:/tests") for line in log if line.startswith("cp "))
    assert log[-1] == f"rm --force {name}"


def test_a_container_runtime_that_answers_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, status in (("docker", 1), ("podman", 0)):
        program = written(tmp_path / name, f"#!/bin/sh\necho no daemon >&2\nexit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert container_problem("container") is None
    assert container_program("container") == "podman"
    assert "containers, and docker starts none: no daemon" in str(container_problem("docker"))


def test_a_machine_without_a_container_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert container_problem("container") == (
        "tasks of Harbor run in containers, and docker or podman is not on this machine"
    )
    with pytest.raises(EnvError, match="docker or podman is not on this machine"):
        played(DONE, runtime="container")
