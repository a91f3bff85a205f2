"""The formatter: meaning and comments are kept, and formatting twice changes nothing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from recipe_strategies import recipes, write

from rlc.lang.ast import Recipe
from rlc.lang.formatter import format_text
from rlc.lang.lexer import lex
from rlc.lang.parser import parse
from rlc.lang.source import Source
from rlc.lang.tables import load_tables


def read(text: str) -> tuple[Source, Recipe]:
    source = Source("test.rl", text)
    recipe, found = parse(source)
    assert not found, (text, found)
    return source, recipe


def formatted(text: str) -> str:
    return format_text(*read(text))


def comments_of(text: str) -> Counter[str]:
    source = Source("test.rl", text)
    comments = lex(source, load_tables()).comments
    return Counter(text[token.start : token.end].rstrip() for token in comments)


@given(recipes, st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_any_recipe_keeps_its_meaning_and_comments(recipe: Recipe, seed: int) -> None:
    text = write(recipe, seed)
    source, parsed = read(text)
    assert parsed == recipe
    once = format_text(source, parsed)
    assert read(once)[1] == recipe
    assert formatted(once) == once
    assert comments_of(once) == comments_of(text)
