"""Suggestions for misspelt words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlc.lang.suggest import did_you_mean, edit_distance, is_slip, nearest, sole_nearest

WORDS = ["advantage", "batch", "model", "lora_rank", "adam", "gem", "std", "LoRA"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("advatnage", "advantage"),  # two neighbours swapped
        ("advantge", "advantage"),
        ("bathc", "batch"),
        ("modle", "model"),
        ("lora-rank", "lora_rank"),
        ("LoraRank", "lora_rank"),
        ("lora", "LoRA"),
        ("gme", "gem"),
        ("stdd", "std"),
        ("ge", "gem"),
        ("optimizer", None),
        ("xyz", None),
        ("x", None),
        ("", None),
    ],
)
def test_the_nearest_word_is_suggested(word: str, expected: str | None) -> None:
    assert nearest(word, WORDS) == expected


def test_the_closest_wins_and_ties_are_stable() -> None:
    assert nearest("steps", ["step", "stepsx", "stops"]) == "step"
    assert nearest("steps", ["stops", "stepsx", "step"]) == "step"


@pytest.mark.parametrize(
    ("word", "names", "expected"),
    [
        ("stepz", ["steps", "stops"], "steps"),
        ("stepx", ["steps", "stepz"], None),
        ("guess3", ["guess1", "guess2"], None),
        ("LORA-RANK", ["lora_rank", "lora_ranks"], "lora_rank"),
        ("xyz", ["steps"], None),
        ("stepz", ["steps", "steps"], "steps"),
    ],
)
def test_a_correction_needs_one_nearest_word(
    word: str, names: list[str], expected: str | None
) -> None:
    assert sole_nearest(word, names) == expected


def test_a_suggestion_is_a_question() -> None:
    assert did_you_mean("modle", WORDS) == "did you mean `model`?"
    assert did_you_mean("nothing", WORDS) is None


def test_distance_counts_each_part_once() -> None:
    assert edit_distance("ca", "abc", 9) == 3  # not 2: restricted
    assert edit_distance("abcd", "acbd", 9) == 1
    assert edit_distance("kitten", "sitting", 9) == 3
    assert edit_distance("kitten", "sitting", 2) == 3


words = st.text("abC_1", max_size=6)


@given(st.lists(words, max_size=12), st.lists(words, min_size=1, max_size=12))
@settings(deadline=None)
def test_the_index_finds_what_a_comparison_with_each_finds(
    names: list[str], typos: list[str]
) -> None:
    for word in typos:

        def plain(name: str) -> str:
            return name.lower().replace("_", "")

        limit = min(2 if len(word) > 3 else 1, len(word) - 1)
        far = [(edit_distance(word.lower(), name.lower(), 9), name) for name in set(names)]
        least = min((distance for distance, _ in far), default=9)
        expected = sorted(name for name in set(names) if plain(name) == plain(word)) or sorted(
            name for distance, name in far if distance == least <= limit
        )
        assert nearest(word, names) == next(iter(expected), None)
        assert sole_nearest(word, names) == (expected[0] if len(expected) == 1 else None)


@pytest.mark.parametrize(
    ("word", "meant", "others", "expected"),
    [
        ("Lora-Rank", "lora_rank", True, True),
        ("stps", "steps", False, True),
        ("max_tokns", "max_tokens", True, True),
        ("rlo", "rloo", True, True),  # a letter is doubled
        ("gpro", "grpo", True, True),  # two are swapped
        ("crpo", "grpo", True, False),
        ("crpo", "grpo", False, True),
        ("median", "mean", False, False),
        ("guess2", "guess1", False, False),
        ("top_p", "top_k", False, False),
        ("ml", "kl", False, False),
        ("ab_b", "ab_ab", False, True),
    ],
)
def test_a_slip_is_no_other_word(word: str, meant: str, others: bool, expected: bool) -> None:
    assert is_slip(word, meant, others) is expected
