"""Which quote of a line is missing or extra."""

from __future__ import annotations

import time

import pytest

from rlc.lang.syntax.malformed import EXTRA, NO_CLOSING, NO_OPENING, misquote

SPELL = 'gem("rg:spell") |> chat(instruction = "Put your answer inside \\\\boxed{}.")'


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ('base = "tiny', NO_CLOSING, '"tiny'),
        ('base = tiny"', NO_OPENING, 'tiny"'),
        ('base = ""tiny"', EXTRA, '"'),
        ('base = "tiny""', EXTRA, '"'),
        ('rank = 8"', EXTRA, '"'),
        ('rate = "1e-3', EXTRA, '"'),
        ('batch = groups("16, group_size = 8)', EXTRA, '"'),
        ('import "lib/qwen.rl', NO_CLOSING, '"lib/qwen.rl'),
        ('import lib/qwen.rl"', NO_OPENING, 'lib/qwen.rl"'),
        ('base = "tiny  # the "small" one', NO_CLOSING, '"tiny'),
        (SPELL.replace('spell"', "spell"), NO_CLOSING, '"rg:spell'),
        (SPELL.replace('"rg', "rg"), NO_OPENING, 'rg:spell"'),
        (SPELL.replace('"Put', "Put"), NO_OPENING, 'Put your answer inside \\\\boxed{}."'),
        (SPELL.replace('."', "."), NO_CLOSING, '"Put your answer inside \\\\boxed{}.'),
        ('x = f(a = Think it over well, then.")', NO_OPENING, 'Think it over well, then."'),
        (f'm p {{ base = "tiny"" rank = 8 }} env x = {SPELL}', EXTRA, '"'),
        (f'm p {{ base = "tiny" rank = 8" }} env x = {SPELL}', EXTRA, '"'),
        (r'x = f("a \" b)', NO_CLOSING, r'"a \" b'),
    ],
)
def test_the_likeliest_mistake_is_found(line: str, kind: str, text: str) -> None:
    found = misquote(line)
    assert found is not None
    assert (found.kind, line[found.start : found.end]) == (kind, text)


@pytest.mark.parametrize("line", ["", "x = 1", 'x = "a"', SPELL, r'x = "a \""', 'x = 1  # it"s'])
def test_a_line_with_its_quotes_in_pairs_has_none(line: str) -> None:
    assert misquote(line) is None


def test_an_endless_line_is_not_searched() -> None:
    start = time.process_time()
    assert misquote('"a", ' * 100_000 + '"') is None
    assert time.process_time() - start < 2
