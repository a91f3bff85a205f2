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
    page = readme(JobDescription("job", "rlc run", path.name, (), (), False, "3.11"), plan)
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
