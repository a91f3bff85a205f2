"""Data that recipes name is read at check: what passes can be trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlc.compile.recipe import CompileResult, compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.plan.stages import Training

SUMS = [{"question": f"{n} + {n} =", "answer": 2 * n} for n in range(10)]
TRAIN = """
train main {
  model     = policy
  env       = sums
  batch     = groups(4, group_size = 2)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  STEPS
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("sums.jsonl", SUMS)
    return tmp_path


def write(name: str, rows: Sequence[Any]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def compiled(
    env: str, steps: str = "steps = 2", more: str = "", reader: Reader | None = None
) -> CompileResult:
    text = f'model policy {{ base = "tiny" }}\nenv sums = {env}\n{TRAIN}{more}'
    source = Source("recipe.rl", text.replace("STEPS", steps))
    return compile_source(source, reader=Reader() if reader is None else reader)


def messages(result: CompileResult) -> list[str]:
    return [f"{item.code} {item.message}" for item in result.diagnostics]


def test_sound_rows_are_not_reported() -> None:
    result = compiled('problems("sums.jsonl", grader = numeric, split = first(80%), samples = 8)')
    assert messages(result) == []
    assert result.plan is not None


@pytest.mark.parametrize(
    ("split", "steps"),
    [
        ("", 8),  # 3 epochs of 10 tasks, 4 a step
        (", split = first(50%)", 4),
        (", split = last(10%)", 1),
    ],
)
def test_epochs_count_the_rows_of_a_file(split: str, steps: int) -> None:
    result = compiled(f'problems("sums.jsonl", grader = numeric{split})', "epochs = 3")
    assert result.plan is not None
    (stage,) = result.plan.stages
    assert isinstance(stage, Training)
    assert (stage.steps, stage.epochs) == (steps, 3)


def test_a_mixture_can_be_weighted_by_its_tasks() -> None:
    write("more.jsonl", SUMS * 3)
    more = 'env more = problems("more.jsonl", grader = numeric)\n'
    env, weighted = 'problems("sums.jsonl", grader = numeric)', "weight = tasks"
    result = compiled(f"{env} + 2 * more", f"epochs = 1 {weighted}", more=more)
    assert result.plan is not None
    (stage,) = result.plan.stages
    assert isinstance(stage, Training)
    assert [one.weight for one in stage.environments] == [10, 60]  # of 10 and 30 tasks
    assert stage.steps == 10  # 40 tasks, 4 a step
    unknown = compiled('openreward("Org/One") + more', f"steps = 1 {weighted}", more=more)
    (found,) = (item for item in unknown.diagnostics if item.severity == "error")
    assert (found.code, "samples" in (found.help or "")) == ("RL0310", True)


def test_epochs_of_examples_count_the_rows_of_a_file_too() -> None:
    sft = """
sft warmup { model = other  data = rows("sums.jsonl", "question", "said", split = "train")
  batch = 4  optimizer = adam(1e-4)  epochs = 2 }
model other { base = "tiny" }
"""
    write("sums.jsonl", [{**row, "said": "x"} for row in SUMS])
    result = compiled('problems("sums.jsonl", grader = numeric)', more=sft)
    assert result.plan is not None
    stage = result.plan.stages[-1]
    assert isinstance(stage, Training)
    assert stage.steps == 5
    assert "2 epochs of 10 tasks" in result.plan.provenance["stages.warmup.steps"]


def test_data_that_is_not_read_cannot_be_counted() -> None:
    source = Source(
        "recipe.rl",
        'model policy { base = "tiny" }\nenv sums = problems("sums.jsonl", grader = numeric)'
        + TRAIN.replace("STEPS", "epochs = 2"),
    )
    result = compile_source(source)
    assert result.plan is None
    (found,) = result.diagnostics
    assert (found.code, found.severity) == ("RL0310", "warning")


def test_a_file_that_cannot_be_counted_is_one_finding() -> None:
    Path("sums.jsonl").write_text("{\n")
    result = compiled('problems("sums.jsonl", grader = numeric)', "epochs = 2")
    assert [item.code for item in result.diagnostics] == ["RL0501"]


def test_a_mistake_in_many_rows_is_one_finding_with_its_first_places() -> None:
    write("sums.jsonl", [row if n % 3 else {"question": "x"} for n, row in enumerate(SUMS * 3)])
    (found,) = compiled('problems("sums.jsonl", grader = numeric)').diagnostics
    assert found.message == 'there is no field `answer` in 10 of 30 rows of "sums.jsonl"'
    assert found.help is not None
    assert found.help.endswith("also in lines 4, 7, 10 and 6 more")
    assert [label.span.line for label in found.labels] == [1]


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        ("", 'write `question = "prompt"`'),
        (', question = "promt"', 'write `question = "prompt"`'),
        (', question = "prompt", answer = "anwser"', 'write `answer = "answer"`'),
        (', question = "xyz"', 'write `question = "prompt"`'),
    ],
)
def test_the_field_that_was_meant_is_named(args: str, advice: str) -> None:
    write("rows.jsonl", [{"prompt": row["question"], "answer": "1"} for row in SUMS])
    (found,) = compiled(f'problems("rows.jsonl", grader = numeric{args})').diagnostics
    assert (found.code, found.help) == ("RL0502", advice)


