"""Latencies as users write them, or as a run has measured them, and what explain makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_recipes import planned

from rlc.cli.main import main
from rlc.explanation import explain_dict, explain_text
from rlc.lang.diagnostics import Diagnostics
from rlc.pricing.critical_path import LatencyError, declared_latencies, measured_latencies

RECIPE = """\
model policy { base = "tiny" lora_rank = 4 }
env spell = gem("rg:spell_backward") |> chat()
train main {
  model = policy env = spell batch = groups(8, group_size = 4) sampling = sample(max_tokens = 8)
  advantage = grpo() loss = importance_sampling() optimizer = adam(1e-4) steps = 10
  OVERLAP
}
"""
PLAIN = RECIPE.replace("OVERLAP", "")
STREAMED = RECIPE.replace("OVERLAP", "overlap = streamed(4)")


def test_a_declared_time_is_of_a_whole_batch() -> None:
    given = declared_latencies(planned(STREAMED), ["sampling=10s..40s", "training=2s"])
    assert given["main"]["rollouts"] == [10, 20, 30, 40]
    assert given["main"]["forward_backward"] == [0.5] * 4


def test_any_node_and_unit() -> None:
    given = declared_latencies(planned(PLAIN), ["snapshot=250ms,rollouts=1.5m"])
    assert given == {"main": {"snapshot": [0.25], "rollouts": [90.0]}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sampling=30", "`30` is no time"),
        ("sampling=40s..10s", "no time"),
        ("trainning=3s", "did you mean training"),
        ("sampling", "is no latency"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, says: str) -> None:
    with pytest.raises(LatencyError, match=says):
        declared_latencies(planned(PLAIN), [text])


def span(step: int, kind: str, seconds: float, part: int = 0) -> dict[str, object]:
    return {"stage": "main", "step": step, "part": part, "kind": kind, "start": 5.0 * step,
            "end": 5.0 * step + seconds}  # fmt: skip


def test_measured_times_are_medians_over_steps() -> None:
    records = [span(step, "rollouts", took) for step, took in enumerate((9.0, 2.0, 3.0), 1)]
    given = measured_latencies(planned(PLAIN), records)
    assert given == {"main": {"rollouts": [3.0]}}


def test_a_run_with_other_overlap_is_refused() -> None:
    with pytest.raises(LatencyError, match="in 1 parts, and this plan takes it in 4"):
        measured_latencies(planned(STREAMED), [span(1, "rollouts", 1.0)])


def test_text_and_data_tell_the_critical_path_only_if_asked() -> None:
    plan = planned(PLAIN)
    given = declared_latencies(plan, ["sampling=30s,training=5s"])
    assert "timing" not in explain_dict(plan, "r.rl", Diagnostics())
    (timing,) = explain_dict(plan, "r.rl", Diagnostics(), given)["timing"]
    assert timing["critical_path"] == ["rollouts", "forward_backward"]
    assert (timing["seconds_per_step"], timing["seconds"]) == (35, 350)
    assert "35 s a step, 5 min 50 s in all" in explain_text(plan, Diagnostics(), latencies=given)


def test_the_command_reads_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.rl"
    recipe.write_text(PLAIN, encoding="utf-8")
    lines = [json.dumps(span(1, "rollouts", 7.0)), json.dumps(span(1, "optim_step", 1.0))]
    (tmp_path / "timeline.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["explain", str(recipe), "--latency", str(tmp_path)]) == 0
    assert "8 s a step" in capsys.readouterr().out
    assert main(["explain", str(recipe), "--latency", str(tmp_path / "no")]) == 2
    assert "timeline" in capsys.readouterr().err
