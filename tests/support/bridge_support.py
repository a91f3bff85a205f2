"""Runs and clients on a stand-in for SkyRL, and the same on the embedded engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from run_support import TINY, compiled, metrics, train
from skyrl_server import SkyRLServer

from rlc.compile.variants import on_service
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer, Summary
from rlc.service.bridge.app import bridged
from rlc.service.engine import open_engine
from rlc.service.hosted.connect import connect_service
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceClient

T = TypeVar("T")
Talk = Callable[[ServiceClient], Awaitable[T]]
Start = Callable[..., SkyRLServer]
SMALL = {
    "batch": "groups(2, group_size = 2)",
    "sampling": "sample(max_tokens = 6)",
    "optimizer": "adam(3e-3)",
    "steps": "2",
    "save": "every(1, keep = 2)",
}


def small_job(**fields: str) -> str:
    """A short training, with some of its fields changed."""
    return TINY + train(**SMALL | fields)


def there(text: str, seed: int = 1) -> Plan:
    """The plan of a recipe, with its models on a server of SkyRL."""
    return on_service(compiled(text, seed=seed), "skyrl")


class Watcher(Observer):
    """Keeps the notes, and calls ``after`` with the number of each step that is done."""

    def __init__(self, after: Callable[[int], object] = lambda _: None) -> None:
        self.after = after
        self.notes: list[str] = []
        self.job: Job | None = None

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.after(step)

    def note(self, text: str) -> None:
        self.notes.append(text)


def run_on(
    folder: RunFolder, server: SkyRLServer | None = None, watcher: Watcher | None = None
) -> Summary:
    """Run a folder on ``server``, or on the embedded engine."""
    watcher = watcher or Watcher()
    service = connect_service(
        folder.plan, folder.path / "checkpoints", server.url if server else None
    )
    watcher.job = Job(folder, service, watcher)
    try:
        return asyncio.run(watcher.job.run())
    finally:
        folder.close()
        if server is None:
            service.close()  # type: ignore[attr-defined]


def numbers(path: Path) -> list[dict[str, float]]:
    """The metrics of a run that do not depend on the clock, on prices, or on what was cached."""
    left_out = ("time/", "spend/", "service/", "tokens/prefill", "tokens/cached", "optim/skyrl.ai")
    return [
        {key: value for key, value in step.items() if not key.startswith((*left_out, "stage"))}
        for step in metrics(path)
    ]


def assert_same_numbers(path: Path, expected: list[dict[str, float]]) -> None:
    """A run came to the same as another, but for the order of sums in float32."""
    told = numbers(path)
    assert [step.keys() for step in told] == [step.keys() for step in expected]
    differences = [
        f"{key} of step {step['step']} is {value}, not {wanted[key]}"
        for step, wanted in zip(told, expected, strict=True)
        for key, value in step.items()
        if value != pytest.approx(wanted[key], rel=1e-5, abs=1e-5)
    ]
    assert not differences, "\n".join(differences)


def at(server: SkyRLServer, talk: Talk[T]) -> T:
    """What a program of the SDK comes to through a bridge to the server."""

    async def run() -> T:
        service = HostedService(Endpoint(bridged(server.url), "tml-test"))
        try:
            return await talk(service)
        finally:
            await service.close("success")

    return asyncio.run(run())


def here(folder: Path, talk: Talk[T]) -> T:
    """What it comes to on the embedded engine."""

    async def run() -> T:
        service = open_engine(folder, threads=1)
        try:
            return await talk(service)
        finally:
            service.close()

    return asyncio.run(run())
