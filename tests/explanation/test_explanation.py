"""What ``rlc explain`` says of the recipes of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from golden import check_golden
from plan_recipes import EVERYTHING, RECIPE_TEXTS, planned, recipe, stages_of
from stage_parts import changed, flat

from rlc.compile.recipe import compile_source
from rlc.compile.variants import rehearse
from rlc.explanation import explain_dict, explain_text, summary_text
from rlc.explanation.stages import loss_scale
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_hash
from rlc.plan.stages import Training

EXPECTED = Path(__file__).with_name("expected")
KEYS = ["schema_version", "plan_hash", "recipe", "stages", "graph", "cost", "diagnostics"]


@pytest.mark.parametrize("name", [*RECIPE_TEXTS, "everything"])
def test_a_plan_is_explained_like_this(name: str) -> None:
    text = RECIPE_TEXTS.get(name, EVERYTHING)
    compiled = compile_source(Source(f"{name}.rl", text))
    assert compiled.plan is not None
    explained = explain_text(compiled.plan, compiled.diagnostics, sweeps=compiled.sweeps)
    check_golden(EXPECTED / f"{name}.txt", explained)
    alone = explain_text(compiled.plan, Diagnostics())
    assert max(len(line) for line in alone.splitlines()) <= 100


@pytest.mark.parametrize("name", [*RECIPE_TEXTS, "everything"])
def test_a_plan_is_summed_up_like_this(name: str) -> None:
    compiled = compile_source(Source(f"{name}.rl", RECIPE_TEXTS.get(name, EVERYTHING)))
    assert compiled.plan is not None
    given = compiled.plan, compiled.diagnostics
    check_golden(
        EXPECTED / "summaries" / f"{name}.txt", summary_text(*given, sweeps=compiled.sweeps)
    )


BUDGETS = {
    "limit(usd = $2_000)": "$2,000.00 for main: enough even for the high estimate",
    "$200": "$200.00 for main: the high estimate, $1,435.12, is more: the run stops there",
    "$50": "$50.00 for main: the expected estimate, $67.23, is more: the run stops there",
    "limit(tokens = 200_000_000)": "200,000,000 tokens for main: the high estimate, ",
    "limit(time = 12h)": "12h for main\n",
}


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_summary_compares_the_budget_with_the_estimates(budget: str) -> None:
    plan = planned(recipe("sudoku"), f"main.budget={budget}")
    assert f"  budget  {BUDGETS[budget]}" in summary_text(plan, Diagnostics())


def test_the_summary_counts_the_evaluations_of_a_stage_and_says_where_there_is_no_budget() -> None:
    text = recipe("sudoku").replace("budget    = $200", "")
    assert "budget  none: " in summary_text(planned(text), Diagnostics())
    held_out = "eval held { model = main  env = sudoku  samples = 200  tasks = 500  every = 1 }"
    text = summary_text(planned(recipe("sudoku") + held_out), Diagnostics())
    assert "$200.00 for main: the low estimate, " in text


def test_the_summary_names_models_that_are_asked_within_an_environment() -> None:
    text = recipe("self_play").replace("play(against = self)", "play(against = rival, seat = any)")
    text += 'model rival { base = "tiny" lora_rank = 4 }\n'
    assert "TugOfWar, with rival)" in summary_text(planned(text), Diagnostics())


def test_the_summary_says_which_loss_an_own_one_is() -> None:
    text = recipe("quickstart").replace("importance_sampling()", "mine")
    text += "loss mine { token = -ratio * adv }\n"
    line = len(text.splitlines())
    said = summary_text(planned(text), Diagnostics())
    assert f"loss of main is importance_sampling: `mine`, test.rl:{line} has its formula" in said


def test_the_summary_counts_findings_that_it_does_not_list() -> None:
    compiled = compile_source(Source("r.rl", recipe("sudoku").replace("$200", "$50")))
    assert compiled.plan is not None
    many = Diagnostics(compiled.diagnostics * 7)
    assert "and 2 more findings, which `rlc check` lists" in summary_text(compiled.plan, many)


def test_sweeps_are_data_too() -> None:
    compiled = compile_source(Source("r.rl", RECIPE_TEXTS["learning_rates"]))
    found = explain_dict(compiled.plan, "r.rl", Diagnostics(), sweeps=compiled.sweeps)
    (sweep,) = json.loads(json.dumps(found))["sweeps"]
    assert (sweep["configurations"], sweep["trials"], sweep["seeds"]) == (6, 12, 2)
    assert sweep["axes"][1]["values"] == ["grpo()", "rloo()"]
    assert sweep["cost"]["free"]
    assert "sweeps" not in explain_dict(compiled.plan, "r.rl", Diagnostics())


def test_a_rehearsal_is_explained_too() -> None:
    text = explain_text(rehearse(planned(RECIPE_TEXTS["sudoku"])), Diagnostics())
    assert "3 steps on local" in text
    assert "--rehearse" in text
    assert "free: it runs on this machine" in text


def test_colour_only_adds_escapes() -> None:
    plan = planned(EVERYTHING)
    colored = explain_text(plan, Diagnostics(), color=True)
    for escape in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        colored = colored.replace(escape, "")
    assert colored.split() == explain_text(plan, Diagnostics()).split()


def test_a_loss_whose_definition_is_not_published_says_so() -> None:
    plan = planned(EVERYTHING, "second.loss=stable_reinforce(kl_coeff = 0.2)")
    said = section(explain_text(plan, Diagnostics()), "loss: stable_reinforce")
    assert said.splitlines() == [
        "drift_t = log p_t − log q_t",
        "L = − Σ_t (log p_t A_t − (kl_coeff / 2) drift_t²)",
        "∂L/∂log p_t = kl_coeff drift_t − A_t",
        "REINFORCE kept close to the sampler, for rollouts of older weights (alpha on Tinker)",
        "Tinker computes a definition of its own, which is not published:",
        "this is the one of the embedded engine and of `rlc serve`",
        "kl_coeff = 0.2",
    ]
    plan = planned(EVERYTHING, "second.loss=stable_reinforce()")
    *_, last = section(explain_text(plan, Diagnostics()), "loss: stable_reinforce").splitlines()
    assert last == "kl_coeff: the service's own; 0.01 on these two"


def test_json_has_exactly_its_keys_and_the_whole_plan() -> None:
    plan = planned(EVERYTHING)
    data = json.loads(json.dumps(explain_dict(plan, "test.rl", Diagnostics())))
    assert list(data) == KEYS
    assert data["plan_hash"] == plan_hash(plan)
    assert set(data["graph"]) == {"nodes", "edges"}
    for stage, record in zip(plan.stages, data["stages"], strict=True):
        assert record["name"] == stage.name
        assert record["provenance"]["name"] == plan.provenance[f"stages.{stage.name}.name"]
    assert data["stages"][0]["formulas"]["advantage"][0].startswith("togo_t")
    added = {"seed", "formulas", "datums", "loss_scale", "writes", "needs", "provenance"}
    stages = [{k: v for k, v in s.items() if k not in added} for s in data["stages"]]
    again = {"recipe": plan.recipe, "seed": plan.seed, "schema_version": 3, "provenance": {}}
    assert plan_from_dict(again | {"stages": stages, "graph": data["graph"]}) == plan


def test_json_has_the_cost_by_kind_and_level() -> None:
    cost = explain_dict(planned(EVERYTHING), "test.rl", Diagnostics())["cost"]
    assert set(cost["total"]) == {"low", "expected", "high"}
    assert list(cost["bill"]["high"]) == cost["kinds"]
    total = cost["total"]
    assert total["expected"] == pytest.approx(sum(cost["bill"]["expected"].values()))
    assert [stage["kind"] for stage in cost["stages"]] == ["train", "train", "sft", "train", "eval"]


def test_an_unknown_price_is_null_and_prints_as_unknown() -> None:
    plan = planned(EVERYTHING, 'policy.base="openai/gpt-oss-120b:peft:131072"')
    cost = explain_dict(plan, "test.rl", Diagnostics())["cost"]
    assert cost["total"]["expected"] is None
    assert cost["at_least"]["expected"] > 0
    text = explain_text(plan, Diagnostics())
    assert "≥ " in text
    assert "unknown" in text
    assert "a lower bound" in text


def section(text: str, title: str) -> str:
    """The lines of the last section of that title."""
    lines = text.splitlines()
    start = len(lines) - 1 - lines[::-1].index(f"  {title}")
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].strip()), len(lines))
    return "\n".join(line.strip() for line in lines[start + 1 : end])


def test_what_a_job_needs_and_writes_is_told() -> None:
    text = explain_text(planned(EVERYTHING), Diagnostics())
    needs, writes = section(text, "needs"), section(text, "writes")
    for name in ("TINKER_API_KEY", "OPENREWARD_API_KEY", "WANDB_API_KEY", "OPENAI_API_KEY"):
        assert name in needs
    for package in ("gem-llm", "openreward", "wandb", "tensorboardX"):
        assert f"the package {package}" in needs
    assert "third: checkpoints on the service every 5 steps and at the end" in writes
    assert "the newest 2 kept, and the best" in writes.replace("\n", " ")
    assert "tensorboard/third" in writes


def test_every_value_is_shown_with_its_origin() -> None:
    """What is not implied by a builtin's name stands in the text, with where it came from."""
    from rlc.explanation.values import value_rows

    plan = planned(EVERYTHING, "third.steps=9")
    text = explain_text(plan, Diagnostics())
    flat = " ".join(text.split())
    assert "steps 9 --set third.steps" in flat
    for stage in plan.stages:
        for row in value_rows(plan, stage):
            if row.group != "model":
                assert row.name in text
                assert row.origin in flat


