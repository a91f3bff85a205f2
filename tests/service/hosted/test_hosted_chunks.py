"""Runs whose prompts hold pictures or sounds, through the official SDK to a server whose model
sees and hears.

The embedded engine reads text only. Here each picture and sound is read as tokens, one for each
byte, so that sampler and trainer agree only if both are given the same in the same places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_tinker import EngineTinker, engine_tinker
from paths import SUPPORT
from tinker.types import EncodedTextChunk, ModelInput
from tinker.types.dmel_chunk import DmelChunk

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer
from rlc.service.hosted.connect import connect_service

pytestmark = pytest.mark.server

RECIPE = """
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 4  renderer = qwen3_instruct }
env words = cookbook("cookbook_builders:WordsBuilder", args = {kind = "pictures"})
train main {
  model     = policy
  env       = words
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 12)
  advantage = grpo()
  loss      = importance_sampling()
  kl        = reference(policy.base, coef = 0.01)
  optimizer = adam(1e-3)
  steps     = 2
}
"""


def read(prompt: ModelInput) -> list[int]:
    """The tokens of a model that sees and hears."""
    tokens: list[int] = []
    for chunk in prompt.chunks:
        if isinstance(chunk, EncodedTextChunk):
            tokens += chunk.tokens
        elif isinstance(chunk, DmelChunk):
            tokens += chunk.dmel[-chunk.length :]
        else:
            tokens += chunk.data[: chunk.length]  # type: ignore[union-attr]
    return tokens


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineTinker]:
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.syspath_prepend(str(SUPPORT))
    with engine_tinker(tmp_path / "server") as running:
        yield running


def plan(kind: str) -> Plan:
    compiled = compile_source(Source("words.rl", RECIPE.replace("pictures", kind)), {}, 1)
    assert compiled.plan is not None, compiled.diagnostics
    return compiled.plan


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(
    path: Path, server: EngineTinker, kind: str = "pictures"
) -> tuple[list[dict[str, Any]], list[str]]:
    """The metrics of a new run, and what was said in it."""
    folder = RunFolder.create(path, plan(kind))
    service = connect_service(folder.plan, path / "checkpoints", server.url)
    try:
        notes = Notes()
        asyncio.run(Job(folder, service, notes).run())
        return folder.journal.metrics(), notes.notes
    finally:
        folder.close()


@pytest.mark.parametrize(("kind", "chunk"), [("pictures", "image"), ("sounds", "dmel")])
def test_sampler_trainer_and_reference_are_given_the_same(
    server: EngineTinker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk: str
) -> None:
    monkeypatch.setattr(ModelInput, "to_ints", read)
    (first, second), _ = run(tmp_path / "run", server, kind)
    for step in (first, second):
        assert step["rollouts/failed"] == 0
        assert abs(step["kl/sample_train_k2"]) < 1e-8
    assert first["kl/reference"] == pytest.approx(0, abs=1e-6)
    _probe, *asked = server.asked("asample")
    assert all(body["prompt"]["chunks"][0]["type"] == chunk for body in asked)
    rollouts = (tmp_path / "run" / "rollouts.jsonl").read_text(encoding="utf-8")
    assert f"[{chunk}]" in rollouts


def test_a_model_that_reads_text_only_says_so(server: EngineTinker, tmp_path: Path) -> None:
    (_, second), notes = run(tmp_path / "run", server)
    assert second["rollouts/played"] == 0
    assert "reads text only, no images or sounds" in notes[-1]
