"""Where a rule begins and ends: the values on both sides of what it finds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from run_support import TINY, block, train

from rlc.catalog.facts import LORA_RATES, drops_thinking, find_model, model_names
from rlc.compile.recipe import check, compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.pricing import plan_cost, total_cost

NUMBERS = "env numbers = problems(countdown, grader = countdown, samples = 40)\n"
DUEL = NUMBERS + "env duel = numbers |> solver_judge(solvers = 2)\n"


def codes(text: str, *overrides: str) -> list[str]:
    found = compile_source(Source("recipe.rl", TINY + text), overrides).diagnostics
    return sorted(item.code for item in found if item.code != "RL0114")


def evaluation(**fields: str) -> str:
    return train() + block("eval", "held", {"model": "main", "env": "guess"} | fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"loss": "cispo(clip_high = 1)"}, []),
        ({"loss": "cispo(clip_high = 0.99)"}, ["RL0424"]),
        ({"loss": "cispo(clip_low = 1, clip_high = 1)"}, ["RL0424"]),
        ({"loss": "cispo(0.2, 0.28)"}, ["RL0424"]),
        ({"optimizer": "adam(1e-3, schedule = cosine(warmup = 3))"}, []),
        ({"optimizer": "adam(1e-3, schedule = cosine(warmup = 4))"}, ["RL0431"]),
        ({"optimizer": "adam(1e-3, beta1 = 0.95, beta2 = 0.95)"}, []),
        ({"batch": "groups(3, group_size = 4, updates = 3)", "loss": "ppo()"}, []),
        ({"batch": "groups(3, group_size = 4, updates = 4)", "loss": "ppo()"}, ["RL0327"]),
        ({"sampling": "sample(max_tokens = 8, max_episode_tokens = 9)"}, []),
        ({"sampling": "sample(max_tokens = 8, max_episode_tokens = 8)"}, ["RL0328"]),
        ({"on_error": "penalise(0)"}, []),
        ({"give_up": "failures(steps = 4)"}, []),
        ({"give_up": "failures(steps = 5)"}, ["RL0436"]),
        ({"save": "every(5)"}, ["RL0436"]),
        ({"kl": "reference(policy.base, coef = 1)"}, []),
        ({"loss": "ppo()", "overlap": "asynchronous(max_staleness = 3)"}, []),
        ({"loss": "ppo()", "overlap": "asynchronous(max_staleness = 4)"}, ["RL0436"]),
    ],
)
def test_a_stage_on_both_sides_of_a_rule(fields: dict[str, str], expected: list[str]) -> None:
    assert codes(train(**fields)) == expected


@pytest.mark.parametrize(
    ("group_size", "advantage", "expected"),
    [
        (8, "grpo(scope = role)", []),
        (8, "grpo()", ["RL0425"]),
        (1, "grpo()", ["RL0425"]),  # solvers and judge are peers then, if odd ones
        (1, "grpo(scope = role)", ["RL0426"]),
        (1, "rloo(scope = role, singleton = raw)", []),
        (1, "reinforce()", []),
    ],
)
def test_a_game_is_compared_within_roles(
    group_size: int, advantage: str, expected: list[str]
) -> None:
    batch = f"groups(4, group_size = {group_size})"
    assert codes(DUEL + train(env="duel", batch=batch, advantage=advantage)) == expected


@pytest.mark.parametrize(
    ("trained", "asked", "expected"),
    [
        ("train", "train", ["RL0427"]),
        ("train", "test", []),
        ("first(90%)", "last(10%)", []),
        ("first(90%)", "last(20%)", ["RL0427"]),
        ("first(90%)", "last(10%, by = hash)", ["RL0427"]),
        ("train", "last(10%)", ["RL0427"]),
        ("test", "train", ["RL0428"]),
    ],
)
def test_tasks_are_trained_on_or_tested_with(trained: str, asked: str, expected: list[str]) -> None:
    envs = "".join(
        f"env {name} = problems(gsm8k, split = {split}, grader = numeric, format_coef = {coef})\n"
        for name, split, coef in (("learnt", trained, 0.1), ("asked", asked, 0))
    )
    held = block("eval", "held", {"model": "main", "env": "asked", "tasks": "8"})
    assert codes(envs + train(env="learnt") + held) == expected


def test_endless_tasks_are_never_the_same() -> None:
    text = "env new = problems(countdown, grader = countdown)\n" + train(env="new")
    assert codes(text + block("eval", "held", {"model": "main", "env": "new"})) == []


@pytest.mark.parametrize(
    ("env", "asked_for"),
    [
        ('gem("rg:chain_sum") |> chat()', False),
        ('gem("rg:chain_sum") |> chat(instruction = "Use \\\\boxed{}.")', True),
        ('gem("rg:chain_sum") |> template(no)', False),
        ('gem("rg:chain_sum") |> template(qwen3_general)', True),
        ('gem("rg:chain_sum") |> chat() |> solver_judge()', True),
        ('gem("math:Math12K") |> chat()', False),
        ('gem("qa:HotpotQA") |> chat()', True),
        ('gem("logic:RuleTaker-d0") |> chat()', False),
        ('gem("logic:RuleTaker-d0", extract_boxed = false) |> chat()', True),
        ("problems(gsm8k)", False),
        ('problems(gsm8k, suffix = " Put it in \\\\boxed{}.")', True),
        ('problems(gsm8k, suffix = " End with <answer>…</answer>.")', True),
        ("problems(gsm8k, grader = numeric)", True),
    ],
)
def test_an_answer_in_a_mark_is_asked_for(env: str, asked_for: bool) -> None:
    stage = train(env="asked", advantage="grpo(scope = role)" if "judge" in env else "grpo()")
    assert ("RL0429" in codes(f"env asked = {env}\n" + stage)) != asked_for


def test_what_was_imitated_may_have_shown_the_mark() -> None:
    data = "demonstrations(spell, n = 32)"
    sft = block("sft", "form", {"model": "policy", "data": data, "steps": "2"} | ADAM)
    spell = TINY.replace(
        ' |> chat(instruction = "Put your answer inside \\\\boxed{}.")', " |> chat()"
    )
    found = compile_source(Source("r.rl", spell + sft + train(model="form", env="spell")))
    assert "RL0429" not in {item.code for item in found.diagnostics}


ADAM = {"optimizer": "adam(1e-3)"}


def test_a_teacher_that_is_the_student_may_be_read_by_a_loss_of_its_own() -> None:
    """Alone it teaches nothing; what a loss makes of it is for the loss to say."""
    own = "loss pull(s = 0.1) { token = s * (logp - ref) * (logp - ref) }\n"
    text = TINY + train(loss="pull()", teacher="reverse_kl(policy, coef = 0)")
    alone = "\n".join(line for line in text.splitlines() if "advantage" not in line)
    found = compile_source(Source("r.rl", own + alone)).diagnostics
    severities = {item.code: item.severity for item in found}
    assert severities["RL0744"] == "warning", [item.message for item in found]


def test_steps_of_the_command_line_are_not_held_against_the_recipe() -> None:
    fields = {"steps": "400", "save": "every(50)", "give_up": "failures(steps = 20)"}
    fields |= {"optimizer": "adam(1e-3, schedule = linear(warmup = 10))"}
    text = train(**fields) + block("eval", "held", {"model": "main", "env": "guess", "every": "50"})
    assert codes(text) == []
    assert codes(text, "main.steps=2") == []


@pytest.mark.parametrize("base", [name for name in model_names() if name != "tiny"])
def test_a_chat_of_every_model_is_one_sequence_and_says_what_is_seen_of_thinking(base: str) -> None:
    """Where its template would show something else; either way that is advised ends the warning."""
    model = find_model(base)
    assert model is not None
    rest = train(optimizer=f"adam({2 * LORA_RATES[0]})", sampling="sample(max_tokens = 64)")

    def found(chat: str) -> list[tuple[str, str | None]]:
        text = f'model policy {{ base = "{base}" }}\n'
        text += f'env guess = gem("game:GuessTheNumber-v0-easy") |> {chat}\n{rest}'
        return [(one.code, one.help) for one in compile_source(Source("r.rl", text)).diagnostics]

    thinks = drops_thinking(model.renderers[0])
    assert [code for code, _ in found("chat()")] == ["RL0405"] * thinks
    for _, advice in found("chat()"):
        sampled, template = re.findall(r"`(chat\(.*?\))`", str(advice))
        assert not found(sampled)
        assert [code for code, _ in found(template)] == ["RL0415"]


@pytest.mark.parametrize(("words", "expected"), [(("a", "b"), []), (("a", "c"), ["RL0326"])])
def test_two_folders_share_their_tokens(
    words: tuple[str, str], expected: list[str], tmp_path: Path
) -> None:
    for name, last in (("one", "b"), ("two", words[1])):
        (tmp_path / name).mkdir()
        text = json.dumps({"model": {"vocab": {"a": 0, last: 1}}})
        (tmp_path / name / "tokenizer.json").write_text(text, encoding="utf-8")
    text = 'model policy { base = "./one"  renderer = qwen3_instruct }\n'
    text += 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
    text += train(kl='reference("./two", coef = 0.01)')
    found = compile_source(Source(str(tmp_path / "recipe.rl"), text)).diagnostics
    assert [item.code for item in found] == expected


def test_an_evaluation_samples_as_often_as_it_says() -> None:
    env = "env groups_of_two = guess |> rollouts(group_size = 2)\n"
    greedy = {"env": "groups_of_two", "sampling": "sample(max_tokens = 8, top_k = 1)"}
    assert codes(env + evaluation(**greedy)) == []
    assert codes(env + evaluation(samples="2", **greedy)) == ["RL0437"]


def test_a_value_is_called_as_the_recipe_calls_it() -> None:
    text = TINY + "loss mine = ppo(clip_low = 0.7)\n" + train(loss="mine")
    found = compile_source(Source("recipe.rl", text)).diagnostics
    assert any(item.message.startswith("`mine` never clips") for item in found)


@pytest.mark.parametrize(
    ("judge", "expected"), [("main", ["RL0112"]), ("first", []), ("policy", ["RL0762"])]
)
def test_a_judge_is_there_before_what_it_judges(judge: str, expected: list[str]) -> None:
    text = train("first", steps="2", save="every(1)")
    text += f'judge taste = rubric("Is it kind?", model = {judge})\n'
    text += "env tasted = guess |> judged(taste)\n"
    assert codes(text + train(env="tasted")) == ["RL0412"] * (judge == "policy") + expected


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("polcy", "`polcy` is not declared"),
        ("guess", "`guess` is an environment, where a model belongs"),
        ("main", "`main` needs the weights that it leaves itself"),
        ('"tinny"', 'there is no model "tinny" to compare with'),
    ],
)
def test_a_reference_is_a_model(reference: str, message: str) -> None:
    text = 'model policy { base = "tiny" }\n'
    text += 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
    text += train(kl=f"reference({reference}, coef = 0.1)")
    found = compile_source(Source("recipe.rl", text)).diagnostics
    assert [item.message for item in found] == [message]


@pytest.mark.parametrize("wrapper", ["", " |> chat()"])
@pytest.mark.parametrize(
    ("renderer", "expected"),
    [("", ["RL0405"]), ("renderer = qwen3_instruct", []), ("renderer = role_colon", [])],
)
def test_chats_of_own_code_go_on(wrapper: str, renderer: str, expected: list[str]) -> None:
    """With `chat()` or without it."""
    model = f'model policy {{ base = "Qwen/Qwen3-8B"  {renderer} }}\n'
    text = model + f'env guess = python("game:make"){wrapper} |> rollouts(max_turns = 4)\n'
    found = compile_source(Source("r.rl", text + train(optimizer="adam(5e-4)"))).diagnostics
    assert [item.code for item in found if item.code != "RL0510"] == expected


PRICED = (
    "price = { prefill = $0.2  sample = $0.6  train = $0.6  checkpoint = $0.1  "
    'as_of = "2026-07-20" }'
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("service = tinker  renderer = qwen3_instruct", ["RL0107"]),  # a warning
        (f"service = tinker  renderer = qwen3_instruct  context = 8_192  {PRICED}", []),
        ("renderer = qwen3_instruct", ["RL0107"]),
        ("service = tinker", ["RL0107"]),
    ],
)
def test_a_server_of_ones_own_may_have_any_model(written: str, expected: list[str]) -> None:
    """Nothing is known of it, so the recipe says where it is and how its chats are written."""
    text = f'model policy {{ base = "my-org/mine"  {written} }}\n'
    text += 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n' + train()
    compiled = compile_source(Source("r.rl", text))
    assert [item.code for item in compiled.diagnostics] == expected
    assert (compiled.plan is None) == ("qwen3_instruct" not in written or "tinker" not in written)
    if compiled.plan is not None:
        total = total_cost(plan_cost(compiled.plan), "high")
        assert total.complete == ("price" in written)


@pytest.mark.parametrize("reference", ["other", "mine", '"Qwen/Qwen3-8B"'])
def test_a_server_of_ones_own_compares_with_each_of_its_models(reference: str) -> None:
    own = "service = tinker  renderer = qwen3_instruct"
    text = f'model policy {{ base = "my-org/mine"  {own} }}\n'
    text += (
        f'model mine {{ base = "my-org/other"  {own} }}\nmodel other {{ base = "Qwen/Qwen3-8B" }}\n'
    )
    text += 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
    text += train(kl=f"reference({reference}, coef = 0.1)")
    found = compile_source(Source("r.rl", text)).diagnostics
    assert [item.code for item in found if item.severity == "error"] == []


def test_a_rubric_in_the_recipe_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from another folder, its first line is the same."""
    (tmp_path / "sub").mkdir()
    question = "{{ task }} {{ reply }} {{ rubric }}"
    question += '<score name="clear">3</score><score name="short">3</score>'
    (tmp_path / "sub" / "q.j2").write_text(question)
    rubric = r'"# Criteria\n- clear: It is.\n- short: It is."'
    text = TINY + f'judge taste = rubric({rubric}, model = policy, prompt = "q.j2")\n'
    text += "env tasted = guess |> judged(taste)\n" + train(env="tasted")
    (tmp_path / "sub" / "r.rl").write_text(text)
    monkeypatch.chdir(tmp_path)
    there = [item.code for item in check("sub/r.rl", Reader())]
    monkeypatch.chdir(tmp_path / "sub")
    assert there == [item.code for item in check("r.rl", Reader())] == ["RL0762", "RL0114"]
