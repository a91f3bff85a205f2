"""``rlc models``: what it lists, and what it reads anew."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlc.service
from rlc.cli.main import main

Run = Callable[..., tuple[int, str]]
ROWS = [
    {"tinker_id": "Qwen/Qwen3-8B", "context": "32K", "prefill": "$0.2", "sample": "$0.7"},
    {"tinker_id": "vendor/New-8B", "context": "64K", "train": 0.5},
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run ``rlc models`` as a process of its own would, in an empty folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        status = main(["models", *arguments])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def data_of(run: Run, *arguments: str) -> list[dict[str, Any]]:
    status, text = run(*arguments, "--json")
    assert status == 0
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_models_are_sorted_by_the_price_of_a_job_and_what_is_unknown_is_null(run: Run) -> None:
    found = data_of(run)
    prices = [one["typical_job"] for one in found]
    known = [usd for usd in prices if usd is not None]
    assert prices == [*sorted(known), *[None] * (len(prices) - len(known))]
    assert found[0]["base"] == "tiny"
    kimi = next(one for one in found if one["base"] == "moonshotai/Kimi-K3.1-Pro")
    assert {*kimi["price"].values(), kimi["context"], kimi["as_of"]} == {None}


def test_words_and_names_choose(run: Run) -> None:
    status, text = run("openai/gpt-oss-20b", "kimi-k3")
    assert status == 0
    lines = text.splitlines()
    assert lines[1].split() == [
        *("openai/gpt-oss-20b", "32,768", "0.18", "0.036", "0.45", "0.396"),
        *("$6.57", "?", "2026-07-17"),
    ]
    assert lines[2].split() == ["moonshotai/Kimi-K3.1-Pro", *"????????"]
    assert "prices of 2026-07-17, https://" in text
    assert "days old" not in text
    assert "  renderers  gpt_oss_no_sysprompt, gpt_oss_medium_reasoning" in text
    assert run("Qwen/Qwen3-8C") == (
        1,
        "error: no model is called `Qwen/Qwen3-8C`\n  help: did you mean `Qwen/Qwen3-8B`?\n",
    )


def test_old_prices_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLC_TODAY", "2026-12-01")
    assert run("gpt-oss-20b")[1].count("more than 90 days old: `rlc models --refresh`") == 1


def test_a_table_is_read_anew_used_and_forgotten(run: Run) -> None:
    Path("page.json").write_text(json.dumps(ROWS), encoding="utf-8")
    status, text = run("--refresh", "page.json")
    assert status == 0
    assert "2 models of page.json" in text
    assert "\nnew: vendor/New-8B\n" in text
    (new,) = data_of(run, "New-8B")
    assert (new["context"], new["price"]["train"], new["price"]["sample"]) == (65536, 0.5, None)
    assert (new["as_of"], new["source"]) == ("2026-08-01", "models.json, page.json, 2026-08-01")
    assert run("--forget") == (0, "")
    assert run("--forget") == (0, "")
    assert run("New-8B")[0] == 1


def test_a_project_s_own_models_are_listed(run: Run) -> None:
    text = '[models."vendor/New-8B"]\nprice = { train = 0.5 }\nas_of = 2026-07-20\n'
    Path("rlc.toml").write_text(text, encoding="utf-8")
    (new,) = data_of(run, "New-8B")
    assert (new["price"]["train"], new["source"]) == (0.5, "rlc.toml, 2026-07-20")


def test_what_a_server_offers_is_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [SimpleNamespace(model_name="vendor/Served", max_context_length=4096)]
    monkeypatch.setitem(vars(rlc.service), "offered_models", lambda _: offered)
    assert run("--refresh", "http://127.0.0.1:1")[0] == 0
    (served,) = data_of(run, "Served")
    assert (served["context"], served["renderers"]) == (4096, [])
    offered.clear()
    assert run("--refresh", "http://127.0.0.1:1") == (
        1,
        "error: http://127.0.0.1:1 names no models: it has no capabilities to read\n",
    )


def test_what_cannot_be_read_says_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: object, timeout: float) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr("urllib.request.urlopen", fails)
    status, text = run("--refresh")
    assert status == 2
    assert text.startswith("error: cannot read https://tinker-docs.thinkingmachines.ai/")
    assert "no route to host" in text
    assert "rlc models --refresh FILE" in text
    Path("page.html").write_text("<html>", encoding="utf-8")
    assert run("--refresh", "page.html")[1].startswith("error: page.html is no table of models: ")
    assert run("--refresh", "nowhere.json")[0] == 2
    assert run("--forget", "x")[0] == 2
