"""``rlc probe``: what a few episodes say of a job, what they cost, and what they are kept for."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from paths import RECIPES
from run_support import TINY, compiled, train

import rlc
from rlc.cli.main import main
from rlc.plan import PricePlan
from rlc.pricing import MeasuredEpisodes, total_cost
from rlc.pricing.cost import stage_costs
from rlc.proof.evidence import measure
from rlc.proof.probe import probe_plan, run_probe
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.stages.few_episodes import FewEpisodes
from rlc.runtime.summary import Observer
from rlc.service import connect_service

pytestmark = pytest.mark.plain

RECIPE = TINY[: TINY.index("env spell")] + train(steps="20")
ALL_EQUAL = (
    'model policy { base = "tiny" lora_rank = 4 }\n'
    'env guess = python("fixed.py:make") |> chat()\n' + train()
)
FIXED = """\
from rlc.chat.turns import Observation

class Episode:
    first = Observation("Say 1.")

    def step(self, action):
        REACT

class Source:
    def group(self, seed, size):
        return [Episode() for _ in range(size)]

def make():
    return Source()
"""
EQUAL = FIXED.replace("REACT", 'return Observation("", reward=0.0, done=True)')
FAILING = FIXED.replace("REACT", 'raise KeyError("the grader is lost")')


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.rl").write_text(RECIPE, encoding="utf-8")


def tokens(explanation: rlc.Explanation) -> dict[str, float]:
    (stage,) = explanation.to_dict()["cost"]["stages"]
    return {
        level: sum(one["tokens"].values()) * stage["times"] for level, one in stage["step"].items()
    }


def test_a_probe_narrows_the_price_and_is_not_played_twice() -> None:
    recipe = rlc.load("recipe.rl")
    before = recipe.explain()
    result = rlc.probe(recipe, groups=6)
    (env,) = result.envs
    assert (env.groups, env.episodes, result.played) == (6, 24, 24)
    assert result.folder.parent == Path("runs")
    assert env.apart is not None
    assert abs(env.apart) < 1e-4  # sampler and trainer are one here
    after = recipe.explain()
    wide, narrow = tokens(before), tokens(after)
    assert narrow["high"] / narrow["low"] < 4 < wide["high"] / wide["low"]
    assert narrow["low"] < narrow["expected"] < narrow["high"]
    assert "probe of" in after.text()
    assert "probe of" in after.text(full=True)
    again = rlc.probe(recipe, groups=6)
    assert (again.played, again.folder) == (0, result.folder)
    assert again.envs == result.envs
    assert rlc.probe(recipe, groups=6, fresh=True).folder != result.folder
    assert tokens(rlc.load("recipe.rl", set={"main.steps": 40}).explain())["expected"] > (
        1.9 * narrow["expected"]  # the same episodes, more of them
    )
    other = rlc.load("recipe.rl", set={"main.sampling.max_tokens": 16}).explain()
    assert "probe of" not in other.text()  # other episodes


def test_an_earlier_run_counts_and_shows_how_lengths_drift() -> None:
    rlc.run("recipe.rl", set={"main.steps": 6})
    assert "earlier run" not in rlc.load("recipe.rl").explain().text()  # it has 20 steps
    explanation = rlc.load("recipe.rl", set={"main.steps": 8}).explain()
    assert "in the run of" in explanation.text()
    assert "(an earlier run)" in explanation.text()
    shutil.copytree(next(Path("runs").glob("recipe-*")), "runs/again")  # the same, played again
    assert "(an earlier run)" in rlc.load("recipe.rl", set={"main.steps": 8}).explain().text()
    (stage,) = explanation.to_dict()["cost"]["stages"]
    found = stage["measured"]["guess"]
    assert (found["groups"], found["episodes"]) == (6, 24)  # of its first two steps
    drift = found["length_drift"]
    assert 0 < drift["low"] <= drift["expected"] <= drift["high"]


def test_where_all_rewards_are_equal_there_is_nothing_to_learn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.rl").write_text(ALL_EQUAL, encoding="utf-8")
    (tmp_path / "fixed.py").write_text(EQUAL, encoding="utf-8")
    assert main(["run", "recipe.rl", "--probe", "--quiet"]) == 1
    said = capsys.readouterr().err
    assert "nothing was solved: easier tasks" in said
    assert "nothing trained" in said
    (probe,) = Path("runs").iterdir()  # no run beside it
    assert "-probe-" in probe.name
    assert main(["probe", "recipe.rl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["stops"] is True


def test_a_probe_whose_environment_fails_says_where(tmp_path: Path) -> None:
    (tmp_path / "recipe.rl").write_text(ALL_EQUAL, encoding="utf-8")
    (tmp_path / "fixed.py").write_text(FAILING, encoding="utf-8")
    result = rlc.probe("recipe.rl", groups=2)
    (reason,) = result.stops
    assert "all 8 episodes failed" in reason
    assert "the grader is lost" in reason
    assert "fixed.py:7" in reason
    assert "probe of" not in rlc.load("recipe.rl").explain().text()  # nothing was seen of it


def test_a_budget_that_would_not_last_stops_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--set", "main.budget=limit(tokens = 2_000)"]
    assert main(["run", "recipe.rl", "--probe", "--quiet", *few]) == 1
    assert "2,000 tokens, would not last" in capsys.readouterr().err


class Interrupting(Observer):
    """Presses Ctrl-C after some groups."""

    def __init__(self, after: int) -> None:
        self.left = after

    def progress(self, done: int, planned: int) -> None:
        self.left -= 1
        if not self.left:
            raise RunError("the power failed")


def test_a_probe_that_was_interrupted_goes_on() -> None:
    slow = rlc.load("recipe.rl", set={"main.sampling": "sample(max_tokens = 8, concurrency = 4)"})
    with pytest.raises(RunError, match="power failed") as raised:
        rlc.probe(slow, groups=6, observer=Interrupting(2))
    assert "another probe goes on" in raised.value.__notes__[0]
    (folder,) = Path("runs").iterdir()
    kept = (folder / "rollouts.jsonl").read_text().splitlines()
    assert 0 < len(kept) < 24
    assert "probe of" in slow.explain().text()  # what is there counts
    with (folder / "rollouts.jsonl").open("a") as file:
        file.write(json.dumps({**json.loads(kept[0]), "task": 5}) + '\n{"a line that')
    result = rlc.probe(slow, groups=6)
    assert result.folder == folder
    assert 0 < result.played <= 24 - len(kept)
    lines = (folder / "rollouts.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len({(one["task"], one["member"]) for one in records}) == len(records) == 24


def test_a_probe_that_is_going_on_is_not_begun_twice() -> None:
    folder = rlc.probe("recipe.rl", groups=2).folder
    with closing(RunFolder.resume(folder)) as opened:
        opened.set_state("interrupted")
        with pytest.raises(rlc.Error, match="another process"):
            rlc.probe("recipe.rl", groups=2)


def test_what_is_damaged_is_no_evidence() -> None:
    folder = rlc.probe("recipe.rl", groups=2).folder
    (folder / "rollouts.jsonl").write_text('{"stage": "main_guess", "env": "guess"}\nx\n')
    assert "probe of" not in rlc.load("recipe.rl").explain().text()
    (folder / "plan.json").write_text("{")
    assert rlc.load("recipe.rl").explain().plan is not None


def priced(usd: float) -> Any:
    """The plan of a probe of a model that is paid for."""
    plan = probe_plan(compiled(RECIPE), 6)
    price = PricePlan(usd, usd, usd, usd, None, None, "the test")
    return evolve(
        plan,
        stages=tuple(
            evolve(one, model=evolve(one.model, service="tinker", price=price))
            for one in plan.stages
        ),
    )


@pytest.mark.parametrize("usd", [0.004, 0.008, 0.05])
def test_a_probe_never_spends_more_than_its_budget(tmp_path: Path, usd: float) -> None:
    service = connect_service(probe_plan(compiled(RECIPE)), tmp_path / "checkpoints")
    folder = RunFolder.create(tmp_path / "probe", priced(2.0))
    try:
        asyncio.run(FewEpisodes(folder, service, Observer(), usd).run())
        assert 0 < folder.journal.spent_usd() <= usd
        played = {one["task"] for one in folder.read("rollouts.jsonl")}
        assert len(played) == 6 or folder.journal.spent_usd() > usd / 4
    finally:
        folder.close()


def test_a_budget_without_room_for_one_group_is_an_error(tmp_path: Path) -> None:
    service = connect_service(probe_plan(compiled(RECIPE)), tmp_path / "checkpoints")
    folder = RunFolder.create(tmp_path / "probe", priced(10_000.0))
    try:
        with pytest.raises(RunError, match="not one group of guess"):
            asyncio.run(FewEpisodes(folder, service, Observer(), 0.01).run())
        assert folder.journal.spent_usd() <= 0.01
    finally:
        folder.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--groups", "0"], "--groups is at least 1"),
        (["--budget", "-3"], "no amount of dollars"),
        (["--budget", "nan"], "no amount of dollars"),
    ],
)
def test_arguments_that_mean_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["probe", "recipe.rl", *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    assert said in capsys.readouterr().err


def test_a_job_that_plays_nothing_is_not_probed(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        '{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 4, encoding="utf-8"
    )
    (tmp_path / "recipe.rl").write_text(
        'model policy { base = "tiny" lora_rank = 4 }\n'
        'preference main { model = policy  data = pairs("pairs.jsonl")  loss = dpo()  batch = 2\n'
        "  optimizer = adam(1e-4)  steps = 2 }\n",
        encoding="utf-8",
    )
    with pytest.raises(rlc.Error, match="nothing to probe: no stage plays"):
        rlc.probe("recipe.rl")


def test_a_price_that_is_unknown_cannot_be_kept_to(tmp_path: Path) -> None:
    text = RECIPE.replace(
        '"tiny"', '"org/New-8B" service = tinker renderer = qwen3 context = 4_096'
    )
    with pytest.raises(rlc.Error, match="budget of the probe cannot be kept"):
        run_probe(compiled(text))


READER = (
    'model policy { base = "tiny" lora_rank = 4 }\nmodel other { base = "tiny" lora_rank = 8 }\n'
)
GAME = (
    READER
    + f'env tug = python_game("{RECIPES}/tug_of_war.py:TugOfWar") |> rollouts(max_turns = 2)\n'
    + "  |> play(against = other)\n"
    + train(env="tug", batch="groups(3, group_size = 4)")
)


def test_what_another_model_takes_is_seen_too() -> None:
    Path("recipe.rl").write_text(GAME, encoding="utf-8")
    result = rlc.probe("recipe.rl", groups=3)
    seen = result.seen["main"]["tug"]
    assert seen.asked is not None
    assert seen.asked > 0
    (cost,) = result.costs
    (asked,) = (one for one in cost.asked["expected"] if one.kind == "opponent")
    assert asked.step.total == pytest.approx(3 * 4 * seen.asked)


def test_a_judge_that_is_not_trained_yet_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"prompt": "Say a word."}\n' * 8, encoding="utf-8")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "a", "reply": "b"}\n' * 8, encoding="utf-8")
    (tmp_path / "recipe.rl").write_text(
        READER + 'sft grader { model = other  data = rows("chats.jsonl")  batch = 2\n'
        "  optimizer = adam(1e-3)  steps = 2 }\n"
        'judge taste = rubric("How good is it?", model = grader, max_tokens = 24)\n'
        'env words = rows("words.jsonl") |> judged(taste)\n' + train(env="words"),
        encoding="utf-8",
    )
    with pytest.raises(rlc.Error, match="words asks grader, which is not trained yet"):
        rlc.probe("recipe.rl")


def record(task: int, member: int, turns: list[tuple[int, int]], **more: Any) -> dict[str, Any]:
    """An episode whose turns have prompts and replies of so many tokens."""
    made = [{"prompt_tokens": prompt, "tokens": reply} for prompt, reply in turns]
    base = {"step": 1, "task": task, "member": member, "role": "", "error": None, "reward": 0.0}
    return base | {"turns": made} | more


def test_means_and_their_error_by_hand() -> None:
    stage = compiled(RECIPE).stages[0]
    (env,) = stage.environments
    records = [
        record(0, 0, [(10, 2), (15, 2)]),  # goes on: one sequence of 17
        record(0, 1, [(10, 4)], reward=1.0),
        record(1, 0, [(10, 6)]),
        record(1, 1, [(10, 6)], error="it failed"),
    ]
    metrics = [{"tokens/prefill": 25, "tokens/cached": 20}]
    found = measure(records, metrics, env, stage.model, "a test")
    assert found is not None
    assert (found.groups, found.episodes) == (2, 3)
    assert found.prompts == pytest.approx((25 + 10 + 10) / 3)
    assert found.prompt == 10
    assert found.replies == pytest.approx((4 + 4 + 6) / 3)
    assert found.datums == pytest.approx((17 + 14 + 16) / 3)
    assert found.turns == pytest.approx(4 / 3)
    assert (found.sequences, found.signal, found.again) == (1, 0.5, 1 / 3)
    assert found.cached == pytest.approx(20 / 45)
    # groups of (29 + 14) / 2 = 21.5 and 16: a deviation of 3.889 around 18.75
    assert found.error == pytest.approx(3.889 / 2**0.5 / 18.75, rel=1e-3)


def test_a_step_costs_what_its_episodes_did() -> None:
    """Three groups of four, of which all are trained on: twelve times the means."""
    (stage,) = compiled(RECIPE).stages
    seen = MeasuredEpisodes("a test", 50, 200, 10, 40, 8, 25, 1, 2, 0.5, 0.0, 1.0)
    exact = evolve(
        seen,
        signal_drift=evolve(seen.signal_drift, low=1.0, expected=1.0, high=1.0),
        length_drift=evolve(seen.length_drift, low=1.0, expected=1.0, high=1.0),
    )
    (cost,) = stage_costs([stage], {"main": {"guess": exact}})
    usual = cost.step_tokens["expected"]
    assert usual.counts == pytest.approx((240, 240, 96, 300, 0))
    assert total_cost([cost], "high").usd == 0  # on this machine
    drifting = stage_costs([stage], {"main": {"guess": seen}})[0]
    assert drifting.step_tokens["low"].sample < 96 < drifting.step_tokens["high"].sample
    assert drifting.step_tokens["high"].train <= 12 * (10 + 1.45 * 15)
