"""The formatter: meaning and comments are kept, and formatting twice changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import check_golden
from hypothesis import given, settings
from hypothesis import strategies as st
from recipe_strategies import recipes, write

from rlc.lang import Recipe, Source, format_text
from rlc.lang.formatter import WIDTH
from rlc.lang.syntax import parse
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables


def read(text: str) -> tuple[Source, Recipe]:
    source = Source("test.rl", text)
    recipe, found = parse(source)
    assert not found, (text, found)
    return source, recipe


def formatted(text: str) -> str:
    return format_text(*read(text))


def comments_of(text: str) -> list[str]:
    source = Source("test.rl", text)
    comments = lex(source, load_tables()).comments
    return [text[token.start : token.end].rstrip() for token in comments]


@pytest.mark.slow
@given(recipes, st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_any_recipe_keeps_its_meaning_and_comments(recipe: Recipe, seed: int) -> None:
    text = write(recipe, seed)
    source, parsed = read(text)
    assert parsed == recipe
    once = format_text(source, parsed)
    assert read(once)[1] == recipe
    assert formatted(once) == once
    assert comments_of(once) == comments_of(text)


EVERYTHING = """\
import "lib/qwen.rl"
param rate: float = 4e-5
model m { base = "tiny" lora_rank = 8, }
env a = gem("x", n = 2) |> chat(last = 2) |> rollouts(group_size = 16) |> reward(sum)
env mix = 3 * a + 1 * (b - -c) / 2
sft warmup { model = m data = demonstrations(a, n = 2_000) }
train main {
  metrics = [pass_at(1), pass_at(8, share = 10%)], extra = { x = 1, y = { z = [] } }
  on_error = retry(3) then drop budget = $60
}
eval held {}
"""


def test_a_comment_in_any_place_is_kept_and_changes_nothing_else() -> None:
    """Each gap between two words in turn, with the comment ending its line or on its own."""
    source, recipe = read(EVERYTHING)
    tokens = lex(source, load_tables()).tokens
    for place in [0, *(token.end for token in tokens)]:
        for note in (" # note\n", "\n\n  # note\n\n"):
            text = EVERYTHING[:place] + note + EVERYTHING[place:]
            once = formatted(text)
            assert read(once)[1] == recipe
            assert comments_of(once) == ["# note"]
            assert formatted(once) == once


PARENTHESES = """\
env x = (f(1, (2)) |> g((a), b))
env y = 3 * (a |> f(1)) + (-(b))
train t { a = [f((1)), { x = (1), then = (2), y = (3) }] on = (retry((3)) then (drop)) }
"""


@given(st.sampled_from([EVERYTHING, PARENTHESES]), st.data())
@settings(max_examples=60, deadline=None)
def test_comments_keep_their_order(text: str, data: st.DataObject) -> None:
    source, recipe = read(text)
    gaps = [0, *(token.end for token in lex(source, load_tables()).tokens)]
    places = data.draw(st.lists(st.sampled_from(gaps), min_size=2, max_size=5).map(sorted))
    for number, place in reversed(list(enumerate(places))):
        note = data.draw(st.sampled_from([" # {}\n", "\n# {}\n", "\n\n # {}\n\n"]))
        text = text[:place] + note.format(number) + text[place:]
    once = formatted(text)
    assert read(once)[1] == recipe
    assert comments_of(once) == [f"# {number}" for number in range(len(places))]
    assert formatted(once) == once


def test_a_field_with_the_name_of_an_operator_keeps_its_comma() -> None:
    text = "train t {\n  a = { max = 1, then = stop }\n  b = x,  # why\n  then = 2\n}\n"
    assert read(formatted(text))[1] == read(text)[1]
    assert "b    = x,  # why\n  then = 2\n" in formatted(text)


def test_neighbouring_comments_stand_in_one_column() -> None:
    text = "train t {\n  a = 1 # x\n  bb = 200 # y\n  c = 3\n  d = 4 # z\n}\n"
    assert formatted(text).splitlines()[1:5] == [
        "  a  = 1    # x",
        "  bb = 200  # y",
        "  c  = 3",
        "  d  = 4  # z",
    ]


def test_a_comment_stays_near_its_code() -> None:
    far = f"train t {{\n  a = 1  # x\n  b = {'1' * 40}  # y\n}}\n"
    assert formatted(far) == far
    wide = f"train t {{\n  a = 1  # {'x' * 85}\n  b = 12345678  # y\n}}\n"
    assert formatted(wide) == wide


def test_a_hash_in_a_string_is_no_comment() -> None:
    text = 'train t {\n  a = "#"  # x\n  b = "# y"\n  c = "long # z"  # w\n}\n'
    assert formatted(text) == text


def test_the_layout_of_a_recipe() -> None:
    path = Path(__file__).parent / "cases" / "layout.txt"
    check_golden(path, formatted(LAYOUT))


@pytest.mark.parametrize("text", ["# only a comment\n", "env x = 1\n", 'import "a.rl"  # why\n'])
def test_clean_text_stays(text: str) -> None:
    assert formatted(text) == text


def test_lines_are_broken_at_the_width() -> None:
    for length in range(60, 100):
        text = formatted(f'env x = gem("{"a" * length}", split = "train") |> concat(last = 2)')
        lines = text.splitlines()
        assert (len(lines) > 1) == (len(text.replace("\n ", "")) > WIDTH + 1)


LAYOUT = """\
# Licence line
# second line

import "lib/qwen.rl"
param learning_rate : float=4e-5 # per step
# The model.
model policy { base="Qwen/Qwen3-8B",lora_rank = 1_6 }


env sudoku = gem("game:Sudoku-v0-easy") |> concat() |> template(qwen3_game)


env whodunit = openreward("GeneralReasoning/WhoDunIt", split = "train", shuffle = true) # long
  |> rollouts(group_size = 16, temperature = 1.0, max_failures = 2)
  # then score
  |> reward(sum, nonterminal = (0.0))
advantage mine = returns(gamma = 0.95) |> baseline(leave_one_out) |> scale(std) |> clip(-5, 5)
env mix = 3*(whodunit) + 1*(sudoku |> f()) - -x/(2*y)
train main { # two stages
  model = policy, env = mix

  # how many
  batch = turns(128, # episodes
    parallel = 64, # workers
    updates = 1)
  steps = 1_000 # enough
  save = every(20) # and at the end
  metrics = [pass_at(1, samples = 128, confidence = 95%), pass_at(8, samples = 128), pass_at(64)]
  on_error = retry(3) then drop extra = { a = 1 b = {} }
  empty = []
  # nothing after this
}
eval empty {}
# the end
env digits(size:int( 1,9 )=3 , mode : word(a,b)) = python("d.py:make", args = {size=size})
train stage( m:model, o:optimizer , rollouts_of_each_environment: int(1, 1_024) = 16,
  learning: float(above = 0) = 1e-4) { model=m }
train longer=main{steps=400 optimizer=slow} train best = stage(policy){ steps = 1, save.keep = 2
  batch . count = 3 }
loss held(low=0.8) { s = where( adv>0 , ratio,clip(ratio,low,1/low)) token=-s*adv }
sweep rates { of = main over = { policy.lora_rank = [8,32] } }
expect  main.cost.high<$20*2
expect rates.best>=90%  # at least
"""
