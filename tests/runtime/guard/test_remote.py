"""What a run asks of a service over a network before its first step, and keeps for the bill."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, field
from tinker import types
from tinker.lib.base_url import DEFAULT_BASE_URL

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.runtime.journal.database import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.remote import RemoteSession
from rlc.runtime.summary import Observer
from rlc.service.engine import open_engine
from rlc.service.engine.service import LocalService
from rlc.service.interface import Listener, RemoteService, ServiceError

pytestmark = pytest.mark.plain

RECIPE = """
model policy { base = "Qwen/Qwen3-8B"  renderer = qwen3_instruct }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main { model = policy  env = guess  batch = groups(2, group_size = 4)
             sampling = sample(max_tokens = 12)  advantage = grpo()  loss = ppo()
             optimizer = adam(1e-4)  steps = 2 }
"""


def hosted_plan(loss: str = "ppo()") -> Plan:
    compiled = compile_source(Source("r.rl", RECIPE), {"main.loss": loss}, 1)
    assert compiled.plan is not None, compiled.diagnostics
    return compiled.plan


def stage_of(plan: Plan) -> Training:
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    return stage


@define(eq=False)
class Remote:
    """The embedded engine as if it were far away, under the name of a hosted model."""

    engine: LocalService
    context: int = 32768
    repeats: bool = False
    averages: bool = False
    ours: bool = True
    server: str = "http://far.away"
    separated: bool = False
    ends: list[str] = field(factory=list)
    listener: Listener | None = None

    async def create_lora_training_client(self, base_model: str, **facts: Any) -> Any:
        client: Any = await self.engine.create_lora_training_client("tiny", rank=2, seed=1)
        if self.averages or self.repeats:
            client = Odd(client, self.averages, self.repeats)
        return client

    async def create_training_client_from_state_with_optimizer(self, path: str, **_: Any) -> Any:
        return await self.engine.create_training_client_from_state_with_optimizer(path)

    async def create_training_client_from_state(self, path: str, **_: Any) -> Any:
        return await self.engine.create_training_client_from_state(path)

    async def create_training_client_from_adapter(self, folder: str, base: str, **_: Any) -> Any:
        return await self.engine.create_training_client_from_adapter(folder, "tiny")

    async def create_sampling_client(
        self, model_path: str | None = None, base_model: str | None = None, **_: Any
    ) -> Any:
        return await self.engine.create_sampling_client(base_model="tiny")

    async def create_custom_loss(self, fn: Any, input_ranks: Any) -> Any:
        return await self.engine.create_custom_loss(fn, input_ranks)

    async def delete_checkpoint(self, path: str) -> None:
        await self.engine.delete_checkpoint(path)

    async def get_server_capabilities(self) -> types.GetServerCapabilitiesResponse:
        model = types.SupportedModel(
            model_name="Qwen/Qwen3-8B", max_context_length=self.context, trainable=True
        )
        return types.GetServerCapabilitiesResponse(supported_models=[model])

    async def ping(self) -> None:
        pass

    async def is_rlc(self) -> bool:
        return self.ours

    def separate_samples(self) -> None:
        self.separated = True

    def listen(self, listener: Listener) -> None:
        self.listener = listener

    async def close(self, end: str) -> None:
        self.ends.append(end)


@define
class Repeating:
    client: Any

    async def sample(self, prompt: Any, count: int, params: Any) -> types.SampleResponse:
        response = await self.client.sample(prompt, 1, params)
        return types.SampleResponse(sequences=list(response.sequences) * count)


@define
class Odd:
    """A client of a service that averages losses, or repeats samples."""

    client: Any
    averages: bool
    repeats: bool

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()

    async def save_weights_and_get_sampling_client(self) -> Any:
        sampler = await self.client.save_weights_and_get_sampling_client()
        return Repeating(sampler) if self.repeats else sampler

    async def forward(
        self, data: list[types.Datum], loss_fn: str, config: Mapping[str, Any] | None = None
    ) -> types.ForwardBackwardOutput:
        output = await self.client.forward(data, loss_fn, config)
        output.metrics["loss:sum"] /= len(data) if self.averages else 1
        return output  # type: ignore[no-any-return]


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@define
class Opened:
    run: RemoteSession
    folder: RunFolder
    notes: list[str]
    stage: Training


def verify(tmp_path: Path, plan: Plan, remote: Remote) -> Opened:
    """Open a run on ``remote`` and verify its stage, as a job does before the first step."""
    observer, folder = Notes(), RunFolder.create(tmp_path / "run", plan)
    run = RemoteSession(cast(RemoteService, remote), folder, observer.note, lambda: None)

    async def ask() -> Training:
        await run.open(plan)
        stage = run.with_served_context(stage_of(plan))
        training = await remote.create_lora_training_client("Qwen/Qwen3-8B")
        await run.verify(stage, training, Meter(folder.journal, stage.name, stage.model))
        return stage

    stage = asyncio.run(ask())
    return Opened(run, folder, observer.notes, stage)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(open_engine(tmp_path / "checkpoints"))


def test_the_embedded_engine_is_not_remote(tmp_path: Path, remote: Remote) -> None:
    assert isinstance(remote, RemoteService)
    assert not isinstance(remote.engine, RemoteService)


def test_probes_are_recorded_and_paid_for(tmp_path: Path, remote: Remote) -> None:
    opened = verify(tmp_path, hosted_plan(), remote)
    lines = (tmp_path / "run" / "service.jsonl").read_text().splitlines()
    loss, seeds = map(json.loads, lines)
    assert (loss["event"], loss["loss"]) == ("loss probe", "ppo")
    assert loss["told"] == pytest.approx(loss["expected"], rel=1e-4)
    assert (seeds["event"], seeds["distinct"]) == ("seed probe", True)
    assert 0 < opened.folder.journal.spent_usd() < 1e-3
    assert not remote.separated
    assert opened.notes == []
    assert opened.folder.journal.meta("server") == "http://far.away"


def test_a_wrong_loss_ends_the_run_before_a_step(tmp_path: Path, remote: Remote) -> None:
    remote.averages = True
    with pytest.raises(ServiceError, match="does not compute `ppo` as the plan says"):
        verify(tmp_path, hosted_plan(), remote)


def test_a_loss_whose_definition_is_not_published_is_compared_with_our_own_server_only(
    tmp_path: Path, remote: Remote
) -> None:
    plan = hosted_plan(loss="stable_reinforce(kl_coeff = 0.1)")
    opened = verify(tmp_path / "ours", plan, remote)
    (probe, _) = map(json.loads, (opened.folder.path / "service.jsonl").read_text().splitlines())
    assert probe["told"] == pytest.approx(probe["expected"], rel=1e-4)
    assert opened.notes == []
    remote.ours = False
    opened = verify(tmp_path / "theirs", plan, remote)
    assert "loss probe" not in (opened.folder.path / "service.jsonl").read_text()
    assert "definition of it is not published" in opened.notes[0]


def events(opened: Opened) -> list[str]:
    lines = (opened.folder.path / "service.jsonl").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def test_training_is_tried_on_servers_of_others_alone(tmp_path: Path, remote: Remote) -> None:
    remote.ours = False
    opened = verify(tmp_path / "theirs", hosted_plan(), remote)
    assert events(opened) == ["loss probe", "training probe", "seed probe"]
    assert opened.notes == []
    measured = (opened.folder.path / "service.jsonl").read_text()
    assert "weights of -1" in measured
    assert "older weights" not in measured  # the plan asks for none
    remote.server = DEFAULT_BASE_URL  # Tinker's own
    opened = verify(tmp_path / "own", hosted_plan(), remote)
    assert events(opened) == ["loss probe", "seed probe"]


def test_a_service_that_makes_no_second_model_is_not_refused(
    tmp_path: Path, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Remote.create_lora_training_client

    async def limited(self: Remote, base_model: str, **facts: Any) -> Any:
        if facts:  # those of a stage; `verify` gives none
            raise ServiceError("there is room for one model")
        return await make(self, base_model)

    monkeypatch.setattr(Remote, "create_lora_training_client", limited)
    remote.ours = False
    opened = verify(tmp_path, hosted_plan(), remote)
    assert events(opened) == ["loss probe", "seed probe"]
    assert "for lack of a second model: there is room for one model" in opened.notes[0]


def test_repeated_samples_are_noticed_and_said(tmp_path: Path, remote: Remote) -> None:
    remote.repeats = True
    opened = verify(tmp_path, hosted_plan(), remote)
    assert remote.separated
    assert "repeats the samples" in opened.notes[0]


def test_a_smaller_context_is_said_and_kept_to(tmp_path: Path, remote: Remote) -> None:
    remote.context = 8192
    opened = verify(tmp_path, hosted_plan(), remote)
    assert opened.stage.model.context == 8192
    assert "8,192 tokens of context" in opened.notes[0]
