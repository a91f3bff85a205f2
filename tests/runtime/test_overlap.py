"""Overlap of sampling and training: what is sampled from which weights, and that it repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from run_support import (
    assert_resumes,
    assert_same,
    comparable,
    copy_of,
    metrics,
    rollouts,
    run,
    run_new,
    tiny,
    train,
    undisturbed,
)

from rlc.runtime.journal.folder import RunFolder
from rlc.service.engine.checkpoints import CheckpointStore

pytestmark = pytest.mark.plain


ASYNCHRONOUS = train(loss="ppo()", overlap="asynchronous(max_staleness = 2)", steps="6")


def staleness(path: Path) -> list[float]:
    return [record["rollouts/staleness"] for record in metrics(path)]


def about(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics up to the last bits, which depend on what the engine computes side by side."""
    return [
        {
            key: pytest.approx(v, abs=1e-3) if isinstance(v, float) else v
            for key, v in r.items()
            if not key.startswith(("tokens/prefill", "tokens/cached"))
        }
        for r in records
    ]


def without_cache(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in r.items() if k not in ("tokens/prefill", "tokens/cached")}
        for r in records
    ]


def test_asynchronous_rollouts_are_as_stale_as_they_may_be() -> None:
    path = undisturbed(tiny(ASYNCHRONOUS))
    assert staleness(path) == [0, 1, 2, 2, 2, 2]
    for record in rollouts(path):
        assert record["staleness"] == min(record["step"] - 1, 2)


def test_stale_rollouts_are_off_policy_and_play_the_same_tasks() -> None:
    fresh, stale = undisturbed(tiny(train(loss="ppo()"))), undisturbed(tiny(ASYNCHRONOUS))
    assert [(r["step"], r["task"], r["digest"]) for r in rollouts(stale) if r["step"] <= 4] == [
        (r["step"], r["task"], r["digest"]) for r in rollouts(fresh)
    ]
    assert abs(metrics(fresh)[3]["kl/sample_train"]) < 1e-4
    assert metrics(stale)[3]["kl/sample_train_k2"] > metrics(fresh)[3]["kl/sample_train_k2"]


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "parts"), [(0, 1), (1, 1), (2, 1), (1, 2)])
def test_a_killed_asynchronous_run_goes_on_to_the_same_end(
    tmp_path: Path, lost: int, parts: int
) -> None:
    """Steps that were under way are sampled again from the weights that they began with."""
    overlap = f"asynchronous(max_staleness = 2, minibatches = {parts})"
    job = tiny(train(loss="ppo()", overlap=overlap, steps="6"))
    folder = RunFolder.resume(copy_of(undisturbed(job, stop_after=("main", 4)), tmp_path / "parts"))
    for step in (4, 3)[:lost]:
        folder.journal.drop_checkpoint("main", step)  # as after a kill
    run(folder)
    assert_same(tmp_path / "parts", undisturbed(job))


def test_tokens_of_rollouts_that_were_thrown_away_are_paid_for(tmp_path: Path) -> None:
    run_new(tmp_path / "run", tiny(ASYNCHRONOUS), stop_after=("main", 2))
    reported = sum(record["tokens/sampled"] for record in metrics(tmp_path / "run"))
    folder = RunFolder.resume(tmp_path / "run")
    used = folder.journal.used("main").tokens - sum(
        record[f"tokens/{kind}"]
        for record in metrics(tmp_path / "run")
        for kind in ("prefill", "cached", "trained")
    )
    folder.close()
    assert len(metrics(tmp_path / "run")) == 2
    assert used > reported


@pytest.mark.parametrize("minibatches", [2, 7])  # 7: parts without a group
@pytest.mark.parametrize("order", ["fixed", "ready"])
def test_streaming_trains_on_the_same_as_a_whole_batch(
    tmp_path: Path, minibatches: int, order: str
) -> None:
    overlap = f"streamed(minibatches = {minibatches}, order = {order})"
    run_new(tmp_path / "run", tiny(train(overlap=overlap, steps="2")))
    streamed = without_cache(comparable(tmp_path / "run"))
    whole = without_cache(comparable(undisturbed(tiny(train()))))[:2]
    assert streamed[:1] == about(whole[:1])
    assert [r["reward/mean"] for r in streamed] == [
        pytest.approx(r["reward/mean"], abs=0.1) for r in whole
    ]


# What needs the whole batch.
WHOLE = [
    {"aggregate": "token_mean()", "kl": 'reference("tiny", coef = 0.1)'},
    {"advantage": "rebn()", "batch": "groups(3, group_size = 4, updates = 2)"},
]


def adam(path: Path) -> npt.NDArray[np.float32]:
    """The optimiser's mean of gradients at the end of a run."""
    folder = RunFolder.resume(path)
    checkpoints = folder.journal.checkpoints("main")
    folder.close()
    state = CheckpointStore(path / "checkpoints").load(checkpoints[max(checkpoints)])
    means = [a.ravel() for name, a in state.arrays.items() if name.startswith("adam_mean/")]
    return np.concatenate(means)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["fixed", "ready"])
@pytest.mark.parametrize("fields", [{}, {"loss": "dro(beta = 0.5)"}, *WHOLE], ids=str)
def test_the_gradient_of_the_parts_is_that_of_the_whole(
    tmp_path: Path, fields: dict[str, str], order: str
) -> None:
    overlap = f"streamed(minibatches = 3, order = {order})"
    run_new(tmp_path / "run", tiny(train(**fields, overlap=overlap, steps="1")))
    streamed, whole = adam(tmp_path / "run"), adam(undisturbed(tiny(train(**fields, steps="1"))))
    assert np.abs(whole).max() > 0
    assert np.linalg.norm(streamed - whole) < 1e-4 * np.linalg.norm(whole)


@pytest.mark.parametrize("fields", [{}, *WHOLE], ids=str)
def test_a_streamed_run_repeats_itself(tmp_path: Path, fields: dict[str, str]) -> None:
    job = tiny(train(**fields, overlap="streamed(minibatches = 2)", steps="3"))
    assert_resumes(job, ("main", 2), tmp_path / "parts")
