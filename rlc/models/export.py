"""A trained model as files for other programs: an adapter of Hugging Face PEFT, or merged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from rlc.catalog import (
    ADAPTER_CONFIG,
    ADAPTER_PREFIX,
    ADAPTER_WEIGHTS,
    SavedWeights,
    find_weights,
    is_run_weights,
)
from rlc.errors import Error, first_line
from rlc.models.card import model_card
from rlc.plan import LOCAL, ModelPlan

if TYPE_CHECKING:
    from rlc.service import Endpoint

Form = Literal["adapter", "merged"]
CARD = "README.md"


class ExportError(Error):
    """A model that cannot be written as files."""


def export_model(
    model: ModelPlan,
    folder: Path,
    form: Form = "adapter",
    dtype: str | None = None,
    base_url: str | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a model into a new folder, with a card that says what it is and how it was made.

    An ``adapter`` is loaded by PEFT, vLLM and SGLang over its base model; ``merged`` weights are a
    model of transformers, in the precision ``dtype`` or in that of the base model, which rounds
    what was learnt if it is a short one. The folder appears whole or not at all.

    Raise ExportError if the folder has content, or the model has no adapter; WeightsError or
    ServiceError if its weights are not there.
    """
    if model.weights is None:
        raise ExportError(f"{model.name} is a base model: there is nothing that was trained")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} already has content", "choose another folder")
    found = find_weights(model.weights) if is_run_weights(model.weights) else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        adapter = Path(work) / "adapter"
        adapter.mkdir()
        if model.service == LOCAL:
            assert found is not None
            _local_adapter(found, model, adapter)
        else:
            _hosted_adapter(found.place if found else model.weights, model, adapter, base_url, note)
        made = adapter
        if form == "merged":
            made = Path(work) / "merged"
            _merged(model, adapter, made, dtype)
        (made / CARD).write_text(model_card(model, found, form), encoding="utf-8")
        for file in made.iterdir():  # safetensors lets nobody else read what it writes
            file.chmod(0o644)
        if folder.exists():
            folder.rmdir()
        made.rename(folder)


def _local_adapter(found: SavedWeights, model: ModelPlan, folder: Path) -> None:
    """Write an adapter of the embedded engine, or copy one that is in PEFT's form already."""
    if not found.exactly:
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            shutil.copyfile(Path(found.place) / name, folder / name)
        return
    from safetensors.numpy import save_file

    from rlc.service import CheckpointStore, find_folder, peft_arrays, peft_config

    saved = CheckpointStore(Path(found.place).parent).load(found.place)
    arrays = peft_arrays(saved.arrays)
    save_file(dict(arrays), folder / ADAPTER_WEIGHTS)
    config = peft_config(str(find_folder(model.base)), saved.description.lora.rank, arrays)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _hosted_adapter(
    path: str, model: ModelPlan, folder: Path, base_url: str | None, note: Callable[[str], None]
) -> None:
    """Fetch an adapter from Tinker with tinker-cookbook, which also writes those that Tinker keeps
    in a form of its own as PEFT reads them."""
    if "/sampler_weights/" in path:
        raise ExportError(
            f"Tinker gives out no files of {path}, which is for sampling only",
            "export the state beside it: tinker://RUN/weights/NAME",
        )
    from rlc.service import find_endpoint

    endpoint = find_endpoint(base_url)
    note(f"fetching {path} from {endpoint.name}")
    from tinker_cookbook import weights

    fetched = folder.with_name("fetched")
    try:
        with _key_in_environment(endpoint):
            weights.download(tinker_path=path, output_dir=str(fetched), base_url=endpoint.base_url)
        if (fetched / ADAPTER_CONFIG).is_file() and _is_peft(fetched):
            shutil.copytree(fetched, folder, dirs_exist_ok=True)
        else:
            weights.build_lora_adapter(
                base_model=model.base, adapter_path=str(fetched), output_path=str(folder)
            )
    except Exception as error:  # the helpers raise many kinds
        raise ExportError(f"{path} cannot be fetched: {first_line(error)}") from error


@contextmanager
def _key_in_environment(endpoint: Endpoint) -> Iterator[None]:
    """The helpers of tinker-cookbook take the key from there alone."""
    from rlc.service import KEY

    before = os.environ.get(KEY)
    if endpoint.api_key is not None:
        os.environ[KEY] = endpoint.api_key
    try:
        yield
    finally:
        if before is not None:
            os.environ[KEY] = before
        elif endpoint.api_key is not None:
            del os.environ[KEY]


def _is_peft(folder: Path) -> bool:
    """Whether the layers of an adapter are called as PEFT calls them."""
    from safetensors import safe_open

    with safe_open(str(folder / ADAPTER_WEIGHTS), framework="numpy") as opened:
        return all(key.startswith(ADAPTER_PREFIX) for key in opened.keys())  # noqa: SIM118


def _merged(model: ModelPlan, adapter: Path, folder: Path, dtype: str | None) -> None:
    if model.service == LOCAL:
        from rlc.models.merged import write_merged
        from rlc.service import find_folder

        write_merged(find_folder(model.base), adapter, folder, dtype)
        return
    from tinker_cookbook import weights

    try:
        weights.build_hf_model(
            base_model=model.base,
            adapter_path=str(adapter),
            output_path=str(folder),
            dtype=dtype or "bfloat16",
        )
    except Exception as error:  # the helpers raise many kinds
        raise ExportError(f"{model.base} cannot be merged: {first_line(error)}") from error


def publish(model: ModelPlan, base_url: str | None = None) -> str:
    """Let everybody use a state that Tinker keeps; return its path. Raise ExportError for one of
    this machine, and ServiceError if Tinker refuses."""
    found = None
    if model.weights is not None and is_run_weights(model.weights):
        found = find_weights(model.weights)
    path = found.place if found else model.weights
    if path is None or not path.startswith("tinker://"):
        raise ExportError(
            f"{model.name} is not on Tinker, which alone publishes what it keeps",
            "an export is a folder that any hub takes",
        )
    from rlc.service import find_endpoint, open_rest, translate

    endpoint = find_endpoint(base_url)
    try:
        open_rest(endpoint).publish_checkpoint_from_tinker_path(path).result()
    except Exception as error:
        raise translate(error, endpoint.name) from error
    return path
