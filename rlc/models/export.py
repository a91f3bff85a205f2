"""A trained model as files for other programs: an adapter of Hugging Face PEFT, or merged into its
base model, with a card that says what it is, how it was made, and under which licence."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from rlc.catalog import (
    ADAPTER_CONFIG,
    ADAPTER_PREFIX,
    ADAPTER_WEIGHTS,
    TINY,
    SavedWeights,
    find_model,
    find_weights,
    is_run_weights,
)
from rlc.errors import Error, first_line
from rlc.plan import ModelPlan, Plan, StagePlan, file_part, plan_hash
from rlc.report import read_plan
from rlc.runtime import evaluation_results, is_number, read_metrics
from rlc.version import __version__

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
    """Write a model and its card into a new folder, which appears complete or not at all. An
    ``adapter`` is loaded by PEFT, vLLM and SGLang over its base model; ``merged`` weights are a
    model of transformers, in the precision ``dtype`` or that of the base model. Raise ExportError,
    or WeightsError or ServiceError if the weights are not there."""
    if model.weights is None:
        raise ExportError(f"{model.name} is a base model: there is nothing that was trained")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} already has content", "choose another folder")
    found = find_weights(model.weights) if is_run_weights(model.weights) else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        adapter = Path(work) / "adapter"
        adapter.mkdir()
        if not model.hosted:
            assert found is not None
            _local_adapter(found, model, adapter)
        else:
            _hosted_adapter(found.place if found else model.weights, model, adapter, base_url, note)
        written = adapter
        if form == "merged":
            written = Path(work) / "merged"
            merge = _merge_hosted if model.hosted else _merge_here
            merge(model, adapter, written, dtype)
        (written / CARD).write_text(model_card(model, found, form), encoding="utf-8")
        for file in written.iterdir():  # safetensors lets nobody else read what it writes
            file.chmod(0o644)
        if folder.exists():
            folder.rmdir()
        written.rename(folder)


def _local_adapter(found: SavedWeights, model: ModelPlan, folder: Path) -> None:
    """Write an adapter of the embedded engine in PEFT's form, or copy one that has it."""
    if found.is_adapter:
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
    """Fetch an adapter from Tinker with tinker-cookbook, which also converts it to PEFT's form."""
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
        if (fetched / ADAPTER_CONFIG).is_file() and _has_peft_names(fetched):
            shutil.copytree(fetched, folder, dirs_exist_ok=True)
        else:
            weights.build_lora_adapter(
                base_model=model.base, adapter_path=str(fetched), output_path=str(folder)
            )
    except Exception as error:  # the helpers raise many kinds
        raise ExportError(f"{path} cannot be fetched: {first_line(error)}") from error


@contextmanager
def _key_in_environment(endpoint: Endpoint) -> Iterator[None]:
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


def _has_peft_names(folder: Path) -> bool:
    from safetensors import safe_open

    with safe_open(str(folder / ADAPTER_WEIGHTS), framework="numpy") as opened:
        return all(key.startswith(ADAPTER_PREFIX) for key in opened.keys())  # noqa: SIM118


def _merge_hosted(model: ModelPlan, adapter: Path, folder: Path, dtype: str | None) -> None:
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
    path = model.weights or ""
    if is_run_weights(path):
        path = find_weights(path).place
    if not path.startswith("tinker://"):
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


