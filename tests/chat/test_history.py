"""From observations to prompts: chats extend, templates start over, sampled tokens stay."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from chat_support import encode, env, renderer, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from rlc.catalog.builtins.wrappers import TEMPLATES
from rlc.catalog.facts import TINY, renderer_fits, renderer_names
from rlc.catalog.records import BOX, TAG
from rlc.chat.prompts import (
    CachingTokenizer,
    ChatFormat,
    ChatHistory,
    TextHistory,
    load_template,
)
from rlc.chat.turns import Observation
from rlc.envs.build import build_env
from rlc.plan.environments import StepPlan
from rlc.records import evolve


@cache
def marked(name: str, *marks: str) -> Any:
    """A renderer whose prompts have more around the messages: a first token, a system message."""
    from tinker_cookbook.renderers import get_renderer
    from transformers import AutoTokenizer

    from rlc.service.tiny import path

    words = AutoTokenizer.from_pretrained(str(path()))
    words.add_special_tokens({"additional_special_tokens": list(marks)})
    return get_renderer(name, words)


def llama() -> Any:
    marks = ("begin_of_text", "start_header_id", "end_header_id", "eot_id")
    return marked("llama3", *(f"<|{mark}|>" for mark in marks))


def nemotron() -> Any:
    return marked(
        "nemotron3_preserve_thinking", "<|im_start|>", "<|im_end|>", "<think>", "</think>"
    )


@pytest.mark.engine
@pytest.mark.parametrize("make", [renderer, llama, nemotron])
def test_a_chat_is_what_the_renderer_makes_of_the_whole_conversation(
    make: Callable[[], Any],
) -> None:
    """Turn by turn and all at once give the same tokens."""
    rendered = make()
    history = ChatHistory(ChatFormat(rendered))
    opening = history.observe(Observation("Guess."))
    said = rendered.tokenizer.encode("\\boxed{5}", add_special_tokens=False)
    assert history.reply([*said, *rendered.get_stop_sequences()]).text == "\\boxed{5}"
    whole = [
        {"role": "user", "content": "Guess."},
        {"role": "assistant", "content": "\\boxed{5}"},
        {"role": "user", "content": "Higher."},
    ]
    expected = rendered.build_generation_prompt(whole).to_ints()
    after = history.observe(Observation("Higher."))
    assert after[: len(opening)] == opening
    # The reply stands as it was sampled, whatever the renderer would write around it.
    told = len(opening) + len(said) + 1
    assert after[told:] == expected[len(expected) - len(after) + told :]
    if make is not nemotron:
        assert after == expected


replies = st.lists(st.integers(0, 255), max_size=6)


@pytest.mark.engine
@given(st.lists(st.tuples(st.text(max_size=8), replies, st.booleans()), min_size=1, max_size=4))
def test_every_prompt_extends_what_was_seen_and_sampled(
    turns: list[tuple[str, list[int], bool]],
) -> None:
    history, seen = ChatHistory(ChatFormat(renderer())), list[int]()
    for text, tokens, stopped in turns:
        prompt = history.observe(Observation(text))
        assert prompt[: len(seen)] == seen
        reply = [*tokens, tokenizer().eos_token_id] if stopped else tokens
        history.reply(reply)
        seen = prompt + reply


@pytest.mark.engine
def test_a_reply_that_was_cut_off_is_closed_before_the_next_turn() -> None:
    history = ChatHistory(ChatFormat(renderer()))
    prompt = history.observe(Observation("Guess."))
    history.reply(encode("seven is my"))
    after = history.observe(Observation("Higher."))
    assert after[len(prompt + encode("seven is my"))] == tokenizer().eos_token_id


@pytest.mark.engine
def test_the_instruction_is_added_to_the_first_turn_only() -> None:
    history = ChatHistory(ChatFormat(renderer(), instruction="Be brief."))
    first = history.observe(Observation("Guess."))
    history.reply([tokenizer().eos_token_id])
    second = history.observe(Observation("Higher."))[len(first) :]
    assert "Guess.\nBe brief.<|im_end|>" in tokenizer().decode(first)
    assert "Be brief." not in tokenizer().decode(second)


@pytest.mark.engine
def test_a_template_starts_over_each_turn() -> None:
    history = TextHistory(tokenizer(), load_template("qwen3_game"))
    assert history.observe(Observation("a board")) == encode(load_template("qwen3_game")("a board"))
    reply = history.reply([*encode("\\boxed{1 2 3}"), tokenizer().eos_token_id])
    assert (reply.text, reply.message) == ("\\boxed{1 2 3}", None)
    assert history.observe(Observation("another")) == encode(load_template("qwen3_game")("another"))


def test_braces_in_an_observation_are_left_alone() -> None:
    assert load_template("no")("\\boxed{observation} {x}") == "\\boxed{observation} {x}"


@pytest.mark.engine
@pytest.mark.parametrize("history", ["sampled", "template"])
@pytest.mark.parametrize("name", ["qwen3", "role_colon"])
def test_a_chat_of_own_code_shows_each_turn_once(
    name: str, history: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "class Source:\n    def group(self, seed, size):\n        return []\n"
    Path("game.py").write_text(f"{source}def make():\n    return Source()\n")
    chat = StepPlan("chat", {"instruction": "Be brief.", "system": "", "history": history})
    own = evolve(env(chat), source="python", id="game.py:make", args={"args": {}}, max_turns=None)
    turns = build_env(own, tokenizer(), name).new_history()
    first = turns.observe(Observation("Guess."))
    turns.reply(encode("5"))
    second = tokenizer().decode(turns.observe(Observation("Higher.")))
    assert "Be brief." in tokenizer().decode(first)
    assert [second.count(text) for text in ("Guess.", "5", "Higher.", "Be brief.")] == [1, 1, 1, 1]


def test_the_catalogue_and_the_templates_know_the_same_names() -> None:
    assert all("seen" in load_template(name)("seen") for name in TEMPLATES)


@pytest.mark.engine
@pytest.mark.parametrize("name", renderer_names())
def test_a_renderer_that_the_check_accepts_can_write_a_chat(name: str) -> None:
    if renderer_fits(TINY, name):
        prompt = renderer(name).build_generation_prompt([{"role": "user", "content": "hi"}])
        assert prompt.to_ints()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_asks_for_the_marks_that_the_catalogue_says(name: str) -> None:
    text = load_template(name)("seen")
    assert tuple(mark for mark in (BOX, TAG) if mark in text) == TEMPLATES[name].asks
    assert ("<|im_start|>" in text) == TEMPLATES[name].chatml


@pytest.mark.engine
def test_threads_may_encode_with_one_tokenizer() -> None:
    """A mark in a user's text stays text, while others encode marks."""
    texts = [f"{number}<|im_end|>" * 400 for number in range(200)]

    def encoded(by: Any, number: int) -> list[int]:
        tokens: list[int] = by.encode(texts[number], split_special_tokens=number % 2 == 0)
        return tokens

    with ThreadPoolExecutor(4) as pool:
        together = [*pool.map(partial(encoded, CachingTokenizer(tokenizer())), range(200))]
    assert together == [encoded(tokenizer(), number) for number in range(200)]
