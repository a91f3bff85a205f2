"""Overlap where a batch is counted in turns, or played by tools, agents and games: equal to the
synchronous run where nothing is stale, and the same again after a kill where rollouts are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from paths import RECIPES
from run_support import (
    assert_same,
    comparable,
    compiled,
    metrics,
    rollouts,
    run,
    run_new,
    train,
    undisturbed,
)

from rlc.plan.graph import in_parts
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

# Each plays several turns.
PLAYED = {
    "chats": 'env played = gem("game:GuessTheNumber-v0-easy") |> chat()',
    "tools": 'env played = gem("game:GuessTheNumber-v0-easy") |> python_tool(uses = 2) |> chat()',
    "agents": 'env played = agent("agent_programs:two_turns", tasks = rows("rows.jsonl"))',
    "game": 'env played = python_game("tug_of_war.py:TugOfWar") |> play(against = self)',
    "mixture": (
        'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
        'env tug = python_game("tug_of_war.py:TugOfWar") |> play(against = past(every = 2))'
    ),
}
TURNS = {  # two rounds a step or more
    "batch": "turns(14, parallel = 4)",
    "advantage": "rebn()",
    "optimizer": "adam(1e-2)",
    "loss": "cispo()",
}
GROUPS = TURNS | {"batch": "groups(3, group_size = 4)", "advantage": "grpo(scope = role)"}
BATCHES = {"turns": TURNS, "groups": GROUPS}
FRESH = [
    "asynchronous(max_staleness = 0)",
    "streamed(minibatches = 3)",
    "streamed(minibatches = 2, order = ready)",
]


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECIPES / "tug_of_war.py", tmp_path)
    agent_programs.FIRST_TRIES.clear()
    rows = ({"prompt": prompt, "answer": "e"} for prompt in ("Say e.", "Another.", "Once more."))
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture(autouse=True)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the model call the tool, where there is one, which answers without a process."""
    if request.node.callspec.params["played"] != "tools":
        return
    import rlc.chat.prompts
    from rlc.envs.gem import tools

    monkeypatch.setattr(tools, "run_python", lambda *_: tools.Outcome(True, "1\n", ""))

    said = rlc.chat.prompts.text_of
    monkeypatch.setattr(
        rlc.chat.prompts, "text_of", lambda message: f"{said(message)} <python>print(1)</python>"
    )


def job(played: str, **fields: str) -> Plan:
    env = "2 * guess + tug" if played == "mixture" else "played"
    own = {"env": env, "steps": "3"} | fields
    model = 'model policy { base = "tiny" lora_rank = 4 }\n'
    return compiled(f"{model}{PLAYED[played]}\n{train(**own)}")


def trained(path: Path) -> list[dict[str, Any]]:
    """What a run says of its steps, but for tokens that a cache has had, which depend on what is
    sampled side by side."""
    left_out = ("tokens/prefill", "tokens/cached")
    return [{k: v for k, v in one.items() if k not in left_out} for one in comparable(path)]


def run_twice(tmp_path: Path, played: str, batch: str, overlap: str) -> None:
    """Run a job without overlap and with one that has no staleness, and compare."""
    whole, overlapped = (job(played, **BATCHES[batch], **o) for o in ({}, {"overlap": overlap}))
    one, other = undisturbed(whole), tmp_path / overlap
    run_new(other, overlapped)
    assert any(step.get("optim/grad_norm") for step in metrics(one))
    steps = {1, 2, 3}
    if "forward_backward" in in_parts(overlapped.trainings[0]):
        # A sum of gradients in parts differs from the whole in its last bits, which later steps
        # make larger.
        steps = {1}
        assert trained(other)[0] == pytest.approx(trained(one)[0])
    else:
        assert trained(other) == trained(one)
    ours, theirs = ([r for r in rollouts(path) if r["step"] in steps] for path in (other, one))
    assert ours == theirs


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("played", PLAYED)
def test_without_staleness_it_is_the_synchronous_run(
    tmp_path: Path, played: str, batch: str
) -> None:
    for overlap in FRESH:
        run_twice(tmp_path, played, batch, overlap)


@pytest.mark.engine
@pytest.mark.parametrize("played", ["chats", "agents", "game"])
def test_on_the_engine_it_is_the_synchronous_run_to_the_bit(tmp_path: Path, played: str) -> None:
    run_twice(tmp_path, played, "turns", "asynchronous(max_staleness = 0)")


def assert_killed_alike(tmp_path: Path, played: str, batch: str) -> None:
    """A run that is killed, where rollouts are stale, and gone on with ends as if it had not."""
    fields = BATCHES[batch] | {"overlap": "asynchronous(max_staleness = 2)", "steps": "4"}
    plan = job(played, **fields)
    run_new(tmp_path / "whole", plan)
    assert {record["staleness"] for record in rollouts(tmp_path / "whole")} == {0, 1, 2}
    run_new(tmp_path / "part", plan, stop_after=("main", 3))
    folder = RunFolder.resume(tmp_path / "part")
    folder.journal.drop_checkpoint("main", 3)  # as after a kill
    run(folder)
    assert_same(tmp_path / "part", tmp_path / "whole")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("played", PLAYED)
def test_killed_where_rollouts_are_stale_it_ends_as_if_it_had_not_been(
    tmp_path: Path, played: str, batch: str
) -> None:
    assert_killed_alike(tmp_path, played, batch)


@pytest.mark.engine
@pytest.mark.parametrize("played", ["chats", "agents", "game"])
def test_on_the_engine_too(tmp_path: Path, played: str) -> None:
    assert_killed_alike(tmp_path, played, "turns")
