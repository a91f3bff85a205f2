"""The page about own data is true: its files pass the check, train, and are found again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from paths import ROOT

from rlc.cli.main import main
from rlc.data.chats import read_chat, read_prompt

PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_recipe_has_no_findings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "backward.rl"]) == 0, capsys.readouterr().err
    assert "no findings" in capsys.readouterr().out


@pytest.mark.engine
@pytest.mark.slow
def test_it_imitates_chats_and_practises_on_prompts(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "backward.rl", "--run-dir", "run"]) == 0
    lines = (project / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    losses = [record["loss/mean"] for record in metrics if record["stage"] == "warmup"]
    assert losses[-1] < 0.2 * losses[0]
    capsys.readouterr()
    assert main(["show", "run", "--row", "p1", "--json", "--limit", "1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    about = {"place": "prompts.jsonl:1", "id": "p1", "fields": {"word": "map"}}
    assert shown["about"] == about
    said = "user: cat\n\nassistant: tac\n\nuser: map"
    assert shown["turns"][0]["observation"] == said


def test_each_form_of_its_table_is_read() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    sharegpt = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    read = [
        read_chat(row, None, "all") for row in ({"messages": turns}, {"conversations": sharegpt})
    ]
    assert read[0] == read[1]
    assert read_prompt({"prompt": turns[:1]}, "prompt") == read_prompt({"prompt": "a"}, "prompt")