def test_one_file_in_several_stages_is_reported_once() -> None:
    Path("sums.jsonl").write_text('{"question": "1", "answer": "1"}\n{\n')
    evaluation = 'eval test { model = main  env = problems("sums.jsonl", grader = exact) }'
    result = compiled('problems("sums.jsonl", grader = numeric)', more=evaluation)
    assert [item.code for item in result.diagnostics if item.code == "RL0501"] == ["RL0501"]


def test_what_is_read_in_time_is_checked_and_the_rest_is_not_guessed_at() -> None:
    write("sums.jsonl", [*SUMS, {"question": "x"}])
    reader = Reader(seconds=0.0)
    env = 'problems("sums.jsonl", grader = numeric, samples = 100, split = "dev")'
    assert messages(compiled(env, reader=reader)) == []


def test_the_rows_of_another_part_are_none_of_its_business() -> None:
    write("sums.jsonl", [*SUMS, {"question": "", "answer": 1}])
    assert messages(compiled('problems("sums.jsonl", grader = numeric, split = first(50%))')) == []
    (found,) = compiled('problems("sums.jsonl", grader = numeric, split = last(50%))').diagnostics
    assert found.message.startswith("the field `question` is empty in 1 of ")
    assert [label.span.line for label in found.labels] == [11]


@pytest.mark.parametrize(
    ("imitated", "evaluated", "warned"),
    [
        ("first(90%)", "last(10%)", False),
        ("first(90%)", "last(20%)", True),
        ("first(90%, by = hash)", "last(10%, by = hash)", False),
        ("train", "first(10%)", True),
    ],
)
def test_rows_that_are_imitated_are_not_evaluated_on(
    imitated: str, evaluated: str, warned: bool
) -> None:
    write("sums.jsonl", [{"question": f"{n} + {n}", "answer": f"{2 * n}"} for n in range(64)])
    text = f"""
model policy {{ base = "tiny" }}
env sums = problems("sums.jsonl", grader = numeric, split = {evaluated})
sft main {{
  model = policy  optimizer = adam(1e-4)  steps = 2
  data = rows("sums.jsonl", "question", "answer", split = {imitated})  batch = 8
}}
eval test {{ model = main  env = sums  tasks = 2  sampling = sample(max_tokens = 8) }}
"""
    result = compile_source(Source("recipe.rl", text), reader=Reader())
    assert [item.code for item in result.diagnostics] == ["RL0505"] * warned


def test_a_file_of_a_folder_beside_the_recipe(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "rows.jsonl").write_text('{"question": "x"}\n')
    text = 'model policy { base = "tiny" }\nenv sums = problems("rows.jsonl", grader = exact)\n'
    source = Source("sub/recipe.rl", text + TRAIN.replace("STEPS", "steps = 2"))
    codes = [item.code for item in compile_source(source, reader=Reader()).diagnostics]
    assert codes == ["RL0502", "RL0327"]


def test_rewards_are_tried_on_the_first_rows_where_imports_are_allowed() -> None:
    code = 'def tone(reply, row):\n    return {"short": row["tone"]}\n'
    Path("own.py").write_text(code, encoding="utf-8")
    env = 'rows("sums.jsonl", prompt = "question", grader = grade_with("own.py:tone"))'
    assert messages(compiled(env)) == []
    reader = Reader(imports=True)
    (found,) = compiled(env, reader=reader).diagnostics
    assert found.code == "RL0534"
    assert "raised KeyError: 'tone' (own.py:2)" in found.message
    assert [(label.span.source.name, label.span.line) for label in found.labels] == [
        ("own.py", 2),
        ("sums.jsonl", 1),
    ]
    Path("own.py").write_text(
        code.replace('row["tone"]', "reply == row['answer']"), encoding="utf-8"
    )
    assert messages(compiled(env, reader=Reader(imports=True))) == []


