"""Models that are asked and not trained: opened once, repeatable, and paid for by the stage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from attrs import evolve
from run_support import run_new, tiny, train

from rlc.envs.responders import ModelReply, ModelRequest
from rlc.plan.parts import ModelState, Sampling
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.service.hosted.connect import connect_service
from rlc.service.interface import calls_of, pending_call

pytestmark = pytest.mark.plain

T = TypeVar("T")
ASKED = [{"role": "user", "content": "Guess a number between 1 and 10."}]


def on(path: Path, what: Callable[[RunFolder, AuxiliaryModels], Awaitable[T]]) -> T:
    """Do something with the asked models of the job in a run folder."""

    async def work(folder: RunFolder) -> T:
        service = connect_service(folder.plan, path / "checkpoints")
        return await what(folder, AuxiliaryModels(service, folder))

    with closing(RunFolder.resume(path)) as folder:
        return asyncio.run(work(folder))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("runs") / "asked"
    run_new(made, tiny(train("first", steps="1", optimizer="adam(3e-2)")))
    return made


async def answers(folder: RunFolder, asked: AuxiliaryModels, state: ModelState) -> list[ModelReply]:
    around = Meter(folder.journal, "first", state.model)
    responder = asked.responders(around)(state)
    keys = [("a", 1), ("a", 2), ("a", 1)]
    asks = (responder.reply(ModelRequest(ASKED, Sampling(12), key)) for key in keys)
    return list(await asyncio.gather(*asks))


def test_a_key_gives_the_same_reply_again(path: Path) -> None:
    async def work(folder: RunFolder, asked: AuxiliaryModels) -> list[ModelReply]:
        return await answers(folder, asked, ModelState(folder.plan.stages[0].model, None))

    one, two, again = on(path, work)
    assert one == again
    assert one != two
    assert on(path, work) == [one, two, again]


def test_its_tokens_are_those_of_the_stage(path: Path) -> None:
    async def work(folder: RunFolder, asked: AuxiliaryModels) -> tuple[int, int]:
        before = folder.journal.used("first").tokens
        await answers(folder, asked, ModelState(folder.plan.stages[0].model, None))
        return before, folder.journal.used("first").tokens

    before, after = on(path, work)
    assert after - before > 3 * 20


def test_other_requests_wait_until_a_model_is_open(path: Path) -> None:
    """Otherwise the first of them would sometimes be answered together with its own and sometimes
    without, and the last bits of logprobs would differ."""

    async def work(folder: RunFolder, asked: AuxiliaryModels) -> None:
        loop = asyncio.get_running_loop()
        with pending_call():  # as an environment does that asks
            opening = asyncio.ensure_future(
                answers(folder, asked, ModelState(folder.plan.stages[0].model, None))
            )
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not opening.done()
            assert calls_of(loop).ours
            await opening

    on(path, work)


def test_a_stage_is_asked_with_the_weights_that_it_leaves(path: Path) -> None:
    async def work(folder: RunFolder, asked: AuxiliaryModels) -> list[list[float | None]]:
        from tinker import types

        model, found = folder.plan.stages[0].model, []
        for state in (ModelState(model, None), ModelState(model, "first")):
            client = await asked.client(state)
            assert await asked.client(state) is client
            prompt = types.ModelInput.from_ints(client.get_tokenizer().encode("2 + 3 = 5"))
            found.append(await client.compute_logprobs(prompt))
        return found

    base, trained = on(path, work)
    assert base != trained


def test_a_stage_that_has_left_nothing(path: Path) -> None:
    async def work(folder: RunFolder, asked: AuxiliaryModels) -> None:
        model = evolve(folder.plan.stages[0].model, lora_rank=8)
        for _ in range(2):  # what failed is tried again
            with pytest.raises(RunError, match="`second` has left no checkpoint"):
                await asked.client(ModelState(model, "second"))

    on(path, work)
