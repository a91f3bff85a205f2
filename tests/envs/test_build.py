"""What the catalogue declares can be played, and what can be played is declared."""

from __future__ import annotations

import pytest
from attrs import evolve
from chat_support import env, tokenizer

from rlc.catalog.environments import max_turns
from rlc.catalog.facts import ORACLES, gem_ids
from rlc.catalog.index import names_of, tracker_traits, wrapper_traits
from rlc.envs.build import ADAPTERS, build_env
from rlc.envs.gem import oracles
from rlc.envs.gem.source import OBSERVATIONS
from rlc.plan.environments import StepPlan
from rlc.runtime.trackers import OPENERS


def test_every_source_has_an_adapter() -> None:
    assert {*ADAPTERS, "agent"} == set(names_of("env"))  # an agent has the source of its tasks


def test_every_tracker_has_an_opener() -> None:
    assert set(OPENERS) == set(names_of("tracker"))
    sources = {tracker_traits(name).source for name in names_of("tracker")} - {None}
    assert sources <= set(names_of("env"))


def test_every_history_of_the_catalogue_is_one_of_gem() -> None:
    histories = {name for name in names_of("wrapper") if wrapper_traits(name).role == "history"}
    assert set(OBSERVATIONS) == histories
    templates = {name for name in OBSERVATIONS if wrapper_traits(name).chat_template}
    asked = ("include_chat_template", "apply_chat_template_on_reset")
    assert templates == {n for n, args in OBSERVATIONS.items() if any(map(args.get, asked))}


def test_the_catalogue_knows_the_oracles() -> None:
    assert set(oracles.ORACLES) == set(ORACLES)
    assert {env_id.partition("-v")[0] for env_id in gem_ids()} >= set(ORACLES)


@pytest.mark.engine
def test_a_chat_of_one_reply_takes_any_renderer() -> None:
    """With one turn there is no earlier turn that the renderer could rewrite."""
    chat = StepPlan("chat", {"instruction": ""})
    single = evolve(env(chat), id="rg:chain_sum", args={}, max_turns=1)
    assert max_turns(single) == 1
    assert build_env(single, tokenizer(), "qwen3").new_history().stop
