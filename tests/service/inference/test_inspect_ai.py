"""An evaluation suite, inspect-ai, unmodified and as a program of its own, on a served engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from http_testing import Running
from inspect_tasks import WORDS
from paths import ROOT
from serving_support import BASE, KEY

pytestmark = [pytest.mark.slow, pytest.mark.kill]
TASKS = ROOT / "tests" / "support" / "inspect_tasks.py"


def evaluate(server: Running, folder: Path, task: str, model: str, *options: str) -> dict[str, Any]:
    """The log of an evaluation."""
    inspect = str(Path(sys.executable).with_name("inspect"))
    asked = [f"{TASKS}@{task}", "--model", f"openai-api/rlc/{model}", "--display", "plain"]
    logs = ["--log-dir", str(folder), "--log-format", "json"]
    keys = {"RLC_BASE_URL": f"{server.url}/v1", "RLC_API_KEY": KEY}
    ran = subprocess.run(
        [inspect, "eval", *asked, *logs, *options],
        env=os.environ | keys,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (log,) = folder.glob("*.json")
    found: dict[str, Any] = json.loads(log.read_text(encoding="utf-8"))
    assert found["status"] == "success", found.get("error")
    return found


def test_an_evaluation_gets_what_the_openai_client_gets(server: Running, tmp_path: Path) -> None:
    log = evaluate(server, tmp_path, "spell", BASE, "--seed", "3", "--max-tokens", "24")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        for word, sample in zip(WORDS, log["samples"], strict=True):
            messages: Any = [
                {"role": "system", "content": "You spell."},
                {"role": "user", "content": f"Spell the word {word} backwards."},
            ]
            reply = client.chat.completions.create(
                model=BASE, messages=messages, seed=3, max_tokens=24
            )
            assert sample["output"]["completion"] == reply.choices[0].message.content
            assert reply.usage is not None
            assert sample["output"]["usage"]["output_tokens"] == reply.usage.completion_tokens


def test_a_trained_model_calls_the_tools_of_an_evaluation(
    server: Running, caller: str, tmp_path: Path
) -> None:
    log = evaluate(server, tmp_path, "tools", caller, "--temperature", "0", "--max-tokens", "200")
    asked, called, answered = log["samples"][0]["messages"]
    assert asked["role"] == "user"
    (call,) = called["tool_calls"]
    assert (call["function"], call["arguments"]) == ("add", {"a": 1})
    assert (answered["role"], answered["content"]) == ("tool", "42.0")
