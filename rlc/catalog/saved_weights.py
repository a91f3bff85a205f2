"""Weights to start from: what an earlier run has left, a file of the embedded engine's, an adapter
of PEFT in a folder, or a state that Tinker keeps; found by the names that recipes and people give
them."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlc.catalog.environments import ChatTurns, goes_on, max_turns
from rlc.catalog.facts import TINY, TINY_TOKENIZER
from rlc.catalog.plan_files import plan_from_file
from rlc.catalog.records import MODEL_FOLDER
from rlc.data import best_key, meta, saved
from rlc.errors import Error
from rlc.plan import (
    CHECKPOINTS_FOLDER,
    JOURNAL_FILE,
    LOCAL,
    PLAN_FILE,
    RUN_WEIGHTS,
    PlanFormatError,
    Training,
    elapsed,
    located,
)
from rlc.records import evolve, field, frozen

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_PREFIX = "base_model.model."  # of each layer: PEFT wraps a model twice
_TINY = Path(TINY_TOKENIZER).parts[-4:-1]  # of its folder
_LOCAL_STATE = re.compile(r"local://([^/]+)/([^/]+)/([^/]+)")
_MOST_HEADER = 100_000_000  # bytes
STATE_HEADER = "rlc"  # the key in the header of a file of the embedded engine's, of its description


class WeightsError(Error):
    """Weights that cannot be started from."""


@frozen
class SavedWeights:
    """Weights that are there.

    Attributes:
        exactly: what follows the folder in the name of exactly these: ``@main:20``; empty for an
            adapter of PEFT or a file.
        place: what the service loads: a ``tinker://`` path, or a file or folder of this machine.
        base: the model that they belong to; None if that is not known.
        rank: of the adapter.
        trains: which layers it has: ``train_mlp``, ``train_attn``, ``train_unembed``.
        service: where they can be used.
        renderer: how chats become tokens, as the run had it; None if that is not known.
        turns: what its prompts showed of earlier turns; None if that is not known.
        chosen: why they were chosen, if the name left that open: "the best of `main`".
        asked: what followed the folder in the name that they were found by: ``@main:best``.
        has_optimizer: whether the state of an optimiser was saved with them.
    """

    exactly: str
    place: str
    base: str | None
    rank: int
    trains: Mapping[str, bool]
    service: str
    renderer: str | None = None
    turns: ChatTurns | None = None
    chosen: str = ""
    asked: str = field(default="", eq=False)
    has_optimizer: bool = False

    @property
    def is_adapter(self) -> bool:
        """Whether they are an adapter of PEFT, in a folder, and no state of the service's own."""
        return os.path.isdir(self.place)

    def exact_name(self, name: str) -> str:
        """Return the name that stands for exactly these, of one that they were found by."""
        return f"{name.removesuffix(self.asked)}{self.exactly}"


def is_run_weights(name: str) -> bool:
    """Return whether weights are named by a folder, and not by a path of a service."""
    return re.fullmatch(RUN_WEIGHTS, name) is not None


def weights_folder(name: str) -> str:
    """Return the folder in the name of weights: the whole name if that is a folder."""
    found = re.fullmatch(RUN_WEIGHTS, name)
    return name if found is None or os.path.isdir(name) else found[1]


def find_weights(name: str) -> SavedWeights:
    """Return the weights that a name stands for: a run's folder, with ``@main``, ``@main:20``,
    ``@main:best`` or ``@main:last`` behind it, the folder of an adapter of PEFT, or a file that the
    embedded engine has saved. The best state of a run is that of a stage with ``save = every(…,
    best = true)``; of others the last one is taken.

    Raise WeightsError if they are not there, have expired, or cannot be read.
    """
    found = re.fullmatch(RUN_WEIGHTS, name)
    if found is None:
        raise WeightsError(f"{name!r} names no weights of this machine")
    folder, stage, which = found.groups()
    if stage is not None and os.path.isdir(name):  # a folder with such a name
        folder, stage, which = name, None, None
    if os.path.isfile(name):
        return _of_file(Path(name))
    path = Path(folder)
    if (path / JOURNAL_FILE).is_file():
        return evolve(_of_run(path, folder, stage, which), asked=name.removeprefix(folder))
    if stage is None and (path / ADAPTER_CONFIG).is_file():
        return _of_adapter(path)
    if not path.is_dir():
        raise WeightsError(f"there is no folder {folder}")
    what = f"run, and no adapter ({ADAPTER_CONFIG})" if stage is None else "run"
    raise WeightsError(f"{folder} is the folder of no {what}")


