"""Keys are found wherever they stand, and shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.compile.recipe import compile_source
from rlc.lang import Source, is_variable, masked, render_github, render_json, render_sarif
from rlc.lang.render import render_human

BEGINNINGS = ("sk-", "sk-ant-", "tml-", "hf_", "ghp_", "github_pat_", "xoxb-", "gsk_")
BODIES = st.text("abcdefghijABCDEFGHIJ", min_size=20, max_size=60).map(lambda text: f"{text}7")
KEYS = st.builds(str.__add__, st.sampled_from(BEGINNINGS), BODIES)


def everywhere(key: str) -> Iterator[str]:
    """Recipes with a key in them, of which other findings point at the same line."""
    yield f'env shop = openreward("Org/Shop", secrets = ["{key}"], tols = [])\n'
    yield f"# {key}\nparam x = 1\n"
    yield f'model policy {{ base = "{key}" }}\n'
    yield f'env own = python("a.b:c", args = {{ api_key = "{key}" }}, arg = 1)\n'


@given(KEYS)
def test_a_key_is_an_error_and_no_output_shows_it(key: str) -> None:
    for text in everywhere(key):
        found = compile_source(Source("r.rl", text)).diagnostics
        assert "RL0323" in {item.code for item in found}
        shown = [render_human(found, color=True), render_json(found), render_github(found)]
        for output in (*shown, render_sarif(found, "1")):
            assert key not in output
            assert key[8:] not in output


def test_a_key_on_the_command_line_is_one_too() -> None:
    key = "sk-" + "a1" * 12
    text = 'env own = python("a.b:c", args = {})\n'
    found = compile_source(Source("r.rl", text), [f'own="{key}"']).diagnostics
    assert found[0].code == "RL0323"
    assert key not in render_human(found, color=False)


@given(KEYS, st.text("abc \n", max_size=5))
def test_masks_keep_every_column(key: str, around: str) -> None:
    text = f"{around} {key} {around}"
    assert len(masked(text)) == len(text)
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "key", "Org_Key_2", "A" * 40, "MY_0123456789_LONG_NAME_OF_A_KEY"]
)
def test_names_of_variables_are_names(name: str) -> None:
    assert is_variable(name)


@pytest.mark.parametrize(
    "value", ["hunter 2", "", "0f3b", "a" * 20 + "1", "sk-" + "a1" * 12, "hf_" + "b2" * 12, 7, None]
)
def test_other_values_are_none(value: object) -> None:
    assert not is_variable(value)


@pytest.mark.parametrize(
    "text",
    ["task-0123456789abcdefghij", "sk-learn", "hf_hub_download", "risk_of_0123456789", "AKIA"],
)
def test_words_that_look_alike_are_left_alone(text: str) -> None:
    assert masked(text) == text


def test_places_in_json_are_those_of_the_text() -> None:
    key = "tml-" + "a1" * 12
    found = compile_source(Source("r.rl", f'param key = "{key}"\n')).diagnostics
    (first, *_) = json.loads(render_json(found))
    assert (first["column"], first["end_column"]) == (14, 14 + len(key))
