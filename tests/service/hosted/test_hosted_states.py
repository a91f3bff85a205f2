"""Training that goes on from a state that a server keeps, through the official SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from engine_tinker import EngineTinker, engine_tinker
from hosted_support import hosted_plan, with_model

import rlc
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.start import open_run, run_plan
from rlc.service.hosted.connect import require_states
from rlc.service.interface import ServiceError

pytestmark = [pytest.mark.plain, pytest.mark.server]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, _own_credentials: None) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-a-key-for-tests")


def plan(weights: str | None = None, **more: str) -> Plan:
    changes: dict[str, Any] = {"main__steps": "2", "main__optimizer": "adam(1e-2)", **more}
    if weights is not None:
        changes["policy__weights"] = weights
    return hosted_plan(**changes)


def state(run: Path, step: int) -> str:
    folder = RunFolder.resume(run)
    path = folder.journal.checkpoints("main")[step]
    folder.close()
    return path


def arrays(server: EngineTinker, path: str) -> dict[str, Any]:
    file = server.root / f"{path.partition('://')[2]}.safetensors"
    found: dict[str, Any] = safetensors.numpy.load_file(file)
    return found


def test_it_goes_on_with_the_optimiser_that_the_server_has_kept(tmp_path: Path) -> None:
    with engine_tinker(tmp_path / "server") as server:
        run_plan(plan(), tmp_path / "first", server.url)
        kept = state(tmp_path / "first", 2)
        moments = dict[str, float]()
        for name, weights in {"on": f'state("{kept}")', "anew": f'"{kept}"'}.items():
            run_plan(plan(weights), tmp_path / name, server.url)
            assert rlc.replay(tmp_path / name, 2).agrees
            last = arrays(server, state(tmp_path / name, 2))
            moments[name] = sum(
                float(np.abs(x).sum()) for key, x in last.items() if key.startswith("adam_square")
            )
        assert moments["on"] > moments["anew"]  # those of four updates, and of two


def test_what_does_not_fit_is_said_before_anything_is_paid_for(tmp_path: Path) -> None:
    with engine_tinker(tmp_path / "server") as server:
        run_plan(plan(main__steps="1"), tmp_path / "first", server.url)
        fits, asked = plan(f'state("{state(tmp_path / "first", 1)}")'), len(server.requests)
        require_states(fits, server.url)
        with pytest.raises(ServiceError, match="has `lora_rank = 8`, and its weights have 4"):
            open_run(with_model(fits, lora_rank=8), tmp_path / "b", server.url)
        assert not (tmp_path / "b").exists()
        for facts, why in (
            ({"train_mlp": False}, "has `train_mlp = false`, and its weights have true"),
            ({"base": "Qwen/Qwen3-4B"}, "are of `Qwen/Qwen3-8B`, and it is `Qwen/Qwen3-4B`"),
            ({"weights": "tinker://nobody:train:0/weights/x"}, "nobody"),
        ):
            with pytest.raises(ServiceError, match=why):
                require_states(with_model(fits, **facts), server.url)
        assert all("forward" not in name for name, _ in server.requests[asked:])
