"""Episodes that a stage learns from: played once, and kept however the run ends."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from http_testing import running_server
from run_support import TINY, block, comparable, run, run_new, tiny, train, undisturbed
from transformers import AutoTokenizer

import rlc
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.stages import samples
from rlc.runtime.summary import Observer
from rlc.service.tiny import path as tiny_model

pytestmark = pytest.mark.plain

OWN = tiny(
    block(
        "sft",
        "warmup",
        {
            "model": "policy",
            "data": "demonstrations(guess, n = 6, policy = model, min_reward = 1.0)",
            "batch": "3",
            "steps": "2",
            "optimizer": "adam(1e-3)",
        },
    )
)


EVALUATED = (("before", "policy"), ("after", "again"))


class Told(Observer):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def examples(path: Path) -> list[dict[str, Any]]:
    """The examples, without logprobs: nothing reads them, and their last bits depend on what the
    engine still has in its cache."""
    lines = (path / "examples-warmup.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for sequence in (one for record in records for one in record["sequences"]):
        del sequence["logprobs"]
    return records


def test_what_was_played_before_a_crash_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "WAVE", 3)
    whole = run_new(tmp_path / "whole", OWN)
    played, play = Counter[int](), Player.play

    async def counted(self: Player, task: Task) -> Any:
        played[task.number] += 1
        if task.number == 5 and played[5] == 1:  # in the second wave
            raise RuntimeError("the machine is gone")
        return await play(self, task)

    monkeypatch.setattr(Player, "play", counted)
    with pytest.raises(RuntimeError, match="gone"):
        run_new(tmp_path / "parts", OWN)
    file = tmp_path / "parts" / "episodes-warmup.jsonl"
    with file.open("a") as cut_off:
        cut_off.write('{"task": 3, "epis')
    run(RunFolder.resume(tmp_path / "parts"))
    assert [played[number] for number in range(6)] == [1, 1, 1, 2, 2, 2]
    assert examples(tmp_path / "parts") == examples(tmp_path / "whole")
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")
    assert whole.state == "finished"


def test_all_that_was_played_is_kept_with_what_it_earned() -> None:
    path = undisturbed(OWN)
    lines = (path / "episodes-warmup.jsonl").read_text().splitlines()
    episodes = [one for line in lines for one in json.loads(line)["episodes"]]
    assert len(episodes) >= len(examples(path)) == 6
    good = [one for one in episodes if one["reward"] >= 1.0][:6]
    assert [one["actions"] for one in good] == [one["actions"] for one in examples(path)]


def sampled(more: str, **fields: str) -> str:
    stage = {
        "model": "policy",
        "data": f"samples(policy, env = spell, n = 8, sampling = sample(max_tokens = 16), {more})",
        "batch": "4",
        "steps": "2",
        "optimizer": "adam(1e-3)",
    }
    return block("sft", "warmup", stage | fields)


def played(path: Path) -> list[list[dict[str, Any]]]:
    """The episodes of each task, in order."""
    lines = (path / "episodes-warmup.jsonl").read_text().splitlines()
    tasks = sorted((json.loads(line) for line in lines), key=lambda task: task["task"])
    return [task["episodes"] for task in tasks]


@pytest.mark.engine
@pytest.mark.parametrize("keep", ["solved", "all", "best", "at_least(0.3)"])
def test_what_is_kept_of_each_task(keep: str) -> None:
    path = undisturbed(tiny(sampled(f"keep = {keep}, samples_per_task = 3, per_task = 2")))
    expected = []
    for group in played(path):
        good = {
            "solved": [one for one in group if one["reward"] >= 1],
            "all": group,
            "best": sorted(group, key=lambda one: -one["reward"])[:1],
            "at_least(0.3)": [one for one in group if one["reward"] >= 0.3],
        }[keep]
        expected += [one["actions"] for one in good[:2]]
    assert [one["actions"] for one in examples(path)] == expected[:8]
    assert 0 < len(examples(path)) <= 8


def test_of_a_task_that_is_drawn_again_no_more_is_kept(tmp_path: Path) -> None:
    """Four tasks, with one reply of each: more are wanted than there can be."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "Say {n}."}}\n' for n in range(4)))
    rows = f'env asked = rows("{path}")\n'
    job = tiny(rows, sampled("keep = all, per_task = 1, tries = 3").replace("spell", "asked"))
    told = Told()
    run_new(tmp_path / "run", job, observer=told)
    assert len(examples(tmp_path / "run")) == 4
    (note,) = (note for note in told.notes if "kept" in note)
    assert note.startswith("warmup: only 4 of 24 episodes of `asked` that `policy` played are kept")


