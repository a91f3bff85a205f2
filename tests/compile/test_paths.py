"""Paths start at the file that names them, from wherever rlc is called."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from stage_parts import changed, flat

import rlc
from rlc.catalog.environments import located_files, with_files
from rlc.catalog.index import UnknownBuiltinError
from rlc.catalog.plan_files import plan_from_file, plan_to_file
from rlc.compile.recipe import load
from rlc.compile.saved import load_plan
from rlc.data.reading import Reader
from rlc.plan.paths import located, rebased
from rlc.plan.records import Plan
from rlc.plan.stages import Training

LIBRARY = """\
model policy { base = "./models/small"  lora_rank = 8  renderer = qwen3_instruct }
param shots = "shots.jsonl"
env sums = problems("sums.jsonl", few_shot = shots) |> solver_judge(judge_prompt = "judge.j2")
"""
RECIPE = """\
import "../lib/sums.rl"
sft warmup { model = policy  data = rows("data/rows.jsonl")  optimizer = adam(1e-4)  steps = 1 }
train main { model = warmup  env = sums  batch = groups(4, group_size = 4)
  sampling = sample(max_tokens = 8)  advantage = grpo(scope = role)  loss = importance_sampling()
  kl = reference(policy.base, coef = 0.1)  optimizer = adam(1e-4)  steps = 1 }
"""
FILES = ("recipes/data/rows.jsonl", "lib/sums.jsonl", "lib/shots.jsonl")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "lib/models/small").mkdir(parents=True)
    (root / "recipes/data").mkdir(parents=True)
    (root / "lib/sums.rl").write_text(LIBRARY, encoding="utf-8")
    (root / "recipes/main.rl").write_text(RECIPE, encoding="utf-8")
    row = {"question": "1 + 1?", "answer": "\\boxed{2}", "prompt": "1 + 1?", "reply": "2"}
    for name in FILES:
        (root / name).write_text((json.dumps(row) + "\n") * 4, encoding="utf-8")
    judge = "{{ problem }}{% for solution in solutions %} {{ solution }}{% endfor %}"
    (root / "lib/judge.j2").write_text(judge, encoding="utf-8")
    return root


def compiled(path: str | Path, *overrides: str) -> Plan:
    result = load(path, overrides, reader=Reader())
    assert result.plan is not None, [str(item) for item in result.diagnostics]
    return result.plan


def files(plan: Plan) -> set[str]:
    """Every path in the plan of the project, whether it is there or not."""
    warmup, main = plan.stages
    assert isinstance(main, Training)
    (env,) = flat(main).envs
    judge = env.wrappers[0].args["judge_prompt"]
    data = flat(warmup).data.path
    return {
        main.model.base,
        flat(main).kl.reference.model.base,
        env.id,
        env.args["few_shot"],
        judge,
        data,
    }


AS_SEEN_FROM_THE_RECIPE = {
    "../lib/models/small",
    "../lib/sums.jsonl",
    "../lib/shots.jsonl",
    "../lib/judge.j2",
    "data/rows.jsonl",
}


@pytest.mark.parametrize(
    ("here", "path"),
    [(".", "recipes/main.rl"), ("recipes", "main.rl"), ("lib/models", "../../recipes/main.rl")],
)
def test_a_plan_names_files_as_seen_from_its_recipe(
    project: Path, here: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / here)
    plan = compiled(path)
    assert files(plan) == AS_SEEN_FROM_THE_RECIPE
    assert all(os.path.exists(file) for file in files(located_files(plan)))
    assert rlc.load(path).plan() == plan


def test_paths_of_the_command_line_start_where_it_is_given(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "lib")
    shutil.copy(project / "recipes/data/rows.jsonl", project / "lib/more.jsonl")
    override = 'warmup.data=rows("more.jsonl")'
    plan = compiled("../recipes/main.rl", override)
    assert files(plan) == AS_SEEN_FROM_THE_RECIPE - {"data/rows.jsonl"} | {"../lib/more.jsonl"}
    rlc.load("../recipes/main.rl", set=[override]).save("../plan.json")
    monkeypatch.chdir(project)  # the plan is not stale there: its own folder is kept with it
    assert load_plan("plan.json") == evolve(plan, recipe="recipes/main.rl")


def test_a_file_that_is_not_there_is_named_with_its_place(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    for gone in ("lib/judge.j2", "recipes/data/rows.jsonl", "lib/models/small"):
        shutil.move(gone, "kept")
        messages = {item.message for item in load("recipes/main.rl").diagnostics}
        kind = "folder" if gone.endswith("small") else "file"
        assert f'there is no {kind} "{gone}"' in messages
        shutil.move("kept", gone)


def test_a_folder_without_a_dot_is_a_folder_too(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    library = project / "lib/sums.rl"
    library.write_text(LIBRARY.replace("./models/small", "models/small"), encoding="utf-8")
    assert files(compiled("project/recipes/main.rl")) == AS_SEEN_FROM_THE_RECIPE


def test_a_saved_plan_is_found_again_with_its_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    rlc.load("recipes/main.rl").save("plan.json")
    for root in ("project", "moved"):
        monkeypatch.chdir(tmp_path)
        if root != "project":
            project.rename(tmp_path / root)
        plan = load_plan(f"{root}/plan.json")
        assert plan.recipe == f"{root}/recipes/main.rl"
        assert all(os.path.exists(file) for file in files(located_files(plan)))


def test_old_plans_name_files_as_seen_from_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    plan = compiled("recipes/main.rl")

    def written_before(path: str) -> str:
        return ("./" if "models" in path else "") + located(path, plan.recipe)

    data = plan_to_file(with_files(plan, written_before), ".")
    del data["paths_start_at"]
    data = json.loads(json.dumps(data))
    assert plan_from_file(data, "anywhere") == (plan, True)


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("data/a.jsonl", "recipes", "data/a.jsonl"),
        ("./data/a.jsonl", "recipes", "./data/a.jsonl"),  # as it is written
        ("data/a.jsonl", "", "../data/a.jsonl"),
        ("data/a.jsonl", "recipes/lib", "lib/data/a.jsonl"),
        ("./models/m", "recipes/lib", "./lib/models/m"),
        ("/data/a.jsonl", "lib", "/data/a.jsonl"),
        ("~/models/m", "lib", "~/models/m"),
    ],
)
def test_rebased(path: str, folder: str, expected: str) -> None:
    assert rebased(path, folder, "recipes/main.rl") == expected
    assert located(expected, "recipes/main.rl") == located(path, os.path.join(folder, "x"))


def test_a_recipe_on_standard_input_is_in_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from io import BytesIO, TextIOWrapper

    stdin: Any = TextIOWrapper(BytesIO((project / "recipes/main.rl").read_bytes()))
    monkeypatch.chdir(project / "recipes")
    monkeypatch.setattr("sys.stdin", stdin)
    assert all(os.path.exists(file) for file in files(located_files(compiled("-"))))


def test_a_source_that_there_is_not_is_named(project: Path) -> None:
    plan = compiled(project / "recipes/main.rl")
    stage = plan.stages[1]
    assert isinstance(stage, Training)
    (env,) = stage.environments
    unknown = changed(stage, envs=(evolve(env, source="arena"),))
    with pytest.raises(UnknownBuiltinError, match="no environment source `arena\\(\\)`"):
        located_files(evolve(plan, stages=(unknown,)))
