"""``rlc catalog`` as a user runs it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rlc.catalog.index import BUILTINS
from rlc.catalog.search import entries, related
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
    assert "togo_t = r_t + 0.9 togo_(t+1)" in text
    assert "gamma      float  0.9" in text
    assert "gem.rebn" in text.partition("see also")[2]


@pytest.mark.parametrize("term", ["train", "rows", "sweep", "grpo", "sample"])
def test_an_entry_comes_with_an_example_and_five_that_are_related(
    term: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, term)
    entry, _, others = text.partition("see also\n")
    assert entry.startswith(f"{term}  ")
    assert re.search(rf"\n  \w+ \w+ \{{\n(.*\n)*.*\b{term}\b", entry) or f"\n  {term} " in entry
    assert sum(not line.startswith((" ", "and ")) for line in others.splitlines()) == 5
    assert "Minesweeper" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_nothing_is_related_to_itself() -> None:
    named = [entry for entry in entries() if entry.name == "grpo"]
    others = related(named, entries())
    assert others
    assert not [entry for entry in others if entry in named]


def test_all_that_is_related_is_listed_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = printed(capsys, "grpo").splitlines()[-1]
    assert re.fullmatch(r"and \d+ more: `rlc catalog grpo --all`", more)
    every = printed(capsys, "grpo", "--all")
    assert "seq_mean_token_mean" in every
    assert "more:" not in every


def test_a_part_of_a_word_is_found_where_nothing_else_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "game:Minesweeper-v0-easy" in printed(capsys, "sweeper")


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
