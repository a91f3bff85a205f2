"""``rlc catalog`` as a user runs it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlc.catalog.index import BUILTINS
from rlc.catalog.search import entries
from rlc.cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["catalog", *arguments]) == 0
    return capsys.readouterr().out


def test_the_overview_names_every_builtin(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    words = set(text.replace(",", " ").split())
    for builtin in BUILTINS:
        assert builtin.name in words
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_preset_shows_its_parameters_and_what_it_expands_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "rebn()")
    assert "G_t = r_t + 0.9 G_(t+1)" in text
    assert "gamma      float  0.9" in text
    assert "gem.rebn" in text.partition("see also")[2]


def test_a_model_shows_prices_context_and_renderers(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "Qwen/Qwen3-8B")
    for part in ("32,768 tokens", "$0.6 per million tokens", "qwen3, qwen3_disable_thinking"):
        assert part in text


def test_what_is_unknown_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "openai/gpt-oss-120b:peft:131072")
    assert "train price" in text
    assert "unknown" in text


def test_what_is_impossible_is_found_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert "learned value head" in printed(capsys, "gae").replace("\n  ", " ")
    assert "Qwen/Qwen3.8-27B" in printed(capsys, "Qwen/Qwen3-32B")


def test_a_word_finds_everything_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Any] = json.loads(printed(capsys, "sudoku", "--json"))
    assert {entry["kind"] for entry in found} == {"environment"}
    assert "game:Sudoku-v0-easy" in [entry["name"] for entry in found]


def test_only_a_kind(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[Any] = json.loads(printed(capsys, "--kind", "loss", "--json"))
    assert {entry["kind"] for entry in found} == {"loss"}
    assert found[0]["formula"]


def test_a_schema_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(printed(capsys, "--schema"))
    assert schema["title"] == "rlc plan"


def test_a_typing_mistake_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "sudku"]) == 1
    assert "did you mean `Sudoku`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--kind", "losses"], ["--schema", "grpo"], ["--schema", "--kind", "loss"]]
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", *arguments]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_every_entry_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in entries()[::7]:
        assert entry.name in printed(capsys, entry.name).replace("\n", "")
