"""A chat in the terminal, line by line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from rlc.cli.commands.models.chat import Talk
from rlc.cli.main import main
from rlc.errors import Error
from rlc.models.model import Conversation
from rlc.service.chats.model import SampledReply
from rlc.service.interface import SamplingRequest


@define
class Echo:
    """Says what it was told, and how it was asked."""

    name: str = "echo"
    asked: list[tuple[Any, SamplingRequest]] = field(factory=list)

    def sample(
        self, messages: Any, draw: SamplingRequest, _count: int, on_text: Any
    ) -> list[SampledReply]:
        self.asked.append((messages, draw))
        text = messages[-1]["content"]
        if text == "fail":
            raise Error("it is gone", "bring it back")
        on_text(text.upper())
        reason = "length" if text == "long" else "stop"
        return [SampledReply(text.upper(), reason, (1, 2, 3), (0.0, 0.0, 0.0))]


def talk(lines: str, *models: Echo, system: str = "") -> str:
    out = io.StringIO()
    chats: Any = [Conversation(model, SamplingRequest(512, seed=5), system) for model in models]  # type: ignore[arg-type]
    Talk(chats, out).run(io.StringIO(lines))
    return out.getvalue()


def test_each_line_is_answered_after_all_before() -> None:
    model = Echo()
    assert talk("hello\nmore\n", model, system="be brief") == "HELLO\nMORE\n"
    (first, one), (second, two) = model.asked
    assert [m["content"] for m in first] == ["be brief", "hello"]
    assert [m["content"] for m in second] == ["be brief", "hello", "HELLO", "more"]
    assert one.seed != two.seed


def test_two_models_answer_the_same() -> None:
    shown = talk("hello\n", Echo("one"), Echo("two"))
    assert shown == "── one\nHELLO\n── two\nHELLO\n"


def test_commands_change_what_comes_next() -> None:
    model = Echo()
    talk(
        "/system be kind\n/temperature 0.5\n/max_tokens 7\na\nb\n/undo\nc\n/reset\n/system\nd\n",
        model,
    )
    told = [[m["content"] for m in messages] for messages, _ in model.asked]
    assert told == [
        ["be kind", "a"],
        ["be kind", "a", "A", "b"],
        ["be kind", "a", "A", "c"],
        ["d"],
    ]
    assert {(draw.temperature, draw.max_tokens) for _, draw in model.asked} == {(0.5, 7)}


def test_several_lines_a_cut_reply_and_the_end() -> None:
    model = Echo()
    shown = talk("one \\\ntwo\nlong\n/quit\nnever\n", model)
    assert shown == "ONE \nTWO\nLONG … (cut off after 3 tokens)\n"
    assert talk("never ended \\", Echo()) == "NEVER ENDED \n\n"


def test_mistakes_end_nothing() -> None:
    model = Echo()
    shown = talk("fail\n/temperature hot\n/temperature -1\n/what\nhello\n", model)
    assert "error: it is gone\n  help: bring it back" in shown
    assert "'hot' is no number" in shown
    assert "-1 is not at least 0" in shown
    assert "/undo " in shown
    assert [m["content"] for m in model.asked[-1][0]] == ["hello"]  # what failed was not said


def test_a_chat_is_saved_as_rows_of_chats(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    talk(f"hello\n/save {path}\n", Echo(), system="be brief")
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "model": "echo",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "HELLO"},
        ],
    }


@pytest.mark.parametrize("command", [["chat"], ["sample", "--prompt", "x"]])
def test_a_terminal_says_what_is_opened(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlc.cli.output.redraws", lambda _: True)
    assert main([command[0], "runs/none", *command[1:]]) == 2
    assert capsys.readouterr().out.startswith("opening runs/none …")