def test_the_stage_that_played_is_named(tmp_path: Path) -> None:
    later = sampled("keep = all").replace("samples(policy", "samples(first")
    told = Told()
    run_new(tmp_path / "run", tiny(train("first", steps="1"), later), observer=told)
    assert any("that `first` played" in note for note in told.notes)


def test_nothing_kept_is_an_end_that_costs_nothing_again(tmp_path: Path) -> None:
    job = tiny(sampled("keep = at_least(7.0), tries = 2"))
    with pytest.raises(RunError, match="none of 16 episodes of `spell` that `policy` played is"):
        run_new(tmp_path / "run", job)
    before = played(tmp_path / "run")
    with pytest.raises(RunError, match="none of 16 episodes"):
        run(RunFolder.resume(tmp_path / "run"))
    assert played(tmp_path / "run") == before


def test_sampling_stops_at_the_budget_of_its_stage(tmp_path: Path) -> None:
    job = tiny(sampled("keep = at_least(7.0), tries = 40", budget="limit(tokens = 2_000)"))
    with pytest.raises(RunError, match="the budget of `warmup` has no room for more samples"):
        run_new(tmp_path / "run", job)
    folder = RunFolder.resume(tmp_path / "run")
    assert 1_000 < folder.journal.used("warmup").tokens <= 2_000
    folder.close()


@pytest.mark.engine
def test_rounds_of_learning_from_ones_own_successes(tmp_path: Path) -> None:
    """The control is the model as it is: rounds without a gradient of any reward."""
    wide = {"batch": "12", "steps": "5", "optimizer": "adam(5e-3)"}
    first = sampled("samples_per_task = 4, per_task = 2", **wide).replace("n = 8", "n = 30")
    second = first.replace("warmup", "again").replace("policy", "warmup")
    held = {"env": "spell", "tasks": "24", "sampling": "sample(max_tokens = 16)"}
    stages = [block("eval", name, {"model": name_of, **held}) for name, name_of in EVALUATED]
    summary = run_new(tmp_path / "run", tiny(first, second, *stages))
    found = {one.name: one.metrics["mean_reward"] for one in summary.evaluations}
    before, after = found["before"], found["after"]
    assert after > before + 0.3


def test_a_model_learns_to_do_without_what_it_was_told(tmp_path: Path) -> None:
    told = 'env told = gem("rg:spell_backward") |> chat(system = "Put your answer in a box.")\n'
    job = tiny(told, sampled("keep = all, without = system").replace("spell", "told"))
    run_new(tmp_path / "run", job)
    as_played = tiny(told, sampled("keep = all").replace("spell", "told"))
    run_new(tmp_path / "same", as_played)
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_model()))
    for short, long in zip(examples(tmp_path / "run"), examples(tmp_path / "same"), strict=True):
        (one,), (other,) = short["sequences"], long["sequences"]
        assert short["actions"] == long["actions"]
        assert "in a box" in tokenizer.decode(other["tokens"])
        assert "in a box" not in tokenizer.decode(one["tokens"])
        assert sampled_tokens(one) == sampled_tokens(other)


def test_what_another_model_writes_is_learnt_in_ones_own_tokens(tmp_path: Path) -> None:
    """The same tokens are read by another renderer here, so replies are encoded anew."""
    other = 'model other = policy { renderer = "qwen3_disable_thinking" }\n'
    job = tiny(other, sampled("keep = all").replace("samples(policy", "samples(other"))
    run_new(tmp_path / "run", job)
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_model()))
    for one in examples(tmp_path / "run"):
        (sequence,), (action,) = one["sequences"], one["actions"]
        reply = tokenizer.decode(sampled_tokens(sequence), skip_special_tokens=True)
        assert reply == action
        assert "<think>" not in tokenizer.decode(sequence["tokens"])


def sampled_tokens(sequence: dict[str, Any]) -> list[int]:
    pairs = zip(sequence["tokens"], sequence["turns"], strict=True)
    return [token for token, turn in pairs if turn >= 0]


@pytest.mark.server
def test_on_a_server_they_are_written_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    (tmp_path / "recipe.rl").write_text(TINY + sampled("keep = all"))
    served = rlc.load(tmp_path / "recipe.rl", service="tinker")
    with running_server(tmp_path / "served") as url:
        rlc.run(served, run_dir=tmp_path / "far", base_url=url)
    rlc.run(tmp_path / "recipe.rl", run_dir=tmp_path / "near")
    far, near = (examples(tmp_path / where) for where in ("far", "near"))
    assert [one["actions"] for one in far] == [one["actions"] for one in near]
