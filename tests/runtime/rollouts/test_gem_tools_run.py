"""Whole runs with tools, data sets of the cookbook and environments of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from attrs import evolve
from passages import passage_server
from paths import RECIPES, SUPPORT
from run_support import (
    TINY,
    assert_resumes,
    block,
    compiled,
    metrics,
    plan,
    rollouts,
    run_new,
    train,
    undisturbed,
)

from rlc.compile.variants import rehearse
from rlc.runtime.records import RunError
from rlc.runtime.start import open_run, require_runnable

pytestmark = pytest.mark.plain

GUESS = 'gem("game:GuessTheNumber-v0-easy")'
SUMS = """\
env sums = cookbook(
  "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
  args = {batch_size = 3, n_batches = 2},
)
"""
SHORT = {"batch": "groups(2, group_size = 4)", "steps": "2", "save": "every(1)"}


def says_first(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Make each reply of the tiny model begin with a call of a tool."""
    import rlc.chat.prompts

    said = rlc.chat.prompts.text_of
    monkeypatch.setattr(rlc.chat.prompts, "text_of", lambda message: f"{call} {said(message)}")


def tooled(tool: str, **fields: str) -> str:
    return (
        TINY
        + f"env tooled = {GUESS} |> {tool} |> track() |> chat()\n"
        + train(env="tooled", **(SHORT | fields))
    )


def test_code_is_run_and_rewarded_and_the_model_sees_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says_first(monkeypatch, "<python>print(6 * 7)</python>")
    run_new(tmp_path / "run", compiled(tooled("python_tool(uses = 2)", steps="1")))
    played = rollouts(tmp_path / "run")
    assert len(played) == 8
    for rollout in played:
        first, second, third = rollout["turns"][:3]
        assert "You now have the ability to selectively write" in first["observation"]
        assert second["observation"].startswith("Code execution result: 42")
        assert "Reached the maximum number of tool use" in third["observation"]
        assert [first["reward"], second["reward"]] == pytest.approx([0.3, 0.3])
    (step,) = metrics(tmp_path / "run")
    assert step["env/tooled/python_tool_uses"] == step["env/tooled/python_tool_successes"] == 2
    assert step["episodes/tooled/turns"] == fmean(len(r["turns"]) for r in played)
    returns = [sum(turn["reward"] for turn in r["turns"]) for r in played]
    assert step["episodes/tooled/return"] == pytest.approx(fmean(returns))


@pytest.fixture
def server() -> Iterator[str]:
    with passage_server() as url:
        yield url


