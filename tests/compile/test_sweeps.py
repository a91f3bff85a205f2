"""Sweeps as they are compiled: their trials, and what these cost together."""

from __future__ import annotations

import pytest
from attrs import evolve
from paths import RECIPES
from plan_recipes import recipe

from rlc.compile.recipe import CompileResult, compile_source
from rlc.compile.sweeps import SAMPLED, Sweep, TrialError
from rlc.explanation.sweeps import sweep_lines
from rlc.lang.render import Paint, render_human
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash
from rlc.plan.graph import build_graph
from rlc.plan.leaves import children_of
from rlc.plan.records import Plan
from rlc.plan.sweeps import Trial
from rlc.pricing.cost import UNPRICED, plan_cost, rung_share, total_cost

RATES = "sweep rates { of = main  over = { learning_rate = [1e-5, 4e-5, 1e-4] } %s }\n"


def compiled(text: str, *overrides: str, seed: int | None = None) -> CompileResult:
    made = compile_source(Source("recipe.rl", text), overrides, seed)
    assert made.plan is not None, render_human(made.diagnostics, color=False)
    return made


def sweep_of(text: str, *overrides: str, seed: int | None = None) -> Sweep:
    (sweep,) = compiled(text, *overrides, seed=seed).sweeps
    return sweep


def trials(sweep: Sweep) -> list[Trial]:
    """Every trial of a grid."""
    return [
        Trial(number, configuration, seed)
        for number, configuration in enumerate(sweep.configurations(), 1)
        for seed in sweep.seeds
    ]


def content(plan: Plan) -> str:
    return plan_hash(evolve(plan, data=()))


def test_a_trial_is_what_set_and_seed_say() -> None:
    text = recipe("quickstart") + RATES % "seeds = 2"
    sweep = sweep_of(text, "main.steps=7", seed=5)
    found = trials(sweep)
    assert [trial.seed for trial in found] == [5, 6] * 3
    assert len({trial.id for trial in found}) == 6
    for trial in found:
        alone = compiled(text, "main.steps=7", *trial.settings, seed=trial.seed).plan
        assert alone is not None
        assert content(sweep.plan_of(trial.configuration, trial.seed)) == content(alone)


def found_in(over: str) -> str:
    text = recipe("quickstart") + "advantage scheme = grpo()\n"
    text = text.replace("grpo()", "scheme", 1) + RATES.replace("learning_rate = ", over) % ""
    text = text.replace(f"{over}[1e-5, 4e-5, 1e-4]", over)
    return render_human(compile_source(Source("recipe.rl", text)).diagnostics, color=False)


def test_what_several_values_are_warned_of_is_said_once() -> None:
    said = found_in("learning_rate = [1e-9, 1e-8, 1e-4]")
    assert said.count("RL0403") == 1
    assert said.count("this value too") == 1


def test_advice_about_a_path_is_written_as_in_a_sweep() -> None:
    said = found_in("main.advantage.eps = [1e-5, 1e-6]")
    assert "RL0106" in said
    assert "set it where it is declared: `scheme.eps = […]`" in said


def test_a_trial_knows_where_its_values_come_from() -> None:
    sweep = sweep_of(recipe("quickstart") + RATES % "")
    plan = sweep.plan_of({"learning_rate": "4e-5"}, 1)
    line = recipe("quickstart").count("\n") + 1
    assert plan.provenance["stages.main.optimizer.learning_rate"] == f"recipe.rl:{line}"


def test_only_what_a_trial_needs_is_run() -> None:
    more = "eval start { model = policy  env = guess  sampling = sample(max_tokens = 8) }\n"
    more += "sweep steps { of = warmup  over = { n = [16, 32] } }\n"
    text = recipe("warm_start").replace("n = 256", "n = n") + "param n: int = 16\n" + more
    sweep = sweep_of(text)
    assert [s.name for s in sweep.plan_of({"n": "16"}, 1).stages] == ["warmup"]
    tried = sweep_of(text.replace("of = warmup", "of = main"))
    assert [s.name for s in tried.plan_of({"n": "16"}, 1).stages] == ["warmup", "main", "heldout"]


def test_an_id_is_of_the_values_and_the_seed_alone() -> None:
    one = Trial(1, {"a": "1", "b": "2"}, 3)
    assert one.id == Trial(2, {"b": "2", "a": "1"}, 3).id
    assert one.id not in {Trial(1, {"a": "1", "b": "3"}, 3).id, Trial(1, one.configuration, 4).id}


def test_a_value_that_is_not_tried_is_refused() -> None:
    sweep = sweep_of(recipe("quickstart") + RATES % "")
    with pytest.raises(TrialError, match="not tried with 3"):
        sweep.plan_of({"learning_rate": "3"}, 1)


