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
from paths import ROOT
from serving_support import BASE, KEY

pytestmark = [pytest.mark.slow, pytest.mark.kill]
TASKS = ROOT / "tests" / "support" / "inspect_tasks.py"


@pytest.fixture(scope="module")
def logs(
    server: Running, caller: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The logs of one evaluation of both tasks, by task; that with tools names its own model."""
    folder = tmp_path_factory.mktemp("logs")
    inspect = str(Path(sys.executable).with_name("inspect"))
    asked = [f"{TASKS}@spell", f"{TASKS}@tools", "--model", f"openai-api/rlc/{BASE}"]
    options = ["--seed", "3", "--display", "plain", "--log-dir", str(folder)]
    environment = {
        "RLC_BASE_URL": f"{server.url}/v1",
        "RLC_API_KEY": KEY,
        "MODEL_FOR_TOOLS": f"openai-api/rlc/{caller}",
    }
    ran = subprocess.run(
        [inspect, "eval", *asked, *options, "--log-format", "json"],
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    assert [log["status"] for log in found] == ["success"] * 2, found
    return {log["eval"]["task"]: log for log in found}


def test_an_evaluation_gets_what_the_openai_client_gets(
    server: Running, logs: dict[str, dict[str, Any]]
) -> None:
    from inspect_tasks import WORDS  # takes a second: not in each collection

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        for word, sample in zip(WORDS, logs["spell"]["samples"], strict=True):
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
    logs: dict[str, dict[str, Any]],
) -> None:
    asked, called, answered = logs["tools"]["samples"][0]["messages"]
    assert asked["role"] == "user"
    (call,) = called["tool_calls"]
    assert (call["function"], call["arguments"]) == ("add", {"a": 1})
    assert (answered["role"], answered["content"]) == ("tool", "42.0")
