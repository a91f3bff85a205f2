"""An endpoint in the caller's own event loop, over any sampling client."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from attrs import asdict, evolve, field, frozen
from PIL import Image
from serving_support import prompt

from rlc.chat.prompts import fitting_renderer
from rlc.service.chats.model import ChatModel, Generation, ReplyRequest
from rlc.service.chats.prompts import Message
from rlc.service.engine import open_engine
from rlc.service.engine.service import LocalService
from rlc.service.http import RefusedRequest, serving
from rlc.service.inference.endpoint import AnsweredRequest, Caller
from rlc.service.inference.routes import endpoint_app
from rlc.service.interface import ServiceError, ServiceLostError

ASKED: Any = [{"role": "user", "content": "Spell the word apple backwards."}]
GIVEN: Any = {"model": "any", "messages": ASKED, "max_tokens": 12, "seed": 3}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    opened = open_engine(tmp_path_factory.mktemp("engine"), device="cpu", threads=1)
    yield opened
    opened.close()


@frozen(eq=False)
class Whole:
    """A client as that of a service which tells nothing of a sample before it is done."""

    client: Any
    error: Exception | None = None

    async def sample(self, prompt: Any, n: int, params: Any, **scores: Any) -> Any:
        if self.error is not None:
            raise self.error
        return await self.client.sample(prompt, n, params, **scores)

    async def compute_logprobs(self, prompt: Any) -> Any:
        return await self.client.compute_logprobs(prompt)

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()


def whole(client: Any, error: Exception | None = None) -> Any:
    return Whole(client, error)


@frozen(eq=False)
class OneModel:
    """An endpoint of one model, for the callers with a key."""

    model: ChatModel

    def names(self) -> Mapping[str, float]:
        return {self.model.name: 0.0}

    async def find(self, name: str, caller: Caller) -> ChatModel:
        if caller.key != "right":
            raise RefusedRequest(401, "The key is not one of an episode.")
        return evolve(self.model, name=name)


async def model_of(engine: LocalService, **changed: Any) -> ChatModel:
    client = await engine.create_sampling_client(base_model="tiny")
    tokenizer = client.get_tokenizer()
    renderer = fitting_renderer(tokenizer, "qwen3")
    return evolve(ChatModel("tiny", "tiny", client, tokenizer, renderer, 8192), **changed)


@frozen(eq=False)
class Opened:
    """An endpoint that is up, and what it has told of its answers."""

    address: str
    answered: list[AnsweredRequest]
    http: httpx.AsyncClient

    def client(self, session: str = "", key: str = "right") -> openai.AsyncOpenAI:
        base = f"{self.address}/s/{session}/v1" if session else f"{self.address}/v1"
        http = self.http
        return openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=0, http_client=http)


@asynccontextmanager
async def endpoint(model: ChatModel) -> AsyncIterator[Opened]:
    answered: list[AnsweredRequest] = []
    served = serving(endpoint_app(OneModel(model), answered.append))
    async with httpx.AsyncClient() as http, served as address:
        yield Opened(address, answered, http)


@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "whole"])
def test_each_answer_is_told_to_the_token(engine: LocalService, streams: bool) -> None:
    async def work() -> None:
        model = await model_of(engine)
        client = model.client
        if not streams:
            model = evolve(model, client=whole(client))
        async with endpoint(model) as opened:
            asker, answered = opened.client("first"), opened.answered
            extra = {"return_token_ids": True}
            reply: Any = await asker.chat.completions.create(
                **GIVEN, n=2, logprobs=True, top_logprobs=2, user="me", extra_body=extra
            )
            (told,) = answered
            assert (told.id, told.user) == (reply.id, "me")
            assert told.caller == Caller("right", "first")
            assert list(told.prompts[0]) == reply.prompt_token_ids
            assert len(told.choices) == told.sampling.n == 2
            for choice, own in zip(reply.choices, told.choices, strict=True):
                assert list(own.token_ids) == choice.token_ids
                assert list(own.logprobs) == [t.logprob for t in choice.logprobs.content]
                assert own.text == choice.message.content
                scored = await client.compute_logprobs(
                    prompt([*reply.prompt_token_ids, *choice.token_ids])
                )
                found: Any = scored[len(reply.prompt_token_ids) :]
                assert own.logprobs.tolist() == pytest.approx(found, abs=1e-4)
            chunks = [c async for c in await asker.chat.completions.create(**GIVEN, stream=True)]
            streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert streamed == answered[1].choices[0].text == reply.choices[0].message.content
            # An answer is found again in its own session alone.
            assert (await asker.get(f"/requests/{reply.id}", cast_to=object)) is not None
            with pytest.raises(openai.NotFoundError):
                await opened.client("second").get(f"/requests/{reply.id}", cast_to=object)

    asyncio.run(work())


def test_a_client_that_leaves_at_the_end_has_been_answered(engine: LocalService) -> None:
    async def work() -> None:
        async with endpoint(await model_of(engine)) as opened:
            async for chunk in await opened.client().chat.completions.create(**GIVEN, stream=True):
                if chunk.choices[0].finish_reason is not None:
                    assert len(opened.answered) == 1
                    break

    asyncio.run(work())


@frozen(eq=False)
class OwnModel(ChatModel):
    """A model that begins to sample in a way of its own."""

    begin: Callable[[Any, ReplyRequest], Generation] = field(kw_only=True)

    def start(self, request: ReplyRequest) -> Generation:
        return self.begin(super(), request)


async def own_model(
    engine: LocalService, begin: Callable[[Any, ReplyRequest], Generation]
) -> ChatModel:
    return OwnModel(**asdict(await model_of(engine), recurse=False), begin=begin)


def test_a_prompt_may_be_written_from_what_was_sampled(engine: LocalService) -> None:
    """What `answered` tells of a reply is what the next request has among its messages, in both
    APIs."""
    import anthropic  # takes over a second: not in each collection

    written: list[Sequence[Message]] = []

    async def work() -> None:
        def begin(model: Any, request: ReplyRequest) -> Generation:
            written.append(request.messages or ())
            return model.start(request)  # type: ignore[no-any-return]

        async with endpoint(await own_model(engine, begin)) as opened:
            first = await opened.client().chat.completions.create(**GIVEN)
            sent = first.choices[0].message.model_dump()
            more = [*ASKED, sent, {"role": "user", "content": "Again."}]
            await opened.client().chat.completions.create(**{**GIVEN, "messages": more})
            assert written[1][1] == opened.answered[0].choices[0].message
            assert opened.answered[1].messages == written[1]
            said: Any = {"model": "any", "max_tokens": 12}
            base = f"{opened.address}/s/x"
            async with anthropic.AsyncAnthropic(base_url=base, api_key="right") as asker:
                message = await asker.messages.create(messages=ASKED, **said)
                turn: Any = {"role": "assistant", "content": message.content}
                await asker.messages.create(messages=[*ASKED, turn, *ASKED], **said)
            assert written[3][1] == opened.answered[2].choices[0].message
            assert [told.path for told in opened.answered] == ["chat/completions"] * 2 + [
                "messages"
            ] * 2

    asyncio.run(work())


def test_the_owner_has_the_last_word_on_sampling(engine: LocalService) -> None:
    def begin(model: Any, request: ReplyRequest) -> Generation:
        if request.sampling.n > 1:
            raise RefusedRequest(400, "An episode asks for one reply.", param="n")
        sampling = evolve(request.sampling, temperature=0.0, max_tokens=3)
        return model.start(evolve(request, sampling=sampling))  # type: ignore[no-any-return]

    async def work() -> None:
        async with endpoint(await own_model(engine, begin)) as opened:
            ask = opened.client().chat.completions.create
            await ask(**GIVEN, temperature=2.0)
            assert opened.answered[0].sampling.temperature == 0.0
            assert len(opened.answered[0].choices[0].token_ids) <= 3
            with pytest.raises(openai.BadRequestError, match="one reply"):
                await ask(**GIVEN, n=2)
            assert len(opened.answered) == 1

    asyncio.run(work())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceLostError("the server is gone"), openai.InternalServerError),
        (ServiceError("no such prompt"), openai.BadRequestError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_service_refuses_is_an_error_of_the_request(
    engine: LocalService, error: Exception, expected: type[openai.APIStatusError], stream: bool
) -> None:
    async def work() -> None:
        model = await model_of(engine)
        broken = evolve(model, client=whole(model.client, error))
        async with endpoint(broken) as opened:
            with pytest.raises(expected) as raised:
                await opened.client().chat.completions.create(**GIVEN, stream=stream)
            assert str(error) in str(raised.value).lower()
            assert not opened.answered
            with pytest.raises(openai.AuthenticationError):
                await opened.client(key="wrong").chat.completions.create(**GIVEN)
            assert [m.id async for m in opened.client("x").models.list()] == ["tiny"]

    asyncio.run(work())


def test_a_model_without_a_renderer_goes_on_with_texts(engine: LocalService) -> None:
    async def work() -> None:
        model = await model_of(engine, renderer=None, no_renderer="it is a base model")
        async with endpoint(model) as opened:
            asker = opened.client()
            text = await asker.completions.create(model="any", prompt="apple", max_tokens=4)
            assert opened.answered[0].choices[0].message["content"] == text.choices[0].text
            with pytest.raises(openai.BadRequestError, match="it is a base model"):
                await asker.chat.completions.create(**GIVEN)
            named = await asker.chat.completions.create(**GIVEN, extra_body={"renderer": "qwen3"})
            assert named.choices

    asyncio.run(work())


@frozen(eq=False)
class Seeing:
    """A client whose model reads a picture as tokens, one for each of its positions."""

    client: Any
    seen: list[Any]

    async def sample(self, given: Any, n: int, params: Any, **scores: Any) -> Any:
        self.seen.extend(chunk for chunk in given.chunks if chunk.type == "image")
        read = [
            token
            for chunk in given.chunks
            for token in (chunk.tokens if chunk.type == "encoded_text" else [65] * chunk.length)
        ]
        return await self.client.sample(prompt(read), n, params, **scores)


def test_a_model_that_sees_is_shown_the_pictures_of_both_apis(
    engine: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anthropic
    from tinker_cookbook import image_processing_utils
    from transformers import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil()
    monkeypatch.setattr(image_processing_utils, "get_image_processor", lambda _: processor)
    drawn = io.BytesIO()
    Image.new("RGB", (56, 56), "red").save(drawn, "PNG")
    data = base64.b64encode(drawn.getvalue()).decode()
    url = f"data:image/png;base64,{data}"
    text = {"type": "text", "text": "What is this?"}
    openai_content: Any = [{"type": "image_url", "image_url": {"url": url}}, text]
    source = {"type": "base64", "media_type": "image/png", "data": data}
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}

    async def work() -> None:
        model, seen = await model_of(engine), list[Any]()
        renderer = fitting_renderer(model.tokenizer, "qwen3_vl_instruct")
        client: Any = Seeing(model.client, seen)
        async with endpoint(evolve(model, client=client, renderer=renderer)) as opened:
            asker, given = opened.client(), {**GIVEN, "seed": 3}
            given["messages"] = [{"role": "user", "content": openai_content}]
            reply = await asker.chat.completions.create(**given)
            told = opened.answered[0]
            marks = [token for token in told.prompts[0] if token < 0]
            assert len(marks) == seen[0].length == 4
            assert reply.usage is not None
            assert reply.usage.prompt_tokens == len(told.prompts[0])
            given["messages"] = [{"role": "user", "content": [broken]}]
            with pytest.raises(openai.BadRequestError, match="cannot identify image"):
                await asker.chat.completions.create(**given)
            claude = anthropic.AsyncAnthropic(
                base_url=opened.address, api_key="right", max_retries=0
            )
            content: Any = [{"type": "image", "source": source}, text]
            asked: Any = [{"role": "user", "content": content}]
            extra = {"seed": 3}
            same = await claude.messages.create(
                model="any", messages=asked, max_tokens=12, extra_body=extra
            )
            assert opened.answered[1].prompts == told.prompts
            assert same.content[0].type == "text"
            assert same.content[0].text == reply.choices[0].message.content
            await claude.close()

    asyncio.run(work())
