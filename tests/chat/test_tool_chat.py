"""Chats with tools: tokens are kept, calls are read, and results are shown as the renderer does."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import pytest
from chat_support import encode, tokenizer
from PIL import Image

from rlc.catalog.environments import ChatTurns
from rlc.catalog.facts import renderer_names
from rlc.chat.prompts import (
    ChatHistory,
    calls_of,
    chat_history,
    conversation,
    fitting_renderer,
    text_of,
    unread_calls,
)
from rlc.chat.turns import EnvError, Observation, model_input, readable_text

pytestmark = pytest.mark.engine

TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"n": 4}}\n</tool_call>'
ASKED = conversation([{"role": "user", "content": "What is there?"}], [TOOL])
END = "<|im_end|>"


def chat(
    renderer: str = "qwen3_instruct", instruction: str = "", history: ChatTurns = "sampled"
) -> ChatHistory:
    new_chat = chat_history(
        tokenizer(), renderer, history=history, whole=True, instruction=instruction
    )
    return new_chat()


def decode(tokens: list[int]) -> str:
    return str(tokenizer().decode(tokens))


@pytest.fixture
def sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image processor of Qwen's vision models, as it is made without their files."""
    from tinker_cookbook import image_processing_utils
    from transformers import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil()
    monkeypatch.setattr(image_processing_utils, "get_image_processor", lambda _: processor)


def picture(colour: str) -> dict[str, str]:
    data = io.BytesIO()
    Image.new("RGB", (56, 56), colour).save(data, "PNG")
    encoded = base64.b64encode(data.getvalue()).decode()
    return {"type": "image", "image": f"data:image/png;base64,{encoded}"}


def shows(colour: str) -> Observation:
    content = [{"type": "text", "text": "See:"}, picture(colour)]
    result = {"role": "tool", "content": content, "tool_call_id": "call_0", "name": "look"}
    return Observation("See:[image]", messages=(result,))


@pytest.mark.usefixtures("sees")
def test_pictures_stay_where_they_are_shown() -> None:
    """In the opening, and in the result of a tool beside it."""
    asked = conversation([{"role": "user", "content": [picture("red")]}], [TOOL])
    history, said = chat("qwen3_vl_instruct", "Be brief."), encode(f"{CALL}{END}")
    first = history.observe(asked)
    history.reply(said)
    second = history.observe(shows("blue"))
    red, blue = dict.fromkeys(token for token in second if token < 0)
    assert (second.count(red), second.count(blue)) == (4, 4)
    prompt = model_input(second, history.chunks)
    images = [chunk for chunk in prompt.chunks if chunk.type == "image"]
    assert [image.length for image in images] == [4, 4]
    told = readable_text(second, history.chunks, tokenizer())
    assert "<|vision_start|>[image]<|vision_end|>\nBe brief.<|im_end|>" in told
    assert "<tool_response>\nSee:<|vision_start|>[image]<|vision_end|>\n</tool_response>" in told
    assert second[: first.index(red) + 4] == first[: first.index(red) + 4]


@pytest.mark.usefixtures("sees")
@pytest.mark.parametrize("renderer", ["qwen3_instruct", "role_colon"])
def test_a_renderer_that_shows_no_pictures_says_so(renderer: str) -> None:
    asked = conversation([{"role": "user", "content": [picture("red")]}])
    with pytest.raises(EnvError, match="shows no images; take a model that sees"):
        chat(renderer).observe(asked)


def test_a_model_without_an_image_processor_says_so() -> None:
    asked = conversation([{"role": "user", "content": [picture("red")]}])
    with pytest.raises(EnvError, match="there is no image processor of"):
        chat("qwen3_vl_instruct").observe(asked)


def seen(text: str) -> Observation:
    result = {"role": "tool", "content": text, "tool_call_id": "call_0", "name": "look"}
    return Observation(text, messages=(result,))


def test_the_tools_come_first_in_the_renderers_own_words() -> None:
    prompt = decode(chat(instruction="Be brief.").observe(ASKED))
    assert prompt.startswith("<|im_start|>system\n# Tools\n")
    assert '"function": {"name": "look"' in prompt
    user = "<|im_start|>user\nWhat is there?\nBe brief.<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.endswith(user)


def test_an_episode_is_one_sequence_and_as_the_renderer_would_write_it() -> None:
    """Each prompt extends what was sampled, and is what the whole conversation renders to."""
    from tinker_cookbook.renderers import get_renderer

    renderer = get_renderer("qwen3_instruct", tokenizer())
    history, said = chat(), encode(f"I look.\n{CALL}{END}")
    first = history.observe(ASKED)
    action = history.reply(said)
    second = history.observe(seen("a cat"))
    assert second[: len(first) + len(said)] == first + said
    assert decode(second).endswith(
        "<tool_response>\na cat\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    messages = [
        *renderer.create_conversation_prefix_with_tools([TOOL]),
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": f"I look.\n{CALL}"},
        {"role": "tool", "content": "a cat"},
    ]
    assert second == renderer.build_generation_prompt(messages).to_ints()
    assert action.text == f"I look.\n{CALL}"
    assert action.message is not None
    assert list(calls_of(action.message)) == [("call_0", "look", '{"n": 4}')]
    assert text_of(action.message).strip() == "I look."


