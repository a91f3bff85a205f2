"""What a preference stage has learnt as a judge: its implicit reward, of the tokens of episodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import assert_same, compiled, rollouts, run, run_new, train
from stage_parts import flat

from rlc.chat.turns import model_input
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.rollouts import groups
from rlc.runtime.rollouts.groups import above
from rlc.runtime.rollouts.tokens import merged_sequences
from rlc.runtime.updates.datums import FloatArray, TrainingDatum
from rlc.runtime.updates.preferences import Completion, Preference, judge
from rlc.runtime.weights import open_sampler, open_stage
from rlc.service.hosted.connect import connect_service
from rlc.service.interface import SamplingClient

BETA = 0.3
RECIPE = """
model policy {{ base = "tiny" lora_rank = 4 }}
model reader {{ base = "tiny" lora_rank = 4 }}
preference align {{
  model = reader  data = pairs("{folder}/pairs.jsonl")  loss = {loss}  batch = 2  steps = 2
  optimizer = adam(1e-2)
}}
judge better = implicit_reward(align)
env essays = rows("{folder}/pairs.jsonl") |> {judged}
"""


def job(
    where: Path,
    judged: str = "judged(implicit_reward(align))",
    loss: str = "dpo",
    **stage: str,
) -> Plan:
    rows = [
        f'{{"prompt": "say {letter}", "chosen": "{letter * 4}", "rejected": "no"}}\n'
        for letter in "ao"
    ]
    (where / "pairs.jsonl").write_text("".join(rows), encoding="utf-8")
    recipe = RECIPE.format(folder=where, judged=judged, loss=f"{loss}(beta = {BETA})")
    fields = {"env": "essays", "batch": "groups(2, group_size = 3)", "steps": "2"} | stage
    return compiled(recipe + train(**fields))


@pytest.mark.plain
@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_it_is_the_reward_that_the_stage_gives_a_reply(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """β (log π − log π_ref), for `ipo()` of means: what the stage itself calls a reply's reward."""
    seen: list[tuple[Any, float]] = []
    whole = groups._implicit_reward

    async def noted(*given: Any) -> tuple[float, str]:
        found = await whole(*given)
        seen.append((given[-1], found[0]))
        return found

    monkeypatch.setattr(groups, "_implicit_reward", noted)
    plan = job(tmp_path, loss=loss)
    run_new(tmp_path / "run", plan)
    assert len(seen) == 12
    assert len({reward for _, reward in seen}) > 6
    align, _ = plan.stages
    assert isinstance(align, Training)

    folder = RunFolder.resume(tmp_path / "run")
    sides = [Completion.of(merged_sequences(rollout.turns)) for rollout, _ in seen]
    datums = [side.datums for side in sides]

    async def logprobs() -> list[list[list[FloatArray]]]:
        """By the weights that the stage has left, and by those that it started from."""
        service = connect_service(plan, tmp_path / "run" / "checkpoints")
        learnt = await open_stage(service, folder, "align")
        return [
            [[await _read(client, datum) for datum in side] for side in datums]
            for client in (learnt, await open_sampler(service, align.model))
        ]

    now, before = asyncio.run(logprobs())
    folder.close()
    pairs = [Preference(at, (sides[at], sides[at + 1])) for at in range(0, len(sides), 2)]
    known = [side.replies(rows) for side, rows in zip(sides, before, strict=True)]
    said = judge(flat(align).loss, pairs, now, known).rewards
    assert [reward for _, reward in seen] == pytest.approx([r for pair in said for r in pair])


async def _read(client: SamplingClient, datum: TrainingDatum) -> FloatArray:
    found = await client.compute_logprobs(
        model_input([*datum.inputs, int(datum.targets_T[-1])], {})
    )
    return np.array([0.0 if one is None else one for one in found[1:]])


@pytest.mark.plain
def test_a_run_that_is_resumed_reads_nothing_twice(tmp_path: Path) -> None:
    plan = job(tmp_path, "judged({ good = implicit_reward(align)  little = 0 * better })")
    run_new(tmp_path / "one", plan)
    records = rollouts(tmp_path / "one", "main")
    verdicts = [record["turns"][-1]["verdicts"] for record in records]
    assert [one["judge"] for one in verdicts[0]] == ["good", "little"]
    assert all(one["score"] == two["score"] for one, two in verdicts)
    assert [record["reward"] for record in records] == [one["score"] for one, _ in verdicts]
    run_new(tmp_path / "two", plan, stop_after=("main", 1))
    run(RunFolder.resume(tmp_path / "two"))
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.plain
@pytest.mark.parametrize("overlap", ["streamed(2)", "asynchronous(max_staleness = 1)"])
def test_replies_are_compared_by_it(overlap: str, tmp_path: Path) -> None:
    plan = job(tmp_path, "compared(implicit_reward(align))", overlap=overlap)
    run_new(tmp_path / "run", plan)
    rewards = {record["reward"] for record in rollouts(tmp_path / "run", "main")}
    assert rewards <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert len(rewards) > 1


@given(st.lists(st.integers(-3, 3).map(float), min_size=2))
def test_a_share_of_the_others_is_beaten(rewards: list[float]) -> None:
    shares = above(rewards)
    assert sum(shares) == pytest.approx(len(rewards) / 2)
    for one, share in zip(rewards, shares, strict=True):
        beaten = sum(one > other for other in rewards)
        ties = sum(one == other for other in rewards) - 1
        assert share == pytest.approx((beaten + ties / 2) / (len(rewards) - 1))
