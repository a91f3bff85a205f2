"""What the name of a model stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from adapters import write_adapter

from rlc.catalog.facts import TINY_TOKENIZER
from rlc.models.named import UnknownModelError, named_model


def test_a_base_model_of_the_catalogue() -> None:
    model = named_model("Qwen/Qwen3-8B")
    assert (model.base, model.service, model.weights) == ("Qwen/Qwen3-8B", "tinker", None)
    assert (model.renderer, model.context) == ("qwen3", 32_768)


def test_a_base_model_that_the_project_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stated = '[models."vendor/New"]\nrenderer = "llama3"\ncontext = 1_000\n'
    stated += "price.sample = 1\nas_of = 2026-07-20\n"
    Path("rlc.toml").write_text(stated, encoding="utf-8")
    model = named_model("vendor/New")
    assert (model.service, model.renderer, model.context) == ("tinker", "llama3", 1_000)
    assert model.price is not None
    assert model.price.sample == 1


@pytest.mark.engine
def test_a_state_that_tinker_keeps() -> None:
    path = "tinker://run/weights/main-000020"
    model = named_model(path, base="Qwen/Qwen3-8B")
    assert (model.weights, model.service, model.renderer) == (path, "tinker", "qwen3")
    with pytest.raises(UnknownModelError, match="base model") as raised:
        named_model(path)
    assert raised.value.hint == "give --base"


def test_the_folder_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UnknownModelError, match="writes chats is not known"):
        named_model(str(tmp_path))
    model = named_model(str(tmp_path), renderer="qwen3")
    assert (model.base, model.service) == (str(tmp_path), "local")


def test_an_adapter_takes_its_base_from_its_own_words(tmp_path: Path) -> None:
    folder = write_adapter(tmp_path / "a", rank=16)
    assert (named_model(str(folder)).base, named_model(str(folder)).lora_rank) == ("tiny", 16)
    # As it was exported, with rlc installed at another place.
    elsewhere = Path("/opt/site-packages", *Path(TINY_TOKENIZER).parts[-4:-1])
    write_adapter(folder, base_model_name_or_path=str(elsewhere))
    assert named_model(str(folder)).base == "tiny"
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    del config["base_model_name_or_path"]
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UnknownModelError, match="does not say its base model"):
        named_model(str(folder))
    assert named_model(str(folder), base="tiny").weights == str(folder)


@pytest.mark.parametrize("name", ["nothing", "runs/none", "runs/none@main:2"])
def test_a_name_of_nothing(name: str) -> None:
    with pytest.raises(UnknownModelError, match="is no run, no folder"):
        named_model(name)


def test_a_model_that_was_retired() -> None:
    with pytest.raises(UnknownModelError, match="the service no longer has") as raised:
        named_model("Qwen/Qwen3-8B-Base")
    assert raised.value.hint is not None
