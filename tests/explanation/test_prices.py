"""What is paid is the same wherever it is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import RECIPES

pytest.importorskip("mcp")
pytest.importorskip("pygls")

from rlc.cli import mcp_server
from rlc.compile.recipe import compile_source
from rlc.emit.job.folder import JobDescription, readme
from rlc.explanation.full import explain_dict, explain_text
from rlc.explanation.layout import dollars
from rlc.explanation.sizes import price
from rlc.explanation.summary import summary_text
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source
from rlc.lsp.documents import Document, Documents
from rlc.lsp.protocol import check
from rlc.pricing.asked import ASKED
from rlc.pricing.cost import bill_rows, plan_cost

# Judges, teachers, opponents, references, data that others play, held-out data.
_ASKS = re.compile(r"\bjudge\b|teacher +=|against =|^preference|samples\(|heldout +=|kl +=", re.M)
ASKING = [
    path
    for path in sorted([*RECIPES.glob("*.rl"), *RECIPES.glob("yardstick/*.rl")])
    if _ASKS.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("path", ASKING, ids=lambda path: path.stem)
def test_five_places_show_one_price(path: Path) -> None:
    """The summary, the bill, the page of a job, what agents are told, and the editor."""
    source, none = Source(str(path), path.read_text(encoding="utf-8")), Diagnostics()
    plan = compile_source(source).plan
    assert plan is not None
    costs = plan_cost(plan)
    page = readme(JobDescription("job", "rlc run", path.name, (), (), (), False, "3.11"), plan)
    for text in (summary_text(plan, none), page, mcp_server.explain(str(path))):
        assert price(costs) in " ".join(text.split())
    assert price([*check(Documents(), Document(source)).costs.values()]) == price(costs)
    total = bill_rows(costs)["total"]
    assert list(explain_dict(plan, "", none)["cost"]["total"].values()) == [m.total for m in total]
    bill = " ".join(explain_text(plan, none).split())
    for kind, amounts in bill_rows(costs).items():
        if any(amounts) and kind in (*ASKED, "total"):
            assert f" {kind} " in bill
            assert " ".join(dollars(money, sign="") for money in amounts) in bill


UNPRICED = """
model policy { base = "tiny" }
judge grader = rubric("Right?", model = endpoint("https://localhost/v1", model = "own-judge"))
env sums = gem("rg:simple_equations") |> judged(grader) |> chat()
train main {
  model = policy  env = sums  steps = 3  batch = groups(2, group_size = 4)  advantage = grpo()
  sampling = sample(max_tokens = 64)  optimizer = adam(1e-4)  loss = importance_sampling()
}
sweep rates { of = main  over = { main.steps = [3, 4] }  metric = main.reward }
"""


def test_where_no_price_is_known_it_says_of_which_model() -> None:
    source, none = Source("recipe.rl", UNPRICED), Diagnostics()
    compiled = compile_source(source)
    assert compiled.plan is not None
    text = summary_text(compiled.plan, none, sweeps=compiled.sweeps)
    assert "cost         unknown: no price of own-judge is known\n" in text
    assert "compared by main.reward; cost unknown" in " ".join(text.split())
    assert "lower bounds" not in text
    assert "unknown to" not in text
    full = explain_text(compiled.plan, none, sweeps=compiled.sweeps)
    assert full.count("unknown: no price of") == 2  # of the whole, and of all trials
    costs = check(Documents(), Document(source)).costs
    assert price([*costs.values()]) == "unknown: no price of own-judge is known"
