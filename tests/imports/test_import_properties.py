"""Whatever comes in: a recipe that parses, or one sentence about what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_cases import COMMANDS, OPENREWARD_RESUMED, RLLM_YAML

from rlc.imports import gem, openreward, rllm_options, trl, verl
from rlc.imports.convert import SOURCES, convert, job_of_command, job_of_text, with_overrides
from rlc.imports.settings import InputError
from rlc.lang.source import Source
from rlc.lang.syntax import parse

NAMES = sorted(
    gem.OPTIONS
    | gem.COOKBOOK_OPTIONS
    | openreward.OPTIONS
    | rllm_options.LEGACY
    | rllm_options.UNIFIED
    | trl.TABLES["trl-grpo"]
    | verl.PPO
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "none", "true", "-1", "0", "1e400", "nan", "4e-5", "[", "${a.b}", "${model.name}", "???"]
)
WORDS = st.builds("{}={}".format, st.sampled_from(NAMES) | st.text(max_size=8), TEXTS) | st.text(
    max_size=8
)
SCRIPTS = st.sampled_from(
    ["tinker_train.py", "tinker_cookbook_train.py", "-m examples.solver_judge.train", "main.py", ""]
)


def outcome(make: Callable[[], str]) -> None:
    """A recipe that parses, or an InputError with a sentence."""
    sentence = None
    try:
        text = make()
    except InputError as error:
        sentence = error.message
    if sentence is not None:
        assert sentence
        assert sentence.isprintable()
        return
    _, found = parse(Source("imported.rl", text))
    assert not found
    assert text.encode()


@given(SCRIPTS, st.lists(WORDS, max_size=8), st.sampled_from([None, *SOURCES]), st.booleans())
def test_any_command_gives_a_recipe_or_a_sentence(
    script: str, words: list[str], source: str | None, keep_going: bool
) -> None:
    command = ["python", *script.split(), *words]
    outcome(lambda: convert(job_of_command(command), source, None, keep_going))


@given(st.text(max_size=200), st.booleans())
def test_any_text_gives_a_recipe_or_a_sentence(text: str, keep_going: bool) -> None:
    outcome(lambda: convert(job_of_text(text), None, None, keep_going))


@given(
    st.sampled_from([*COMMANDS.values(), OPENREWARD_RESUMED, RLLM_YAML]),
    st.data(),
    st.booleans(),
)
def test_a_damaged_text_gives_a_recipe_or_a_sentence(
    text: str, data: st.DataObject, keep_going: bool
) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    damaged = text[:start] + data.draw(st.text(max_size=10)) + text[end:]
    outcome(lambda: convert(job_of_text(damaged), None, None, keep_going))


@given(st.lists(WORDS, max_size=4), st.booleans())
def test_any_override_gives_a_recipe_or_a_sentence(words: list[str], keep_going: bool) -> None:
    base = job_of_text(OPENREWARD_RESUMED)
    outcome(lambda: convert(with_overrides(base, words), None, None, keep_going))


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(NAMES), YAML_VALUES, max_size=6), st.booleans())
def test_any_configuration_gives_a_recipe_or_a_sentence(
    values: dict[str, object], keep_going: bool
) -> None:
    yaml = pytest.importorskip("yaml")
    text = OPENREWARD_RESUMED + yaml.safe_dump(values)
    outcome(lambda: convert(job_of_text(text), None, None, keep_going))
    outcome(lambda: convert(job_of_text(yaml.safe_dump(values)), "rllm", 'gem("x")', keep_going))
