"""Runs with agents that are killed while these work: nothing of an agent is left, and what goes on
ends as an undisturbed run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import agent_programs
import pytest
from killing import SMALL, Victim, differences, finished, outcome
from run_support import TINY, train

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.kill, pytest.mark.slow]

# Takes a lock that others may share, and does not end by itself. So does what it has started.
PROGRAM = """\
import fcntl, json, os, subprocess, threading, urllib.request
working = open("working", "w")
fcntl.flock(working, fcntl.LOCK_SH)
helper = subprocess.Popen(["sleep", "100000"], pass_fds=[working.fileno()])
with open(os.environ["RLC_TASK"]) as file:
    messages = json.load(file)["messages"]
said = []
for more in ("Another one.", ""):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {
            "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "content-type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request) as answer:
            reply = json.load(answer)["choices"][0]["message"]
    except OSError:
        threading.Event().wait()
    said.append(reply["content"] or "")
    messages += [reply, {"role": "user", "content": more}]
with open(os.environ["RLC_RESULT"], "w") as file:
    json.dump({"reward": "".join(said).count("e") / 10, "asked": len(said)}, file)
"""
# What waits until nobody holds the lock any more.
ALONE = "import fcntl; fcntl.flock(open('working', 'w'), fcntl.LOCK_EX)"


def none_works(folder: Path) -> None:
    """Wait until no agent of a folder is left. Raise TimeoutExpired if one stays."""
    subprocess.run([sys.executable, "-c", ALONE], cwd=folder, check=True, timeout=60)


def test_a_run_that_is_killed_while_agents_work(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(PROGRAM)
    shutil.copy(agent_programs.__file__, tmp_path)
    rows = ({"prompt": prompt} for prompt in ("say ee", "say oo", "say see"))
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    recipe = tmp_path / "agents.rl"
    command = json.dumps([sys.executable, "agent.py"])
    recipe.write_text(
        TINY
        + f'env program = agent(command = {command}, tasks = rows("rows.jsonl"))\n'
        + 'env function = agent("agent_programs.py:two_turns", tasks = rows("rows.jsonl"))\n'
        + train(
            **SMALL
            | {"env": "program + function", "batch": "groups(2, group_size = 2)", "steps": "3"}
            | {"on_error": "stop"}
        )
    )
    undisturbed = tmp_path / "whole"
    finished(["run", str(recipe), "--seed", "3", "--run-dir", str(undisturbed)], tmp_path / "log")
    none_works(tmp_path)
    expected = outcome(undisturbed)
    assert {rollout["env"] for rollout in expected["rollouts"]} == {"program", "function"}
    victim = Victim(recipe, tmp_path / "run", tmp_path / "log")
    # The eight agents of a step ask twice: in their midst, in the midst of those of the next step,
    # and when the weights of one are computed.
    for phase, call in (("answering", 5), ("answering", 21), ("training", 1)):
        kill = victim.kill_at(phase, call)
        assert kill is not None
        assert phase in kill.phases
        none_works(tmp_path)
    victim.finish()
    assert differences(expected, outcome(victim.path)) == []