TURNS = {
    "chat()": ("qwen3_5", "one training sequence an episode"),
    "chat(history = template)": ("qwen3_5", "one training sequence a turn, for the renderer"),
    "concat() |> template(no)": ("qwen3_5", "one training sequence a turn: every turn"),
}


@pytest.mark.parametrize("wrappers", TURNS)
def test_it_says_whether_an_episode_is_one_sequence(wrappers: str) -> None:
    renderer, sentence = TURNS[wrappers]
    plan = planned(
        f'model m {{ base = "Qwen/Qwen3.5-4B" renderer = {renderer} }}\n'
        f'env guess = gem("game:GuessTheNumber-v0-easy") |> {wrappers}\n'
        "train main { model = m env = guess batch = groups(2) sampling = sample(8)\n"
        "  advantage = grpo() loss = cispo() optimizer = adam(1e-5) steps = 1 }"
    )
    assert f"guess: {sentence}" in " ".join(explain_text(plan, Diagnostics()).split())


AGGREGATES = {
    "token_sum()": 1.0,
    "token_mean()": 1 / (128 * 16),
    "seq_mean_token_sum()": 1 / 128,
    "seq_mean_token_mean()": 1 / (128 * 16),
    "seq_mean_token_sum_norm(length = 32)": 1 / (128 * 32),
    "prompt_mean()": 1 / (16 * 8 * 16),
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_the_effective_scale_of_the_loss(aggregate: str) -> None:
    """16 groups of 8 episodes with two replies of eight tokens, as expected."""
    plan = planned(recipe("quickstart"), f"main.aggregate={aggregate}")
    (stage,) = stages_of(plan, Training)
    scale = loss_scale(stage)
    assert (scale.sequences, scale.tokens) == (128, 128 * 16)
    assert scale.weight == pytest.approx(AGGREGATES[aggregate])
    split = planned(recipe("quickstart"), f"main.aggregate={aggregate}", "main.batch.updates=2")
    assert loss_scale(stages_of(split, Training)[0]).tokens == 64 * 16


def test_the_scale_is_that_of_the_runtime() -> None:
    """The same weights as those that are folded into the advantages."""
    from rlc.algo.aggregate import SHARED_BY, aggregate_weights

    tokens_D, prompts_D = [16] * 128, [task for task in range(16) for _ in range(8)]
    for kind in SHARED_BY:
        length = 32 if kind == "seq_mean_token_sum_norm" else None
        (weight,) = set(aggregate_weights(kind, tokens_D, prompts_D, length).round(15))
        named = next(text for text in AGGREGATES if text.startswith(f"{kind}("))
        assert AGGREGATES[named] == pytest.approx(weight)


def test_json_of_a_recipe_with_errors_has_the_same_keys() -> None:
    compiled = compile_source(Source("bad.rl", "train main {}\n"))
    data = explain_dict(compiled.plan, "bad.rl", compiled.diagnostics)
    assert list(data) == KEYS
    assert data["plan_hash"] is None
    assert data["diagnostics"][0]["code"] == "RL0302"


def test_no_value_reaches_the_terminal_raw_or_runs_into_the_next() -> None:
    text = recipe("sudoku").replace("qwen3_game", "no")
    plan = planned(text, "main.steps=1_000_000_000")
    (stage,) = stages_of(plan, Training)
    template = evolve(flat(stage).envs[0].wrappers[-1], args={"name": "\x1b[31mred\n"})
    envs = (evolve(flat(stage).envs[0], wrappers=(*flat(stage).envs[0].wrappers[:-1], template)),)
    shown = explain_text(evolve(plan, stages=(changed(stage, envs=envs),)), Diagnostics())
    assert r'"\x1b[31mred\n"' in shown
    assert "\x1b" not in shown
    totals = next(line for line in shown.splitlines() if line.startswith("    total")).split()[1:]
    assert len(totals) == 3
