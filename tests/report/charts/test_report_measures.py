"""What a page says first of a stage: what that is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from live_states import shipped

from rlc.catalog import model_price
from rlc.report.diagrams import _name_lines
from rlc.report.figures import stage_figures
from rlc.report.formatting import breakable
from rlc.report.measures import distinct, measures, spend
from rlc.report.run_files import TOKEN_KINDS, RunFiles, Spent

SEATS = {"env/tug/first/win": 0.4, "env/tug/second/win": 0.3}


def files(recipe: str, stage: str, **values: float) -> RunFiles:
    """A run with three steps of a stage, all with these metrics."""
    record: dict[str, Any] = {"stage": stage, "reward/mean": 0.0} | values
    steps = tuple(record | {"step": step} for step in (1, 2, 3))
    return RunFiles(Path("runs/x"), shipped(recipe), steps, (), (), ())


@pytest.mark.parametrize(
    ("recipe", "stage", "values", "measured", "first"),
    [
        ("self_play.rl", "main", {"reward/tug": 0.0} | SEATS, ["tug first win"], "Matches of tug"),
        (
            "yardstick/on_policy_distillation.rl",
            "main",
            {"reward/env": 0.0, "teacher/kl": 2.1},
            ["teacher kl"],
            "KL divergence from the teacher",
        ),
        ("quickstart.rl", "main", {"reward/guess": 0.0}, ["reward"], "Reward"),
        (
            "preferences.rl",
            "align",
            {"accuracy": 0.9, "margin": 0.3, "loss/mean": 0.6},
            ["accuracy", "margin", "loss"],
            "Accuracy",
        ),
    ],
)
def test_cards_and_charts_begin_with_what_a_stage_is_about(
    recipe: str, stage: str, values: dict[str, float], measured: list[str], first: str
) -> None:
    run = files(recipe, stage, **values)
    (mine,) = (one for one in run.plan.stages if one.name == stage)
    assert [one.name for one in distinct(measures(run, mine))] == measured
    assert stage_figures(run)[0].figures[0].title.startswith(first)


def test_more_wins_of_a_seat_are_not_better() -> None:
    """Both seats are the policy's: what one wins more, the other loses."""
    run = files("self_play.rl", "main", **SEATS)
    (win,) = measures(run, run.plan.stages[0])
    assert win.better(0.6, 0.4) is None
    assert win.best is None


def test_names_break_at_their_dots() -> None:
    assert breakable("runs/a_b.rl <") == "runs/<wbr>a_<wbr>b.<wbr>rl &lt;"
    assert _name_lines("main.optimizer.learning_rate") == ("main.optimizer.", "learning_rate")
    assert _name_lines("rate") == ("rate",)


def test_tokens_of_a_judge_are_not_priced_as_those_of_the_stage() -> None:
    run = files("judged.rl", "main")
    stage = run.plan.stages[0]
    price = model_price(stage.model)
    assert price is not None
    assert price.sample is not None
    million = dict.fromkeys(TOKEN_KINDS, 0) | {"sampled": 10**6}
    own, judge = (Spent(stage.name, 1, million, usd) for usd in (price.sample, 7.0))
    assert [one.usd for one in spend(evolve(run, spent=(own,))).kinds] == [price.sample]
    both = spend(evolve(run, spent=(own, judge)))
    assert ([one.usd for one in both.kinds], both.usd) == ([None], price.sample + 7)
