"""Colours without a server: Pygments' lexer, and the grammar of TextMate."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import RECIPES
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.token import Comment, Keyword, Name, Number, String

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS
from rlc.lang.source import Source
from rlc.lang.words import read_words, vocabulary
from rlc.lsp.highlighting.pygments_lexer import RlLexer
from tools.editor_grammars import grammars
from tools.textmate import textmate_grammar

ALL = sorted(RECIPES.rglob("*.rl"))
TYPES = {"COMMENT": Comment.Single, "STRING": String.Double, "NUMBER": Number, "MONEY": Number}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_words_in_colour_are_those_of_the_compiler(path: Path) -> None:
    text = path.read_text("utf-8")
    tokens = list(RlLexer().get_tokens_unprocessed(text))
    assert "".join(value for _, _, value in tokens) == text
    kinds = {(start, start + len(value)): kind for start, kind, value in tokens}
    for word in read_words(Source("", text)):
        kind = kinds[word.start, word.end]
        assert kind in TYPES.get(word.kind, kind)


@given(st.text(max_size=60))
def test_any_text_keeps_all_its_characters(text: str) -> None:
    tokens = list(RlLexer().get_tokens_unprocessed(text))
    assert "".join(value for _, _, value in tokens) == text


def test_words_have_the_colour_of_what_they_mean() -> None:
    text = 'train main { advantage = grpo(scope = group) loss = mine  steps = 10 }\nloss mine = "x"'
    found = {value: kind for _, kind, value in RlLexer().get_tokens_unprocessed(text)}
    assert found["train"] is Keyword.Declaration
    assert found["advantage"] is Name.Attribute
    assert found["grpo"] is Name.Builtin
    assert found["group"] is Name.Constant
    assert found["main"] is found["mine"] is Name.Variable


def test_pages_and_notebooks_find_the_lexer() -> None:
    points = importlib.metadata.entry_points(group="pygments.lexers")
    (point,) = (each for each in points if each.value.startswith("rlc."))
    assert point.load() is RlLexer
    page = highlight("model policy { lora_rank = 8 }", RlLexer(), HtmlFormatter())
    assert '<span class="kd">model</span>' in page


def test_grammars_of_editors_are_those_that_the_language_has() -> None:
    for path, text in grammars().items():
        advice = f"{path} is not up to date: python -m tools.editor_grammars"
        assert path.read_text("utf-8") == text, advice


def test_every_word_of_the_language_is_in_the_grammar_of_textmate() -> None:
    """As a pattern finds it, not as the text of one."""
    patterns = [rule["match"] for rule in textmate_grammar()["patterns"] if "match" in rule]

    def scopes(text: str) -> set[str]:
        rules = textmate_grammar()["patterns"]
        hits = [rule for rule in rules if "match" in rule and re.match(rule["match"], text)]
        return {rule.get("name") or rule["captures"]["1"]["name"] for rule in hits[:1]}

    assert all(re.compile(pattern) for pattern in patterns)
    for kind in DECLARATIONS:
        assert scopes(f"{kind} x = 1") == {"keyword.other.kind.rl"}
    for builtin in BUILTINS:
        if not builtin.word:
            assert scopes(f"{builtin.name}()") == {"support.function.rl"}
    for word in vocabulary().keywords:
        assert scopes(f"{word} ") <= {"constant.language.rl", "keyword.operator.word.rl"}
