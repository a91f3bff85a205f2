"""Broken recipes: each mistake is reported where it is, and the rest is still read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from recipe_strategies import recipes, write

from rlc.lang.ast import BlockDecl, Recipe
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.formatter import format_text
from rlc.lang.read import read_source
from rlc.lang.render import render_human, render_sarif
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.lang.syntax.lalr import MAX_FINDINGS

pytestmark = pytest.mark.slow

GOLDEN = sorted((Path(__file__).parent / "cases").glob("*.rl"))

RECIPE = """\
# two stages
param rate: float = 4e-5

model policy {
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
}

env sudoku = gem("game:Sudoku-v0-easy", turns = 4)
  |> concat(last = 2)
  |> template(qwen3_game)
env mix = 3 * sudoku + 1 * other

train main {
  model     = policy
  env       = mix
  batch     = turns(
    128,
    parallel = 64,
  )
  metrics   = [pass_at(1), pass_at(8)]
  optimizer = adam(rate)
  steps     = 200
}

eval heldout {
  model = main
  samples = 8
}
"""

# A piece of the recipe, and what a slip of the hand makes of it.
SLIPS = [
    ("float = 4e-5", "float 4e-5"),
    ("rate: float", "rate float"),
    ("4e-5", "4e-5x"),
    ("model policy {", "model {"),
    ("model policy {", "model policy"),
    ("model policy {", "model my policy {"),
    ("lora_rank = 32\n}", "lora_rank = 32\n"),
    ("lora_rank = 32", "lora_rank: 32"),
    ("lora_rank = 32", "lora_rank == 32"),
    ("lora_rank = 32", "lora_rank 32"),
    ("lora_rank = 32", "lora-rank = 32"),
    ("lora_rank = 32", "lora_rank ="),
    ("lora_rank = 32", "lora_rank = 32;"),
    ("lora_rank = 32", "// lora_rank = 32"),
    ("lora_rank = 32", "lora_rank = 32 }"),
    ('"Qwen/Qwen3-8B"', "'Qwen/Qwen3-8B'"),
    ('"Qwen/Qwen3-8B"', '"Qwen/Qwen3-8B'),
    ('"Qwen/Qwen3-8B"', '"Qwen\\Qwen3-8B"'),
    ('easy", turns', 'easy" turns'),
    ('easy", turns', "easy, turns"),
    ("turns = 4)", "turns = 4"),
    ("turns = 4)", "turns = 4]"),
    ("concat(last = 2)", "concat(last = 2"),
    ("concat(last = 2)", "concat(last = 2))"),
    ("|> concat", "| concat"),
    ("3 * sudoku + 1", "3 * sudoku + * 1"),
    ("1 * other", "1 *"),
    ("parallel = 64,\n  )", "parallel = 64,\n"),
    ("parallel = 64", "parallel: 64"),
    ("pass_at(1), pass_at(8)", "pass_at(1) pass_at(8)"),
    ("pass_at(8)]", "pass_at(8)"),
    ("steps     = 200\n}", "steps     = 200\n"),
    ("steps     = 200", "steps     = .5.1"),
    ("steps     = 200", "steps     = 200 300"),
    ("samples = 8\n}\n", "samples = 8\n"),
]


def read(text: str) -> tuple[Recipe, Diagnostics]:
    return parse(Source("test.rl", text))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_broken_recipe_reads_like_this(path: Path) -> None:
    _, found = parse(Source(path.name, path.read_text(encoding="utf-8")))
    check_golden(path.with_suffix(".out"), render_human(found, color=False))


@pytest.mark.parametrize(("before", "after"), SLIPS)
def test_one_slip_is_one_error_at_its_place(before: str, after: str) -> None:
    text = RECIPE.replace(before, after, 1)
    line = RECIPE[: RECIPE.index(before)].count("\n") + 1
    last = line + before.rstrip("\n").count("\n")
    _, found = read(text)
    places = [error.span.line for error in found if error.span]
    assert len(places) == 1, found
    assert line - 1 <= places[0] <= last + 1


@pytest.mark.parametrize(("before", "after"), SLIPS)
def test_one_slip_loses_no_other_declaration(before: str, after: str) -> None:
    recipe, _ = read(RECIPE.replace(before, after, 1))
    names = {decl.name.id for decl in recipe.decls if hasattr(decl, "name")} | recipe.unread
    lost = {"rate", "policy", "sudoku", "mix", "main", "heldout"} - names
    assert not lost or (after.startswith("model") and lost == {"policy"})


def on_few_lines(text: str) -> str:
    """Without line breaks but those after comments, so that the words alone must tell."""
    return " ".join(line.strip() for line in text.splitlines() if not line.startswith("#"))


def without_indent(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize("layout", [on_few_lines, without_indent])
@pytest.mark.parametrize(("before", "after"), SLIPS)
def test_the_layout_is_not_needed(before: str, after: str, layout: Callable[[str], str]) -> None:
    """A slip is found near its place and loses no other declaration in any layout."""
    text = RECIPE.replace(before, after, 1)
    recipe, found = read(layout(text))
    start = RECIPE.index(before)
    first, last = (len(layout(text[:place])) for place in (start, start + len(after)))
    assert found
    comment = after.startswith("//") and layout is on_few_lines  # it takes the rest along
    for error in found:
        assert error.span
        assert first - 60 <= error.span.start <= last + 60 or comment
    names = {decl.name.id for decl in recipe.decls if hasattr(decl, "name")} | recipe.unread
    lost = {"rate", "policy", "sudoku", "mix", "main", "heldout"} - names
    assert not lost or comment or lost == {"policy"}


def test_several_mistakes_are_several_errors() -> None:
    slips = [SLIPS[0], SLIPS[7], SLIPS[19], SLIPS[29], SLIPS[32]]
    text = RECIPE
    for before, after in slips:
        text = text.replace(before, after, 1)
    _, found = read(text)
    assert [error.span and error.span.line for error in found] == [2, 6, 9, 21, 23]


def test_what_could_not_be_read_is_named() -> None:
    recipe, _ = read("env a = f(\nenv b = g()\ntrain t { x = 1 y = 2 3 }")
    assert recipe.unread == {"a"}
    block = recipe.decls[1]
    assert isinstance(block, BlockDecl)
    assert [field.name.id for field in block.fields] == ["x"]
    assert block.unread == {"y"}


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    for text in ("[" * 5000 + "]" * 5000, "-" * 5000 + "1", "a" + " + a" * 5000):
        _, (error,) = read(f"env x = {text}")
        assert error.code == "RL0016"


@pytest.mark.parametrize("text", ["(", "}", "a(|>", "@x=1\n", "x y z\n", "m x {\n", '"\\q" ', "'"])
def test_a_large_broken_file_is_soon_given_up(text: str) -> None:
    start = time.process_time()
    _, found = read(text * 20_000)
    assert 0 < len(found) <= MAX_FINDINGS
    assert time.process_time() - start < 10


@given(st.text(max_size=200))
def test_any_text_gives_diagnostics(text: str) -> None:
    check_total(text)


MARKS = ["=", ":", "{", "}", "(", ")", "[", "]", ",", "|>", "*", "-", ".", "#", "//", "\n", " "]
WORDS = [
    "train",
    "x",
    "then",
    "true",
    "1",
    "4e",
    ".5",
    "$",
    "7d",
    '"a"',
    '"',
    "'",
    "\\",
    "é",
    "\x1b",
]
pieces = st.sampled_from([*MARKS, *WORDS])


@given(st.lists(pieces, max_size=60).map("".join))
def test_any_words_give_diagnostics(text: str) -> None:
    check_total(text)


@given(st.data())
def test_any_cut_or_doubled_part_gives_diagnostics(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(RECIPE)))
    end = data.draw(st.integers(start, min(len(RECIPE), start + 30)))
    middle = RECIPE[start:end] * data.draw(st.sampled_from([0, 2]))
    check_total(RECIPE[:start] + middle + RECIPE[end:])


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda t: t.encode("utf-16")))
def test_any_bytes_give_diagnostics(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.rl"
    path.write_bytes(data)
    source, found = read_source(path)
    assert (source is None) == bool(found)
    if source is not None:
        check_total(source.text)


@given(recipes, st.integers(0, 2**32), st.data())
@settings(max_examples=40, deadline=None)
def test_any_damage_to_any_recipe_gives_diagnostics(
    recipe: Recipe, seed: int, data: st.DataObject
) -> None:
    """Characters dropped, doubled and exchanged, and what the fixes make of that."""
    text = write(recipe, seed)
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(text)))
        new = data.draw(st.sampled_from(["", *MARKS, *WORDS]))
        text = text[:place] + new + text[place + data.draw(st.integers(0, 2)) :]
    check_total(text)
    check_total(fix_all(Source("test.rl", text), lambda source: parse(source)[1]).source.text)


def check_total(text: str) -> None:
    """Anything is either read and formatted, or refused with places inside the text."""
    source = Source("test.rl", text)
    recipe, found = parse(source)
    assert render_human(found, color=True) or not found
    for error in found:
        assert error.span
        spans = [error.span, *(span for span, _ in (error.fix.edits if error.fix else ()))]
        assert all(0 <= span.start <= span.end <= len(text) for span in spans)
        assert error.fix is None or any(text != span.text for span, text in error.fix.edits)
    render_sarif(found, "1")
    if not found:
        format_text(source, recipe)


@pytest.mark.parametrize("word", ["thené", "trueé", "falseß"])
def test_a_keyword_with_another_letter_is_one_name(word: str) -> None:
    _, (found,) = read(f"env x = {word}")
    assert (found.code, found.span and found.span.text) == ("RL0015", word)


@pytest.mark.parametrize("digits", [299, 309, 350, 400, 5_000])
def test_a_number_beyond_floats_is_a_finding(digits: int) -> None:
    _, found = parse(Source("big.rl", f"param x: float = 1{'0' * digits}"))
    assert [item.code for item in found] == ["RL0014"] * (digits > 300)
