"""What is looked for among episodes, and how two of them differ: without a screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.cli.browser.comparison import other_member, pieces, rows
from rlc.cli.browser.contents import QueryError, parse_query
from rlc.runtime.journal.episodes import EpisodeIndex


def episode(**changes: Any) -> dict[str, Any]:
    turn: dict[str, Any] = {
        "observation": "How much is 2 + 2?",
        "action": "So the sum is “4”, Ébène",
        "reward": 1.0,
        "metrics": {"correct": 1.0},
        "tokens": 5,
        "stop_reason": "stop",
        "calls": [["1", "python", "print(4)"]],
    }
    known = {"stage": "main", "step": 40, "env": "sums", "task": 7, "member": 2, "role": ""}
    known |= {"digest": "00", "reward": 0.75, "ended": "done", "error": None, "advantages": [0.5]}
    return known | {"about": {"id": 17, "place": "x:1", "fields": {}}, "turns": [turn]} | changes


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("sum", True),
        ("SUM", True),
        ('"the sum"', True),
        ('"sum the"', False),
        ("sum missing", False),
        ("ébène", True),
        ("“4”", True),
        ("print(4)", True),
        ("reward", False),  # the name of a field is not what was said
        ("stop_reason", False),
        ("env:sums stage:main", True),
        ("env:sum", False),
        ("step:40", True),
        ("step:39..41 task:..7 member:2..", True),
        ("step:41..", False),
        ("reward>0.5 reward<=0.75", True),
        ("reward=0.75", True),
        ("reward>0.75", False),
        ("is:failed", False),
        ("is:retried", False),
        ("row:17", True),
        ("row:1", False),
        ("http://sum", False),
    ],
)
def test_terms(tmp_path: Path, text: str, fits: bool) -> None:
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(episode()) + "\n", encoding="utf-8")
    ((head, line),) = EpisodeIndex(tmp_path).read_on()
    query = parse_query(text)
    assert (query.fits_head(head) and query.fits_line(line)) is fits


def test_failed_and_retried_episodes_are_found_with_their_errors(tmp_path: Path) -> None:
    failed = episode(error="EnvError: gone away", turns=[], retried=["TimeoutError: too late"])
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(failed) + "\n", encoding="utf-8")
    ((head, line),) = EpisodeIndex(tmp_path).read_on()
    for text in ("is:failed", "is:retried", "gone", '"too late"'):
        query = parse_query(text)
        assert query.fits_head(head)
        assert query.fits_line(line)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("step:x", "step:7..9"),
        ("step:", "step:7..9"),
        ("reward>high", "reward>0.5"),
        ("is:good", "is:failed, is:retried, is:replaced"),
    ],
)
def test_what_means_nothing_is_refused(text: str, hint: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_query(text)
    assert text in refused.value.message
    assert hint in (refused.value.hint or "")


texts = st.text(st.sampled_from("ab \n."), max_size=40)


@given(texts, texts)
def test_pieces_are_the_texts_and_mark_only_what_differs(left: str, right: str) -> None:
    a, b = pieces(left, right)
    assert "".join(text for text, _ in a) == left
    assert "".join(text for text, _ in b) == right
    shared = ["".join(text for text, differs in side if not differs) for side in (a, b)]
    assert shared[0] == shared[1]
    assert any(differs for _, differs in (*a, *b)) is (left != right)


def test_long_texts_are_compared_by_lines() -> None:
    same = "word " * 4_000 + "\n"
    left, right = pieces(f"{same}one\n", f"{same}two\n")
    assert left == ((same, False), ("one\n", True))
    assert right == ((same, False), ("two\n", True))


def test_turns_stand_side_by_side_also_where_one_has_more() -> None:
    long = episode(turns=episode()["turns"] * 2, reward=1.5)
    found = list(rows(episode(), long))
    assert [row.title for row in found[1:]] == [
        f"turn {number}, {part}" for number in (1, 2) for part in ("environment", "model", "result")
    ]
    assert found[1].left == found[1].right == (("How much is 2 + 2?", False),)
    assert found[4].left == ()
    assert "(no such turn)" in "".join(text for text, _ in found[6].left)


def test_the_first_comparison_is_with_the_best_or_of_the_best_with_the_worst() -> None:
    members = [episode(reward=reward) for reward in (0.5, 1.0, 0.0)]
    assert [other_member(members, this) for this in range(3)] == [1, 2, 1]
    assert other_member(members[:1], 0) is None
