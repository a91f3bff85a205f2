"""A package that stands in for the SDK trains, saves and goes on as the SDK does."""

from __future__ import annotations

import asyncio
import sys
import traceback
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from run_support import metrics, tiny, train

import rlc
from rlc.catalog import provider
from rlc.catalog.providers import _files as catalogued
from rlc.compile import on_service
from rlc.plan import plan_hash
from rlc.runtime import connect_run
from rlc.runtime.start import resume_run
from rlc.service import ServiceError, connect_service, require_service

pytestmark = pytest.mark.plain

LAB = """{
  "title": "Lab", "package": "attrs", "module": "lab_tinker", "key": "LAB_KEY",
  "keys_at": "https://lab.example", "url": "http://127.0.0.1:1", "scheme": "lab://",
  "models": {"tiny": {"name": "our/tiny", "prefill": 1, "cached": 1, "sample": 1, "train": 1}},
  "arguments": {"forward_backward": {"outputs": true}}
}"""


class Blocking:
    """A client of the double whose methods can be called in a thread, as those of packages are."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._own, name)

        @wraps(method)
        async def call(*args: Any, **more: Any) -> Any:
            return await method(*args, **more)

        return method if name == "get_tokenizer" else call


class Trained(Blocking):
    """A client with the methods of the SDK, which takes less: no TTL, no metadata; bare names."""

    def __init__(self, own: Any, saved: dict[str, str]) -> None:
        super().__init__(own)
        self._saved, self.closed = saved, False

    async def forward_backward(
        self, data: Any, loss_fn: str, loss_fn_config: Any = None, *, outputs: bool = False
    ) -> Any:
        assert outputs
        return await self._own.forward_backward(data, loss_fn, loss_fn_config)

    async def optim_step(self, adam_params: Any) -> Any:
        return await self._own.optim_step(adam_params)

    async def save_state(self, name: str) -> Any:
        saved = await self._own.save_state(name, None, True)
        self._saved[name] = saved.path
        return saved.model_copy(update={"path": name})

    async def save_weights_and_get_sampling_client(self) -> Blocking:
        return Blocking(await self._own.save_weights_and_get_sampling_client())

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Trained]:
    """The clients that the package of the lab has made; it computes with the double."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".rlc" / "providers").mkdir(parents=True)
    (tmp_path / ".rlc" / "providers" / "lab.json").write_text(LAB, encoding="utf-8")
    from plain_service import open_plain

    made, saved, module = list[Trained](), dict[str, str](), ModuleType("lab_tinker")

    class ServiceClient:
        def __init__(self, *, api_key: str, base_url: str) -> None:
            assert (api_key, base_url) == ("k", provider("lab").url)
            self._own = open_plain(tmp_path / "states")

        async def create_lora_training_client(self, base_model: str, rank: int, seed: int) -> Any:
            assert base_model == "our/tiny"
            made.append(Trained(await self._own.create_lora_training_client("tiny", rank), saved))
            return made[-1]

        async def create_training_client_from_state_with_optimizer(self, path: str) -> Any:
            load = self._own.create_training_client_from_state_with_optimizer
            made.append(Trained(await load(saved[path]), saved))
            return made[-1]

    module.ServiceClient = ServiceClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lab_tinker", module)
    monkeypatch.setenv("LAB_KEY", "k")
    return made


def test_a_run_on_it_saves_goes_on_and_counts_its_prices(
    opened: list[Trained], tmp_path: Path
) -> None:
    job = on_service(tiny(train(steps="2", save="every(1)")), "lab")
    first = rlc.run(job, run_dir=tmp_path / "run")
    assert first.state == "finished"
    assert first.spent_usd
    assert len(metrics(tmp_path / "run")) == 2
    assert all(client.closed for client in opened)
    assert len(opened) == 1  # a second one would hold GPUs, too
    (state,) = {one.split("/main")[0] for one in _states(tmp_path / "run")}
    assert state == "lab://tiny"

    from tinker import types

    async def again() -> str:
        service = connect_service(job, tmp_path / "other")
        load = service.create_training_client_from_state_with_optimizer
        client = await load("lab://tiny/main-000002")
        await client.optim_step(types.AdamParams(learning_rate=0.0))
        with pytest.raises(ServiceError, match="has no `create_sampling_client`"):
            await service.create_sampling_client(base_model="tiny")
        return (await client.save_state("later", 60)).path

    assert asyncio.run(again()) == "lab://tiny/later"
    assert plan_hash(job) != plan_hash(on_service(job, "tinker"))


def test_a_client_that_knows_its_address_goes_on(opened: list[Trained], tmp_path: Path) -> None:
    text = LAB.replace('"url": "http://127.0.0.1:1", ', "")
    (tmp_path / ".rlc/providers/lab.json").write_text(text, encoding="utf-8")
    rlc.run(on_service(tiny(train(steps="1")), "lab"), run_dir=tmp_path / "run")
    folder = resume_run(tmp_path / "run")
    connect_run(folder, None, resumed=True)
    folder.close()


def test_a_client_that_refuses_its_key_is_named_without_it(
    opened: list[Trained], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*, api_key: str, base_url: str) -> None:
        raise RuntimeError(f"{api_key} is no key")

    monkeypatch.setenv("LAB_KEY", "secret")
    monkeypatch.setattr(sys.modules["lab_tinker"], "ServiceClient", refuse)
    with pytest.raises(ServiceError, match="client of Lab cannot be opened: … is no key") as found:
        connect_service(on_service(tiny(train()), "lab"), tmp_path)
    assert "secret" not in "".join(traceback.format_exception(found.value))


def _states(folder: Path) -> list[str]:
    import sqlite3

    with sqlite3.connect(folder / "journal.sqlite") as db:
        return [row[0] for row in db.execute("select path from checkpoints")]


def test_models_of_a_server_have_the_names_of_rlc(opened: list[Trained]) -> None:
    from tinker import types

    from rlc.service.hosted.endpoint import Endpoint
    from rlc.service.hosted.service import _ours

    served = [types.SupportedModel(model_name=name) for name in ("our/tiny", "other")]
    named = _ours(served, Endpoint(None, None, None, provider("lab")))
    assert [model.model_name for model in named] == ["tiny", "other"]
    assert not opened


def test_what_is_missing_is_said_before_anything_is_paid(
    opened: list[Trained], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = on_service(tiny(train()), "lab")
    monkeypatch.delitem(sys.modules, "lab_tinker")
    with pytest.raises(ServiceError, match="client of Lab cannot be used: No module") as found:
        require_service(job)
    assert found.value.hint == "pip install attrs"
    monkeypatch.delenv("LAB_KEY")
    file = Path(".rlc/providers/lab.json")
    with pytest.raises(ServiceError, match="the Lab service needs LAB_KEY") as found:
        require_service(job, "http://example.org")
    assert found.value.hint == "make a key at https://lab.example"
    file.with_name("attic.json").write_text(LAB.replace('"attrs"', '"no-such"'), encoding="utf-8")
    catalogued.cache_clear()  # a process reads the names of providers once
    monkeypatch.setenv("LAB_KEY", "k")
    with pytest.raises(ServiceError) as found:
        require_service(on_service(tiny(train()), "attic"))
    assert found.value.hint == "pip install no-such"
    assert not opened
    assert provider("attic").package == "no-such"