@pytest.mark.server
def test_searches_reach_the_server_of_the_recipe(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says_first(monkeypatch, "<search>rivers</search>")
    job = compiled(tooled(f'search_tool(url = "{server}", uses = 1, top_k = 2)', steps="1"))
    require_runnable(job)
    run_new(tmp_path / "run", job)
    for rollout in rollouts(tmp_path / "run"):
        assert "Doc 2(Title: About) rivers" in rollout["turns"][1]["observation"]
    assert metrics(tmp_path / "run")[0]["env/tooled/search_tool_uses"] == 1


def test_a_server_that_does_not_answer_ends_the_run_before_it_starts(tmp_path: Path) -> None:
    job = compiled(tooled('search_tool(url = "http://127.0.0.1:9/retrieve")'))
    message = "`tooled`: the server of `search_tool.*:9/retrieve, gave nothing: connection refused"
    with pytest.raises(RunError, match=message):
        open_run(job, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_data_set_of_the_cookbook_is_trained_on_and_resumed(tmp_path: Path) -> None:
    job = compiled(TINY + SUMS + train(env="sums", **SHORT))
    played = rollouts(undisturbed(job))
    assert [r["task"] for r in played] == [task for task in range(4) for _ in range(4)]
    assert all("<|im_start|>user" in r["turns"][0]["observation"] for r in played)
    assert all(r["turns"][0]["metrics"]["tag/problems"] == 1 for r in played)
    assert all(0 <= step["env/sums/correct"] <= 1 for step in metrics(undisturbed(job)))

    assert_resumes(job, ("main", 1), tmp_path / "parts")


def test_a_game_that_members_play_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member has prompts of its own; when one of them leaves, the game is over for all."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    table = 'cookbook("cookbook_builders:WordsBuilder", args = {kind = "tables"}, self_play = true)'
    text = TINY + f"env table = {table}\n" + train(env="table", **SHORT)
    run_new(tmp_path / "run", compiled(text))
    played = rollouts(tmp_path / "run")
    assert [r["task"] for r in played] == [task for task in range(4) for _ in range(4)]
    assert {(r["ended"], len(r["turns"])) for r in played} == {("done", 2)}
    for r in played:
        assert f"Player {r['member']}, you heard" in r["turns"][0]["observation"]

    longest = max(len(r["turns"][0]["observation"]) for r in played)
    most = {"main.sampling.max_prompt_tokens": str(longest // 2)}
    run_new(tmp_path / "cut", compiled(text, most))
    lost = [r["error"] for r in rollouts(tmp_path / "cut") if r["error"]]
    assert lost
    assert all("another member of the group" in error for error in lost)


def test_an_evaluation_has_groups_of_its_samples(tmp_path: Path) -> None:
    fields = {"model": "policy", "env": "sums", "samples": "2", "tasks": "3"}
    fields |= {"sampling": "sample(max_tokens = 8)"}
    run_new(tmp_path / "run", compiled(TINY + SUMS + block("eval", "check", fields)))
    played = rollouts(tmp_path / "run", "check")
    assert [r["task"] for r in played] == [0, 0, 1, 1, 2, 2]


def test_groups_of_another_size_are_refused(tmp_path: Path) -> None:
    text = TINY + 'env sixes = cookbook("sixes:Sixes")\n'
    (tmp_path / "sixes.py").write_text(SIXES)
    job = compiled(text + train(env="sixes", **SHORT))
    with pytest.raises(RunError, match=r"makes groups of 6, and the recipe's have 4"):
        run_new(tmp_path / "run", _in(job, tmp_path))
    of_six = compiled(text + train(env="sixes", **(SHORT | {"batch": "groups(2, group_size = 6)"})))
    run_new(tmp_path / "other", _in(rehearse(of_six), tmp_path))
    assert len(rollouts(tmp_path / "other", "main")) == 24


SIXES = """\
import chz
from tinker_cookbook.recipes.math_rl.arithmetic_env import ArithmeticDataset
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.types import RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

@chz.chz
class Sixes(RLDatasetBuilder):
    renderer_name: str
    model_name: str

    async def __call__(self):
        renderer = get_renderer(self.renderer_name, get_tokenizer(self.model_name))
        return ArithmeticDataset(2, renderer, group_size=6), None
"""


def _in(job: Any, folder: Path) -> Any:
    """The plan of a recipe that lies in this folder."""
    return evolve(job, recipe=str(folder / "recipe.rl"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('python("letters:mkae", args = {letters = "e"})', "has no `mkae`; did you mean `make`"),
        (
            'python("leters:make", args = {letters = "e"})',
            "no module `leters` .*; did you mean `lett",
        ),
        (
            'python("letters:make", args = {leters = "e"})',
            "not take `leters`; it takes `letters`; did you mean `lett",
        ),
        ('python("letters:make")', "needs `letters`"),
        (
            'cookbook("tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDataset'
            'Builder", args = {batch_size = 2, n_batches = 2, group_size = 2})',
            "leave `group_size` out",
        ),
        (
            'cookbook("tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticBuilder")',
            "has no `ArithmeticBuilder`; did you mean `Arithmetic",
        ),
    ],
)
def test_code_that_is_not_there_ends_the_run_before_it_starts(
    tmp_path: Path, source: str, message: str
) -> None:
    job = compiled(TINY + f"env own = {source}\n" + train(env="own"))
    with pytest.raises(RunError, match=message):
        open_run(_in(job, RECIPES), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_environment_of_ones_own_is_trained_on(tmp_path: Path) -> None:
    small = {"main.steps": "2", "main.batch": "groups(4, group_size = 4)"}
    job = _in(plan("python_environment", small), RECIPES)
    require_runnable(job)
    assert run_new(tmp_path / "run", job).state == "finished"
    played = rollouts(tmp_path / "run")
    assert {r["turns"][0]["observation"] for r in played} == {
        "Reply with a word that is full of the letter e."
    }
    assert all(step["env/letters/letters"] > 0 for step in metrics(tmp_path / "run"))


def test_the_recipe_with_a_data_set_of_the_cookbook_rehearses(tmp_path: Path) -> None:
    job = rehearse(plan("cookbook_arithmetic"))
    require_runnable(job)
    assert run_new(tmp_path / "run", job).state == "finished"
