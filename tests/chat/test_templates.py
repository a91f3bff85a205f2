"""Prompt templates from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2.exceptions import SecurityError

from rlc.chat.prompts import load_template
from rlc.data.errors import DataError


def test_a_file_is_filled_with_the_observation_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "prompt.j2"
    path.write_text("{% if 'x' in observation %}Seen: {% endif %}{{ observation }}!\n")
    template = load_template(str(path))
    assert template("x {{ 1 + 1 }} <b>") == "Seen: x {{ 1 + 1 }} <b>!\n"
    assert template("nothing") == "nothing!\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ observation", r"prompt.j2:1: this is no jinja2 template: unexpected end"),
        ("{{ question }}", "must use the variable `observation` and no other; found: question"),
        ("always the same", "found: none"),
        ("{{ observation }} {{ name }}", "found: name, observation"),
    ],
)
def test_a_file_that_would_lose_the_observation_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "prompt.j2"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        load_template(str(path))


def test_a_template_cannot_reach_python(tmp_path: Path) -> None:
    path = tmp_path / "prompt.j2"
    path.write_text("{{ observation.__class__.__mro__[-1].__subclasses__() }}")
    with pytest.raises(SecurityError, match="__class__"):
        load_template(str(path))("x")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read the template"):
        load_template(str(tmp_path / "missing.j2"))


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompt.j2"
    path.write_text("Play: {{ observation }}", encoding="utf-8-sig")
    assert load_template(str(path))("x") == "Play: x"
