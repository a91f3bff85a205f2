"""What a stage that learns from data shows of it while it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_support import block, run_new, tiny

from rlc.runtime.records import TrainedSample
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

FIELDS = {"model": "policy", "batch": "2", "steps": "2", "optimizer": "adam(1e-3)"}
CHAT = [{"role": "user", "content": "Say one."}, {"role": "assistant", "content": "one"}]
ROWS = [
    {"prompt": f"Say {word}.", "chosen": word, "rejected": "no", "messages": CHAT}
    for word in ("one", "two", "three")
]


class Learning(Observer):
    def __init__(self) -> None:
        self.lessons = list[TrainedSample]()

    def learnt(self, lesson: TrainedSample) -> None:
        self.lessons.append(lesson)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("kind", "data", "loss", "begins", "sides"),
    [
        ("preference", "pairs", "dpo()", "margin +0.000", ["chosen", "rejected"]),
        ("preference", "pairs", "kto()", "reward +0.000", None),
        ("sft", "chats", None, "loss ", ["reply"]),
    ],
)
def test_a_row_is_shown_as_it_stands(
    tmp_path: Path, kind: str, data: str, loss: str | None, begins: str, sides: list[str] | None
) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    fields = FIELDS | {"data": f'{data}("{tmp_path}/rows.jsonl")'}
    observer = Learning()
    job = tiny(block(kind, "main", fields | ({"loss": loss} if loss else {})))
    run_new(tmp_path / "run", job, observer=observer)
    first, last = observer.lessons  # one a step
    assert first.measured.startswith(begins)  # before anything is learnt
    assert first.measured != last.measured
    for lesson in (first, last):
        assert "Say " in lesson.prompt
        assert kind != "sft" or "one" not in lesson.prompt.rpartition("Say one.")[2]
        found = [side for side, _ in lesson.replies]
        assert found == sides if sides else found in (["chosen"], ["rejected"])
        for side, text in lesson.replies:
            assert (
                text == "no"
                if side == "rejected"
                else text.split("<")[0]
                in {
                    "one",
                    "two",
                    "three",
                }
            )
