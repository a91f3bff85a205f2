"""Training that goes on from a saved state with its optimiser, wherever the state is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from run_support import TINY, block, compiled, run_new

import rlc
from rlc.api import Recipe
from rlc.catalog import find_weights, located_files
from rlc.emit.job.folder import emit_job
from rlc.plan.records import Plan

pytestmark = pytest.mark.plain

CHAT = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
LEARN = {"model": "policy", "batch": "1", "optimizer": "adam(1e-2)", "save": "every(2, keep = 9)"}


def plan(folder: Path, weights: str, steps: int) -> Plan:
    """Steps on the same row, so that they differ by weights and optimiser only."""
    rows = folder / "rows.jsonl"
    rows.write_text(json.dumps(CHAT) + "\n")
    fields = LEARN | {"data": f'chats("{rows}")', "steps": str(steps)}
    return compiled(TINY.replace("lora_rank = 4", weights) + block("sft", "main", fields))


def left(run: Path, step: int) -> dict[str, Any]:
    """Weights and moments after a step."""
    found: dict[str, Any] = safetensors.numpy.load_file(find_weights(f"{run}@main:{step}").place)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    assert one.keys() == other.keys()
    return all(np.array_equal(array, other[name]) for name, array in one.items())


@pytest.mark.parametrize("service", ["plain", pytest.param("engine", marks=pytest.mark.engine)])
def test_it_ends_as_an_uninterrupted_run_to_the_bit(service: str, tmp_path: Path) -> None:
    del service
    whole = tmp_path / "whole"
    run_new(whole, plan(tmp_path, "lora_rank = 4", 4))
    half, file = f"{whole}@main:2", tmp_path / "kept.safetensors"
    shutil.copyfile(find_weights(half).place, file)
    for number, (weights, goes_on) in enumerate(
        {f'state("{half}")': True, f'state("{file}")': True, f'"{half}"': False}.items()
    ):
        rest = tmp_path / str(number)
        run_new(rest, plan(tmp_path, f"weights = {weights}", 2))
        assert same(left(rest, 2), left(whole, 4)) is goes_on
        assert same(left(rest, 2), left(whole, 2)) is False


def test_a_job_takes_the_state_of_the_optimiser_along(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan(tmp_path, "lora_rank = 4", 2))
    text = TINY.replace("lora_rank = 4", 'weights = state("run")')
    text += block("sft", "main", LEARN | {"data": 'chats("rows.jsonl")', "steps": "2"})
    (tmp_path / "recipe.rl").write_text(text)
    recipe = Recipe(str(tmp_path / "recipe.rl"))
    emit_job(recipe.compile(), tmp_path / "job", recipe.options())
    shutil.rmtree(tmp_path / "run")
    (stage,) = located_files(rlc.load_plan(tmp_path / "job" / "plan.json")).stages
    assert stage.model.with_optimizer
    assert find_weights(stage.model.weights or "").has_optimizer


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan(tmp_path, "lora_rank = 4", 2))
    place = find_weights(f"{tmp_path / 'run'}@main:2").place
    found = find_weights(place)
    assert (found.base, found.rank, found.service) == ("tiny", 4, "local")
    assert found.has_optimizer
    text = TINY.replace("lora_rank = 4", f'lora_rank = 8  weights = state("{place}")')
    text += block("sft", "main", LEARN | {"data": "demonstrations(guess, n = 4)", "steps": "2"})
    (tmp_path / "recipe.rl").write_text(text)
    (found_8,) = rlc.load(tmp_path / "recipe.rl").check(data=False)
    assert found_8.code == "RL0331"
    (tmp_path / "other.safetensors").write_bytes(b"nothing of the kind")
    (tmp_path / "recipe.rl").write_text(text.replace(place, str(tmp_path / "other.safetensors")))
    (wrong,) = rlc.load(tmp_path / "recipe.rl").check(data=False)
    assert wrong.code == "RL0330"
    assert "no state that the embedded engine has saved" in wrong.message


def test_weights_for_sampling_have_no_optimiser(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan(tmp_path, "lora_rank = 4", 2))
    place = Path(find_weights(f"{tmp_path / 'run'}@main:2").place)
    header_size = int.from_bytes(place.read_bytes()[:8], "little")
    header = json.loads(place.read_bytes()[8 : 8 + header_size])
    about = json.loads(header["__metadata__"]["rlc"])
    about["description"]["optimizer_steps"] = None
    header["__metadata__"]["rlc"] = json.dumps(about)
    written = json.dumps(header).encode()
    sampler = tmp_path / "sampler.safetensors"
    body = place.read_bytes()[8 + header_size :]
    sampler.write_bytes(len(written).to_bytes(8, "little") + written + body)
    text = TINY.replace("lora_rank = 4", f'weights = state("{sampler}")')
    text += block("sft", "main", LEARN | {"data": "demonstrations(guess, n = 4)", "steps": "2"})
    (tmp_path / "recipe.rl").write_text(text)
    (wrong,) = rlc.load(tmp_path / "recipe.rl").check(data=False)
    assert "saved for sampling" in wrong.message


def test_it_is_explained_and_given_by_the_command_line(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan(tmp_path, "lora_rank = 4", 2))
    text = TINY + block(
        "sft", "main", LEARN | {"data": "demonstrations(guess, n = 4)", "steps": "2"}
    )
    (tmp_path / "recipe.rl").write_text(text)
    weights = f'--weights=state("{tmp_path / "run"}")'
    explained = rlc.load(tmp_path / "recipe.rl", [weights]).explain()
    assert "with_optimizer" in explained.text(full=True)
    assert "@main:2 with its optimiser" in " ".join(explained.text().split())
    assert explained.plan is not None
    (stage,) = explained.plan.stages
    assert stage.model.with_optimizer
    assert stage.model.weights == f"{tmp_path / 'run'}@main:2"
