"""What other objectives would have made of the same episodes, and what cannot be asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_support import TINY, block, metrics, run, run_new, train

import rlc
from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain

SMALL = {"env": "guess", "batch": "groups(4, group_size = 4)", "steps": "3"}
SMALL |= {"optimizer": "adam(3e-3)", "save": "every(1, keep = 9)"}
AVERAGES = "advantage mine() { total = sum(reward)  episode = total - running(total, 0.8) }\n"
OTHER = {
    "advantage": "rloo()",
    "loss": "ppo()",
    "aggregate": "token_mean()",
    "kl": "reference(policy.base, coef = 0.2)",
}


def run_of(folder: Path, **fields: str) -> Path:
    """Write a recipe, and run it."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.rl").write_text(TINY + AVERAGES + train(**SMALL | fields))
    run_new(folder / "run", rlc.load(folder / "recipe.rl").plan())
    return folder / "run"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("one"), kl="reference(policy.base, coef = 0.001)")


def test_it_is_what_a_run_with_it_computes(path: Path, tmp_path: Path) -> None:
    """The episodes of the first step are the same whatever is made of them."""
    other = rlc.replay(run_of(tmp_path / "other", **OTHER), 1)
    asked = rlc.replay(path, 1, set={f"main.{name}": text for name, text in OTHER.items()})
    assert asked.after is not None
    assert [one.advantage[1] for one in asked.episodes] == pytest.approx(
        [one.advantage[0] for one in other.episodes], abs=1e-12
    )
    assert asked.after.loss == pytest.approx(other.before.loss, rel=1e-9)
    assert asked.after.components == pytest.approx(other.before.components, rel=1e-9)
    assert asked.after.formula == other.before.formula
    assert [one.weight[1] for one in asked.episodes] == [one.weight[0] for one in other.episodes]


def test_moving_averages_are_those_of_the_steps_before(path: Path) -> None:
    asked = rlc.replay(path, 3, set={"main.advantage": "mine()", "main.kl": None})
    returns = dict[int, list[float]]()
    for step in (1, 2, 3):
        returns[step] = [one.reward for one in rlc.replay(path, step).episodes]
    average = 0.0
    for step in (1, 2):
        kept = 0.8 ** len(returns[step])
        average = kept * average + (1 - kept) * float(np.mean(returns[step]))
    assert [one.advantage[1] for one in asked.episodes] == pytest.approx(
        [reward - average for reward in returns[3]]
    )


def test_what_an_aggregation_gives_to_groups(path: Path) -> None:
    found = rlc.replay(path, 1, set=["main.aggregate=prompt_mean()"])
    weights = [one.weight for one in found.groups if any(one.weight)]
    assert len({round(asked, 12) for _, asked in weights}) == 1  # each task alike
    assert len({was for was, _ in weights}) > 1  # by their tokens
    updates = rlc.replay(path, 1, set=["main.batch.updates=2"])
    assert updates.after is not None
    assert updates.after.outcome.batch is not None
    assert len(updates.after.outcome.batch.minibatches) == 2


def test_who_changes_sides(path: Path) -> None:
    asked = rlc.replay(path, 2, set=["main.advantage=grpo() |> clip(0, none)", "main.kl=none"])
    below = [one for one in asked.episodes if one.advantage[0] < 0]
    assert below
    assert all(one.changes_sign and one.advantage[1] == 0 for one in below)
    assert asked.cosine is not None
    assert 0 < asked.cosine < 1
    assert f"{len(asked.changing)} of {len(asked.episodes)} episodes change sides" in str(asked)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("main.sampling.temperature=0.5", "main.sampling.temperature` cannot be replayed: the ep"),
        ("main.env=spell", "are those that the run has played"),
        ("main.kl=reference(policy, coef = 1)", "its logprobs were not computed in the run"),
        ("main.teacher=reverse_kl(policy)", "its logprobs were not computed in the run"),
        ("main.optimizer=adam(1)", "decides the step, which only `--gradient` takes"),
        ("policy.lora_rank=8", "by the model that it is"),
        ("main.advantage=grp()", "there is no `grp\\(\\)` that makes"),
        ("main.advantage=grpo()", "changes nothing: the recipe says so already"),
        ("main.steps=9", "the schedules of a run depend on it"),
    ],
)
def test_what_cannot_be_replayed_is_refused_by_name(path: Path, setting: str, why: str) -> None:
    with pytest.raises(rlc.Error, match=why):
        rlc.replay(path, 1, set=[setting])


