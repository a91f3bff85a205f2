"""The unmodified `openai` client against a served engine."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import tinker
from http_testing import Running, running
from serving_support import BASE, KEY, prompt, sampling
from tinker import types
from tool_caller import CALL, TOOL
from transformers import AutoTokenizer

from rlc.service import tiny
from rlc.service.engine.service import LocalService
from rlc.service.inference import endpoint as endpoint_of_requests

TOKENIZER: Any = AutoTokenizer.from_pretrained(tiny.path())
ASKED: Any = [{"role": "user", "content": "Spell the word apple backwards."}]


def shown(url: str) -> dict[str, Any]:
    """A part of a message that shows a picture."""
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as opened:
        yield opened


def whole(client: openai.OpenAI, **given: Any) -> Any:
    filled: dict[str, Any] = {"model": BASE, "messages": ASKED, "max_tokens": 24, "seed": 3}
    return client.chat.completions.create(**{**filled, **given})


def streamed(client: openai.OpenAI, **given: Any) -> Any:
    """The chunks of a stream, put together by the client itself."""
    filled: dict[str, Any] = {"model": BASE, "messages": ASKED, "max_tokens": 24, "seed": 3}
    with client.chat.completions.stream(**{**filled, **given}) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def said(choice: Any) -> dict[str, Any]:
    kept: dict[str, Any] = choice.model_dump(include={"index", "finish_reason", "logprobs"})
    calls = [call.function for call in choice.message.tool_calls or ()]
    return {
        **kept,
        "content": choice.message.content or "",
        "calls": [(call.name, call.arguments) for call in calls],
    }


def test_a_stream_says_what_the_whole_says(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"n": 3, "logprobs": True, "top_logprobs": 2}
    at_once = whole(client, **given)
    in_parts = streamed(client, **given, stream_options={"include_usage": True})
    assert len({choice.message.content for choice in at_once.choices}) == 3
    for ours, theirs in zip(in_parts.choices, at_once.choices, strict=True):
        ours, theirs = said(ours), said(theirs)
        one, other = (
            [token["logprob"] for token in choice.pop("logprobs")["content"]]
            for choice in (ours, theirs)
        )
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert ours == theirs
    sampled = sum(len(choice.logprobs.content) for choice in at_once.choices)
    for usage in (at_once.usage, in_parts.usage):
        assert usage.completion_tokens == sampled
        assert usage.total_tokens == usage.prompt_tokens + sampled
    assert whole(client).choices[0].message.content == at_once.choices[0].message.content


def test_chunks_come_as_tokens_are_sampled(client: openai.OpenAI) -> None:
    chunks = list(whole(client, stream=True, temperature=0))
    texts = [c.choices[0].delta.content for c in chunks if c.choices[0].delta.content]
    assert len(texts) > 5
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert "".join(texts) == whole(client, temperature=0).choices[0].message.content


def test_logprobs_are_those_of_tinkers_own_route(
    client: openai.OpenAI, sdk: tinker.ServiceClient
) -> None:
    reply = whole(
        client,
        n=2,
        temperature=0.7,
        logprobs=True,
        top_logprobs=3,
        extra_body={"return_token_ids": True},
    )
    sampler = sdk.create_sampling_client(base_model=BASE).result()
    end = TOKENIZER.encode("<|im_end|>")
    drawn = sampling(max_tokens=24, temperature=0.7, stop=end)
    there = sampler.sample(prompt(reply.prompt_token_ids), 2, drawn, topk_sample_logprobs=3)
    for choice, sequence in zip(reply.choices, there.result().sequences, strict=True):
        assert choice.token_ids == list(sequence.tokens)
        own = [token.logprob for token in choice.logprobs.content]
        np.testing.assert_allclose(own, sequence.logprobs or [], atol=1e-5)
        for token, best in zip(choice.logprobs.content, sequence.topk_logprobs or [], strict=True):
            others = [other.logprob for other in token.top_logprobs]
            np.testing.assert_allclose(others, [lp for _, lp in best or ()], atol=1e-5)
    # The book has the same, to the last bit.
    kept = client.get(f"/requests/{reply.id}", cast_to=httpx.Response).json()
    assert kept["prompts"] == [reply.prompt_token_ids]
    assert [c["token_ids"] for c in kept["choices"]] == [c.token_ids for c in reply.choices]
    assert [c["logprobs"] for c in kept["choices"]] == [
        [token.logprob for token in c.logprobs.content] for c in reply.choices
    ]


def test_completions(client: openai.OpenAI) -> None:
    texts = ["apple", "Spell"]
    ids: Any = [TOKENIZER.encode(text) for text in texts]
    given: Any = {"model": BASE, "n": 2, "seed": 4, "max_tokens": 9, "logprobs": 2}
    of_text = client.completions.create(prompt=texts, **given)
    of_ids = client.completions.create(prompt=ids, **given)
    assert [c.text for c in of_text.choices] == [c.text for c in of_ids.choices]
    assert [c.index for c in of_text.choices] == [0, 1, 2, 3]
    parts: dict[int, Any] = {i: [] for i in range(4)}
    for chunk in client.completions.create(prompt=texts, stream=True, **given):
        parts[chunk.choices[0].index].append(chunk.choices[0])
    for choice in of_text.choices:
        own, logprobs = parts[choice.index], choice.logprobs
        assert "".join(c.text for c in own) == choice.text
        assert own[-1].finish_reason == choice.finish_reason
        assert logprobs is not None
        assert logprobs.text_offset is not None
        assert [c.logprobs.text_offset[0] for c in own] == logprobs.text_offset
        np.testing.assert_allclose(
            [c.logprobs.token_logprobs[0] for c in own], logprobs.token_logprobs or [], atol=1e-5
        )
    assert of_text.usage is not None
    assert of_text.usage.prompt_tokens == sum(map(len, ids))
    short = client.completions.create(model=BASE, prompt="apple", temperature=0)
    assert short.usage is not None
    assert short.usage.completion_tokens <= 16


def test_a_prompt_is_echoed_with_its_logprobs(
    client: openai.OpenAI, sdk: tinker.ServiceClient
) -> None:
    """As evaluation suites score the answers to choose from."""
    ids: Any = TOKENIZER.encode("apple pie")
    given: Any = {"model": BASE, "prompt": ids, "echo": True, "logprobs": 2, "seed": 1}
    sampler = sdk.create_sampling_client(base_model=BASE).result()
    expected: Any = sampler.compute_logprobs(prompt(ids)).result()
    for sampled in (0, 3):
        reply = client.completions.create(**given, max_tokens=sampled)
        (choice,), usage = reply.choices, reply.usage
        logprobs: Any = choice.logprobs
        assert choice.text.startswith("apple pie")
        assert usage is not None
        assert usage.completion_tokens == len(logprobs.tokens) - len(ids) == sampled
        assert logprobs.token_logprobs[0] is logprobs.top_logprobs[0] is None
        np.testing.assert_allclose(
            logprobs.token_logprobs[1 : len(ids)], expected[1:], rtol=1e-4, atol=1e-5
        )
        assert all(len(best) == 2 for best in logprobs.top_logprobs[1:])
        assert logprobs.text_offset[len("app")] == len("app")
    plain = client.completions.create(**{**given, "echo": False}, max_tokens=3)
    assert choice.text == "apple pie" + plain.choices[0].text
    for refused in ({"stream": True}, {"echo": False, "max_tokens": 0}):
        with pytest.raises(openai.BadRequestError, match="echo"):
            client.completions.create(**{**given, **refused})


def test_a_stop_ends_a_reply_before_it(client: openai.OpenAI) -> None:
    full = whole(client, temperature=0).choices[0].message.content
    stop = full[3:5]
    for reply in (whole, streamed):
        choice = reply(client, temperature=0, stop=["@@@", stop]).choices[0]
        assert choice.message.content == full[: full.index(stop)]
        assert choice.finish_reason == "stop"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_call_that_is_asked_for_comes(client: openai.OpenAI, choice: Any) -> None:
    given: Any = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    for reply in (whole, streamed):
        extra = {"return_token_ids": True}
        got = reply(client, **given, max_tokens=40, logprobs=True, extra_body=extra)
        (called,) = got.choices[0].message.tool_calls
        assert (called.function.name, got.choices[0].finish_reason) == ("add", "tool_calls")
        assert json.loads(called.function.arguments).keys() == {"a"}
    ids = whole(client, **given, max_tokens=40, extra_body=extra)
    text = TOKENIZER.decode(ids.prompt_token_ids)
    assert text.endswith('<tool_call>\n{"name": "add", "arguments": {')  # prompt, not sampled
    assert TOKENIZER.decode(ids.choices[0].token_ids).strip().startswith('"a"')


def test_text_is_json_of_the_schema_that_is_asked_for(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string"}, "letters": {"enum": [5, 6]}},
        "required": ["word", "letters"],
        "additionalProperties": False,
    }
    named: Any = {"name": "word", "schema": schema, "strict": True}
    for reply in (whole, streamed):
        wanted = {"type": "json_schema", "json_schema": named}
        got = reply(client, response_format=wanted, max_tokens=50, n=2)
        for choice in got.choices:
            assert json.loads(choice.message.content)["letters"] in (5, 6)
            assert choice.finish_reason == "stop"
    some = whole(client, response_format={"type": "json_object"}, max_tokens=50)
    assert isinstance(json.loads(some.choices[0].message.content), dict)


@pytest.mark.slow
def test_tools_are_called_by_a_trained_model(client: openai.OpenAI, caller: str) -> None:
    given: dict[str, Any] = {"model": caller, "tools": [TOOL], "temperature": 0, "max_tokens": 200}
    for reply in (whole, streamed):
        choice = reply(client, **given).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content in (None, "")
        (call,) = choice.message.tool_calls
        assert (call.function.name, call.function.arguments) == CALL
    turn = [
        *ASKED,
        choice.message.model_dump(exclude={"parsed"}),
        {"role": "tool", "tool_call_id": call.id, "content": "3"},
    ]
    for sent in turn[1].get("tool_calls") or ():
        sent["function"].pop("parsed_arguments", None)
    assert whole(client, **{**given, "messages": turn}).choices[0].message is not None
    plain = whole(client, **{**given, "tool_choice": "none"}).choices[0].message
    assert plain.tool_calls is None


def test_a_checkpoint_is_a_model(
    client: openai.OpenAI, caller: str, server: Running, sdk: tinker.ServiceClient
) -> None:
    listed = [model.id for model in client.models.list()]
    assert {BASE, "tiny", caller} <= set(listed)
    assert client.models.retrieve(caller).id == caller
    given: dict[str, Any] = {"temperature": 0, "extra_body": {"return_token_ids": True}}
    own = whole(client, model=caller, **given).choices[0]
    assert own.token_ids != whole(client, **given).choices[0].token_ids
    named = whole(client, model=f"{BASE};{caller}", **given)
    assert named.choices[0].token_ids == own.token_ids
    assert named.model == f"{BASE};{caller}"
    as_tinker_has_it = openai.OpenAI(base_url=f"{server.url}/oai/api/v1", api_key=KEY)
    assert whole(as_tinker_has_it, model=caller, **given).choices[0].token_ids == own.token_ids
    with pytest.raises(openai.BadRequestError, match="not of tiny"):
        whole(client, model=f"tiny;{caller}")
    gone = sdk.create_lora_training_client(BASE, rank=1).result().save_weights_for_sampler("x")
    path = gone.result().path
    whole(client, model=path)
    sdk.create_rest_client().delete_checkpoint_from_tinker_path(path).result()
    with pytest.raises(openai.NotFoundError) as raised:
        whole(client, model=path)
    assert raised.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"model": "gpt-5"}, "model", "does not exist here"),
        ({"model": "tinker://no/sampler_weights/x"}, "model", "tinker://no"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role", "system"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "does not support"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "does not support"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": "e"}]},
            "messages",
            "cannot continue a reply",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "mouse"}},
                }
            },
            "response_format",
            "he schema is no JSON schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": 5}}},
            "response_format.json_schema.name",
            "valid string",
        ),
        ({"reasoning_effort": "low"}, "reasoning_effort", "does not support"),
        ({"extra_body": {"min_p": 0.1}}, "min_p", "no parameter min_p"),
        ({"extra_body": {"renderer": "qwen"}}, "renderer", "no renderer 'qwen': there are"),
        ({"extra_body": {"renderer": "llama3"}}, "renderer", "does not fit the tokenizer"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": "hot"}, "temperature", "valid number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"n": 1000}, "n", "less than or equal to 128"),
        ({"stop": [""]}, "stop", "must not be empty"),
        ({"max_completion_tokens": 3}, "max_tokens", "differ"),
        ({"top_logprobs": 2}, "top_logprobs", "need logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "sub"}}},
            "tool_choice",
            "names none of the tools",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "names none"),
        ({"tools": [TOOL], "tool_choice": {"function": "add"}}, "tool_choice", "names none"),
        ({"tool_choice": "auto"}, "tool_choice", "needs tools"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream = true"),
        (
            {"messages": [{"role": "user", "content": [shown("https://example.com/a.png")]}]},
            "messages[0].content",
            "nothing is fetched from elsewhere",
        ),
        (
            {"messages": [{"role": "user", "content": [shown("file:///etc/passwd")]}]},
            "messages[0].content",
            "nothing is fetched from elsewhere",
        ),
        (
            {"messages": [{"role": "user", "content": [shown("data:image/png;base64,aaaa")]}]},
            "messages",
            "shows no images; take a model that sees",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
            "messages[0].content",
            "a part of type 'file'",
        ),
        (
            {"messages": [*ASKED, {"role": "tool", "tool_call_id": "x", "content": "y"}]},
            "messages",
            "no message before calls",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: openai.OpenAI, given: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=said) as raised:
        whole(client, **given)
    assert raised.value.param == param
    assert raised.value.type == "invalid_request_error"


def test_a_request_may_name_its_renderer(client: openai.OpenAI) -> None:
    given: Any = {"return_token_ids": True}
    own = whole(client, extra_body=given).prompt_token_ids
    plain = whole(client, extra_body={**given, "renderer": "role_colon"}).prompt_token_ids
    assert plain != own
    assert TOKENIZER.decode(plain) == f"User: {ASKED[0]['content']}\n\nAssistant:"


def test_what_has_no_effect_is_taken(client: openai.OpenAI) -> None:
    plain = whole(client).choices[0].message.content
    given: Any = {
        "frequency_penalty": 0,
        "response_format": {"type": "text"},
        "parallel_tool_calls": True,
        "logit_bias": {},
        "store": False,
        "user": "someone",
        "metadata": {"task": "7"},
    }
    reply = whole(client, **given)
    assert reply.choices[0].message.content == plain
    kept = client.get(f"/requests/{reply.id}", cast_to=httpx.Response).json()
    assert (kept["user"], kept["metadata"]) == ("someone", {"task": "7"})


def test_a_prompt_that_is_too_long_has_a_code_of_its_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="prompt is too long") as raised:
        whole(client, max_tokens=9000)
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="prompt is too long"):
        client.completions.create(model=BASE, prompt=[7] * 8192)


def test_the_key_is_that_of_the_server(tmp_path: Path) -> None:
    with running(tmp_path, key="tml-right") as server:
        right = openai.OpenAI(base_url=f"{server.url}/v1", api_key="tml-right")
        assert whole(right).choices
        wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="tml-wrong", max_retries=0)
        with pytest.raises(openai.AuthenticationError) as raised:
            whole(wrong)
        assert raised.value.code == "invalid_api_key"


def test_a_model_without_a_known_chat_format_only_completes(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(tiny.path(), folder)
    named = {"Qwen/Qwen3-8B": str(folder), "mine": str(folder), "meta-llama/Llama-3.1-8B": "tiny"}
    with running(tmp_path / "served", models=named) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY)
        assert client.completions.create(model="mine", prompt="x").choices
        with pytest.raises(openai.BadRequestError, match="how chats are written for mine"):
            whole(client, model="mine")
        assert whole(client, model="mine", extra_body={"renderer": "qwen3"}).choices
        assert whole(client, model="Qwen/Qwen3-8B").choices
        # Another family's renderer does not fit; the model's own does.
        assert whole(client, model="meta-llama/Llama-3.1-8B").choices


def test_a_client_that_leaves_stops_its_sampling(client: openai.OpenAI, server: Running) -> None:
    """Other weights have their turn at once, not after 8,000 tokens."""

    async def leave() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as eager:
            given: Any = {"model": BASE, "prompt": "x", "max_tokens": 8000, "temperature": 2.0}
            whole = asyncio.ensure_future(eager.completions.create(**given, stop=["@@@@@@"]))
            stream = await eager.completions.create(**given, stop=["@@@@@@"], stream=True)
            async for _ in stream:
                break
            await stream.close()
            whole.cancel()

    asyncio.run(leave())
    with tinker.ServiceClient(base_url=server.url, api_key=KEY) as other:
        training = other.create_lora_training_client(BASE, rank=1).result()
        sampler = training.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=2)
        sampler.sample(prompt(), 1, params).result(timeout=20)


def test_samples_at_once_and_tokens_kept_are_bounded(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as few:
        few.setattr(endpoint_of_requests, "_MOST_AT_ONCE", 2)
        assert len(whole(client, n=2).choices) == 2
        with pytest.raises(openai.RateLimitError, match="under way at once") as raised:
            whole(client, n=3)
        assert raised.value.code == "rate_limit_exceeded"
    first = whole(client)
    monkeypatch.setattr(endpoint_of_requests, "_MOST_KEPT", 220)
    last = whole(client)
    client.get(f"/requests/{last.id}", cast_to=object)
    with pytest.raises(openai.NotFoundError, match="no answered request"):
        client.get(f"/requests/{first.id}", cast_to=object)


def test_usage_is_counted(client: openai.OpenAI, server: Running) -> None:
    def sampled() -> int:
        counts = server.account._counts.items()
        return sum(n for k, n in counts if (k.session_id, k.kind) == ("inference", "sample"))

    before = sampled()
    reply = whole(client, n=2)
    assert sampled() - before == reply.usage.completion_tokens


def test_requests_at_once_are_answered_as_alone(server: Running, client: openai.OpenAI) -> None:
    alone = [whole(client, seed=i).choices[0].message.content for i in range(12)]

    async def together() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as eager:
            asked = [
                eager.chat.completions.create(model=BASE, messages=ASKED, max_tokens=24, seed=i)
                for i in range(12)
            ]
            return [reply.choices[0].message.content for reply in await asyncio.gather(*asked)]

    assert asyncio.run(together()) == alone


def test_a_checkpoint_is_opened_once_for_all_who_ask_at_once(
    server: Running, sdk: tinker.ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = sdk.create_lora_training_client(BASE, rank=1).result()
    path = training.save_weights_for_sampler("shared").result().path
    opened: list[Any] = []
    plain_open = LocalService.create_sampling_client

    def open_once(service: LocalService, **given: Any) -> Any:
        opened.append(given)
        return plain_open(service, **given)

    monkeypatch.setattr(LocalService, "create_sampling_client", open_once)

    async def together() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY) as eager:
            given: Any = {"model": path, "prompt": "a", "max_tokens": 2}
            await asyncio.gather(*[eager.completions.create(**given) for _ in range(8)])

    asyncio.run(together())
    assert len(opened) == 1


def test_all_likeliest_tokens_are_a_distribution(client: openai.OpenAI) -> None:
    reply = whole(client, logprobs=True, top_logprobs=20, max_tokens=3)
    for token in reply.choices[0].logprobs.content:
        best = [other.logprob for other in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert 0.5 < sum(map(math.exp, best)) <= 1 + 1e-5
