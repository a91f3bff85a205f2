"""What the words of a text mean, as the reader of the editor has it: the same as the compiler."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import RECIPES
from recipe_strategies import recipes, write

from rlc.catalog.records import Param
from rlc.check.notes import Note
from rlc.lang.ast import BlockDecl, Recipe, ValueDecl
from rlc.lang.source import Source, Span
from rlc.lang.syntax import parse
from rlc.lsp.documents import Document, Documents

ALL = sorted(str(path.relative_to(RECIPES)) for path in RECIPES.rglob("*.rl"))


def meanings(text: str) -> list[tuple[str, Note]]:
    document = Document(Source("a.rl", text))
    found = Documents().notes(document)[0]
    return [(text[word.start : word.end], word) for word in found]


def declared(recipe: Recipe) -> list[tuple[str, str, bool]]:
    """What a syntax tree declares: kind, name and whether with parameters."""
    decls = (decl for decl in recipe.decls if isinstance(decl, BlockDecl | ValueDecl))
    return [(decl.kind.id, decl.name.id, decl.parameters is not None) for decl in decls]


def outlined(source: Source) -> list[tuple[str, str, bool]]:
    decls = [decl for chunk in Document(source).chunks for decl in chunk.decls]
    return declared(Recipe(Span(source, 0, 0), tuple(decls)))


@pytest.mark.parametrize("name", ALL)
def test_every_word_of_a_recipe_is_understood(name: str) -> None:
    documents = Documents()
    document = documents.get(str(RECIPES / name))
    assert document is not None
    recipe, _ = parse(document.source)
    assert outlined(document.source) == declared(recipe)
    for word in documents.notes(document)[0]:
        text = document.source.text[word.start : word.end]
        if word.role == "kind" and text == "import":
            continue
        if word.role in ("kind", "field", "argument", "builtin", "reference", "word", "local"):
            assert word.what is not None, (text, document.source.position(word.start))


def test_an_expression_may_stand_first_without_its_name() -> None:
    text = """env a = rows("a.jsonl") |> reward((2 * total - min(tokens, 3)) / 4, low = 0)
env b = rows("a.jsonl") |> reward(min, shaped = -turns)"""
    words = [(word, found.role) for word, found in meanings(text)]
    for each in ("total", "tokens", "turns"):
        assert (each, "input") in words
    assert words.count(("min", "function")) == words.count(("min", "word")) == 1


@settings(max_examples=10)  # each takes as long as a hundred short texts
@given(recipes, st.integers(0, 2**32))
def test_declarations_are_those_of_the_parser(recipe: Recipe, seed: int) -> None:
    text = write(recipe, seed)
    if "\r" in text or "\n#" in text:  # laid out by chance: what stands at a margin may be inside
        text = " ".join(line.partition("#")[0] for line in text.splitlines())
    source = Source("generated", text)
    parsed, problems = parse(source)
    if not problems:
        assert set(declared(parsed)) <= set(outlined(source))


def test_a_name_has_the_meaning_of_its_place() -> None:
    found = meanings(
        "param step: float = 1.0\n"
        "advantage mine = returns() |> scale(step, over = group)\n"
        "loss own(tau = 2.0) { part = tau * adv  token = -part }\n"
        "train big(rate: float(above = 0) = 1e-4) { optimizer = adam(rate) }\n"
    )
    roles = [(text, word.role) for text, word in found if word.role not in ("literal", "kind")]
    assert roles == [
        *(("step", "declares"), ("float", "type")),
        *(("mine", "declares"), ("returns", "builtin"), ("scale", "builtin")),
        *(("step", "reference"), ("over", "argument"), ("group", "word")),
        *(("own", "declares"), ("tau", "parameter"), ("part", "local"), ("tau", "parameter")),
        *(("adv", "input"), ("token", "field"), ("part", "local")),
        *(("big", "declares"), ("rate", "parameter"), ("float", "type"), ("above", "argument")),
        *(("optimizer", "field"), ("adam", "builtin"), ("rate", "parameter")),
    ]


def test_a_mistake_does_not_reach_the_next_declaration() -> None:
    """A bracket that is left open, a value that is missing, and a string that never ends."""
    for broken in ("env x = gem(", "train a {\n  steps = \n", 'env x = gem("', "model a {\n  (["):
        found = meanings(f"{broken}\ntrain main {{\n  loss = ppo()\n}}\n")
        by_text = dict(found)
        assert by_text["main"].role == "declares"
        assert by_text["loss"].role == "field"
        assert by_text["ppo"].role == "builtin"


def test_parameters_are_read_with_types_and_defaults() -> None:
    text = "env e(size: int(1, 9) = 3, mode: word(fast, slow), rest) = gem(mode)"
    document = Document(Source("a.rl", text))
    annotator = document.annotator(Documents().seen(document))
    size, mode, rest = annotator.parameters(annotator.declared["e"])
    assert (size.type, size.required) == ("int", False)
    assert (mode.choices, mode.required) == (("fast", "slow"), True)
    assert rest.type == "any"
    assert isinstance(size, Param)
