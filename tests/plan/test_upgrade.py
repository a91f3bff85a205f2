"""Plans that older versions wrote are read, and mean the same."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from dialect_batches import draw_batch, episodes_of
from paths import RECIPES
from run_support import train

from rlc.algo import compute_advantages
from rlc.catalog.environments import chat_history_of, goes_on
from rlc.catalog.plan_files import plan_from_file
from rlc.compile.recipe import compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_to_dict
from rlc.plan.graph import build_graph
from rlc.plan.stages import StagePlan

# `rlc explain RECIPE --out` of commit 0962812b, for every recipe that shipped with it.
with gzip.open(Path(__file__).parent / "data" / "schema3.json.gz") as file:
    PLANS: dict[str, dict[str, Any]] = json.load(file)


# What recipes say differently since: the values that they had.
SINCE = {
    **dict.fromkeys(
        ("gem_deepscaler", "gem_math", "gem_python_tool", "gem_reasoning"), ("main.track=[]",)
    ),
    "cookbook_tutorial": ("main.optimizer.learning_rate=4.91e-4",),
    "harbor": ("main.overlap=synchronous()",),
    "solver_judge": ("duel.data=countdown", "duel.samples=489_340", "test.data=countdown"),
    "sudoku": ("main.batch.parallel=64",),
}
# What their texts say since of how turns go on, and what they said, or what was so without a word.
SAMPLED, ANEW = "chat(history = sampled)", "chat(history = template)"
_SUDOKU = "Please reason step by step, and put your final answer within \\\\boxed{}."
TURNS = {
    "cookbook_arithmetic": {"100 },\n)": f"100 }},\n) |> {ANEW}"},
    "debate": {SAMPLED: ANEW},
    "harbor": {SAMPLED: ANEW},
    "mcp_tools": {"history = sampled": "history = template"},
    "openreward": {"shuffle = true)": f"shuffle = true) |> {ANEW}"},
    "gem_python_tool": {SAMPLED: "concat_chat() |> template(no)"},
    "gem_search_tool": {"track()": "concat_chat()", SAMPLED: "track() |> template(no)"},
    "sudoku": {
        f'|> chat(instruction = "{_SUDOKU}")': "|> concat() |> template(qwen3_game)",
        "renderer  = qwen3_instruct": "",
    },
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_schema_3_is_what_its_recipe_compiles_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECIPES.parent)
    old, intact = plan_from_file(
        {key: value for key, value in PLANS[name].items() if key != "made_from"}, "recipes"
    )
    assert intact, "its hash is that of the document as it stands"
    path = f"recipes/{name}.rl"
    text = Path(path).read_text(encoding="utf-8")
    for new, before in TURNS.get(name, {}).items():
        assert new in text
        text = text.replace(new, before)
    now = compile_source(Source(path, text), SINCE.get(name, ()), reader=Reader()).plan
    assert now is not None
    assert old.graph == now.graph == build_graph(old.stages)
    stages = tuple(map(with_same_advantage, old.stages, now.stages))
    assert stages == now.stages
    assert evolve(old, provenance={}, stages=stages) == evolve(now, provenance={})


def with_same_advantage(old: StagePlan, now: StagePlan) -> StagePlan:
    """The old stage with the advantage of the new one, which is written otherwise and computes the
    same."""
    before, after = (getattr(stage, "policy_gradient", None) for stage in (old, now))
    if before is None or after is None:
        return old
    draw = random.Random(old.name)
    for batch in (draw_batch(draw) for _ in range(5)):
        found, expected = (
            compute_advantages(one.advantage, episodes_of(batch)) for one in (before, after)
        )
        assert found.kept_R.tolist() == expected.kept_R.tolist()
        np.testing.assert_allclose(
            found.advantages_N, expected.advantages_N, rtol=1e-12, atol=1e-12
        )
    return evolve(old, objective=evolve(before, advantage=after.advantage))


def test_what_is_no_plan_of_schema_3_is_refused() -> None:
    data = json.loads(json.dumps(PLANS["quickstart"]))
    for key in ("plan_hash", "provenance_hash", "paths_start_at", "made_from"):
        data.pop(key, None)
    plan_from_dict(data)
    data["stages"][0]["steps"] = "many"
    with pytest.raises(PlanFormatError, match="steps"):
        plan_from_dict(data)
    for stages in (None, [None], [{"kind": "dance"}], [{"kind": "sft", "data": 3}]):
        with pytest.raises(PlanFormatError):
            plan_from_dict({**data, "stages": stages})
    with pytest.raises(PlanFormatError, match="schema_version is 2"):
        plan_from_dict({**data, "schema_version": 2})


@pytest.mark.parametrize(
    ("version", "renderer", "env", "history"),
    [
        (4, "qwen3", 'gem("game:GuessTheNumber-v0-easy") |> chat()', "template"),
        (4, "qwen3", 'python("game:make") |> rollouts(max_turns = 4)', "template"),
        (4, "qwen3", 'gem("rg:chain_sum") |> chat()', "sampled"),  # there is one turn
        (4, "qwen3_instruct", 'gem("game:GuessTheNumber-v0-easy") |> chat()', "sampled"),
        (5, "qwen3", 'cookbook("builders:Words")', "template"),
        (5, "qwen3_instruct", 'cookbook("builders:Words")', "sampled"),
    ],
)
def test_the_chats_of_an_older_plan_go_on_as_they_did(
    version: int, renderer: str, env: str, history: str
) -> None:
    """Where their renderer changed earlier turns, each turn was a prompt of its own."""
    model = f'model policy {{ base = "tiny"  renderer = {renderer} }}\n'
    text = f"{model}env guess = {env}\n{train()}"
    now = compile_source(Source("r.rl", text)).plan
    assert now is not None
    data = plan_to_dict(now) | {"schema_version": version}
    (old_env,) = data["stages"][0]["source"]["envs"]
    for step in old_env["wrappers"]:
        step["args"].pop("history", None)
    old, _ = plan_from_file(data, "")
    (played,) = old.stages[0].played
    assert chat_history_of(played) == history
    kept = goes_on(played, renderer)
    assert kept is (history == "sampled")
    assert goes_on(now.stages[0].played[0], renderer) is not False
