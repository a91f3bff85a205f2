"""What a training stage's fields do to a run: each is seen in what the run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import assert_resumes, metrics, rollouts, run, run_new, tiny, train, undisturbed

from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain

TWO = 'env few = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(group_size = 2)\n'


def test_the_learning_rate_follows_its_schedule(tmp_path: Path) -> None:
    optimizer = "adam(1e-3, schedule = linear(warmup = 2, floor = 0.5))"
    run_new(tmp_path / "run", tiny(train(optimizer=optimizer)))
    rates = [record["optim/lr"] for record in metrics(tmp_path / "run")]
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3 * 5 / 6, 1e-3 * 4 / 6])


def test_each_environment_has_its_own_group_size_and_reply_length(tmp_path: Path) -> None:
    short = (
        'env brief = gem("rg:spell_backward") |> chat() |> rollouts(group_size = 3, max_tokens = 2)'
    )
    job = tiny(
        short + "\n", train(env="guess + brief", batch="groups(4, group_size = 4)", steps="1")
    )
    run_new(tmp_path / "run", job)
    played = rollouts(tmp_path / "run")
    sizes = {
        env: {sum(r["env"] == env and r["task"] == task for r in played) for task in (0, 1)}
        for env in ("guess", "brief")
    }
    assert sizes == {"guess": {4}, "brief": {3}}
    lengths = {
        env: max(t["tokens"] for r in played if r["env"] == env for t in r["turns"])
        for env in ("guess", "brief")
    }
    assert lengths["brief"] <= 2 < lengths["guess"]


def test_a_cold_environment_beside_a_warm_one(tmp_path: Path) -> None:
    """At a temperature next to zero all members of a group say the same."""
    cold = 'env cold = gem("rg:spell_backward") |> chat() |> rollouts(temperature = 0.0001)\n'
    run_new(tmp_path / "run", tiny(cold, train(env="cold + spell", steps="1")))
    said: dict[tuple[str, int], set[str]] = {}
    for record in rollouts(tmp_path / "run"):
        key = record["env"], record["task"]
        said.setdefault(key, set()).add(record["turns"][0]["action"])
    assert all(len(actions) == 1 for (env, _), actions in said.items() if env == "cold")
    assert any(len(actions) > 1 for (env, _), actions in said.items() if env == "spell")


def test_the_reward_is_reduced_and_limited(tmp_path: Path) -> None:
    capped = TWO.replace("few", "capped") + ""
    capped = capped.replace("rollouts(group_size = 2)", "reward(max, low = 0.25, high = 0.5)")
    run_new(tmp_path / "run", tiny(capped, train(env="capped", steps="1")))
    for record in rollouts(tmp_path / "run"):
        best = max(turn["reward"] for turn in record["turns"])
        assert record["reward"] == min(max(best, 0.25), 0.5)
    assert 0.25 <= metrics(tmp_path / "run")[0]["reward/mean"] <= 0.5


@pytest.mark.engine
def test_an_episode_that_is_cut_short_gets_the_nonterminal_reward(tmp_path: Path) -> None:
    long = 'env long = gem("game:GuessTheNumber-v0-hard") |> chat() |> reward(nonterminal = -3.0)\n'
    sampling = "sample(max_tokens = 12, max_episode_tokens = 150)"
    run_new(tmp_path / "run", tiny(long, train(env="long", sampling=sampling, steps="1")))
    played = rollouts(tmp_path / "run")
    short = [record for record in played if record["ended"] == "tokens"]
    assert short
    for record in short:
        assert record["reward"] == sum(turn["reward"] for turn in record["turns"]) - 3
        last = record["turns"][-1]
        assert last["prompt_tokens"] + last["tokens"] <= 150
    assert metrics(tmp_path / "run")[0]["rollouts/cut_short"] == len(short)


def test_a_prompt_over_its_limit_ends_the_episode(tmp_path: Path) -> None:
    sampling = "sample(max_tokens = 12, max_prompt_tokens = 120)"
    env = 'env long = gem("game:GuessTheNumber-v0-hard") |> chat()\n'
    run_new(tmp_path / "run", tiny(env, train(env="long", sampling=sampling, steps="1")))
    played = rollouts(tmp_path / "run")
    assert {"prompt"} & {record["ended"] for record in played}
    assert all(turn["prompt_tokens"] <= 120 for record in played for turn in record["turns"])


@pytest.mark.engine
def test_several_updates_a_batch_train_on_every_rollout_once(tmp_path: Path) -> None:
    batch = "groups(3, group_size = 4, updates = 2)"
    run_new(tmp_path / "two", tiny(train(batch=batch, loss="ppo()", steps="2")))
    one, two = metrics(undisturbed(tiny(train(loss="ppo()")))), metrics(tmp_path / "two")
    assert one[0]["tokens/trained"] == two[0]["tokens/trained"]
    assert one[0]["reward/mean"] == two[0]["reward/mean"]
    assert one[1]["reward/mean"] != two[1]["reward/mean"]  # other weights after the first step
    assert abs(one[0]["kl/sample_train"]) < 1e-4
    assert two[0]["kl/sample_train_k2"] > one[0]["kl/sample_train_k2"]  # the second is off-policy
    assert two[0]["policy/ess"] < one[0]["policy/ess"]
    assert one[0]["policy/clip_fraction"] == 0 <= two[0]["policy/clip_fraction"] < 1


def test_a_uniform_weight_hardly_matters_to_adam_but_shows_in_the_gradient(tmp_path: Path) -> None:
    run_new(tmp_path / "mean", tiny(train(aggregate="token_mean()", steps="1")))
    total, mean = metrics(undisturbed(tiny(train())))[0], metrics(tmp_path / "mean")[0]
    assert mean["optim/grad_norm"] < total["optim/grad_norm"] / 50


def test_dro_scales_its_pull_with_its_advantages(tmp_path: Path) -> None:
    """The gradient of the whole loss is scaled: it has no term of its own scale left."""
    for kind in ("token_sum()", "seq_mean_token_sum()"):
        batch = "groups(4, group_size = 4, updates = 2)"
        stage = train(loss="dro(beta = 0.5)", batch=batch, aggregate=kind, steps="1")
        run_new(tmp_path / kind, tiny(stage))
    whole, mean = (metrics(tmp_path / kind)[0] for kind in ("token_sum()", "seq_mean_token_sum()"))
    assert mean["optim/grad_norm"] == pytest.approx(whole["optim/grad_norm"] / 8, rel=0.01)


def test_dro_learns_nothing_where_nothing_is_to_learn(tmp_path: Path) -> None:
    """All rewards are equal, so only the pull is left; it has no gradient on the prompts."""
    equal = 'env same = gem("rg:spell_backward") |> chat() |> reward(low = 1, high = 1)\n'
    run_new(tmp_path / "run", tiny(equal, train(env="same", loss="dro(beta = 0.5)", steps="2")))
    for record in metrics(tmp_path / "run"):
        assert record["optim/datums"] > 0
        assert record["optim/grad_norm"] < 1e-3
        assert record["tokens/prefill"] > record["tokens/trained"]  # the forward pass counts


@pytest.mark.parametrize(
    ("budget", "steps"), [("limit(tokens = 2_500)", range(1, 4)), ("limit(time = 0.001s)", [1])]
)
def test_a_stage_stops_at_its_budget_with_a_checkpoint(
    tmp_path: Path, budget: str, steps: list[int]
) -> None:
    job = tiny(train(budget=budget, save="every(50)", steps="50"))
    summary = run_new(tmp_path / "run", job)
    done = len(summary.stages[0].values)
    assert summary.state == "budget"
    assert done in steps
    assert str(summary.stages[0].checkpoint).endswith(f"main-{done:06d}")
    again = run(RunFolder.resume(tmp_path / "run"))
    assert (again.state, len(again.stages[0].values)) == ("budget", done)


def test_a_token_budget_is_never_exceeded_by_more_than_steps_differ(tmp_path: Path) -> None:
    run_new(tmp_path / "run", tiny(train(budget="limit(tokens = 9_000)", steps="50")))
    used = [
        sum(record[f"tokens/{kind}"] for kind in ("prefill", "cached", "sampled", "trained"))
        for record in metrics(tmp_path / "run")
    ]
    assert sum(used) <= 9_000 + max(used) - used[-1]
    assert sum(used) + used[-1] > 9_000


def test_evaluations_share_the_budget_of_their_stage(tmp_path: Path) -> None:
    heldout = "eval heldout { model = main  env = guess  tasks = 8  samples = 4  every = 2 }"
    stage = train(env="guess", budget="limit(tokens = 9_000)", steps="50")
    run_new(tmp_path / "alone", tiny(stage))
    summary = run_new(tmp_path / "both", tiny(stage, heldout))
    alone, both = metrics(tmp_path / "alone"), metrics(tmp_path / "both")
    kinds = ("prefill", "cached", "sampled", "trained")
    used = [sum(record[f"tokens/{kind}"] for kind in kinds) for record in both]
    assert summary.state == "budget"
    assert {record["stage"] for record in both} == {"main", "heldout"}
    assert len([record for record in both if record["stage"] == "main"]) < len(alone)
    assert sum(used) <= 9_000 + max(used) - min(used)


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    run_new(
        tmp_path / "run",
        tiny(train(env="spell", save="every(1, keep = 1, best = true)", steps="6")),
    )
    rewards = {record["step"]: record["reward/mean"] for record in metrics(tmp_path / "run")}
    folder = RunFolder.resume(tmp_path / "run")
    kept = list(folder.journal.checkpoints("main"))
    folder.close()
    best_seen = [max(range(1, s + 1), key=lambda step: rewards[step]) for s in (6,)]
    assert kept == sorted({*best_seen, 6})


def test_tracked_episodes_have_their_own_metrics(tmp_path: Path) -> None:
    text = (
        'env seen = gem("game:GuessTheNumber-v0-easy") |> track() |> chat() |> reward(low = 0.9)\n'
    )
    run_new(tmp_path / "run", tiny(text, train(env="seen", steps="1")))
    (record,) = metrics(tmp_path / "run")
    played = rollouts(tmp_path / "run")
    returns = [sum(turn["reward"] for turn in rollout["turns"]) for rollout in played]
    assert record["episodes/seen/return"] == pytest.approx(sum(returns) / len(returns))
    assert record["episodes/seen/return_min"] == min(returns)
    assert record["reward/seen"] > record["episodes/seen/return"]


def test_a_run_with_everything_is_resumed_to_the_same_end(tmp_path: Path) -> None:
    stage = train(
        env="2 * guess + spell",
        batch="groups(3, group_size = 3, updates = 2)",
        loss="ppo()",
        aggregate="seq_mean_token_mean()",
        kl='reference("tiny", coef = 0.05)',
        optimizer="adam(1e-3, schedule = cosine(warmup = 1))",
        steps="4",
    )
    job = tiny(stage)
    assert_resumes(job, ("main", 3), tmp_path / "parts")
