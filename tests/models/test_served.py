"""Models by reference behind OpenAI's API, each over its own service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import tinker
from chat_support import renderer
from http_testing import Running, running
from run_support import TINY, compiled, run_new, train
from serving_support import BASE, KEY, policy_data
from tinker import types

import rlc
from rlc.catalog.saved_weights import shown_turns
from rlc.chat.prompts import ChatFormat, ChatHistory
from rlc.chat.turns import Observation
from rlc.cli.main import main
from rlc.models.named import UnknownModelError, named_model
from rlc.models.served import serving_models
from rlc.plan.parts import ModelPlan
from rlc.service.inference.endpoint import Recorder
from rlc.service.interface import SamplingRequest
from rlc.service.sockets import LOOPBACK

pytestmark = [pytest.mark.engine, pytest.mark.server]

ASKED: Any = [{"role": "user", "content": "Guess a number between 1 and 10."}]
GIVEN: Any = {"messages": ASKED, "max_tokens": 8, "seed": 1, "logprobs": True, "top_logprobs": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    run_new(path, compiled(TINY + train(steps="1", optimizer="adam(3e-2)")))
    return path


@asynccontextmanager
async def served(plans: Mapping[str, ModelPlan], key: str | None = None, **more: Any) -> Any:
    async with serving_models(plans, LOOPBACK, 0, key, **more) as address:
        opened = openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key or "any", max_retries=0)
        async with opened as client:
            yield client


def test_a_run_and_its_base_are_served_and_recorded(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    recorder = Recorder(file)
    exactly = f"{trained}@main:1"

    async def work() -> Any:
        plans = {"mine": named_model(str(trained)), "tiny": named_model("tiny")}
        async with served(plans, "secret", answered=recorder) as client:
            assert [m.id async for m in client.models.list()] == ["mine", exactly, "tiny"]
            named = await client.chat.completions.create(model="mine", **GIVEN)
            same = await client.chat.completions.create(model=exactly, **GIVEN)
            assert same.choices[0].message == named.choices[0].message
            with pytest.raises(openai.NotFoundError, match=r"served here: there is mine\."):
                await client.chat.completions.create(model="mein", **GIVEN)
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="other").models.list()
            return named.choices[0]

    choice = asyncio.run(work())
    recorder.close()
    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["model"], second["model"]) == ("mine", exactly)
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]
    assert first["choices"][0]["logprobs"] == [t.logprob for t in choice.logprobs.content]
    assert "secret" not in file.read_text()
    with rlc.model(str(trained)) as model:
        (reply,) = model.sample(ASKED, SamplingRequest(8, seed=1))
    assert list(reply.tokens) == first["choices"][0]["token_ids"]
    assert reply.text == choice.message.content


def test_models_of_the_engine_share_it(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base model is loaded once, and each model still answers as itself."""
    from rlc.service.engine.base_model import load_base as load

    loaded: list[str] = []

    def counted(name: str, *more: Any) -> Any:
        loaded.append(name)
        return load(name, *more)

    monkeypatch.setattr("rlc.service.engine.service.load_base", counted)

    async def work() -> list[list[float]]:
        plans = {"mine": named_model(str(trained)), "tiny": named_model("tiny")}
        async with served(plans) as client:
            asked = [client.chat.completions.create(model=name, **GIVEN) for name in plans]
            replies = await asyncio.gather(*asked)
            return [[t.logprob for t in r.choices[0].logprobs.content] for r in replies]

    mine, base = asyncio.run(work())
    assert loaded == ["tiny"]
    assert mine != base


def test_an_evaluation_through_the_endpoint_is_that_of_the_model(trained: Path) -> None:
    """As suites ask: every question at once, for the most likely replies."""
    sums = [f"{a} + {b} = ?" for a in range(1, 4) for b in range(1, 5)]
    chats: Any = [[{"role": "user", "content": question}] for question in sums]

    async def work() -> list[str]:
        async with served({"mine": named_model(str(trained))}) as client:
            given: Any = {"model": "mine", "max_tokens": 6, "temperature": 0.0}
            asked = [client.chat.completions.create(messages=chat, **given) for chat in chats]
            return [reply.choices[0].message.content for reply in await asyncio.gather(*asked)]

    through = asyncio.run(work())
    with rlc.model(str(trained)) as model:
        own = [
            reply.text for (reply,) in model.sample_all(chats, SamplingRequest(6, temperature=0.0))
        ]
    assert through == own


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(tmp_path_factory.mktemp("hosted")) as opened:
        yield opened


@pytest.fixture(scope="module")
def state(server: Running) -> str:
    with tinker.ServiceClient(base_url=server.url, api_key=KEY) as sdk:
        metadata = {"renderer_name": "qwen3_disable_thinking"}
        client = sdk.create_lora_training_client(
            BASE, rank=2, seed=1, user_metadata=metadata
        ).result()
        client.forward_backward(policy_data(), "importance_sampling")
        client.optim_step(types.AdamParams(learning_rate=0.01)).result()
        return str(client.save_state("mine").result().path)


