"""Reuse: what it stands for, where its values are said to be from, and what is wrong with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from stage_parts import flat

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import KINDS
from rlc.compile.recipe import CompileResult, compile_source, load
from rlc.lang.diagnostics import Diagnostics, Severity
from rlc.lang.fixes import apply_fixes
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash
from rlc.plan.records import Plan

POLICY = """\
model policy {
  base      = "tiny"
  lora_rank = 8
}
"""
GUESS = 'env guess = gem("game:GuessTheNumber-v0-easy", max_turns = 3) |> chat()\n'
FIELDS = """\
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
"""
MAIN = f"""\
train main {{
  model     = policy
  env       = guess
{FIELDS}  optimizer = adam(1e-3)
  steps     = 50
}}
"""


def compiled(text: str, *overrides: str) -> CompileResult:
    return compile_source(Source("test.rl", text), overrides)


def plan_of(text: str, *overrides: str) -> Plan:
    made = compiled(text, *overrides)
    assert not list(made.diagnostics), [item.message for item in made.diagnostics]
    assert made.plan is not None
    return made.plan


def found(text: str) -> Diagnostics:
    return compiled(text).diagnostics


def says(plan: Plan, path: str) -> str:
    return plan.provenance[f"stages.{path}"]


WRITTEN_OUT = POLICY + GUESS + MAIN
SAME_PLAN = {
    "names": POLICY
    + """
wrapper talk = chat()
env guess = gem("game:GuessTheNumber-v0-easy", max_turns = 3) |> talk
batch all = groups(16, group_size = 8)
sampling short = sample(max_tokens = 16)
loss plain = importance_sampling()
optimizer fast = adam(1e-3)
train main {
  model = policy  env = guess  batch = all  sampling = short  advantage = grpo()
  loss = plain  optimizer = fast  steps = 50
}
""",
    "parameters": POLICY
    + f"""
env guess(turns: int(1, 9)) = gem("game:GuessTheNumber-v0-easy", max_turns = turns) |> chat()
train stage(start: model, game: env, by: optimizer) {{
  model = start  env = game  optimizer = by  steps = 50
{FIELDS}}}
train main = stage(policy, game = guess(3), by = adam(1e-3))
""",
    "a default that names another parameter": POLICY
    + GUESS
    + f"""
train stage(rate: float, by: optimizer = adam(rate)) {{
  model = policy  env = guess  optimizer = by  steps = 50
{FIELDS}}}
train main = stage(1e-3)
""",
    "an amended use of an amended declaration": POLICY.replace("8", "4")
    + """
model wide(rank: int) = policy { lora_rank = rank }
model wider(rank: int = 8) = wide(rank)
"""
    + GUESS
    + MAIN.replace("train main", "train stage(count: int)").replace("= 50", "= count")
    + "train main = stage(7) { model = wider_one  steps = 50 }\nmodel wider_one = wider()\n",
}


@pytest.mark.parametrize("way", ["names", "parameters", "a default that names another parameter"])
def test_the_plan_is_that_of_the_recipe_written_out(way: str) -> None:
    """Nothing of reuse is in it but where its values are from."""
    assert plan_hash(plan_of(SAME_PLAN[way])) == plan_hash(plan_of(WRITTEN_OUT))


def test_declarations_with_parameters_amend_and_use_others() -> None:
    plan = plan_of(SAME_PLAN["an amended use of an amended declaration"])
    (main,) = plan.stages
    assert (main.model.name, main.model.lora_rank, main.steps) == ("wider_one", 8, 50)


def test_an_amendment_replaces_an_argument_that_has_no_name() -> None:
    text = WRITTEN_OUT.replace("sample(max_tokens = 16)", "brief(16)")
    text += "sampling brief(tokens: int) = sample(max_tokens = tokens)\n"
    plan = plan_of(text + "train other = main { sampling.tokens = 9 }\n")
    assert [flat(stage).sampling.max_tokens for stage in plan.stages] == [16, 9]


def test_a_parameter_without_a_type_is_told_which_it_needs() -> None:
    text = WRITTEN_OUT + "train other(start) = main { model = start }\n"
    (found,) = compiled(text).diagnostics
    assert (found.code, found.help) == ("RL0201", "say what it is: `start: model`")


# An example of each kind, if the kind's own takes more than the recipe below has.
EXAMPLES = {
    "env": "guess",
    "grader": 'regex("x")',
    "kl": "reference(policy.base, coef = 0.01)",
    "data": "demonstrations(guess, n = 20)",
    "teacher": "reverse_kl(policy)",
    "judge": 'rubric("Is it kind?", model = policy)',
    "keep": "at_least(0.5)",
}


@pytest.mark.parametrize(
    "kind", [k for k, d in DECLARATIONS.items() if k in KINDS and KINDS[k].nameable]
)
def test_a_value_of_every_kind_can_be_declared(kind: str) -> None:
    text = EXAMPLES.get(kind, KINDS[kind].example)
    declared = f"{kind} thing = {text}\n" if kind != "model" else "model thing = policy {}\n"
    made = compiled(WRITTEN_OUT + declared)
    assert [(item.code, item.span and item.span.text) for item in made.diagnostics] == [
        ("RL0114", "thing")
    ]


def test_a_part_of_a_pipeline_has_a_name() -> None:
    recipe = POLICY + MAIN + 'env guess = gem("game:GuessTheNumber-v0-easy", max_turns = 3)'
    whole = plan_of(f"{recipe} |> rollouts(temperature = 1.0) |> chat()\n")
    named = plan_of(
        f"{recipe} |> polite\nwrapper polite = hot |> chat()\n"
        "wrapper hot = rollouts(temperature = 1.0)\n"
    )
    given = plan_of(
        f"{recipe} |> at(1.0)\nwrapper at(heat: float) = rollouts(temperature = heat) |> chat()\n"
    )
    assert plan_hash(whole) == plan_hash(named) == plan_hash(given)


def test_provenance_says_how_a_value_came_there() -> None:
    plan = plan_of(
        POLICY
        + """
