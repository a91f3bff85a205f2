"""The agent of `agents.py`, as a function and as a program: it imports nothing that is slow."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

TASK = "Say number %d."


def solve(run: Any) -> float:
    """An agent: 1 if it has read its own number each time."""
    task = run.task
    if task["victim"]:
        raise RuntimeError("killed")
    return asked(task, run.base_url, run.api_key)


def asked(task: Any, url: str, key: str) -> float:
    messages = [{"role": "user", "content": task["prompt"]}]
    for turn in range(task["turns"]):
        request = urllib.request.Request(
            f"{url}/chat/completions",
            json.dumps({"model": "any", "messages": messages}).encode(),
            {"authorization": f"Bearer {key}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            said = json.load(answer)["choices"][0]["message"]
        if said["content"] != str(task["number"] + turn):
            return 0.0
        messages += [said, {"role": "user", "content": TASK % (task["number"] + turn + 1)}]
    return 1.0


def program() -> None:
    """The same as a process."""
    task = json.loads(Path(os.environ["RLC_TASK"]).read_text())["task"]
    if task["victim"]:
        os.kill(os.getpid(), signal.SIGKILL)
    reward = asked(task, os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    Path(os.environ["RLC_RESULT"]).write_text(str(reward))


if __name__ == "__main__":
    program()
