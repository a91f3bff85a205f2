"""The entries of metrics.jsonl: each is explained, and found by its name."""

from __future__ import annotations

import re

import pytest
from live_states import shipped
from paths import ROOT
from run_support import TINY, compiled, tiny, train

from rlc.catalog.metrics import ENTRIES, find_metric, metric_name, metrics_of, watched
from rlc.runtime.journal.metrics import watched_so_far

EVAL = """
eval heldout { model = main  env = %s  samples = 2  metrics = [pass_at(2), mean_reward()] }
"""
# Holes that the page calls after what stands in them.
SAME = {"cause": "part", "node": "part", "what": "part", "mixed": "env", "taught": "env"}
SAME |= {"solved": "metric", "reward": "metric"}


def test_the_page_explains_each_entry_of_the_catalogue() -> None:
    def plain(key: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda hole: f"{{{SAME.get(hole[1], hole[1])}}}", key)

    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    cells = " ".join(re.findall(r"^\| (`.*?) \|", page, re.MULTILINE))
    explained = {plain(key) for key in re.findall("`([^`]+)`", cells)}
    assert {plain(key) for entry in ENTRIES for key in entry.keys} == explained


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("reward", "reward/mean"),
        ("reward.spell", "reward/spell"),
        ("kl.sample_train_k2", "kl/sample_train_k2"),
        ("time", "time/total"),
        ("time.optim_step", "time/optim_step"),
        ("env.spell.correct", "env/spell/correct"),
    ],
)
def test_an_entry_of_a_stage_is_found_by_its_name(name: str, key: str) -> None:
    (stage,) = tiny(train(env="spell")).stages
    found = find_metric(stage, name)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    ("token", "bounds"), [("-min(ratio, 2) * adv", True), ("-ratio * min(adv, 1)", False)]
)
def test_an_own_loss_is_clipped_where_it_bounds_the_ratio(token: str, bounds: bool) -> None:
    own = f"loss own {{ token = {token} }}\n"
    (stage,) = compiled(TINY + own + train(loss="own")).stages
    assert (find_metric(stage, "policy.clip_fraction") is not None) == bounds


@pytest.mark.parametrize(
    "name", ["reward.guess", "kl.reference", "policy.clip_fraction", "judge_acc", "time.sum", "kl"]
)
def test_what_a_stage_does_not_have_is_not_found(name: str) -> None:
    (stage,) = tiny(train(env="spell")).stages
    assert find_metric(stage, name) is None


def test_an_evaluation_has_the_metrics_that_it_lists() -> None:
    alone, mixed = (tiny(train(), EVAL % env).stages[1] for env in ("guess", "guess + spell"))
    assert {"pass_at_2", "mean_reward", "cut_off", "env.guess.*"} <= metrics_of(alone).keys()
    assert metrics_of(alone)["pass_at_2"].key == "eval/heldout/pass@2"
    assert "guess.pass_at_2" not in metrics_of(alone)
    assert metrics_of(mixed)["spell.pass_at_2"].key == "eval/heldout/spell/pass@2"
    assert (metrics_of(mixed)["spell.pass_at_2"].high, metrics_of(mixed)["mean_reward"].high) == (
        1,
        float("inf"),
    )


ABOUT = {
    "quickstart.main": "reward (guess)",
    "mixture.main": "reward (guess, spell)",
    "self_play.main": "tug first win, reward (tug)",
    "distillation.student": "reward (spell), teacher kl",
    "yardstick/on_policy_distillation.main": "teacher kl",  # nothing rewards its replies
    "yardstick/on_policy_distillation.reasoning": "loss",
    "preferences.align": "accuracy, margin, loss",
    "online_dpo.first": "accuracy, margin, loss",
    "soft_targets.student": "loss, teacher kl",
    "yardstick/chat_sl.main": "loss",
}


@pytest.mark.parametrize("name", ABOUT)
def test_a_stage_is_about_what_it_learns_from(name: str) -> None:
    recipe, _, stage = name.rpartition(".")
    plans = {one.name: one for one in shipped(f"{recipe}.rl").stages}
    found = watched(plans[stage])
    parts = [f" ({', '.join(p.of for p in one.parts)})" if one.parts else "" for one in found]
    texts = [f"{one.label}{more}" for one, more in zip(found, parts, strict=True)]
    assert ", ".join(texts) == ABOUT[name]
    known = metrics_of(plans[stage])
    assert all(find_metric(plans[stage], metric_name(one.key)) is not None for one in found), known


def test_what_is_always_0_is_not_what_a_stage_is_about() -> None:
    """Rewards of both sides of a match add up to 0, but not where they play together."""
    stage = shipped("self_play.rl").stages[0]
    win, reward = watched(stage)
    for record, main in (({win.key: 0.4, reward.key: 0.0}, win), ({reward.key: 0.7}, reward)):
        assert watched_so_far(stage, [record, record]) == [main]
    assert watched_so_far(stage, []) == [win]