env guess(turns: int = 5, style = "") = gem("game:GuessTheNumber-v0-easy", max_turns = turns)
  |> chat(system = style)
train stage(rate: float = 1e-3) {
  model = policy  env = guess(turns = 4)  optimizer = adam(rate)  steps = 50
"""
        + FIELDS
        + """}
train main = stage()
train other = stage(2e-3) { model = wide  steps = 7  sampling.max_tokens = 8 }
train third = other { optimizer.learning_rate = 3e-3  steps = 8  model = big }
model wide = policy { lora_rank = 16 }
model big = wide {}
"""
    )
    assert says(plan, "main.envs.guess.args.max_turns") == "argument of guess, test.rl:9"
    assert says(plan, "main.envs.guess.wrappers.chat.args.system") == "default of guess, test.rl:6"
    assert says(plan, "main.optimizer.learning_rate") == "default of stage, test.rl:8"
    assert says(plan, "other.optimizer.learning_rate") == "argument of stage, test.rl:16"
    assert says(plan, "other.model.lora_rank") == "amended at test.rl:18"
    assert says(plan, "other.sampling.max_tokens") == "amended at test.rl:16"
    assert says(plan, "third.optimizer.learning_rate") == "amended at test.rl:17"
    assert says(plan, "third.sampling.max_tokens") == "amended at test.rl:16"
    assert says(plan, "third.batch.size") == "test.rl:10"


CHAIN = (
    WRITTEN_OUT
    + """