def test_sampled_tokens_are_never_encoded_again() -> None:
    """The model may spell a phrase in letters that the tokenizer would write as one token."""
    letters = [token for letter in "boxed" for token in encode(letter)]
    history = chat()
    first = history.observe(ASKED)
    history.reply([*letters, *encode(END)])
    assert history.observe(seen("x"))[len(first) :][: len(letters)] == letters


def test_a_reply_that_was_cut_off_ends_before_the_result() -> None:
    history = chat()
    history.observe(ASKED)
    action = history.reply(encode("I think"))
    assert action.text == "I think"
    assert f"I think{END}\n<|im_start|>user\n" in decode(history.observe(seen("x")))


@pytest.mark.parametrize("said", ["<tool_call>\n{n: 4}\n</tool_call>", "<tool_call>\n{"])
def test_a_call_that_cannot_be_read_is_told_apart_from_plain_text(said: str) -> None:
    history = chat()
    history.observe(ASKED)
    action = history.reply(encode(said + END))
    assert action.message is not None
    assert len(unread_calls(action.message)) == 1
    assert list(calls_of(action.message)) == []


def test_where_the_template_rewrites_earlier_turns_each_turn_is_a_prompt_of_its_own() -> None:
    history = chat("qwen3", history="template")
    first = history.observe(ASKED)
    history.reply(encode(f"<think>\nHm.\n</think>\n\n{CALL}{END}"))
    second = decode(history.observe(seen("a cat")))
    assert not second.startswith(decode(first) + "<think>\nHm.")
    assert CALL in second
    assert "Hm." not in second
    assert second.endswith(
        "<tool_response>\na cat\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("kept", ["sampled", "template"])
def test_a_broken_call_stays_in_later_prompts(kept: ChatTurns) -> None:
    history = chat("qwen3", history=kept)
    history.observe(ASKED)
    history.reply(encode(f"<tool_call>\n{{n}}\n</tool_call>{END}"))
    assert "<tool_call>\n{n}\n</tool_call>" in decode(history.observe(Observation("No JSON.")))


@pytest.mark.parametrize("kept", ["sampled", "template"])
def test_a_call_that_was_cut_off_is_shown_once_in_later_prompts(kept: ChatTurns) -> None:
    history = chat("qwen3", history=kept)
    history.observe(seen("hi"))
    history.reply(encode("I call <tool_call>never closed<|im_end|>"))
    assert decode(history.observe(seen("Go on."))).count("never closed") == 1


def test_a_renderer_without_tools_is_refused_by_name() -> None:
    with pytest.raises(EnvError, match=r"renderer \(RoleColon\) has no way to show tools"):
        chat("role_colon").observe(ASKED)


def test_a_conversation_from_a_row_keeps_its_calls() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": '{"n": 4}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "a cat"},
    ]
    prompt = decode(chat().observe(conversation(messages, [TOOL])))
    assert f"<|im_start|>assistant\n{CALL}{END}\n<|im_start|>user\n<tool_response>" in prompt


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(EnvError, match="an object with a `role`"):
        conversation([{"text": "hi"}])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("qwen3_5", "`</think>`, with which it writes chats, is 8 tokens there"),
        ("llama3", "<|eot_id|>"),
        ("gpt_oss_low_reasoning", "`<|return|>`, with which it writes chats, is 10 tokens there"),
        ("kimi_k2", "`<|im_system|>`, with which it writes chats, is 13 tokens there"),
    ],
)
def test_a_renderer_that_does_not_fit_the_tokenizer(name: str, why: str) -> None:
    with pytest.raises(EnvError) as refused:
        fitting_renderer(tokenizer(), name)
    said = f"the renderer `{name}` does not fit the tokenizer of {tokenizer().name_or_path}: "
    assert str(refused.value).startswith(said)
    assert why in str(refused.value)
    assert refused.value.hint


def test_every_renderer_fits_a_tokenizer_that_has_its_marks() -> None:
    from tinker_cookbook import renderers
    from transformers import AutoTokenizer

    sources = Path(renderers.__file__).parent.glob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    marks = re.findall(r"<[|｜][^<>|｜\s\"'{}]+[|｜]>|</?[a-z_]+>", text)
    complete = AutoTokenizer.from_pretrained(tokenizer().name_or_path)
    complete.add_special_tokens({"additional_special_tokens": sorted(set(marks))})
    for name in renderer_names():
        if not name.startswith(("tml_v0", "kimi_k31")):  # which have tokenizers of their own kind
            assert fitting_renderer(complete, name).get_stop_sequences()
