"""How a run shows in a notebook."""

from __future__ import annotations

from pathlib import Path

from rlc.runtime.summary import EvalSummary, StageSummary, Summary, curve, summary_html


def test_a_curve_goes_from_left_to_right_and_up() -> None:
    svg = curve([0.0, 0.5, 1.0])
    assert 'points="0.0,31.0 120.0,16.0 240.0,1.0"' in svg
    assert curve([1.0]) == ""
    assert "31.0" in curve([2.0, 2.0])  # a flat one lies at the bottom


def test_a_summary_shows_stages_and_evaluations() -> None:
    stage = StageSummary("main", 10, "reward", [0.1, 0.9], 3.0, "local://x/weights/<y>")
    held = EvalSummary("heldout", 10, {"pass@1": 0.5})
    html = summary_html(Summary(Path("runs/x"), "finished", [stage], [held], 1.5))
    for part in ("finished", "$1.50 spent", "2 of 10", "heldout after step 10: pass@1 0.500"):
        assert part in html
    assert "&lt;y&gt;" in html
