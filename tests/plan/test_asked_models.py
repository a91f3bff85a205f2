"""Models that a stage asks are found, changed and waited for wherever they are in its records."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from run_support import TINY, compiled, train
from stage_parts import changed

from rlc.plan.graph import build_graph
from rlc.plan.leaves import asked_models, needed_stages, with_each
from rlc.plan.parts import ModelPlan, ModelState
from rlc.plan.records import Plan
from rlc.records import Record, frozen


@frozen
class Asks(Record):
    """What a later way of asking may look like."""

    teachers: Any


def plan() -> Plan:
    return compiled(TINY + train("first") + train("main", model="first"))


def model(plan: Plan, name: str) -> ModelPlan:
    return evolve(plan.stages[0].model, name=name)


def asking(plan: Plan) -> Any:
    """The second stage of a plan, which asks a model and the stage before it."""
    states = (ModelState(model(plan, "big"), None), ModelState(model(plan, "policy"), "first"))
    stage: Any = plan.stages[1]
    return changed(stage, kl=Asks({"a": states[0], "more": (1.0, Asks(states[1]))}))


def test_a_stage_that_asks_no_model() -> None:
    assert not list(asked_models(plan().stages[1]))
    assert not needed_stages(plan().stages[1])


def test_asked_models_are_found_with_their_paths() -> None:
    stage = asking(plan())
    assert [(path, state.model.name) for path, state in asked_models(stage)] == [
        ("kl.teachers.a", "big"),
        ("kl.teachers.more.1.teachers", "policy"),
    ]
    assert needed_stages(stage) == ("first",)


def test_asked_models_are_changed_and_nothing_else() -> None:
    stage = asking(plan())

    def moved(state: ModelState) -> ModelState:
        return evolve(state, model=evolve(state.model, base="other"))

    other = with_each(ModelState, stage, moved)
    assert [state.model.base for _, state in asked_models(other)] == ["other", "other"]
    assert other.model == stage.model
    assert with_each(ModelState, other, lambda state: state) == other
    assert with_each(ModelState, plan().stages[0], moved) == plan().stages[0]


def test_what_is_asked_flows_into_the_stage() -> None:
    made = plan()
    graph = build_graph((made.stages[0], asking(made)))
    into = [edge.source for edge in graph.edges if edge.target.startswith("main.")]
    assert into.count("model.big") == 1
    assert into.count("first.optim_step") == 2  # where it starts, and what it asks
    (label,) = (node.label for node in graph.nodes if node.id == "model.big")
    assert label == "tiny"
