"""The predicted critical path is the one that the executor takes, on a clock that only waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.pricing.critical_path import completion_times, critical_path, parts_of
from rlc.runtime.graph import NodeContext, StepOutcome, run_steps

RECIPE = """\
model policy { base = "tiny" lora_rank = 4 }
env spell = gem("rg:spell_backward") |> chat()
train main {
  model = policy env = spell batch = groups(12, group_size = 4) sampling = sample(max_tokens = 8)
  advantage = grpo() loss = ppo() optimizer = adam(1e-4) steps = 10
  OVERLAP
}
"""
OVERLAPS = ("", "overlap = streamed(3)", "overlap = asynchronous(max_staleness = 1)",
            "overlap = asynchronous(max_staleness = 3)",
            "overlap = streamed(3)  aggregate = token_mean()",
            'overlap = streamed(3)  kl = reference("tiny", coef = 0.1)',
            "overlap = asynchronous(max_staleness = 1, minibatches = 3)")  # fmt: skip


def plan_with(overlap: str) -> Plan:
    plan = compile_source(Source("r.rl", RECIPE.replace("OVERLAP", overlap)), {}, 1).plan
    assert plan is not None
    return plan


PLANS = {overlap: plan_with(overlap) for overlap in OVERLAPS}


class _Jump(selectors.DefaultSelector):
    """Waits by moving a clock on."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def executed(plan: Plan, by_step: Sequence[Mapping[str, list[float]]]) -> list[float]:
    """When the executor is done with each step, its nodes being slow as told."""
    done: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def node(kind: str) -> Any:
            async def work(at: NodeContext, inputs: Mapping[str, Any]) -> None:
                await asyncio.sleep(by_step[at.step - 1][kind][at.part])

            return work

        async def commit(step: int, outcome: StepOutcome) -> bool:
            done.append(loop.time())
            return True

        functions = {kind: node(kind) for kind in by_step[0]}
        steps = range(1, len(by_step) + 1)
        await run_steps(plan.graph, "main", functions, steps, commit=commit)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return done


@st.composite
def latencies(draw: st.DrawFn, overlap: str) -> dict[str, list[float]]:
    parts = parts_of(PLANS[overlap].graph, "main")
    number = st.integers(0, 20).map(float)
    return {kind: [draw(number) for _ in range(n)] for kind, n in parts.items()}


@pytest.mark.parametrize("overlap", OVERLAPS)
@given(data=st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_every_step_is_done_when_the_constraints_say(overlap: str, data: st.DataObject) -> None:
    plan = PLANS[overlap]
    by_step = data.draw(st.lists(latencies(overlap), min_size=1, max_size=8))
    predicted = completion_times(plan.graph, "main", by_step)
    assert predicted == pytest.approx(executed(plan, by_step), abs=1e-6)


@pytest.mark.parametrize("overlap", OVERLAPS)
@given(data=st.data())
@settings(max_examples=10, deadline=None, derandomize=True)
def test_the_period_is_that_of_executed_steps(overlap: str, data: st.DataObject) -> None:
    """With whole seconds, after the transient, twelve steps repeat for a slack of up to three."""
    plan, seconds = PLANS[overlap], data.draw(latencies(overlap))
    done = executed(plan, [seconds] * 60)
    period = critical_path(plan.graph, "main", seconds).seconds
    assert (done[51] - done[39]) / 12 == pytest.approx(period, abs=1e-6)


@pytest.mark.parametrize("overlap", OVERLAPS)
@given(data=st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_slack_is_just_what_a_node_can_be_slower(overlap: str, data: st.DataObject) -> None:
    plan, seconds = PLANS[overlap], data.draw(latencies(overlap))
    path = critical_path(plan.graph, "main", seconds)
    kind = data.draw(st.sampled_from(sorted(seconds)))

    def slower(by: float) -> float:
        """The slowest that a step is with one part of the node slower."""
        rooms = [
            {**seconds, kind: [s + by * (p == part) for p, s in enumerate(seconds[kind])]}
            for part in range(len(seconds[kind]))
        ]
        return max(critical_path(plan.graph, "main", room).seconds for room in rooms)

    assert slower(path.slack[kind]) == pytest.approx(path.seconds)
    assert slower(path.slack[kind] + 1) > path.seconds + 0.01


def test_a_synchronous_step_takes_the_sum() -> None:
    seconds = {
        "snapshot": [1.0],
        "rollouts": [30.0],
        "forward_backward": [4.0],
        "optim_step": [1.0],
    }
    path = critical_path(PLANS[OVERLAPS[0]].graph, "main", seconds)
    assert path.seconds == 36
    assert path.critical == ("snapshot", "rollouts", "forward_backward", "optim_step")
    assert path.slack["advantages"] == 0


def test_an_asynchronous_step_is_as_slow_as_sampling_shared_or_training() -> None:
    graph = PLANS[OVERLAPS[2]].graph
    slow_sampling = critical_path(graph, "main", {"rollouts": [30.0], "forward_backward": [10.0]})
    slow_training = critical_path(graph, "main", {"rollouts": [8.0], "forward_backward": [10.0]})
    assert slow_sampling.seconds == 20  # two steps sample side by side
    assert slow_training.seconds == 10
    assert slow_training.slack["rollouts"] == 2
    assert slow_training.critical == ("forward_backward",)


def test_a_streamed_step_trains_while_the_last_groups_play() -> None:
    graph = PLANS[OVERLAPS[1]].graph
    seconds = {"rollouts": [10.0, 20.0, 30.0], "forward_backward": [4.0, 4.0, 4.0]}
    path = critical_path(graph, "main", seconds)
    assert path.seconds == 34
    assert path.slack["rollouts"] == 0


def test_a_gradient_that_needs_the_whole_batch_waits_for_it() -> None:
    seconds = {"rollouts": [10.0, 20.0, 30.0], "forward_backward": [12.0]}
    assert critical_path(PLANS[OVERLAPS[4]].graph, "main", seconds).seconds == 42
    seconds["reference"] = [8.0, 8.0, 8.0]  # while others are played, but for the last part
    assert critical_path(PLANS[OVERLAPS[5]].graph, "main", seconds).seconds == 50


def test_what_does_not_fit_the_graph_is_refused() -> None:
    graph = PLANS[""].graph
    with pytest.raises(ValueError, match="no stage other"):
        critical_path(graph, "other", {})
    with pytest.raises(ValueError, match="1 parts, and 2 are given"):
        critical_path(graph, "main", {"rollouts": [1.0, 2.0]})
