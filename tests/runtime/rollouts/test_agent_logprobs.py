"""What an agent is told of its replies, and what is trained, has the trainer's own logprobs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agent_programs
import numpy as np
import pytest
from run_support import TINY, compiled, run_new, train

from rlc.catalog.saved_weights import find_weights
from rlc.plan.parts import LossPlan
from rlc.plan.records import Plan
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.player import Player
from rlc.runtime.updates.datums import TrainingDatum, episode_datums
from rlc.service.hosted.connect import connect_service

pytestmark = [pytest.mark.engine, pytest.mark.server]


async def forward(plan: Plan, path: Path, data: list[TrainingDatum]) -> list[np.ndarray]:
    """The logprobs of the targets, by a forward pass of the weights after the first step."""
    service = connect_service(plan, path / "checkpoints")
    training = await service.create_training_client_from_state(find_weights(f"{path}@main:1").place)
    plain = LossPlan("cross_entropy", {})
    output = await training.forward([datum.to_tinker(plain) for datum in data], plain.name)
    return [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]


def test_logprobs_are_those_of_a_forward_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second step, whose weights have left those of the base model."""
    monkeypatch.chdir(tmp_path)
    rows = ({"prompt": prompt} for prompt in ("say ee", "say oo"))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked = list[Rollout]()
    play = Player.play

    async def kept(player: Player, *args: Any) -> list[Rollout]:
        rollouts = await play(player, *args)
        asked.extend(rollouts)
        return rollouts

    monkeypatch.setattr(Player, "play", kept)
    agent_programs.SAID.clear()
    fields = {"env": "shop", "batch": "groups(2, group_size = 2)", "steps": "2"}
    fields |= {"save": "every(1, keep = 2)", "optimizer": "adam(3e-2)"}
    shop = 'env shop = agent("agent_programs:two_turns_scored", tasks = rows("rows.jsonl"))\n'
    plan = compiled(TINY + shop + train(**fields))
    run_new(tmp_path / "run", plan)
    assert len(asked) == 8
    told = sorted(agent_programs.SAID)
    assert told == sorted([*turn.logprobs] for rollout in asked for turn in rollout.turns)

    data = list[TrainingDatum]()
    for rollout in asked[4:]:
        count = len(rollout.turns)
        data += episode_datums(rollout.turns, np.ones(count), np.ones(count, bool))
    rows_D = asyncio.run(forward(plan, tmp_path / "run", data))
    assert sum(datum.mask_T.sum() for datum in data) == sum(
        len(turn.tokens) for rollout in asked[4:] for turn in rollout.turns
    )
    for datum, row_T in zip(data, rows_D, strict=True):
        np.testing.assert_allclose(
            row_T[datum.mask_T], datum.logprobs_T[datum.mask_T], rtol=0, atol=1e-5
        )