def shown_turns(weights: str | None) -> ChatTurns:
    """Return what a model that is served shows of earlier turns: what it was trained with, or what
    its template makes of them."""
    try:
        found = find_weights(weights) if weights and is_run_weights(weights) else None
    except WeightsError:
        found = None
    return (found and found.turns) or "template"


def model_of(run: str) -> str | None:
    """Return the name of exactly what a run has left, its best or last; None without any."""
    try:
        return find_weights(run).exact_name(run)
    except WeightsError:
        return None


def _of_run(path: Path, folder: str, name: str | None, which: str | None) -> SavedWeights:
    try:
        plan, _ = plan_from_file(json.loads((path / PLAN_FILE).read_text(encoding="utf-8")), path)
    except (OSError, ValueError, PlanFormatError) as error:
        raise WeightsError(f"{path / PLAN_FILE} cannot be read: {error}") from error
    trained = plan.trainings
    try:
        uri = f"{(path / JOURNAL_FILE).resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            states = {stage.name: saved(db, "checkpoints", stage.name) for stage in trained}
            best = {stage.name: meta(db, best_key(stage.name)) for stage in trained}
    except sqlite3.Error as error:
        raise WeightsError(f"{path / JOURNAL_FILE} cannot be read: {error}") from error
    stage = _stage(folder, trained, states, name)
    steps = states[stage.name]
    kept_best = best[stage.name] is not None and int(best[stage.name] or 0) in steps
    if which == "best" and not kept_best:
        advice = "it is kept with `save = every(20, best = true)`; `last` is there"
        raise WeightsError(f"{folder} has no best state of `{stage.name}`", advice)
    chosen = "" if which and which.isdecimal() else f"the last of `{stage.name}`"
    if which == "best" or (which is None and kept_best):
        which, chosen = best[stage.name], f"the best of `{stage.name}`"
    step = int(which) if which and which.isdecimal() else max(steps)
    if step not in steps:
        listed = ", ".join(map(str, steps))
        problem = f"{folder} has no state of `{stage.name}` after step {step}"
        raise WeightsError(problem, f"it has those of {listed}")
    state, created = steps[step]
    exactly = f"@{stage.name}:{step}"
    ttl = stage.save.ttl_seconds
    if ttl is not None and created + ttl < time.time():
        raise WeightsError(f"{folder}{exactly} has expired: it was kept for {elapsed(ttl)}")
    if (local := _LOCAL_STATE.fullmatch(state)) is not None:
        file = path.joinpath(CHECKPOINTS_FOLDER, *local.groups()[:2], f"{local[3]}.safetensors")
        if not file.is_file():
            raise WeightsError(f"{folder}{exactly} is gone: there is no {file}")
        state = str(file)
    model = stage.model
    is_folder = re.fullmatch(MODEL_FOLDER, model.base) is not None
    base = located(model.base, plan.recipe) if is_folder else model.base
    trains = {part: getattr(model, part) for part in ("train_mlp", "train_attn", "train_unembed")}
    upto = trained[: trained.index(stage) + 1]
    played = [(env, one) for one in upto for env in one.played if max_turns(env) != 1]
    kept = [goes_on(env, one.model.renderer) for env, one in played]
    turns: ChatTurns | None = ("template" if kept[-1] is False else "sampled") if kept else None
    of_model = model.lora_rank, trains, model.service, model.renderer
    return SavedWeights(exactly, state, base, *of_model, turns, chosen, has_optimizer=True)