def test_a_state_on_tinker_is_served_by_its_path_alone(
    server: Running, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its base and its renderer are asked of the service."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    plan = named_model(state, base_url=server.url)
    assert (plan.base, plan.renderer) == (BASE, "qwen3_disable_thinking")

    async def work() -> None:
        async with served({state: plan}, base_url=server.url) as client:
            direct = client.with_options(base_url=f"{server.url}/v1", api_key=KEY)
            over = await client.chat.completions.create(model=state, n=2, **GIVEN)
            own = await direct.chat.completions.create(model=state, n=2, **GIVEN)
            for one, other in zip(over.choices, own.choices, strict=True):
                assert one.message == other.message
                for ours, theirs in zip(one.logprobs.content, other.logprobs.content, strict=True):
                    assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-5)
                    assert [t.token for t in ours.top_logprobs] == [
                        t.token for t in theirs.top_logprobs
                    ]
            chunks = await client.chat.completions.create(model=state, stream=True, **GIVEN)
            streamed = [c.choices[0].delta.content or "" async for c in chunks]
            whole = await client.chat.completions.create(model=state, **GIVEN)
            assert "".join(streamed) == whole.choices[0].message.content

    asyncio.run(work())


def test_a_state_that_the_service_does_not_know(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with pytest.raises(UnknownModelError, match=r"is not known here: .*nobody") as raised:
        named_model("tinker://nobody/weights/none", base_url=server.url)
    assert raised.value.hint == "give --base"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--openai", "nowhere"], "nowhere is no run"),
        (["--openai", "tiny", "--model", "tiny"], "--model has no effect with --openai"),
        (["--openai", "tiny", "--faults", "errors=5%"], "--faults has no effect"),
        (["--renderer", "qwen3"], "--renderer is for models named by --openai"),
        (["--openai", "tiny", "--host", "0.0.0.0"], "--allow-remote"),
        (["--openai", "tiny", "--record", "/dev/null/x"], "cannot write /dev/null/x"),
    ],
)
def test_what_cannot_be_served_is_said_before(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *given]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on chats whose later turns show the thinking of earlier ones."""
    path = tmp_path_factory.mktemp("runs") / "thinks"
    model = 'model policy { base = "tiny"  renderer = qwen3 }\n'
    env = 'env guess = gem("game:GuessTheNumber-v0-easy") |> chat(history = sampled)\n'
    run_new(path, compiled(model + env + train(steps="1", optimizer="adam(3e-2)")))
    return path


def test_later_turns_are_served_with_the_tokens_that_training_shows(
    thinker: Path, tmp_path: Path
) -> None:
    """By `rlc chat`, and where a program sends back the text of what it was answered."""
    recorder = Recorder(tmp_path / "asked.jsonl")

    async def work() -> None:
        async with served({"mine": named_model(str(thinker))}, answered=recorder) as client:
            first = await client.chat.completions.create(model="mine", **GIVEN)
            said = {"role": "assistant", "content": first.choices[0].message.content}
            more: Any = [*ASKED, said, {"role": "user", "content": "Higher."}]
            await client.chat.completions.create(model="mine", **{**GIVEN, "messages": more})

    asyncio.run(work())
    recorder.close()
    first, second = map(json.loads, (tmp_path / "asked.jsonl").read_text().splitlines())
    history = ChatHistory(ChatFormat(renderer("qwen3")))
    (prompt,), tokens = first["prompts"], first["choices"][0]["token_ids"]
    assert prompt == history.observe(Observation(ASKED[0]["content"]))
    history.reply(tokens)
    assert second["prompts"] == [history.observe(Observation("Higher."))]
    with rlc.model(str(thinker)) as model:
        chat = model.conversation(max_tokens=8)
        said = chat.say("Guess a number between 1 and 10.")
        asked = [*chat.messages, {"role": "user", "content": "Higher."}]
        written = model._opened.chats.prompt(asked).tokens
        assert written[len(prompt) :][: len(said.tokens)] == list(said.tokens)


@pytest.mark.slow
def test_each_stage_is_served_with_the_turns_that_it_was_trained_on(tmp_path: Path) -> None:
    text = 'model policy { base = "tiny"  renderer = qwen3 }\n'
    for name, prompts in (
        ("anew", "chat(history = template)"),
        ("kept", "chat(history = sampled)"),
        ("plain", "concat() |> template(no)"),
    ):
        text += f'env e_{name} = gem("game:GuessTheNumber-v0-easy") |> {prompts}\n'
    text += train(steps="1", env="e_anew", batch="groups(4, group_size = 4)")
    text += "train kept = main { env = e_kept }\ntrain plain = kept { env = e_plain }\n"
    run_new(tmp_path / "run", compiled(text))
    shown = [shown_turns(f"{tmp_path}/run@{stage}") for stage in ("main", "kept", "plain")]
    assert shown == ["template", "sampled", "template"]
    assert shown_turns("tiny") == shown_turns(None) == "template"