def test_what_a_value_breaks_elsewhere_names_the_value() -> None:
    text = recipe("quickstart").replace("group_size = 8", "group_size = 2 * half")
    text += "param half: int = 4\nexpect main.steps < 100\n"
    text += "sweep s { of = main  over = { half = [1, 2]  main.steps = [50, 200] } }\n"
    diagnostics = compile_source(Source("recipe.rl", text)).diagnostics
    (found,) = (item for item in diagnostics if item.code == "RL0674")
    assert any(label.span.text == "200" for label in found.labels)


PRICED = """\
param rate: float = 1e-5
param size: int = 8
model policy { base = "Qwen/Qwen3-8B" }
env sums = gem("rg:simple_equations") |> template(qwen3_general)
sft warmup {
  model = policy  data = demonstrations(sums, n = 512, policy = model)  steps = 8
  optimizer = adam(1e-4)
}
train main {
  model = warmup  env = sums  batch = groups(16, group_size = size)  advantage = grpo()
  sampling = sample(max_tokens = 64)  loss = importance_sampling()
  optimizer = adam(rate)  steps = 40  players = here
}
eval heldout { model = main  env = sums  every = 10 }
"""


def test_the_price_is_that_of_all_trials_with_shared_stages_once() -> None:
    text = (
        PRICED + "sweep s { of = main  over = { rate = [1e-5, 2e-5]  size = [4, 8] }  seeds = 3 }\n"
    )
    sweep, whole, warmup = sweep_of(text), 0.0, 0.0
    for trial in trials(sweep):
        costs = plan_cost(sweep.plan_of(trial.configuration, trial.seed))
        whole += total_cost(costs, "expected").usd
        warmup = costs[0].total("expected").usd
    cost = sweep.cost
    assert cost.trials == 12
    assert cost.priced == 2  # rates cost nothing
    assert cost.shared.usd == pytest.approx(9 * warmup)  # one for each of three seeds
    assert cost.total["expected"].usd == pytest.approx(whole - 9 * warmup)


def test_what_is_priced_does_not_depend_on_what_is_left_out() -> None:
    """Stages are priced without these parts: a price that read one of them would fail."""
    plan = compiled(PRICED).plan
    assert plan is not None
    assert set(UNPRICED) <= {name for stage in plan.stages for name in children_of(stage) or {}}
    for level in ("low", "expected", "high"):
        assert sweep_of(PRICED + RATES.replace("learning_rate", "rate") % "").cost.total[level].usd


def test_a_halving_is_priced_by_its_rungs() -> None:
    # 9 of 9 run 4 steps, 3 the next 8, 1 the last 18
    assert rung_share(3, 4, 30) == pytest.approx(((9 * 4 + 3 * 8 + 1 * 18) / 9 / 30, 1 / 9))
    grid = sweep_of(PRICED + RATES.replace("learning_rate", "rate") % "").cost
    halved = RATES.replace("learning_rate", "rate") % "search = halving()"
    assert sweep_of(PRICED + halved).cost.total["expected"].usd < grid.total["expected"].usd


def test_trials_that_share_evaluations_are_compiled_as_if_alone() -> None:
    """What is evaluated once for many trials is what each would evaluate for itself."""
    text = recipe("warm_start").replace("adam(3e-4)", "adam(rate)") + "param rate: float = 3e-4\n"
    text += "advantage scheme = rloo()\nparam steps: int = 20\n"
    text = text.replace("advantage = rloo()\n  loss", "advantage = scheme\n  loss")
    text = text.replace("steps     = 20", "steps     = steps")
    text += "sweep s { of = main  over = { rate = [1e-5, 2e-5]  scheme = [rloo(), "
    text += "verl.grpo()]  steps = [5, 10]  main.sampling.temperature = [0.5, 0.7] } }\n"
    sweep = sweep_of(text)
    made = [content(sweep.plan_of(t.configuration, t.seed)) for t in trials(sweep)]
    alone = [compiled(text, *t.settings).plan for t in trials(sweep)]
    assert made == [content(plan) for plan in alone if plan is not None]
    assert len(set(made)) == 16


REUSED = """
optimizer slow(rate: float = 1e-4, warm: int = 0) = adam(rate, schedule = linear(warmup = warm))
model big = policy { lora_rank = rank }
param rank: int = 4
train longer = main { model = big  optimizer = slow()  steps = 60 }
eval after { model = longer  env = guess }
sweep s {
  of   = longer
  over = { slow.rate = [1e-5, 2e-5]  rank = [2, 8]  main.batch.group_size = [4, 6] }
}
"""


