"""Runs whose replies end with text."""

from __future__ import annotations

from typing import Any

import pytest
from run_support import metrics, rollouts, tiny, train, undisturbed

pytestmark = pytest.mark.plain


@pytest.fixture(scope="module")
def path() -> Any:
    sampling = 'sample(max_tokens = 16, stop = "}")'
    played = train(env="guess", batch="groups(2, group_size = 4)", sampling=sampling, steps="1")
    return undisturbed(tiny(played, "eval after { model = main  env = guess  tasks = 4 }\n"))


@pytest.mark.engine
def test_replies_end_where_the_text_is_complete(path: Any) -> None:
    """In a stage, and in the evaluation that samples as it does."""
    for stage in ("main", "after"):
        turns = [turn for episode in rollouts(path, stage) for turn in episode["turns"]]
        ended = [turn for turn in turns if "}" in turn["action"]]
        assert ended
        assert {turn["stop_reason"] for turn in ended} == {"stop"}
        assert all("}" not in turn["action"].rpartition("}")[0] for turn in ended)


def test_an_episode_of_several_turns_is_one_sequence(path: Any) -> None:
    episodes = rollouts(path, "main")
    assert max(len(episode["turns"]) for episode in episodes) > 1
    (row,) = (row for row in metrics(path, "main") if "optim/datums" in row)
    assert row["optim/datums"] <= len(episodes)
