"""GEM environments under the adapter: reproducible, isolated, and showing all they have."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest

from rlc.envs.base import EnvError
from rlc.envs.gem import GemSource

GUESS = "game:GuessTheNumber-v0-easy"


def play(episode: object, actions: list[str]) -> list[tuple[str, float, bool]]:
    seen = [episode.step(action) for action in actions]  # type: ignore[attr-defined]
    return [(after.text, after.reward, after.done) for after in seen]


def test_members_share_the_state_and_the_prompt() -> None:
    group = GemSource(GUESS, {}).group(seed=5, size=4)
    assert len({episode.first.text for episode in group}) == 1
    answers = [play(episode, ["\\boxed{3}", "\\boxed{7}"]) for episode in group]
    assert all(answer == answers[0] for answer in answers)


def test_different_seeds_are_different_tasks() -> None:
    source = GemSource("rg:spell_backward", {})
    firsts = {source.group(seed, 1)[0].first.text for seed in range(8)}
    assert len(firsts) > 4


def test_results_do_not_depend_on_interleaving() -> None:
    """2048 draws from the global generator in every step."""
    source, moves = GemSource("game:Game2048-v0-easy", {}), ["\\boxed{up}", "\\boxed{left}"] * 4
    alone = play(source.group(3, 2)[1], moves)
    first, second = source.group(3, 2)
    interleaved = []
    for move in moves:
        first.step("\\boxed{down}")
        random.random()
        np.random.rand(3)
        after = second.step(move)
        interleaved.append((after.text, after.reward, after.done))
    assert interleaved == alone


def test_the_board_that_only_the_suffix_shows_is_in_the_observation() -> None:
    plain = GemSource("game:Sudoku-v0-easy", {}).group(1, 1)[0]
    concat = GemSource("game:Sudoku-v0-easy", {}, observation="concat").group(1, 1)[0]
    assert "current board layout" in plain.first.text
    assert "current board layout" in concat.first.text


def test_concat_repeats_the_history_of_observations() -> None:
    episode = GemSource(GUESS, {}, observation="concat").group(1, 1)[0]
    after = episode.step("\\boxed{5}")
    assert after.text.startswith(episode.first.text.removesuffix("Enter your next guess."))


def test_arguments_reach_the_environment() -> None:
    episode = GemSource(GUESS, {"max_number": 77}).group(1, 1)[0]
    assert "between 1 and 77" in episode.first.text


def test_a_format_error_is_a_reward_and_the_end() -> None:
    after = GemSource(GUESS, {}).group(1, 1)[0].step("seven?")
    assert (after.reward, after.done) == (-0.1, True)


def test_an_unknown_environment_is_one_sentence() -> None:
    with pytest.raises(EnvError, match="gem cannot make `game:Chess`"):
        GemSource("game:Chess", {})


def test_importing_gem_leaves_logging_alone() -> None:
    GemSource(GUESS, {})
    assert logging.getLogger().level == logging.WARNING


class Chat:
    """A tokenizer of which only the chat template is asked for."""

    chat_template = "there is one"

    def apply_chat_template(self, messages: Any, **_: Any) -> str:
        return "".join(f"<{message['role']}>{message['content']}" for message in messages)

    def __deepcopy__(self, memo: Any) -> Chat:
        raise AssertionError("a tokenizer is shared, not copied")


def test_concat_with_action_shows_what_the_model_did() -> None:
    episode = GemSource(GUESS, {}, observation="concat_with_action").group(1, 1)[0]
    assert "\\boxed{5}" in episode.step("I say \\boxed{5}").text


def test_concat_chat_is_a_chat_of_the_whole_history() -> None:
    first, second = GemSource(GUESS, {}, "concat_chat", Chat()).group(1, 2)
    text = first.step("\\boxed{5}").text
    assert text.startswith("<user>")
    assert "<assistant>\\boxed{5}<user>" in text
    assert "\\boxed{9}" not in second.step("\\boxed{5}").text


def test_concat_chat_on_reset_is_a_chat_of_the_first_turn_only() -> None:
    episode = GemSource(GUESS, {}, "concat_chat_on_reset", Chat()).group(1, 1)[0]
    assert episode.first.text.startswith("<user>")
    assert episode.step("\\boxed{5}").text.count("<user>") == 1


def test_a_model_without_a_chat_template_has_no_chat() -> None:
    with pytest.raises(EnvError, match="`concat_chat\\(\\)` needs a chat template"):
        GemSource(GUESS, {}, "concat_chat", object())