model second = policy {}
model third = policy {}
train longer = main { model = second  steps = 80 }
train last = longer { model = third  optimizer.learning_rate = 2e-3 }
"""
)


@pytest.mark.parametrize(
    ("override", "steps"),
    [
        ("main.steps=7", [7, 80, 80]),
        ("longer.steps=7", [50, 7, 7]),
        ("last.steps=7", [50, 80, 7]),
    ],
)
def test_an_override_reaches_what_amends(override: str, steps: list[int]) -> None:
    plan = plan_of(CHAIN, override)
    assert [stage.steps for stage in plan.stages] == steps
    set_there = [key for key, said in plan.provenance.items() if said.startswith("--set")]
    assert len(set_there) == steps.count(7)


@pytest.mark.parametrize(
    ("override", "rates"),
    [
        ("main.optimizer.learning_rate=5e-3", [5e-3, 5e-3, 2e-3]),
        ("longer.optimizer.learning_rate=5e-3", [1e-3, 5e-3, 2e-3]),
        ("last.optimizer.learning_rate=5e-3", [1e-3, 1e-3, 5e-3]),
        ("last.optimizer=adam(5e-3)", [1e-3, 1e-3, 5e-3]),
    ],
)
def test_an_override_of_a_part_reaches_what_amends(override: str, rates: list[float]) -> None:
    if override == "last.optimizer=adam(5e-3)":  # beside a part of it
        (item,) = compiled(CHAIN, override).diagnostics
        assert item.code == "RL0110"
        return
    stages = plan_of(CHAIN, override).stages
    assert [stage.optimizer.learning_rate for stage in stages] == rates  # type: ignore[union-attr]


def test_arguments_and_defaults_can_be_set() -> None:
    text = (
        POLICY
        + GUESS
        + MAIN.replace("main", "stage(count: int = 50)").replace("= 50\n}", "= count\n}")
        + "train main = stage(count = 20)\nmodel other = policy {}\n"
        + "train default = stage() { model = other }\n"
    )

    def steps(*overrides: str) -> list[int]:
        return [stage.steps for stage in plan_of(text, *overrides).trainings]

    assert steps() == [20, 50]
    assert steps("stage.count=30") == [20, 30]
    assert steps("main.count=30") == [30, 50]
    assert steps("main.count=30", "main.steps=3") == [3, 50]


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["steps", "optimizer.learning_rate", "batch.group_size", "save"]),
            st.integers(2, 9),
            min_size=1,
        ),
        max_size=4,
    )
)
def test_a_chain_of_amendments_is_the_last_word_of_each_field(
    changes: list[dict[str, int]],
) -> None:
    written = {"save": "every({})", "optimizer.learning_rate": "{}e-4"}
    text, name = WRITTEN_OUT.replace("main", "start"), "start"
    given_last: dict[str, str] = {}
    for index, change in enumerate(changes):
        fields = {key: written.get(key, "{}").format(n) for key, n in change.items()}
        given_last |= fields
        inside = "  ".join(f"{key} = {value}" for key, value in fields.items())
        text += f"train t{index} = {name} {{ {inside} }}\n"
        name = f"t{index}"
    amended = compiled(text).plan
    direct = compiled(WRITTEN_OUT, *(f"main.{key}={value}" for key, value in given_last.items()))
    assert amended is not None
    assert direct.plan is not None
    assert evolve(amended.stages[-1], name="main") == direct.plan.stages[0]


def test_paths_start_where_they_are_written(tmp_path: Path) -> None:
    """An argument's at the recipe, a body's at its file."""
    (tmp_path / "lib").mkdir()
    rows = '{"question": "1 + 1 = ?", "answer": "2"}\n' * 20
    (tmp_path / "own.jsonl").write_text(rows)
    (tmp_path / "lib" / "theirs.jsonl").write_text(rows)
    (tmp_path / "lib" / "rows.rl").write_text(
        'env asked(file: string = "theirs.jsonl") = problems(file, grader = numeric)\n'
        "model deep(rank: int) = policy { lora_rank = rank }\n"
    )
    recipe = tmp_path / "recipe.rl"
    recipe.write_text(
        'import "lib/rows.rl"\n'
        + POLICY
        + MAIN.replace("guess", 'asked("own.jsonl") + asked()').replace("policy\n", "wide\n")
        + "model wide = deep(16)\n"
    )
    made = load(recipe)
    assert made.plan is not None, [item.message for item in made.diagnostics]
    (main,) = made.plan.stages
    assert [env.id for env in main.played] == ["own.jsonl", "lib/theirs.jsonl"]


def test_a_stage_with_parameters_may_be_imported_and_one_without_may_not(tmp_path: Path) -> None:
    (tmp_path / "lib.rl").write_text(
        GUESS + MAIN.replace("train main", "train stage(of: model)").replace("= policy", "= of")
    )
    recipe = tmp_path / "recipe.rl"
    recipe.write_text('import "lib.rl"\n' + POLICY + "train main = stage(policy)\n")
    assert load(recipe).plan is not None
    with (tmp_path / "lib.rl").open("a") as file:
        file.write("train other = stage(policy)\n")
    assert [item.code for item in load(recipe).diagnostics] == ["RL0311"]


def test_a_parameter_may_have_a_name_that_the_recipe_uses_otherwise(tmp_path: Path) -> None:
    """Who imports a file need not know the names of its parameters."""
    (tmp_path / "lib.rl").write_text("optimizer slow(rate: float) = adam(rate)\n")
    recipe = tmp_path / "recipe.rl"
    used = MAIN.replace("adam(1e-3)", "slow(rate * 2)")
    recipe.write_text('import "lib.rl"\nparam rate = 1e-3\n' + POLICY + GUESS + used)
    made = load(recipe)
    assert made.plan is not None
    assert made.plan.stages[0].optimizer.learning_rate == 2e-3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "code", "place"),
    [
        ("adam(rat)", "RL0102", "rat"),
        ("adam(rate, beta3 = 1)", "RL0105", "beta3"),
        ("adam(rate, beta1 = 3)", "RL0202", "3"),
        ('adam(rate, schedule = "x")', "RL0201", '"x"'),
        ("adam(rate, schedule = rate)", "RL0201", "rate"),
        ("grpo(rate)", "RL0201", "grpo"),
    ],
)
def test_what_is_wrong_in_a_body_is_said_without_a_use(body: str, code: str, place: str) -> None:
    items = found(f"optimizer slow(rate: float) = {body}\n")
    wrong = [item for item in items if item.severity is Severity.ERROR]
    assert [item.code for item in wrong] == [code]
    span = wrong[0].span
    assert span is not None
    assert span.text == place


@pytest.mark.parametrize("kind", [k for k in DECLARATIONS if k in KINDS and KINDS[k].nameable])
def test_a_parameter_of_every_kind_stands_for_what_is_not_known(kind: str) -> None:
    """A body that only passes it on has nothing wrong."""
    body = "thing { }" if DECLARATIONS[kind].is_block else "thing"
    assert found(f"{kind} given(thing: {kind}) = {body}\n") == []


def test_a_mistake_in_a_body_is_said_once_however_often_it_is_used() -> None:
    text = (
        POLICY
        + """