@pytest.mark.parametrize(
    ("weights", "place", "advice"),
    [
        ("{ shrt = 1, loud = 2 }", "shrt", "did you mean `short`?"),
        ("{ short = 1 }", "{ short = 1 }", "give `loud` a weight too"),
        ("{ short = 1, loud = 2, odd = 3 }", "odd", "remove `odd`"),
    ],
)
def test_a_misnamed_weight_is_shown_where_it_is(weights: str, place: str, advice: str) -> None:
    code = 'def tone(reply, row):\n    return {"short": len(reply), "loud": reply.count("!")}\n'
    Path("own.py").write_text(code, encoding="utf-8")
    grader = f'grade_with("own.py:tone", weights = {weights})'
    env = f'rows("sums.jsonl", prompt = "question", grader = {grader})'
    found = compiled(env, reader=Reader(imports=True)).diagnostics
    (one,) = [item for item in found if item.code == "RL0534"]
    assert one.span is not None
    assert (one.span.text, one.help) == (place, advice)


@pytest.mark.parametrize(
    ("code", "grader", "codes"),
    [
        ("def solve(run): ask(run)", "", ["RL0807"]),
        ("async def solve(run):\n    await ask(run)\n    return", "", ["RL0807"]),
        ("def solve(run):\n    said = ask(run)\n    return f'{said}'", "", ["RL0807"]),
        ("def solve(run): return run.task['question']", "", ["RL0807"]),
        ("def solve(run): return run.task['level']", "", []),
        ("def solve(run): return float(ask(run).strip())", "", []),
        ("def solve(run): ask(run)", ', grader = grade_with("own.py:grade")', []),
        ("def solve(run):\n    if ask(run):\n        return 1.0", "", []),
        ("@rewarded\ndef solve(run): ask(run)", "", []),
        ("def solve(run): ask(run)\nsolve = rewarded(solve)", "", []),
        ("solve = lambda run: ask(run)", "", []),
        ("from elsewhere import solve", "", []),
    ],
)
def test_an_agent_that_nothing_rewards_where_that_can_be_read(
    code: str, grader: str, codes: list[str]
) -> None:
    Path("own.py").write_text(
        f"{code}\ndef grade(reply, row): return float(reply == row)\n", encoding="utf-8"
    )
    env = f'agent("own.py:solve", tasks = rows("sums.jsonl", prompt = "question"){grader})'
    assert [item.code for item in compiled(env).diagnostics] == codes


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ('["sh", "-e", "own.sh"]', []),
        ('["sh", "-e", "other.sh"]', ["RL0805"]),
        ('["sh", "scripts/own.sh"]', ["RL0805"]),
        ('["sh", "-c", "exit 1", "other.sh"]', []),
    ],
)
def test_a_script_of_an_agent_is_looked_for(command: str, codes: list[str]) -> None:
    Path("own.sh").touch()
    env = f'agent(command = {command}, tasks = rows("sums.jsonl", prompt = "question"))'
    assert [item.code for item in compiled(env).diagnostics] == codes


def test_nothing_more_is_said_of_a_file_that_is_missing() -> None:
    """Neither that an evaluation has the tasks that are trained on, nor those that are imitated."""
    more = "eval held { model = main  env = sums }\n"
    trained = compiled('problems("no.jsonl", grader = numeric)', more=more).diagnostics
    sft = 'model policy { base = "tiny" }\nenv sums = problems("no.jsonl", grader = numeric)\n'
    sft += (
        'sft main { model = policy  data = rows("no.jsonl")  optimizer = adam(1e-4)  steps = 1 }\n'
    )
    sft += "eval held { model = main  env = sums  sampling = sample(max_tokens = 8) }\n"
    imitated = compile_source(Source("recipe.rl", sft), reader=Reader()).diagnostics
    for found in (trained, imitated):
        assert {item.code for item in found} == {"RL0001"}