def _merge_here(model: ModelPlan, adapter: Path, folder: Path, dtype: str | None) -> None:
    """Write a model of transformers with an adapter of PEFT added to its weights in float64. An
    output layer that shares its weights with the embedding gets its own: it alone is adapted."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from rlc.service import find_folder, peft_key, peft_scale

    logging.disable_progress_bar()
    base = str(find_folder(model.base))
    merged: Any = AutoModelForCausalLM.from_pretrained(base, dtype=dtype or "auto")
    config = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    mark, arrays = ".lora_A.", load_file(str(adapter / ADAPTER_WEIGHTS))
    layers = [key.removeprefix(ADAPTER_PREFIX).partition(mark)[0] for key in arrays if mark in key]
    output = merged.get_output_embeddings()
    with torch.no_grad():
        for layer in layers:
            module = merged.get_submodule(layer)
            if module is output and merged.config.tie_word_embeddings:
                module.weight = torch.nn.Parameter(module.weight.clone())
                merged.config.tie_word_embeddings = False
            a, b = (arrays[peft_key(layer, part)].double() for part in ("lora_A", "lora_B"))
            total = module.weight.double() + peft_scale(config) * (b @ a)
            module.weight.copy_(total.to(module.weight.dtype))
    merged.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(base).save_pretrained(str(folder))


_SAMPLED = (
    "Trained on turns that go on with the tokens that were sampled: later prompts begin with those "
    "of earlier turns, thinking included. `rlc chat` and `rlc serve --openai` show them like that; "
    "an inference server has to be sent them as tokens, not as messages."
)


def model_card(model: ModelPlan, found: SavedWeights | None, form: str) -> str:
    """Return the card of a model as Markdown with the front matter of the Hugging Face hub."""
    is_folder = find_model(model.base) is None and os.path.isdir(model.base)
    base = os.path.basename(os.path.abspath(model.base)) if is_folder else model.base
    licence = _licence(model.base)
    front = ["---", f"base_model: {base}", f"license: {licence or 'unknown'}"]
    front += ["library_name: peft" if form == "adapter" else "library_name: transformers"]
    front += ["tags:", "- rlc", *(["- lora"] if form == "adapter" else []), "---"]
    terms = f"is `{licence}`" if licence else "is not known here: look at its own page"
    body = [
        f"# {base}, trained with rlc",
        "",
        f"Weights: `{model.weights}`. Base model: `{base}`, whose licence {terms}; it holds for "
        "this model too.",
        "",
        f"Chats are written by the renderer `{model.renderer}` of tinker-cookbook.",
        *([_SAMPLED] if found is not None and found.turns == "sampled" else []),
    ]
    if found is not None and found.exactly:
        body += ["", *_provenance(Path(file_part(model.weights or "")), found)]
    return "\n".join([*front, "", *body, "", f"Written by rlc {__version__}.", ""])


def _provenance(run: Path, found: SavedWeights) -> Iterator[str]:
    plan, (name, _, step) = read_plan(run), found.exactly[1:].partition(":")
    recipe = f"`{os.path.basename(plan.recipe)}` (plan `{plan_hash(plan)[:12]}`, seed {plan.seed})"
    yield f"## How it was made\n\nThe recipe {recipe}, up to step {step} of `{name}`:\n"
    by_name, stages, before = {stage.name: stage for stage in plan.stages}, list[StagePlan](), name
    while before:
        stages.append(by_name[before])
        before = by_name[before].after or ""
    for stage in reversed(stages):
        yield f"- `{stage.name}` ({stage.kind}): {_summary(stage)}"
    if plan.data:
        yield "\nData, by the BLAKE2b digest of its files:\n"
        for file in plan.data:
            yield f"- `{os.path.basename(file.path)}`: {file.size:,} bytes, `{file.digest[:16]}`"
    if results := list(_results(run, plan)):
        yield "\n## Evaluations of the run\n"
        yield "| evaluation | step | metric | value |\n|---|---|---|---|"
        yield from results


def _summary(stage: Any) -> str:
    parts = [f"{stage.steps} steps"]
    for env in stage.environments:
        graders = ", ".join(f"{part.weight:g} × {part.name}" for part in env.graders)
        rewarded = f", rewarded by {graders}" if graders else ""
        parts.append(f"environment `{env.name}` ({env.source} `{env.id}`{rewarded})")
    files = [data.file for data in stage.data[:1] if data.file is not None]
    parts += [f"data `{os.path.basename(file)}`" for file in files]
    if (objective := stage.policy_gradient or stage.preference) is not None:
        parts.append(f"loss `{objective.loss.name}`")
    return "; ".join([*parts, f"learning rate {stage.optimizer.learning_rate:g}"])


def _results(run: Path, plan: Plan) -> Iterator[str]:
    """Yield a row of a table for each last result of an evaluation, or of held-out examples."""
    last = dict[str, Mapping[str, Any]]()
    for record in read_metrics(run):
        results = dict(evaluation_results(record, record["stage"]))
        results |= {key: v for key, v in record.items() if re.fullmatch(r"heldout/\w+", key)}
        if results:
            last[record["stage"]] = {"step": record["step"], **results}
    for name in (stage.name for stage in plan.stages if stage.name in last):
        for metric, value in last[name].items():
            if metric != "step" and is_number(value):
                yield f"| {name} | {last[name]['step']} | {metric} | {value:.4g} |"


def _licence(base: str) -> str | None:
    """Return the licence that the folder of a base model names; None if there is neither."""
    if base == TINY:
        return "apache-2.0"  # that of rlc, of which it is a part
    try:
        text = (Path(base) / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r"^licen[sc]e:\s*(\S+)", text, re.M)
    return match[1] if match else None
