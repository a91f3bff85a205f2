"""A saved plan is of the data that it was made with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

import rlc
from rlc.compile.saved import PlanFileError
from rlc.plan.codec import plan_from_dict, plan_hash, plan_to_dict

RECIPE = """
model policy { base = "tiny" }
env sums = problems("rows.jsonl", grader = numeric)
train main {
  model = policy  env = sums  batch = groups(2, group_size = 2)
  sampling = sample(max_tokens = 8)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(1e-4)  epochs = 3
}
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rows = [{"question": f"{n} + {n}", "answer": 2 * n} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.rl").write_text(RECIPE)
    rlc.load(tmp_path / "recipe.rl").save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_the_plan_knows_its_data(saved: Path) -> None:
    plan = rlc.load_plan(saved)
    (file,) = plan.data
    assert file.path == "rows.jsonl"
    assert file.size == (saved.parent / "rows.jsonl").stat().st_size
    assert plan_from_dict(plan_to_dict(plan)) == plan
    assert plan_hash(evolve(plan, data=())) != plan_hash(plan)
    recipe = saved.parent / "recipe.rl"
    recipe.write_text(RECIPE.replace("epochs = 3", "steps = 6"))
    unread = rlc.load(recipe).compile(data=False).plan
    assert unread is not None
    assert unread.data == ()


def test_a_plan_whose_data_has_changed_is_refused(saved: Path) -> None:
    rows = saved.parent / "rows.jsonl"
    rows.write_text(rows.read_text().replace("6", "7"))
    message = r"plan\.json is stale: .*rows\.jsonl has changed: it was .* bytes \(.*\), and is "
    with pytest.raises(PlanFileError, match=message):
        rlc.load_plan(saved)


def test_a_plan_whose_code_has_changed_is_refused_too(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code in a file that the recipe names, or in a module beside it; not what is installed."""
    folder = saved.parent
    (folder / "rewards.py").write_text("def reward(reply, row): return 1.0\n")
    (folder / "own_letters.py").write_text("def make(size): ...\n")
    text = RECIPE.replace("numeric", 'grade_with("rewards.py:reward")')
    text += 'env own = python("own_letters:make", args = { size = 3 })\n'
    text += 'env installed = python("json.tool:main", args = {})\n'
    text = text.replace("env = sums", "env = sums + own + installed").replace("epochs", "steps")
    (folder / "recipe.rl").write_text(text)
    rlc.load(folder / "recipe.rl").save(saved)
    assert [f.path for f in rlc.load_plan(saved).data] == [
        "own_letters.py",
        "rewards.py",
        "rows.jsonl",
    ]
    monkeypatch.chdir("/")
    (folder / "own_letters.py").write_text("def make(size): ... # more\n")
    with pytest.raises(PlanFileError, match=r"own_letters\.py has changed"):
        rlc.load_plan(saved)


def test_an_edited_provenance_is_refused(saved: Path) -> None:
    data = json.loads(saved.read_text())
    data["provenance"]["stages.main.optimizer.learning_rate"] = "a dream"
    saved.write_text(json.dumps(data))
    with pytest.raises(PlanFileError, match="was edited"):
        rlc.load_plan(saved)


def test_a_plan_without_these_facts_still_reads(saved: Path) -> None:
    plan = evolve(rlc.load_plan(saved), data=())
    data = json.loads(saved.read_text())
    del data["data"], data["provenance_hash"]
    data["plan_hash"] = plan_hash(plan)
    saved.write_text(json.dumps(data))
    assert rlc.load_plan(saved) == plan