def test_what_is_reused_is_varied_where_it_is_declared() -> None:
    """Declarations with parameters and amended blocks depend on what they are made of."""
    text = recipe("quickstart") + REUSED
    sweep = sweep_of(text)
    made = [content(sweep.plan_of(t.configuration, t.seed)) for t in trials(sweep)]
    alone = list[str]()
    for trial in trials(sweep):
        plan = compiled(text, *trial.settings).plan
        assert plan is not None
        stages = tuple(stage for stage in plan.stages if stage.name in ("longer", "after"))
        alone.append(content(evolve(plan, stages=stages, graph=build_graph(stages))))
    assert made == alone
    assert len(set(made)) == 8


def test_what_a_search_may_draw_goes_together() -> None:
    text = recipe("quickstart").replace("group_size = 8", "group_size = size")
    text = (
        text.replace("grpo()", "scheme") + "param size: int = 8\nadvantage scheme = reinforce()\n"
    )
    over = "scheme = [reinforce(), grpo()]  size = [1, 8]"
    text += f"sweep s {{ of = main  over = {{ {over} }}  search = random(2) }}\n"
    found = compile_source(Source("recipe.rl", text)).diagnostics
    (message,) = (item.message for item in found if item.code == "RL0605")
    assert "scheme = grpo(), size = 1" in message


def test_of_very_many_configurations_some_are_put_together() -> None:
    numbers = list(map(str, range(2, 22)))
    paths = "main.steps", "main.batch.group_size", "main.sampling.max_tokens", "policy.lora_rank"
    axes = "  ".join(f"{path} = [{', '.join(numbers)}]" for path in paths[:3])
    text = f"sweep s {{ of = main  over = {{ {axes} {paths[3]} = [4, 8] }}  search = random(9) }}\n"
    sweep = sweep_of(recipe("quickstart") + text)
    listed = [tuple(configuration.values()) for configuration in sweep.configurations()]
    assert sweep.combinations == 16_000
    assert len(set(listed)) == len(listed) == SAMPLED
    assert {("2", "2", "2", "4"), ("21", "21", "21", "8")} <= set(listed)
    assert listed == [tuple(one.values()) for one in sweep.configurations()]
    lines = " ".join(line.strip() for line in sweep_lines(sweep, Paint(False)))
    assert f"by {SAMPLED} of the 16,000 configurations" in lines


@pytest.mark.parametrize("metric", ["", "metric = heldout.pass_at_1"])
@pytest.mark.parametrize("broken", ["metrics = [nope()]", "metrics = 3"])
def test_an_error_in_an_evaluation_is_all_that_is_said(broken: str, metric: str) -> None:
    heldout = f"eval heldout {{ model = main  env = guess  {broken} }}\n"
    found = compile_source(
        Source("recipe.rl", recipe("quickstart") + heldout + RATES % metric)
    ).diagnostics
    assert len(found) == 1
    assert found.has_errors


def test_a_kind_of_part_goes_with_a_field_of_it() -> None:
    over = (
        "main.optimizer = [adam(1e-4), adam(1e-4, beta1 = 0.8)]  main.optimizer.beta2 = [0.9, 0.95]"
    )
    sweep = sweep_of(recipe("quickstart") + f"sweep s {{ of = main  over = {{ {over} }} }}\n")
    assert sweep.size == 4


@pytest.mark.parametrize(("first", "halves"), [(49, True), (50, False)])
def test_a_halving_compares_before_the_last_step(first: int, halves: bool) -> None:
    heldout = "eval heldout { model = main  env = guess  tasks = 8  every = 7 }\n"
    search = RATES % f"search = halving(first = {first})"
    text = recipe("quickstart") + heldout + search  # which has 50 steps
    found = compile_source(Source("recipe.rl", text)).diagnostics
    assert ("RL0607" in [item.code for item in found]) is not halves


def test_without_rewards_trials_are_compared_by_their_distance_from_the_teacher() -> None:
    over = "sweep rates { of = main  over = { main.optimizer.learning_rate = [1e-4, 4e-4] } }\n"
    text = (RECIPES / "yardstick" / "on_policy_distillation.rl").read_text(encoding="utf-8")
    compiled = compile_source(Source("recipe.rl", text + over))
    (sweep,) = compiled.sweeps
    assert (sweep.plan.metric.name, sweep.plan.metric.more_is_better) == ("main.teacher.kl", False)
    advice = next(found.help for found in compiled.diagnostics if found.code == "RL0606")
    assert "gives `main.heldout.loss`" in (advice or "")


def test_rewards_of_tasks_that_are_trained_on_want_an_evaluation() -> None:
    text = recipe("quickstart") + RATES % "metric = main.reward"
    found = compile_source(Source("recipe.rl", text)).diagnostics
    assert "add `eval held_out" in next(one.help or "" for one in found if one.code == "RL0606")
