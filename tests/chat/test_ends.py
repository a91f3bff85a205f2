"""Replies that end with text: where they end, and what the next prompt makes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from chat_support import encode, renderer, tokenizer
from family_tokenizers import family_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs
from tinker_cookbook.renderers import get_renderer

from rlc.chat.histories import Ends, StoppingHistory, ended_reply, stop_of
from rlc.chat.prompts import ChatFormat, ChatHistory, TextHistory
from rlc.chat.turns import Observation

pytestmark = pytest.mark.engine

WORDS = ["a", "b]", "]", "]\n", " of ", "é", "\N{GRINNING FACE}", "</", "answer", ">", "\n"]
STOPS = ("]", "</answer>", "\n\n", "é", "\N{GRINNING FACE}")


def chat(*texts: str) -> StoppingHistory:
    return StoppingHistory(ChatHistory(ChatFormat(renderer())), texts, tokenizer())


said = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
stops = st.lists(st.sampled_from(STOPS), min_size=1, max_size=3, unique=True).map(tuple)


@given(said, stops, st.booleans(), said)
def test_a_reply_ends_with_the_token_that_completes_the_first_of_its_ends(
    text: str, texts: tuple[str, ...], closes: bool, more: str
) -> None:
    """Up to there it is what the reply would have been without them."""
    end = tokenizer().eos_token_id
    tokens = [*encode(text), *([end] if closes else []), *encode(more)]
    ends = Ends((end,), texts)
    over = [
        tokens[count - 1] == end or any(one in tokenizer().decode(tokens[:count]) for one in texts)
        for count in range(1, len(tokens) + 1)
    ]
    assert ends.reached(tokens, tokenizer()) == (over.index(True) + 1 if any(over) else None)


@given(st.lists(st.tuples(st.text(max_size=6), said, st.booleans()), min_size=1, max_size=4))
def test_every_prompt_extends_what_was_sampled(turns: list[tuple[str, str, bool]]) -> None:
    history, seen = chat("]"), list[int]()
    for text, reply, closes in turns:
        prompt = history.observe(Observation(text))
        assert prompt[: len(seen)] == seen
        tokens = [*encode(reply), *([tokenizer().eos_token_id] if closes else [])]
        tokens = tokens[: history.ends.reached(tokens, tokenizer())]
        history.reply(tokens)
        seen = prompt + tokens


def test_the_renderers_own_end_follows_a_reply_that_text_has_ended() -> None:
    history, closed = chat("]"), ChatHistory(ChatFormat(renderer()))
    end = tokenizer().eos_token_id
    for one, reply in ((history, encode("[4]")), (closed, [*encode("[4]"), end])):
        one.observe(Observation("Guess."))
        assert one.reply(reply).text == "[4]"
    assert history.observe(Observation("Higher.")) == closed.observe(Observation("Higher."))


def test_a_call_of_a_tool_that_text_has_ended_is_complete() -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    history = StoppingHistory(
        ChatHistory(ChatFormat(renderer()), whole=True), ("</tool_call>",), tokenizer()
    )
    history.observe(Observation("Look."))
    action = history.reply(encode(call))
    assert action.message is not None
    assert not action.cut_off
    assert [one.function.name for one in action.message["tool_calls"]] == ["look"]
    history.observe(Observation("Again."))
    assert history.reply(encode("I look")).cut_off  # at max_tokens


def test_a_service_is_asked_for_one_kind_of_ends() -> None:
    assert stop_of(ChatHistory(ChatFormat(renderer()))) == renderer().get_stop_sequences()
    assert stop_of(chat("]", "\n\n")) == ["]", "\n\n", "<|im_end|>"]
    plain = TextHistory(tokenizer(), str)
    stopping = StoppingHistory(plain, ("]",), tokenizer())
    assert stop_of(stopping) == ["]", tokenizer().eos_token]
    assert stopping.reply(encode("[4]")).text == "[4]"


@pytest.mark.parametrize("after", ["<|im_end|>", "]"])
def test_what_a_service_has_sampled_beyond_the_end_is_no_part_of_a_reply(after: str) -> None:
    """One that does not know the text of a mark goes on after it."""
    kept = encode(f"[4{after}")
    tokens = [*kept, *encode("<|im_start|>user]<|im_end|>")]
    ranks = np.arange(len(tokens), dtype=np.float32)
    topk = TopkLogprobs(np.array([tokens] * 2, dtype=np.int32).T, np.stack([-ranks] * 2).T)
    long = types.SampledSequence("length", "one", np.array(tokens, dtype=np.int32), -ranks, topk)
    reply = ended_reply(long, chat("]"))
    assert (reply.tokens, reply.stop_reason, reply.sequence_id) == (kept, "stop", "one")
    assert reply.logprobs == [-float(rank) for rank in range(len(kept))]
    assert reply.topk_logprobs_np is not None
    assert reply.topk_logprobs_np.token_ids.shape == (len(kept), 2)
    assert ended_reply(reply, chat("]")) is reply
    assert ended_reply(long, ChatHistory(ChatFormat(renderer()))) is long


def test_what_a_text_has_ended_is_closed_as_the_template_closes_it() -> None:
    """With an end that was not sampled, such as that of gpt-oss for a last message."""
    chats = ChatFormat(get_renderer("gpt_oss_low_reasoning", family_tokenizer()))
    words = family_tokenizer()
    history = StoppingHistory(ChatHistory(chats), ("]",), words)
    prompt = history.observe(Observation("?"))
    reply = words.encode("<|channel|>final<|message|>foo ]", add_special_tokens=False)
    assert history.reply(reply).text == "foo ]"
    after = history.observe(Observation("And?"))
    assert words.decode(after[len(prompt) :]).startswith(
        "<|channel|>final<|message|>foo ]<|end|><|start|>user<|message|>And?"
    )


def test_a_long_observation_is_cut_at_once() -> None:
    """Also where the text that ends a turn is a part of a token that has more."""
    chats = ChatFormat(get_renderer("role_colon", family_tokenizer()))
    history = ChatHistory(chats)
    history.observe(Observation("?"))
    history.reply(family_tokenizer().encode("B\n", add_special_tokens=False))
    decoded = 0

    def decode(tokens: Any) -> str:
        nonlocal decoded
        decoded += len(tokens)
        return str(family_tokenizer().decode(tokens))

    given = chats.renderer.tokenizer
    counting = SimpleNamespace(decode=decode, encode=given.encode, bos_token=given.bos_token)
    with patch.object(chats.renderer, "tokenizer", counting):
        after = history.observe(Observation("word " * 4_000))
    assert decoded < 20 * len(after)