def _stage(
    folder: str,
    trained: Sequence[Training],
    states: Mapping[str, Mapping[int, Any]],
    name: str | None,
) -> Training:
    """Return the stage of a name, or the last one that has left a state."""
    left = [stage for stage in trained if states[stage.name] and name in (None, stage.name)]
    if left:
        return left[-1]
    if name is None or any(stage.name == name for stage in trained):
        whose = f"`{name}` of {folder}" if name else folder
        raise WeightsError(f"{whose} has left no state yet: no step of it is saved")
    listed = ", ".join(f"`{stage.name}`" for stage in trained) or "none"
    raise WeightsError(f"{folder} has no training stage `{name}`", f"it has {listed}")


def _of_file(path: Path) -> SavedWeights:
    """Return the weights in a file that the embedded engine has saved, by its header."""
    try:
        said = _header(path).get("__metadata__", {})[STATE_HEADER]
        about = json.loads(said)["description"]
        lora, expires = about["lora"], about["expires_at"]
        trains = {part: bool(lora[part]) for part in ("train_mlp", "train_attn", "train_unembed")}
        base, rank = str(about["base_model"]), int(lora["rank"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        advice = "a run's is named by its folder, for example runs/x"
        raise WeightsError(
            f"{path} is no state that the embedded engine has saved", advice
        ) from error
    if expires is not None and expires < time.time():
        raise WeightsError(f"{path} has expired")
    has_optimizer = about["optimizer_steps"] is not None
    return SavedWeights("", str(path), base, rank, trains, LOCAL, has_optimizer=has_optimizer)


def _of_adapter(path: Path) -> SavedWeights:
    """Return the weights of an adapter of Hugging Face PEFT (0.21)."""
    try:
        config = json.loads((path / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        layers = _layers(path / ADAPTER_WEIGHTS)
    except (OSError, ValueError) as error:
        raise WeightsError(f"the adapter in {path} cannot be read: {error}") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise WeightsError(f"{path} holds no LoRA adapter", "others cannot be trained on")
    for key, plain in (("use_dora", False), ("bias", "none"), ("modules_to_save", None)):
        if config.get(key, plain) not in (plain, []):
            raise WeightsError(
                f"the adapter in {path} has `{key} = {config[key]}`, which is not trained here"
            )
    if config.get("rank_pattern"):
        raise WeightsError(f"the layers of the adapter in {path} have different ranks")
    kinds, base = {layer_kind(name) for name in layers}, config.get("base_model_name_or_path")
    if base is not None and Path(base).parts[-len(_TINY) :] == _TINY:
        base = TINY  # wherever rlc was installed when it was exported
    return SavedWeights(
        exactly="",
        place=str(path),
        base=base,
        rank=int(config["r"]),
        trains={f"train_{kind}": kind in kinds for kind in ("mlp", "attn", "unembed")},
        service=LOCAL,
    )


def layer_kind(name: str) -> str:
    """Return ``attn``, ``mlp`` or ``unembed``, by what transformers calls a linear layer."""
    inside, _, last = name.rpartition(".")
    parent = inside.rpartition(".")[2].lower()
    if last in ("lm_head", "embed_out"):
        return "unembed"
    return "attn" if "attn" in parent or "attention" in parent else "mlp"


def _layers(file: Path) -> set[str]:
    """Return the layers in the header of an adapter's file. Raise ValueError if it has none."""
    header = _header(file)
    form = rf"{re.escape(ADAPTER_PREFIX)}(.+)\.lora_[AB]\.weight"
    named = (re.fullmatch(form, key) for key in header)
    if not (found := {match[1] for match in named if match}):
        raise ValueError(f"{file} has no layers of LoRA")
    return found


def _header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file. Raise ValueError if it is none."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if not 0 < size < _MOST_HEADER:
            raise ValueError(f"{file} is no safetensors file")
        header = json.loads(opened.read(size))
    if not isinstance(header, dict):
        raise ValueError(f"{file} is no safetensors file")
    return header