def test_a_part_that_the_run_had_otherwise_is_set_as_a_whole(tmp_path: Path) -> None:
    path = run_of(tmp_path, advantage="rebn(gamma = 0.5)")
    text = (tmp_path / "recipe.rl").read_text()
    (tmp_path / "recipe.rl").write_text(text.replace("gamma = 0.5", "gamma = 0.9"))
    with pytest.raises(rlc.Error, match="`advantage` of the run is not that of its recipe"):
        rlc.replay(path, 1, set=["main.advantage.gamma=0.7"])
    assert rlc.replay(path, 1, set=["main.advantage=rebn(gamma = 0.7)"]).after
    (tmp_path / "recipe.rl").unlink()
    with pytest.raises(rlc.Error, match="is not there any more"):
        rlc.replay(path, 1, set=["main.advantage=rloo()"])
    assert rlc.replay(path, 1).agrees


def test_the_first_step_at_which_something_holds(path: Path) -> None:
    rewards = [r["reward/mean"] for r in metrics(path, "main")]
    most = max(rewards)
    found = rlc.replay(path, bisect=f"reward >= {most} and main.optim.grad_norm > 0")
    assert found.step == rewards.index(most) + 1
    for text, why in {
        "kl > 100": "holds at none of the 3 steps",
        "rewards > 1": "has no metric `rewards`",
        "kl is high": "is no comparison",
    }.items():
        with pytest.raises(rlc.Error, match=why):
            rlc.replay(path, bisect=text)


def test_other_folders_and_steps_are_said_so(path: Path, tmp_path: Path) -> None:
    for where, step, why in (
        (tmp_path, None, "is not a run folder"),
        (path, 9, "has no step 9 of `main`"),
    ):
        with pytest.raises(rlc.Error, match=why):
            rlc.replay(where, step)
    with pytest.raises(rlc.Error, match="has no `other` to replay"):
        rlc.replay(path, stage="other")
    fields = {"model": "policy", "data": "demonstrations(guess, n = 8)", "batch": "4"}
    fields |= {"steps": "1", "optimizer": "adam(1e-3)"}
    (tmp_path / "sft.rl").write_text(TINY + block("sft", "main", fields))
    run_new(tmp_path / "sft", rlc.load(tmp_path / "sft.rl").plan())
    with pytest.raises(rlc.Error, match="has no stage that learns from rollouts"):
        rlc.replay(tmp_path / "sft")


def test_a_few_kept_tokens_are_enough_for_the_advantages(tmp_path: Path) -> None:
    (tmp_path / "recipe.rl").write_text(TINY + train(**SMALL | {"steps": "1"}))
    folder = RunFolder.create(tmp_path / "run", rlc.load(tmp_path / "recipe.rl").plan())
    folder.keep_tokens(8)
    run(folder)
    found = rlc.replay(tmp_path / "run", set=["main.advantage=rloo()"])
    assert found.agrees
    assert found.before.loss is None
    assert found.after is not None
    assert found.after.episodes[1] == 16
    assert "8 of 16 episodes" in found.notes[0]
    text = TINY + "advantage mine() { token = sum(reward) - logq }\n"
    (tmp_path / "recipe.rl").write_text(text + train(**SMALL | {"steps": "1"}))
    with pytest.raises(rlc.Error, match="`mine` reads `logq` of each token"):
        rlc.replay(tmp_path / "run", set=["main.advantage=mine()"])


@pytest.mark.engine
@pytest.mark.slow
def test_the_gradient_is_that_of_the_run(tmp_path: Path) -> None:
    path = run_of(tmp_path, steps="2")
    for step, record in enumerate(metrics(path, "main"), start=1):
        found = rlc.replay(path, step, set=["main.loss=ppo()"], gradient=True)
        assert found.gradient is not None
        one, other = found.gradient.steps
        assert one.norm == pytest.approx(record["optim/grad_norm"], rel=1e-6)
        assert one.before == pytest.approx(found.before.loss, rel=1e-5)
        assert one.after is not None
        assert one.before is not None
        assert one.after < one.before
        assert found.gradient.cosine == pytest.approx(1)  # nothing is clipped yet
        assert other.norm == pytest.approx(one.norm)
        assert {name.rsplit(".")[-1] for name in one.gradient} == {"lora_A", "lora_B"}