def test_a_missing_package_is_reported_once_and_only_where_code_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlc.check.rules.code.lacking", lambda _: "not installed here")
    again = TRAIN.replace("train main", "train again").replace("STEPS", "steps = 1")
    again = again.replace("= policy", "= main")
    env = 'problems("sums.jsonl", grader = math, suffix = " Answer in \\\\boxed{}.")'
    assert messages(compiled(env, more=again)) == []
    found = messages(compiled(env, more=again, reader=Reader(imports=True)))
    assert found[0].startswith("RL0513 this needs the package math-verify[antlr4_13_2], which")
    assert len(found) == len(set(found)) > 1


@pytest.mark.parametrize(("different", "severity"), [(1, "warning"), (0, "error")])
def test_pairs_that_are_all_equal_cannot_be_learnt_from(different: int, severity: str) -> None:
    rows = [{"prompt": "Say it.", "chosen": f"a{n}", "rejected": f"a{n}"} for n in range(6)]
    write("pairs.jsonl", [*rows, *[{**rows[0], "rejected": "b"}] * different])
    text = """model policy { base = "tiny" }
preference align {
  model = policy  data = pairs("pairs.jsonl")  loss = simpo()  optimizer = adam(1e-4)
  batch = 1  steps = 1
}"""
    result = compile_source(Source("recipe.rl", text), reader=Reader())
    found = [item.severity.value for item in result.diagnostics if item.code == "RL0731"]
    assert found == [severity]
    assert (result.plan is None) == (severity == "error")


def test_a_teacher_that_is_wrong_is_the_only_finding() -> None:
    text = """model policy { base = "tiny" }
env asked = rows("sums.jsonl", prompt = "question") |> chat()
train main {
  model = policy  env = asked  teacher = reverse_kl(nobody)  batch = groups(2, group_size = 1)
  sampling = sample(max_tokens = 8)  loss = importance_sampling()
  optimizer = adam(1e-4)  steps = 1
}"""
    result = compile_source(Source("recipe.rl", text), reader=Reader())
    assert messages(result) == ["RL0102 `nobody` is not declared"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("    return 1.0", "`own.py:grade` always returns 1"),
        (
            '    return {"a": 1, "b": len(reply), "c": 0.5}',
            "of what `own.py:grade` returns, `a` is always 1, `c` is always 0.5",
        ),
        ("    def high(): return 1.0\n    return high() * len(reply)", None),
        ("    score = 0.0\n    score += len(reply)\n    return score", None),
    ],
)
def test_what_a_function_always_returns_is_one_finding(body: str, says: str | None) -> None:
    Path("own.py").write_text(f"def grade(reply, row):\n{body}\n", encoding="utf-8")
    env = 'rows("sums.jsonl", prompt = "question", grader = grade_with("own.py:grade"))'
    found = [item.message for item in compiled(env).diagnostics if item.code == "RL0681"]
    assert found == ([] if says is None else [says])


def test_a_module_that_lists_a_taskset_needs_no_function(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tasks.py").write_text('__all__ = ["Sums"]\n', encoding="utf-8")
    env = 'verifiers("tasks.py", args = { taskset = { count = 3 } })'
    assert messages(compiled(env)) == []
    old = {"verifiers>=0.4": "0.3.1 here"}
    monkeypatch.setattr("rlc.check.rules.code.lacking", old.get)
    found = messages(compiled(env, reader=Reader(imports=True)))
    assert found == ["RL0513 this needs the package verifiers>=0.4, which is 0.3.1 here"]
    Path("tasks.py").write_text("Sums = 1\n", encoding="utf-8")
    assert [one[:6] for one in messages(compiled(env))] == ["RL0510"]


def test_a_module_is_not_tried_on_versions_of_verifiers_that_have_no_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "from verifiers import NoLonger\ndef load_environment(): return NoLonger()\n"
    Path("old_words.py").write_text(text, encoding="utf-8")
    new = {"verifiers<0.4": "0.4.0 here"}
    monkeypatch.setattr("rlc.check.rules.code.lacking", new.get)
    found = messages(compiled('verifiers("old_words.py")', reader=Reader(imports=True)))
    assert found == ["RL0513 this needs the package verifiers<0.4, which is 0.4.0 here"]
    new["verifiers<0.4"] = new["verifiers"] = "not installed here"
    found = messages(compiled('verifiers("old_words.py")', reader=Reader(imports=True)))
    assert found == ["RL0513 this needs the package verifiers<0.4, which is not installed here"]
