"""The index of ``rollouts.jsonl``: what is in a file that grows, is cut, damaged or replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.runtime.journal.episodes import EpisodeIndex


def record(**changes: Any) -> dict[str, Any]:
    known = {"stage": "main", "step": 1, "env": "a", "task": 0, "member": 0, "role": ""}
    known |= {"digest": "00", "reward": 0.5, "ended": "done", "error": None, "cause": None}
    return known | {"turns": [{"action": "so the answer is 4"}]} | changes


def line(**changes: Any) -> bytes:
    return json.dumps(record(**changes)).encode() + b"\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rollouts.jsonl"


def members(index: EpisodeIndex) -> list[int]:
    return [head.member for head, _ in index.read_on()]


def test_each_call_reads_on_where_the_last_one_ended(file: Path) -> None:
    index = EpisodeIndex(file.parent)
    assert members(index) == []  # no file yet
    file.write_bytes(line(member=0) + line(member=1))
    assert members(index) == [0, 1]
    with file.open("ab") as more:
        more.write(line(member=2))
    assert members(index) == [2]
    assert not index.was_replaced()
    assert index.read_share() == 1


def test_a_line_is_read_once_it_is_whole(file: Path) -> None:
    index, written = EpisodeIndex(file.parent), line(member=1)
    for end in range(1, len(written) - 2):
        file.write_bytes(line() + written[:end])
        fresh = EpisodeIndex(file.parent)
        assert members(fresh) == [0]
    file.write_bytes(line() + written[:-1])  # all but the end of the line: nothing is missing
    assert members(index) == [0, 1]
    file.write_bytes(line() + written + line(member=2))
    assert members(index) == [2]


def test_damaged_lines_are_passed_over(file: Path) -> None:
    damage = [b"\n", b"null\n", b"\xff\xfe\n", b'{"stage": "main"}\n', line()[:40] + b"\n"]
    file.write_bytes(b"".join(damage) + line(member=7) + line()[:-9])
    assert members(EpisodeIndex(file.parent)) == [7]


def test_a_file_that_was_replaced_is_read_anew(file: Path) -> None:
    index = EpisodeIndex(file.parent)
    file.write_bytes(line(member=0) + line(member=1))
    assert members(index) == [0, 1]
    fresh = file.with_suffix(".tmp")  # as a resume does that drops a step
    fresh.write_bytes(line(member=0) + line(member=5) + line(member=6))
    fresh.replace(file)
    assert index.was_replaced()
    assert members(index) == [0, 5, 6]
    file.unlink()
    assert index.was_replaced()
    assert members(index) == []


def test_an_episode_is_found_again_by_its_place(file: Path) -> None:
    file.write_bytes(line(member=0, error="é “x”", role="judge") + line(member=1))
    index = EpisodeIndex(file.parent)
    first, second = (head for head, _ in index.read_on())
    assert index.record(second) == record(member=1)
    assert index.record(first) == record(member=0, error="é “x”", role="judge")
    assert (first.error, first.role, second.error) == ("é “x”", "judge", None)
    file.unlink()
    assert index.record(first) is None


names = st.text(max_size=8)


@given(
    names, names, names, st.none() | names, st.floats(), st.integers(0, 9**9), st.integers(0, 99)
)
def test_the_beginning_of_a_line_says_what_its_record_does(
    tmp_path_factory: pytest.TempPathFactory,
    stage: str,
    env: str,
    role: str,
    error: str | None,
    reward: float,
    step: int,
    member: int,
) -> None:
    written = record(stage=stage, env=env, role=role, error=error, reward=reward, step=step)
    written["member"] = member
    other = {name: written[name] for name in reversed(written)}  # in no order that is known
    folder = tmp_path_factory.mktemp("head")
    text = "".join(json.dumps(one) + "\n" for one in (written, other))
    (folder / "rollouts.jsonl").write_text(text, encoding="utf-8")
    heads = [head for head, _ in EpisodeIndex(folder).read_on()]
    assert len(heads) == 2
    for head in heads:
        for name in ("stage", "env", "role", "error", "step", "member", "ended"):
            assert getattr(head, name) == written[name]
        assert repr(head.reward) == repr(float(reward))


def test_lines_that_begin_otherwise_are_passed_over(file: Path) -> None:
    file.write_bytes(line(step=1) + line(step=2, member=3) + line(step=20))
    found = EpisodeIndex(file.parent).read_on(b'{"stage": "main", "step": 2,')
    assert [(head.step, head.member) for head, _ in found] == [(2, 3)]
