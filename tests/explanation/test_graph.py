"""The job graph as diagrams."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from plan_recipes import EVERYTHING, planned, recipe

from rlc.explanation.job import Format, render_graph


def test_every_node_and_edge_is_drawn_once() -> None:
    plan = planned(EVERYTHING)
    mermaid = render_graph(plan, "mermaid")
    boxes = re.findall(r"^ +(n_\w+)[\[(]", mermaid, re.MULTILINE)
    arrows = re.findall(r"^ +(n_\w+) (?:-->|==>|-\.->)\|.*?\| (n_\w+)$", mermaid, re.MULTILINE)
    assert len(boxes) == len(set(boxes)) == len(plan.graph.nodes)
    assert len(arrows) == len(plan.graph.edges)
    assert {end for arrow in arrows for end in arrow} == set(boxes)
    assert mermaid.count("subgraph") == len(plan.stages)
    dot = render_graph(plan, "dot")
    assert len(re.findall(r"^ +\".*\" -> \".*\";?", dot, re.MULTILINE)) == len(plan.graph.edges)
    assert dot.count("subgraph") == len(plan.stages)
    assert dot.count("{") == dot.count("}")


@pytest.mark.parametrize("format", ["mermaid", "dot"])
def test_delays_slack_and_parts_are_shown(format: Format) -> None:
    text = recipe("quickstart")
    stale = render_graph(planned(text, "main.overlap=asynchronous(max_staleness = 1)"), format)
    assert "weights (step − 1, up to 1 older)" in stale
    parts = render_graph(planned(text, "main.overlap=streamed(minibatches = 4)"), format)
    assert "datums (in 4 parts)" in parts
    of_turns = planned(recipe("sudoku"), "main.overlap=streamed(minibatches = 4)")
    drawn = render_graph(of_turns, format)  # the turns to train on are chosen of the whole
    assert "rewards (in 4 parts)" in drawn
    assert "datums (in 4 parts)" not in drawn


def test_edges_of_earlier_steps_and_between_stages_look_different() -> None:
    mermaid = render_graph(planned(recipe("warm_start")), "mermaid")
    assert 'n_main_optim__step -.->|"weights (step − 1)"| n_main_snapshot' in mermaid
    assert 'n_warmup_optim__step ==>|"weights"| n_main_snapshot' in mermaid
    assert '["train main: 20 steps"]' in mermaid
    assert '["eval heldout: 32 tasks"]' in mermaid


def test_a_stage_may_be_called_end() -> None:
    """A word of Mermaid's own must not close a box."""
    text = recipe("quickstart").replace("main", "end")
    assert 'subgraph n_end["train end: 50 steps"]' in render_graph(planned(text), "mermaid")


def test_quotes_in_a_label_are_escaped(tmp_path: object) -> None:
    folder = '/tmp/"weights"'
    plan = planned(recipe("quickstart"))
    node = evolve(plan.graph.nodes[0], label=f"{folder} + LoRA")
    odd = evolve(plan, graph=evolve(plan.graph, nodes=(node, *plan.graph.nodes[1:])))
    assert '\\"weights\\"' in render_graph(odd, "dot")
    assert "#quot;weights#quot;" in render_graph(odd, "mermaid")