env guess(turns: int = 3) = gem("game:GuessTheNumber-v0-easy", max_trns = turns) |> chat()
"""
        + MAIN.replace("env       = guess", "env = guess() + guess(4) + guess(5)")
    )
    (item,) = found(text)
    assert item.code == "RL0105"


def test_what_only_one_use_makes_wrong_is_labelled_with_it() -> None:
    text = (
        POLICY
        + GUESS
        + "optimizer slow(rate) = adam(rate * 10)\n"
        + MAIN.replace("adam(1e-3)", "slow(rate = 0.2)")
    )
    (item,) = found(text)
    assert item.code == "RL0202"
    assert item.span is not None
    assert item.span.text == "rate * 10"
    assert [label.text for label in item.labels] == ["in this use of `slow`"]


@pytest.mark.parametrize(
    ("use", "code", "place"),
    [
        ("guess()", "RL0205", "guess"),
        ("guess(10)", "RL0202", "10"),
        ('guess("3")', "RL0201", '"3"'),
        ("guess(2.5)", "RL0201", "2.5"),
        ("guess(3, turns = 3)", "RL0111", "turns"),
        ("guess(3, trns = 3)", "RL0105", "trns"),
        ("guess(3, policy)", "RL0201", "policy"),
        ('guess(3, style = "a", "b")', "RL0207", '"b"'),
        ("guess", "RL0208", "guess"),
        ("gues(3)", "RL0103", "gues"),
        ("guess(turns = unknown)", "RL0102", "unknown"),
        ("guess(3) { max_turns = 3 }", "RL0620", "guess(3) { max_turns = 3 }"),
    ],
)
def test_a_wrong_use_is_said_at_its_place(use: str, code: str, place: str) -> None:
    text = (
        POLICY
        + 'env guess(turns: int(1, 9), style: string = "") = '
        + 'gem("game:GuessTheNumber-v0-easy", max_turns = turns) |> chat(system = style)\n'
        + MAIN.replace("env       = guess", f"env = {use}")
    )
    wrong = [item for item in found(text) if item.severity is Severity.ERROR]
    assert wrong[0].code == code
    assert wrong[0].span is not None
    assert wrong[0].span.text == place


def test_numbers_are_as_their_parameter_takes_them() -> None:
    """They may go where anything plain stands, such as a record of arguments."""
    text = (
        POLICY
        + 'env made(size: float, count: int) = python("m:f", args = { size = size, n = count })\n'
        + MAIN.replace("guess", "made(size = 3, count = 4.0)")
    )
    (main,) = compiled(text).plan.stages  # type: ignore[union-attr]
    args = main.played[0].args["args"]
    assert [type(value) for value in args.values()] == [float, int]


def test_an_argument_written_as_a_comparison_is_fixed() -> None:
    text = "param count == 50\n" + WRITTEN_OUT.replace("group_size = 8", "group_size == 8").replace(
        "steps     = 50", "steps     = count"
    )
    source = Source("test.rl", text)
    items = compile_source(source).diagnostics
    assert [item.code for item in items] == ["RL0010", "RL0010"]
    assert all(item.fix is not None and item.fix.safe for item in items)
    fixed = text.replace("==", "=")
    assert compiled(fixed).plan is not None
    assert apply_fixes(source, items)[0] == fixed


def test_copies_of_copies_end_soon() -> None:
    declared = "\n".join(f"env e{i}(n: int) = e{i + 1}(n) + e{i + 1}(n)" for i in range(38))
    text = POLICY + declared + "\nenv e38(n: int) = guess\n" + GUESS
    started = time.perf_counter()
    items = found(text + MAIN.replace("= guess\n", "= e0(1)\n"))
    assert "RL0628" in {item.code for item in items}
    assert time.perf_counter() - started < 30


def test_an_override_that_each_use_hides_is_refused() -> None:
    declared = (
        'env of(most = 9) = gem("game:GuessTheNumber-v0-easy", max_number = most) |> chat()\n'
    )
    text = f"{POLICY}{declared}env guess = of(7)\n{MAIN}"
    (one,) = compiled(text, "of.most=8").diagnostics
    assert one.code == "RL0106"
    assert one.help == "set it where it is declared: `--set 'guess.most=…'`"
    assert [label.span.text for label in one.labels] == ["of(7)"]
    plan_of(text, "guess.most=8")
    plan_of(text.replace("env       = guess", "env = guess + of()"), "of.most=8")
