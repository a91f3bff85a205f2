"""What finished steps decide about the next: the KL guard, and when a run is hopeless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_support import TINY, comparable, metrics, rollouts, run, run_new, tiny, train, undisturbed

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.loop import KL, Decision, StageGuard
from rlc.runtime.records import RunError


def guard(**fields: str) -> StageGuard:
    (stage,) = tiny(train(**fields)).stages
    assert isinstance(stage, Training)
    return StageGuard(stage)


def step(kl: float | None = 0.0, played: int = 8, failed: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {"optim/skipped": 0.0, "rollouts/played": played}
    found["rollouts/failed"] = failed
    return found | ({KL: kl} if kl is not None else {}) | ({"reward/mean": 0.5} if played else {})


def looks(one: StageGuard, *steps: dict[str, Any], cause: str | None = None) -> list[Decision]:
    return [one.review(number, found, cause) for number, found in enumerate(steps, 1)]


ASYNC = {"loss": "ppo()", "overlap": "asynchronous(max_staleness = 2)"}


def test_a_warning_comes_once_each_time_the_kl_rises_above_the_guard() -> None:
    watched = guard(kl_guard="kl_guard(max = 0.1)")
    told = looks(watched, *map(step, (0.05, 0.2, 0.3, None, 0.2, 0.1, 0.11, float("nan"))))
    assert [bool(verdict.notes) for verdict in told] == [0, 1, 0, 0, 0, 0, 1, 0]
    assert told[1].notes[0] == (
        "in step 2 trainer and sampler are 0.2 nats a token apart, above the 0.1 of kl_guard"
    )
    assert not any(verdict.end for verdict in told)


def test_a_kl_that_is_no_number_is_above_every_guard() -> None:
    assert looks(guard(kl_guard="kl_guard(max = 50.0)"), step(float("nan")))[0].notes


def test_falling_back_to_synchronous_is_for_good_and_known_after_a_resume() -> None:
    def fresh() -> StageGuard:
        return guard(kl_guard="kl_guard(max = 0.1, then = synchronous)", **ASYNC)

    watched = fresh()
    found = list(map(step, (0.05, 0.2, 0.05)))
    told = looks(watched, *found)
    assert [v.metrics["guard/synchronous"] for v in told] == [0, 1, 1]
    assert "from here on steps are synchronous" in told[1].notes[0]
    for done, expected in ((1, False), (2, True), (3, True)):
        again = fresh()
        again.replay(m | dict(v.metrics) for m, v in zip(found[:done], told[:done], strict=True))
        assert again.synchronous is expected


def test_a_guard_that_stops_says_why_and_lets_a_resumed_run_go_on() -> None:
    watched = guard(kl_guard="kl_guard(max = 0.1, then = stop)")
    (verdict,) = looks(watched, step(0.4))
    assert verdict.end == (
        "in step 1 trainer and sampler are 0.4 nats a token apart, above the 0.1 of kl_guard"
    )
    resumed = guard(kl_guard="kl_guard(max = 0.1, then = stop)")
    resumed.replay([step(0.4)])
    assert [v.end for v in looks(resumed, step(0.4), step(0.0))] == [None, None]
    assert looks(resumed, step(0.2))[0].end


def test_a_run_is_hopeless_after_so_many_lost_steps_in_a_row() -> None:
    lost, fine = step(None, played=0, failed=8), step(failed=4, played=4)
    told = looks(guard(), lost, lost, fine, lost, lost, lost, cause="OSError: no disk")
    assert [bool(v.end) for v in told] == [0, 0, 0, 0, 0, 1]
    assert told[-1].end == (
        "in each of the last 3 steps no rollout could be used; the first cause: OSError: no disk"
    )
    assert [len(v.notes) for v in told] == [1, 0, 0, 1, 0, 0]
    assert "changes no weights: no rollout could be used" in told[0].notes[0]
    assert not any(v.end for v in looks(guard(give_up="none"), *[lost] * 9))


def test_a_share_of_failures_can_be_enough() -> None:
    watched = guard(give_up="failures(steps = 1, share = 50%)")
    told = looks(watched, step(played=5, failed=3), step(played=4, failed=4), cause="E: x")
    assert told[0].end is None
    assert told[1].end == "in the last step 50% or more failed; the first cause: E: x"


def test_episodes_that_all_end_without_a_reward_are_hopeless_too() -> None:
    found = step(None) | {"rollouts/failed": 0}
    del found["reward/mean"]
    told = looks(guard(give_up="failures(steps = 1)"), found)
    assert told[0].end is not None
    assert "no episode had a reward" in told[0].end


def guarded(then: str, maximum: float = 1e-9) -> Plan:
    """Stale steps are always above such a guard."""
    kl_guard = f"kl_guard(max = {maximum:.12f}, then = {then})"
    small = {"batch": "groups(2, group_size = 2)", "sampling": "sample(max_tokens = 6)"}
    return tiny(train(kl_guard=kl_guard, steps="6", save="every(50)", **small, **ASYNC))


@pytest.mark.plain
def test_steps_after_the_crossing_are_synchronous_and_a_resumed_run_agrees(
    tmp_path: Path,
) -> None:
    job = guarded("synchronous")
    whole = undisturbed(job)
    staleness = [r["rollouts/staleness"] for r in metrics(whole)]
    fallen = [r["guard/synchronous"] for r in metrics(whole)]
    assert fallen[-1] == 1
    first = fallen.index(1)  # steps that had begun by then are as stale as they were
    assert max(staleness[: first + 3]) > 0
    assert staleness[first + 3 :] == [0] * len(staleness[first + 3 :])
    run_new(tmp_path / "parts", job, stop_after=("main", 4))
    run(RunFolder.resume(tmp_path / "parts"))
    assert [r["guard/synchronous"] for r in metrics(tmp_path / "parts")] == fallen
    actions = [
        [[turn["action"] for turn in record["turns"]] for record in rollouts(path)]
        for path in (whole, tmp_path / "parts")
    ]
    assert actions[0] == actions[1]


@pytest.mark.plain
def test_a_run_that_the_guard_stops_keeps_what_it_has_done(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nats a token apart"):
        run_new(tmp_path / "run", guarded("stop"))
    assert 0 < len(metrics(tmp_path / "run")) < 6
    folder = RunFolder.resume(tmp_path / "run")
    assert list(folder.journal.checkpoints("main")) == [len(metrics(tmp_path / "run"))]
    assert run(folder).state == "finished"
    assert [record["step"] for record in comparable(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]


def test_a_guard_that_ends_an_overlap_needs_one() -> None:
    text = TINY + train(kl_guard="kl_guard(then = synchronous)")
    (found,) = [d for d in compile_source(Source("r.rl", text), {}, 1).diagnostics if d.code]
    assert (found.code, found.message) == (
        "RL0312",
        "`then = synchronous` needs asynchronous steps, and these never overlap",
    )
